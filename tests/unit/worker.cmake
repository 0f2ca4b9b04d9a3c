ft_test(unit/test_kvpool.c LINK ft_kv)
ft_test(unit/test_kvseq.c LINK ft_kv)
ft_test(unit/test_region.c LINK ft_ipc)
