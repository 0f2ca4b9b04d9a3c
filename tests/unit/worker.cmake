include(${PROJECT_SOURCE_DIR}/tests/support/support.cmake)
ft_test(unit/test_kvpool.c LINK ft_kv)
ft_test(unit/test_kvseq.c LINK ft_kv)
ft_test(unit/test_channel.c LINK ft_ipc)
ft_test(unit/test_region.c LINK ft_ipc ft_spec m
        SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/support/fake_gpu.c
                ${CMAKE_CURRENT_SOURCE_DIR}/unit/choice_cases.c)

# Roles over a model whose logits are a hash of the history; it stands in for ft_model_*.
add_library(ft_test_worker_rig STATIC unit/worker_rig.c ipc/history_model.c
            support/hash_model.c)
target_compile_options(ft_test_worker_rig PRIVATE ${FT_WARNINGS})
target_include_directories(ft_test_worker_rig PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(ft_test_worker_rig PUBLIC ft_test_support ft_worker)
ft_test(unit/test_worker_verify.c LINK ft_test_worker_rig ft_target_role)
ft_test(unit/test_worker_draft.c LINK ft_test_worker_rig ft_draft_role)
