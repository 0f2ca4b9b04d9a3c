# Suites of common/rpc over real sockets, in one process on one loop.
include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)

add_library(ft_rpc_fixture STATIC ${PROJECT_SOURCE_DIR}/tests/support/awake.c
                                  ${PROJECT_SOURCE_DIR}/tests/support/rpc_echo.c
                                  ${PROJECT_SOURCE_DIR}/tests/support/rpc_fixture.c)
target_compile_options(ft_rpc_fixture PRIVATE ${FT_WARNINGS})
target_include_directories(ft_rpc_fixture PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(ft_rpc_fixture PUBLIC ft_rpc ft_check)

foreach(suite offload loop unary stream life endpoint peer tls)
  ft_test(unit/test_rpc_${suite}.c SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/support/certs.c
          LINK ft_rpc_fixture TIMEOUT 120)
  ft_grpc_test_env(test_rpc_${suite})
  set_tests_properties(test_rpc_${suite} PROPERTIES RUN_SERIAL TRUE) # times are looked at
endforeach()

# The same suites under valgrind, whose leak check sees what gRPC holds for us; but for the one that
# measures time. Valgrind and the sanitizers do not mix.
find_program(FT_VALGRIND valgrind)
if(FT_VALGRIND AND NOT FORETOKEN_SANITIZE)
  foreach(suite loop unary stream endpoint peer)
    add_test(NAME valgrind_rpc_${suite}
             COMMAND ${FT_VALGRIND} -q --fair-sched=yes --child-silent-after-fork=yes
                     --leak-check=full --error-exitcode=9
                     --show-leak-kinds=definite,indirect,possible
                     --errors-for-leak-kinds=definite,indirect,possible
                     --suppressions=${PROJECT_SOURCE_DIR}/tests/support/valgrind-grpc.supp
                     $<TARGET_FILE:test_rpc_${suite}>)
    set_tests_properties(valgrind_rpc_${suite} PROPERTIES TIMEOUT 600 LABELS slow
                         ENVIRONMENT "CK_FORK=no")
  endforeach()
endif()
