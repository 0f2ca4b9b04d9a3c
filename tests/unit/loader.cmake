ft_test(unit/test_weights.c LINK ft_model)
