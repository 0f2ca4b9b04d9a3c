# ft_grpc_test_env(test...)   what tests that use gRPC need in sanitizer builds
include_guard()

function(ft_grpc_test_env)
  set(folder ${PROJECT_SOURCE_DIR}/tests/support)
  foreach(test ${ARGN})
    if(FORETOKEN_SANITIZE MATCHES "thread")
      set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT
                   "TSAN_OPTIONS=suppressions=${folder}/tsan.supp atexit_sleep_ms=0")
    elseif(FORETOKEN_SANITIZE)
      set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT
                   "LSAN_OPTIONS=suppressions=${folder}/lsan.supp print_suppressions=0")
    endif()
  endforeach()
endfunction()
