ft_test(unit/test_philox.c LINK ft_spec)
ft_test(unit/test_transform.c LINK ft_spec)
