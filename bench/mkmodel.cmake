ft_program(mkmodel SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/mkmodel.c LINK ft_model m)
