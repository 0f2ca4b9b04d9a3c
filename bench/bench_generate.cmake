ft_program(bench_generate SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/bench_generate.c
           LINK ft_rpc ft_wire ft_model ft_base)
