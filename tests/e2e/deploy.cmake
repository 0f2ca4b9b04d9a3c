include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)
add_test(NAME local_sh COMMAND ${PROJECT_SOURCE_DIR}/deploy/local_test.sh ${PROJECT_BINARY_DIR}/bin)
set_tests_properties(local_sh PROPERTIES TIMEOUT 300)
ft_grpc_test_env(local_sh)
