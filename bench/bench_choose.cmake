ft_program(bench_choose SOURCES bench_choose.c LINK ft_spec)
