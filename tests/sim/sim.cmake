# The real coordinator and worker services over a simulated network, clock, shared memory and model:
# these objects come before the libraries whose functions they replace.
include(${PROJECT_SOURCE_DIR}/tests/support/support.cmake)

add_library(ft_test_sim OBJECT sim/net.c sim/offload.c sim/calls.c sim/region.c sim/model.c sim/world.c
                               sim/client.c sim/options.c support/hash_model.c)
target_compile_options(ft_test_sim PRIVATE ${FT_WARNINGS})
target_include_directories(ft_test_sim PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(ft_test_sim PUBLIC co_core ft_target_role ft_draft_role ft_worker
                      ft_test_support)
ft_test(sim/test_sim.c LINK ft_test_sim LABELS sim TIMEOUT 300)
ft_test(sim/test_scheduler.c LINK ft_test_sim LABELS sim TIMEOUT 300)
ft_test(sim/test_admission.c LINK ft_test_sim LABELS sim TIMEOUT 300)
ft_test(sim/test_options.c LINK ft_test_sim LABELS sim TIMEOUT 300)
ft_test(sim/test_accounts.c LINK ft_test_sim LABELS sim TIMEOUT 300)
ft_test(sim/test_target_lost.c LINK ft_test_sim LABELS sim TIMEOUT 300)
