ft_test(unit/test_ctl_flags.c SOURCES ${PROJECT_SOURCE_DIR}/foretokenctl/flags.c LINK ft_wire)
include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)
foreach(suite test_ctl test_ctl_batch)
  ft_test(unit/${suite}.c SOURCES ${PROJECT_SOURCE_DIR}/tests/unit/test_ctl_service.c
          ${PROJECT_SOURCE_DIR}/tests/unit/test_ctl_run.c LINK ft_wire ft_rpc)
  target_compile_definitions(${suite} PRIVATE FT_TEST_CTL="$<TARGET_FILE:foretokenctl>")
  add_dependencies(${suite} foretokenctl)
  ft_grpc_test_env(${suite})
endforeach()
