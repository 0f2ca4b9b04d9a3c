ft_test(unit/test_tokenizer_vectors.c LINK ft_text)
