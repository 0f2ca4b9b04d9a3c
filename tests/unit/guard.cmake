# Who may call: tokens, health, reflection.
ft_test(unit/test_tokens.c LINK co_core)
ft_test(unit/test_wire_standard.c LINK ft_wire)
