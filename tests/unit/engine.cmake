ft_test(unit/test_model_golden.c SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/unit/model_run.c
        LINK ft_model ft_jansson m)
