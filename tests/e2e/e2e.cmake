foreach(suite lossless stop sampling validate faults)
  ft_test(e2e/test_e2e_${suite}.c LINK ft_test_cluster ft_test_support LABELS e2e TIMEOUT 600)
endforeach()
