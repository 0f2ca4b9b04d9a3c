# Reading metrics; users link ft_test_promtext.
if(NOT TARGET ft_test_promtext)
  add_library(ft_test_promtext STATIC ${PROJECT_SOURCE_DIR}/tests/support/promtext.c)
  target_compile_options(ft_test_promtext PRIVATE ${FT_WARNINGS})
  target_include_directories(ft_test_promtext PUBLIC ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(ft_test_promtext PUBLIC m)
endif()
