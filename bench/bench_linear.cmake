ft_program(bench_linear SOURCES bench_linear.c LINK ft_gpu)
