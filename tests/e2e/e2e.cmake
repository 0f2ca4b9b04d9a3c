# The three real processes. Minutes-long cases of a suite run as tests of their own, labelled slow.
include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)
include(${PROJECT_SOURCE_DIR}/tests/support/cluster.cmake)

foreach(suite lossless stop sampling rules logprobs n late validate faults)
  ft_test(e2e/test_e2e_${suite}.c LINK ft_test_cluster ft_test_support m LABELS e2e TIMEOUT 900)
  ft_grpc_test_env(test_e2e_${suite})
endforeach()
set_tests_properties(test_e2e_faults PROPERTIES RUN_SERIAL TRUE) # what counts as a hang is a time
set_property(TEST test_e2e_lossless APPEND PROPERTY ENVIRONMENT CK_RUN_CASE=lossless)
if(FORETOKEN_SANITIZE) # it is for races and leaks; the release build counts
  set_property(TEST test_e2e_sampling test_e2e_rules APPEND PROPERTY
               ENVIRONMENT FORETOKEN_TEST_DRAWS=256)
endif()

ft_test(e2e/test_e2e_alpha.c LINK ft_test_cluster ft_test_support m LABELS e2e slow TIMEOUT 10800)

# A sanitizer finds in the tiny models what it would find here.
add_test(NAME e2e_demo_pair COMMAND test_e2e_lossless)
set_tests_properties(e2e_demo_pair PROPERTIES LABELS "e2e;no-sanitizer" TIMEOUT 600
  ENVIRONMENT "CK_RUN_CASE=demo_pair")
add_test(NAME e2e_distribution COMMAND test_e2e_sampling)
set_tests_properties(e2e_distribution PROPERTIES LABELS "e2e;slow" TIMEOUT 2400
  ENVIRONMENT "CK_RUN_CASE=distribution;FORETOKEN_TEST_DRAWS=20000")
add_test(NAME e2e_bench_pair COMMAND test_e2e_lossless)
set_tests_properties(e2e_bench_pair PROPERTIES LABELS "e2e;slow" TIMEOUT 1800
  ENVIRONMENT "CK_RUN_CASE=bench_pair")
