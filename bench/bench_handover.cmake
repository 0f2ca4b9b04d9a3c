if(FT_CUDA)
  ft_cuda_object(handover_object handover.cu)
  ft_program(bench_handover SOURCES bench_handover.c ${handover_object} LINK ft_gpu)
endif()
