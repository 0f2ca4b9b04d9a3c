#include "common/gpu/cpu/vec_portable.inc"

#include "common/gpu/cpu/kernels_attention.inc"
#include "common/gpu/cpu/kernels_linear.inc"

const struct ft_isa ft_isa_portable = {"portable", gather, rmsnorm, linear, rope, attention};
