#include "common/gpu/cpu/vec_avx2.h"

#include "common/gpu/cpu/kernels_attention.h"
#include "common/gpu/cpu/kernels_linear.h"

const struct ft_isa ft_isa_avx2 = {"avx2", gather, rmsnorm, linear, rope, attention};
