ft_test(unit/test_base.c LINK ft_base)
