# Every drafter in the three real processes.
include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)
include(${PROJECT_SOURCE_DIR}/tests/support/cluster.cmake)
ft_test(e2e/test_e2e_drafters.c LINK ft_test_cluster ft_test_support m LABELS e2e TIMEOUT 900)
ft_grpc_test_env(test_e2e_drafters)
if(FORETOKEN_SANITIZE) # it is for races and leaks; the release build counts
  set_property(TEST test_e2e_drafters APPEND PROPERTY ENVIRONMENT FORETOKEN_TEST_DRAWS=128)
endif()
