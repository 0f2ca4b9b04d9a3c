ft_test(unit/test_ctl_flags.c SOURCES ${PROJECT_SOURCE_DIR}/foretokenctl/flags.c LINK ft_wire)
ft_test(unit/test_ctl.c SOURCES ${PROJECT_SOURCE_DIR}/tests/unit/test_ctl_service.c
        LINK ft_wire ft_rpc)
target_compile_definitions(test_ctl PRIVATE FT_TEST_CTL="$<TARGET_FILE:foretokenctl>")
add_dependencies(test_ctl foretokenctl)
include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)
ft_grpc_test_env(test_ctl)
