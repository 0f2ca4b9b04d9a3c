include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)
include(${PROJECT_SOURCE_DIR}/tests/support/cluster.cmake)
ft_test(e2e/test_e2e_load.c LINK ft_test_cluster ft_test_support ft_model LABELS e2e TIMEOUT 900)
ft_grpc_test_env(test_e2e_load)
set_property(TEST test_e2e_load APPEND PROPERTY ENVIRONMENT CK_RUN_CASE=load)
# Thousands of calls at once: minutes, and nothing new, under a sanitizer.
add_test(NAME e2e_crowd COMMAND test_e2e_load)
set_tests_properties(e2e_crowd PROPERTIES LABELS "e2e;no-sanitizer" TIMEOUT 600
  ENVIRONMENT "CK_RUN_CASE=crowd")
ft_grpc_test_env(e2e_crowd)
# FORETOKEN_SOAK_SECONDS=600 CK_RUN_CASE=soak test_e2e_load is the long one.
add_test(NAME e2e_soak COMMAND test_e2e_load)
set_tests_properties(e2e_soak PROPERTIES LABELS "e2e;slow" TIMEOUT 600
  ENVIRONMENT "CK_RUN_CASE=soak;FORETOKEN_SOAK_SECONDS=15")
ft_grpc_test_env(e2e_soak)
