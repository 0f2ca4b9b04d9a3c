foreach(suite test_model_golden test_model_exact)
  ft_test(unit/${suite}.c SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/unit/model_run.c
          LINK ft_model ft_jansson m TIMEOUT 900) # minutes under a sanitizer
endforeach()
if(FORETOKEN_SANITIZE) # it sees in the demo pair what it would see in the larger one
  set_tests_properties(test_model_golden PROPERTIES
    ENVIRONMENT_MODIFICATION "FORETOKEN_BENCH_MODELS=unset:")
endif()
foreach(suite test_ops test_ops_attention)
  ft_test(unit/${suite}.c SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/unit/ops_reference.c LINK ft_gpu m)
endforeach()
ft_test(unit/test_cpu_pool.c LINK ft_gpu)
ft_test(contract/test_device.c LINK ft_gpu)
ft_test(unit/test_model.c
        SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/unit/model_run.c
                ${CMAKE_CURRENT_SOURCE_DIR}/unit/naive_model.c
                ${CMAKE_CURRENT_SOURCE_DIR}/unit/ops_reference.c
        LINK ft_model m)
