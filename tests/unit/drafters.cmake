# Drafting: theory, drafters, the length controller.
ft_test(unit/test_theory.c LINK ft_spec m)
ft_test(unit/test_drafter.c LINK co_core)
ft_test(contract/test_drafter_contract.c LINK co_core m)
ft_test(unit/test_length.c LINK co_core m)
