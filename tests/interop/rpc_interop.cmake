# The echo service of tests/support, called by other implementations of gRPC.
include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)

ft_program(rpc_echo_server SOURCES ${PROJECT_SOURCE_DIR}/tests/interop/rpc_echo_server.c
           LINK ft_rpc_fixture)
target_include_directories(rpc_echo_server PRIVATE ${PROJECT_SOURCE_DIR}/tests)

# grpcio comes with the system's interpreter; another one on PATH would not see it.
find_program(FT_SYSTEM_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH)
if(FT_SYSTEM_PYTHON)
  add_test(NAME interop_grpcio
           COMMAND ${FT_SYSTEM_PYTHON} ${PROJECT_SOURCE_DIR}/tests/interop/rpc_grpcio.py
                   $<TARGET_FILE:rpc_echo_server>)
  set_tests_properties(interop_grpcio PROPERTIES TIMEOUT 180 SKIP_RETURN_CODE 77)
  ft_grpc_test_env(interop_grpcio)
endif()
