ft_program(bench_step SOURCES bench_step.c LINK ft_model)
