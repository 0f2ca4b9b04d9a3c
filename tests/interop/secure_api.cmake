# What an operator relies on, over TLS with tokens, called by grpcio without any proto of ours.
include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)
add_test(NAME interop_secure_api
         COMMAND ${PROJECT_SOURCE_DIR}/tests/interop/test_secure_api.sh ${PROJECT_BINARY_DIR}/bin)
set_tests_properties(interop_secure_api PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77 LABELS e2e)
ft_grpc_test_env(interop_secure_api)
