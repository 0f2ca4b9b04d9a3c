foreach(suite test_model_golden test_model_exact)
  ft_test(unit/${suite}.c SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/unit/model_run.c
          LINK ft_model ft_jansson m)
endforeach()
