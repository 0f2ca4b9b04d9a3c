include(${PROJECT_SOURCE_DIR}/tests/support/support.cmake)
include(${PROJECT_SOURCE_DIR}/tests/support/promtext.cmake)
ft_test(unit/test_histogram.c LINK co_core m)
ft_test(unit/test_metrics.c LINK co_core ft_test_promtext ft_test_support)
