#include "common/gpu/cpu/vec_portable.h"

#include "common/gpu/cpu/kernels_attention.h"
#include "common/gpu/cpu/kernels_linear.h"

const struct ft_isa ft_isa_portable = {"portable", gather, rmsnorm, linear, rope, attention};
