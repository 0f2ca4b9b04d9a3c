#include "common/gpu/cpu/vec_avx512.inc"

#include "common/gpu/cpu/kernels_attention.inc"
#include "common/gpu/cpu/kernels_linear.inc"

const struct ft_isa ft_isa_avx512 = {"avx512", gather, rmsnorm, linear, rope, attention};
