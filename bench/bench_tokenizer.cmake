ft_program(bench_tokenizer SOURCES ${PROJECT_SOURCE_DIR}/bench/bench_tokenizer.c LINK ft_text)
