# What an operator does, in the three real processes.
include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)
include(${PROJECT_SOURCE_DIR}/tests/support/cluster.cmake)
include(${PROJECT_SOURCE_DIR}/tests/support/promtext.cmake)
ft_test(e2e/test_e2e_operate.c LINK ft_test_cluster ft_test_promtext ft_test_support LABELS e2e
        TIMEOUT 1800)
ft_grpc_test_env(test_e2e_operate)
add_dependencies(test_e2e_operate foretokenctl)
# Processes that look for messages between rounds take the cores from each other here.
set_property(TEST test_e2e_operate APPEND PROPERTY ENVIRONMENT FORETOKEN_TARGET_SPIN_US=0
             FORETOKEN_DRAFT_SPIN_US=0 FORETOKEN_COORDINATOR_SPIN_US=0)
