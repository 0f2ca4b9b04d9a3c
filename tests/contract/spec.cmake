ft_test(contract/test_rule_contract.c LINK ft_spec)
ft_test(contract/test_rule_distribution.c LINK ft_spec LABELS slow TIMEOUT 600)
ft_test(contract/test_rule_promises.c LINK ft_spec)
