# Configuration and supervision.
include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)
ft_test(unit/test_settings.c LINK ft_base)
ft_test(unit/test_supervisor.c LINK ft_rpc ft_base)
ft_grpc_test_env(test_supervisor)
