ft_test(unit/test_philox.c LINK ft_spec)
ft_test(unit/test_spec_rowmath.c LINK ft_spec)
ft_test(unit/test_transform.c LINK ft_spec)
ft_test(unit/test_rule.c LINK ft_spec)
