# What an operator does, in the three real processes.
include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)
include(${PROJECT_SOURCE_DIR}/tests/support/cluster.cmake)
include(${PROJECT_SOURCE_DIR}/tests/support/promtext.cmake)
ft_test(e2e/test_e2e_operate.c LINK ft_test_cluster ft_test_promtext ft_test_support LABELS e2e
        TIMEOUT 600)
ft_grpc_test_env(test_e2e_operate)
add_dependencies(test_e2e_operate foretokenctl)
