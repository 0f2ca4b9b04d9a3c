# The real services, called by grpcio with messages made from proto/.
include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)
add_test(NAME interop_public_api
         COMMAND ${PROJECT_SOURCE_DIR}/tests/interop/test_public_api.sh ${PROJECT_BINARY_DIR}/bin)
set_tests_properties(interop_public_api PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77 LABELS e2e)
ft_grpc_test_env(interop_public_api)

add_test(NAME interop_grpc_js
         COMMAND ${PROJECT_SOURCE_DIR}/tests/interop/grpc_js/test_grpc_js.sh ${PROJECT_BINARY_DIR})
set_tests_properties(interop_grpc_js PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77 LABELS e2e)
ft_grpc_test_env(interop_grpc_js)
