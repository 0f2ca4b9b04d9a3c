ft_program(bench_alpha SOURCES bench_alpha.c LINK ft_model ft_spec ft_text)
