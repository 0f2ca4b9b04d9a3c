include(${PROJECT_SOURCE_DIR}/tests/support/support.cmake)
include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)

# What a coordinator does with one worker, and a worker as a process of its own.
add_library(ft_test_worker_client STATIC ipc/worker_client.c ipc/worker_process.c)
target_compile_options(ft_test_worker_client PRIVATE ${FT_WARNINGS})
target_include_directories(ft_test_worker_client PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_compile_definitions(ft_test_worker_client PRIVATE
  FT_TEST_BINARY_DIR="${PROJECT_BINARY_DIR}")
target_link_libraries(ft_test_worker_client PUBLIC
  ft_test_support ft_rpc ft_wire ft_ipc ft_base ft_check)

# In this process, over the history model (see tests/unit/worker.cmake).
ft_test(ipc/test_worker_service.c LINK ft_test_worker_client ft_test_worker_rig ft_target_role ft_draft_role)

# The real programs.
ft_test(ipc/test_worker_process.c LINK ft_test_worker_client)
add_dependencies(test_worker_process foretoken-target foretoken-draft)
ft_test(ipc/test_worker_numbers.c LINK ft_test_worker_client ft_spec)
add_dependencies(test_worker_numbers foretoken-target foretoken-draft)

ft_grpc_test_env(test_worker_service test_worker_process test_worker_numbers)
