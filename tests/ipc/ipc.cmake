# tests/unit/worker.cmake makes ft_test_worker_rig; fragments come in any order, so link by name.
add_library(ft_test_worker_client STATIC ipc/worker_client.c)
target_compile_options(ft_test_worker_client PRIVATE ${FT_WARNINGS})
target_include_directories(ft_test_worker_client PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(ft_test_worker_client PUBLIC ft_rpc ft_wire ft_ipc ft_base ft_check)
ft_test(ipc/test_worker_service.c LINK ft_test_worker_client ft_test_worker_rig ft_target_role)
