ft_program(bench_step SOURCES bench_step.c LINK ft_model)
ft_program(bench_ops SOURCES bench_ops.c LINK ft_gpu)
