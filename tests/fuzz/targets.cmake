# Fuzz targets: one function over bytes each. Every build replays what tests/fuzz/corpus has of a
# target: seeds, and inputs that once were findings. With FORETOKEN_FUZZ (clang; run.sh sets it)
# there is libfuzz_TARGET beside it, which looks for more.
include(${PROJECT_SOURCE_DIR}/tests/support/support.cmake)
option(FORETOKEN_FUZZ "build libFuzzer programs; needs clang" OFF)

function(ft_fuzz_target name)
  cmake_parse_arguments(A "" "" "SOURCES;LINK" ${ARGN})
  set(programs replay_${name})
  add_executable(replay_${name} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay.c)
  if(FORETOKEN_FUZZ)
    list(APPEND programs libfuzz_${name})
    add_executable(libfuzz_${name})
    target_link_options(libfuzz_${name} PRIVATE -fsanitize=fuzzer)
  endif()
  foreach(program ${programs})
    target_sources(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/target_${name}.c
                                      ${A_SOURCES})
    target_compile_options(${program} PRIVATE ${FT_WARNINGS})
    target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR}
                                                  ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(${program} PRIVATE ${A_LINK} ft_base)
  endforeach()
  add_test(NAME fuzz_replay_${name}
           COMMAND replay_${name} ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
  set_tests_properties(fuzz_replay_${name} PROPERTIES LABELS fuzz TIMEOUT 120)
endfunction()

ft_fuzz_target(config LINK ft_model)
ft_fuzz_target(safetensors LINK ft_model)
ft_fuzz_target(tokenizer LINK ft_text)
ft_fuzz_target(tokens SOURCES ${PROJECT_SOURCE_DIR}/coordinator/tokens.c LINK ft_crypto)
ft_fuzz_target(wire SOURCES ${PROJECT_SOURCE_DIR}/tests/unit/test_wire_samples.c
               LINK ft_wire ft_check)
ft_fuzz_target(stop LINK ft_text)
ft_fuzz_target(region LINK ft_ipc)
ft_fuzz_target(conf)

if(NOT FORETOKEN_SANITIZE AND NOT FORETOKEN_FUZZ)
  add_test(NAME fuzz_short COMMAND ${PROJECT_SOURCE_DIR}/tests/fuzz/run.sh --seconds 3)
  set_tests_properties(fuzz_short PROPERTIES LABELS fuzz TIMEOUT 1200 SKIP_RETURN_CODE 77)
endif()
