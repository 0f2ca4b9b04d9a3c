# Suites of common/rpc over real sockets, in one process on one loop.
include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)

add_library(ft_rpc_fixture STATIC ${PROJECT_SOURCE_DIR}/tests/support/rpc_echo.c
                                  ${PROJECT_SOURCE_DIR}/tests/support/rpc_fixture.c)
target_compile_options(ft_rpc_fixture PRIVATE ${FT_WARNINGS})
target_include_directories(ft_rpc_fixture PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(ft_rpc_fixture PUBLIC ft_rpc ft_check)

foreach(suite loop unary stream life endpoint)
  ft_test(unit/test_rpc_${suite}.c LINK ft_rpc_fixture TIMEOUT 120)
  ft_grpc_test_env(test_rpc_${suite})
endforeach()
