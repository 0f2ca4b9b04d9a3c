# ft_test_support: tiny models and temporary files for tests. Fragments are included in no set
# order and more than one may want it, hence the guard.
if(NOT TARGET ft_test_support)
  add_library(ft_test_support STATIC ${PROJECT_SOURCE_DIR}/tests/support/awake.c
                                     ${PROJECT_SOURCE_DIR}/tests/support/fixtures.c)
  target_compile_options(ft_test_support PRIVATE ${FT_WARNINGS})
  target_include_directories(ft_test_support PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(ft_test_support PRIVATE
    FT_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}" FT_TEST_BINARY_DIR="${PROJECT_BINARY_DIR}")
  target_link_libraries(ft_test_support PUBLIC ft_base ft_check)
  ft_test(support/test_fixtures.c LINK ft_test_support ft_model)
  ft_test(support/test_fixture_models.c LINK ft_test_support ft_model)
endif()
