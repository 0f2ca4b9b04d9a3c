# Kernels against the CPU; each says "skipped" where there is no GPU. run.sh adds compute-sanitizer.
foreach(suite test_linear test_attention test_rows)
  ft_test(gpu/${suite}.c LABELS gpu LINK ft_gpu m
          SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/gpu/twin.c
                  ${CMAKE_CURRENT_SOURCE_DIR}/unit/ops_reference.c)
endforeach()
ft_test(gpu/test_choose.c LABELS gpu LINK ft_spec ft_gpu m
        SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/gpu/twin.c
                ${CMAKE_CURRENT_SOURCE_DIR}/unit/choice_cases.c)
