# What may go wrong, in the three real processes; see outages.c for the table.
include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)
include(${PROJECT_SOURCE_DIR}/tests/support/cluster.cmake)
ft_test(e2e/test_e2e_outages.c SOURCES ${PROJECT_SOURCE_DIR}/tests/e2e/outages.c
        ${PROJECT_SOURCE_DIR}/tests/support/load.c ${PROJECT_SOURCE_DIR}/tests/support/fake_draft.c
        LINK ft_test_cluster ft_test_support LABELS e2e TIMEOUT 900)
add_executable(fake_draft_process support/fake_draft_process.c)
target_compile_options(fake_draft_process PRIVATE ${FT_WARNINGS})
target_include_directories(fake_draft_process PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(fake_draft_process PRIVATE ft_rpc ft_wire ft_ipc ft_base)
add_dependencies(test_e2e_outages fake_draft_process)
target_compile_definitions(test_e2e_outages PRIVATE
  FT_TEST_FAKE_DRAFT="$<TARGET_FILE:fake_draft_process>")
ft_grpc_test_env(test_e2e_outages)
set_tests_properties(test_e2e_outages PROPERTIES RUN_SERIAL TRUE) # what counts as a hang is a time
set_property(TEST test_e2e_outages APPEND PROPERTY ENVIRONMENT CK_RUN_CASE=outages)
if(NOT FORETOKEN_SANITIZE) # a sanitizer's runtime must be the first library
  add_library(ft_test_clockjump MODULE support/clockjump.c)
  target_compile_options(ft_test_clockjump PRIVATE ${FT_WARNINGS})
  add_dependencies(test_e2e_outages ft_test_clockjump)
  set_property(TEST test_e2e_outages APPEND PROPERTY ENVIRONMENT
               FORETOKEN_TEST_CLOCKJUMP=$<TARGET_FILE:ft_test_clockjump>)
endif()
# FORETOKEN_SOAK_SECONDS=3600 CK_RUN_CASE=soak test_e2e_outages is the long one: tests/soak.sh.
add_test(NAME e2e_outages_soak COMMAND test_e2e_outages)
set_tests_properties(e2e_outages_soak PROPERTIES LABELS "e2e;slow" TIMEOUT 1200 RUN_SERIAL TRUE
  ENVIRONMENT "CK_RUN_CASE=soak;FORETOKEN_SOAK_SECONDS=600")
ft_grpc_test_env(e2e_outages_soak)
