# Kernels against the CPU; each says "skipped" where there is no GPU. run.sh adds compute-sanitizer.
foreach(suite test_linear test_attention test_rows)
  ft_test(gpu/${suite}.c LABELS gpu LINK ft_gpu m
          SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/gpu/twin.c
                  ${CMAKE_CURRENT_SOURCE_DIR}/unit/ops_reference.c)
endforeach()
ft_test(gpu/test_choose.c LABELS gpu LINK ft_spec ft_gpu m
        SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/gpu/twin.c
                ${CMAKE_CURRENT_SOURCE_DIR}/unit/choice_cases.c)

# A step as one kernel: on a card, with a stress test beside it.
set(whole_sources ${CMAKE_CURRENT_SOURCE_DIR}/gpu/whole_cases.c
                  ${CMAKE_CURRENT_SOURCE_DIR}/gpu/whole_model.c)
if(FT_CUDA)
  add_library(ft_whole STATIC gpu/whole_model.c)
  target_compile_options(ft_whole PRIVATE ${FT_WARNINGS})
  target_include_directories(ft_whole PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(ft_whole PUBLIC ft_gpu m)
  ft_test(gpu/test_whole.c LABELS gpu LINK ft_whole
          SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/gpu/twin.c
                  ${CMAKE_CURRENT_SOURCE_DIR}/gpu/whole_cases.c)
  ft_program(stress_whole SOURCES gpu/stress_whole.c LINK ft_whole)
endif()

# The same without one: kernels compiled for the host, every thread a fiber (sim/sim.h). The switch
# of stacks is written for x86-64, and is more than a sanitizer follows.
find_program(FT_HOST_CXX NAMES g++ c++ clang++)
if(FT_HOST_CXX AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT FORETOKEN_SANITIZE
   AND NOT FORETOKEN_FUZZ)
  set(sim ${CMAKE_CURRENT_SOURCE_DIR}/gpu/sim)
  set(kernels ${PROJECT_SOURCE_DIR}/common/gpu/kernels)
  set(sim_objects)
  foreach(source ${kernels}/linear.cu ${kernels}/linear_many.cu ${kernels}/attention.cu
                 ${kernels}/rows.cu ${kernels}/choose.cu ${kernels}/whole.cu ${sim}/sim.cpp)
    get_filename_component(name ${source} NAME_WE)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.sim.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${FT_HOST_CXX} -std=c++17 -O3 -g1 -fPIC -ffp-contract=off -Wall -Wextra -Werror
        -Wno-unknown-pragmas -Wno-pass-failed -I${sim} -I${PROJECT_SOURCE_DIR}
        -MD -MF ${object}.d -x c++ -c ${source} -o ${object}
      MAIN_DEPENDENCY ${source}
      DEPFILE ${object}.d
      COMMENT "Building simulated ${name}" VERBATIM)
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    list(APPEND sim_objects ${object})
  endforeach()
  ft_test(gpu/test_whole_sim.c TIMEOUT 1200 LINK stdc++ m SOURCES ${whole_sources} ${sim_objects})
  target_include_directories(test_whole_sim BEFORE PRIVATE ${sim})
  # Suites written for a card; of the layer's library, device and registry are replaced.
  foreach(suite linear attention rows)
    ft_test(gpu/test_${suite}.c NAME test_${suite}_sim LINK ft_gpu stdc++ m
            SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/gpu/twin.c ${sim}/device.c ${sim_objects}
                    ${CMAKE_CURRENT_SOURCE_DIR}/unit/ops_reference.c)
    target_include_directories(test_${suite}_sim BEFORE PRIVATE ${sim})
  endforeach()
  ft_test(gpu/test_choose.c NAME test_choose_sim TIMEOUT 1800 LINK ft_spec ft_gpu stdc++ m
          SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/gpu/twin.c ${sim}/device.c ${sim_objects}
                  ${CMAKE_CURRENT_SOURCE_DIR}/unit/choice_cases.c)
  target_include_directories(test_choose_sim BEFORE PRIVATE ${sim})
  # Whole suites take minutes here: some cases of each are for every day.
  foreach(suite linear choose)
    set_tests_properties(test_${suite}_sim PROPERTIES LABELS slow TIMEOUT 3600)
    add_test(NAME test_${suite}_small_sim COMMAND test_${suite}_sim)
    set_tests_properties(test_${suite}_small_sim PROPERTIES
      ENVIRONMENT "CK_RUN_CASE=small;CK_DEFAULT_TIMEOUT=300" TIMEOUT 600)
  endforeach()
endif()
