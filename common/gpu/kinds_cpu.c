#include "common/gpu/cpu/cpu.h"
#include "common/gpu/kinds.h"

const struct ft_device_kind *const ft_device_kinds[] = {&ft_cpu_device, NULL};
