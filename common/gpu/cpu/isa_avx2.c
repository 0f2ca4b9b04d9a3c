#include "common/gpu/cpu/vec_avx2.inc"

#include "common/gpu/cpu/kernels_attention.inc"
#include "common/gpu/cpu/kernels_linear.inc"

const struct ft_isa ft_isa_avx2 = {"avx2", gather, rmsnorm, linear, rope, attention};
