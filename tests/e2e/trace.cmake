# foretokenctl trace against the three real processes.
include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)
include(${PROJECT_SOURCE_DIR}/tests/support/cluster.cmake)
ft_test(e2e/test_e2e_trace.c SOURCES ${PROJECT_SOURCE_DIR}/tests/support/trace_events.c
        LINK ft_test_cluster ft_test_support ft_jansson m LABELS e2e)
target_compile_definitions(test_e2e_trace PRIVATE FT_TEST_CTL="$<TARGET_FILE:foretokenctl>")
add_dependencies(test_e2e_trace foretokenctl)
ft_grpc_test_env(test_e2e_trace)
