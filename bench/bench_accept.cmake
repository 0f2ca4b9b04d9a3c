ft_program(bench_accept SOURCES bench_accept.c LINK ft_spec)
