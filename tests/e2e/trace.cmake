# foretokenctl trace and bench against the three real processes.
include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)
include(${PROJECT_SOURCE_DIR}/tests/support/cluster.cmake)
ft_test(e2e/test_e2e_trace.c SOURCES ${PROJECT_SOURCE_DIR}/tests/support/trace_events.c
        LINK ft_test_cluster ft_test_support ft_jansson m LABELS e2e)
ft_test(e2e/test_e2e_bench.c LINK ft_test_cluster ft_test_support ft_jansson m LABELS e2e)
foreach(suite test_e2e_trace test_e2e_bench)
  target_compile_definitions(${suite} PRIVATE FT_TEST_CTL="$<TARGET_FILE:foretokenctl>")
  add_dependencies(${suite} foretokenctl)
  ft_grpc_test_env(${suite})
endforeach()
