ft_test(unit/test_base.c LINK ft_base)
ft_test(unit/test_parent.c LINK ft_base)
