ft_test(unit/test_philox.c LINK ft_spec)
ft_test(unit/test_spec_rowmath.c LINK ft_spec)
ft_test(unit/test_transform.c LINK ft_spec)
ft_test(unit/test_rule.c LINK ft_spec)
ft_test(unit/test_gumbel.c LINK ft_spec)
ft_test(unit/test_logprob.c LINK ft_spec)
ft_test(unit/test_choice.c LINK ft_spec m SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/unit/choice_cases.c
        ${CMAKE_CURRENT_SOURCE_DIR}/support/fake_gpu.c)
