ft_test(fuzz/fuzz_config.c SOURCES ${PROJECT_SOURCE_DIR}/tests/fuzz/config_mutate.c
        LINK ft_model ft_test_support LABELS fuzz)
ft_test(fuzz/fuzz_safetensors.c SOURCES ${PROJECT_SOURCE_DIR}/tests/fuzz/config_mutate.c
        LINK ft_model ft_test_support LABELS fuzz)
