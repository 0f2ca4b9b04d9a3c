#include "common/gpu/cpu/cpu.h"
#include "common/gpu/cuda/cuda.h"
#include "common/gpu/kinds.h"

const struct ft_device_kind *const ft_device_kinds[] = {&ft_cpu_device, &ft_cuda_device, NULL};
