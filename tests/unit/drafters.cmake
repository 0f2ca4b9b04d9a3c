# Drafting: theory, drafters, the length controller.
ft_test(unit/test_theory.c LINK ft_spec m)
