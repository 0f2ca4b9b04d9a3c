ft_test(unit/test_shapes.c LINK ft_model)

# A device that notes programs by the table of the device "cuda", where there is no CUDA: its
# registry replaces that of the layer.
set(noting_sources ${CMAKE_CURRENT_SOURCE_DIR}/support/noting_device.c
                   ${CMAKE_CURRENT_SOURCE_DIR}/unit/choice_cases.c
                   ${PROJECT_SOURCE_DIR}/common/gpu/cuda/programs.c)
ft_test(unit/test_programs.c LINK ft_spec ft_gpu m SOURCES ${noting_sources})
ft_test(unit/test_warmup.c SOURCES ${noting_sources}
        LINK ft_target_role ft_draft_role ft_worker ft_spec ft_test_support m)
target_link_options(test_warmup PRIVATE -Wl,--wrap=free)
ft_test(contract/test_device.c NAME test_device_noting LINK ft_spec ft_gpu m
        SOURCES ${noting_sources})
# What the device "cuda" sends for steps that are one kernel, over a stream that is a list.
ft_test(unit/test_steps.c LINK m SOURCES ${PROJECT_SOURCE_DIR}/common/gpu/cuda/steps.c)
foreach(suite test_device_noting test_programs test_warmup test_steps)
  target_include_directories(${suite} BEFORE PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/gpu/sim)
endforeach()
