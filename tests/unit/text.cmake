include(${PROJECT_SOURCE_DIR}/tests/support/support.cmake)

set(tokenizer_fixture ${PROJECT_SOURCE_DIR}/tests/unit/test_tokenizer_fixture.c)
ft_test(unit/test_tokenizer_vectors.c LINK ft_text)
ft_test(unit/test_tokenizer.c SOURCES ${tokenizer_fixture} LINK ft_text ft_test_support)
ft_test(unit/test_tokenizer_load.c SOURCES ${tokenizer_fixture} LINK ft_text ft_test_support)
ft_test(unit/test_tokenizer_pretok.c SOURCES ${tokenizer_fixture} LINK ft_text ft_test_support)
ft_test(unit/test_chat.c SOURCES ${tokenizer_fixture} LINK ft_text ft_test_support)
ft_test(unit/test_detok.c LINK ft_text)
