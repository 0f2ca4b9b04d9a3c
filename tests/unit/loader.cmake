ft_test(unit/test_config.c LINK ft_model ft_test_support)
ft_test(unit/test_safetensors.c LINK ft_model ft_test_support)
ft_test(unit/test_weights.c LINK ft_model ft_test_support)
