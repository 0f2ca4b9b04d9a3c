ft_test(unit/test_plan.c LINK co_core)
ft_test(unit/test_readiness.c LINK co_core)
ft_test(unit/test_stats.c LINK co_core)
ft_test(unit/test_co_config.c LINK co_core)
