ft_program(bench_rpc SOURCES ${PROJECT_SOURCE_DIR}/bench/bench_rpc.c LINK ft_rpc)
