#include "common/gpu/cpu/vec_avx512.h"

#include "common/gpu/cpu/kernels_attention.h"
#include "common/gpu/cpu/kernels_linear.h"

const struct ft_isa ft_isa_avx512 = {"avx512", gather, rmsnorm, linear, rope, attention};
