if(FT_CUDA)
  ft_program(bench_whole SOURCES bench_whole.c LINK ft_whole)
endif()
