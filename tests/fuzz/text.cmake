include(${PROJECT_SOURCE_DIR}/tests/support/support.cmake)
ft_test(fuzz/fuzz_tokenizer.c SOURCES ${PROJECT_SOURCE_DIR}/tests/unit/test_tokenizer_fixture.c
        LINK ft_text ft_test_support LABELS fuzz)
ft_test(fuzz/fuzz_detok.c LINK ft_text LABELS fuzz)
