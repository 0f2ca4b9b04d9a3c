#include "common/gpu/cpu/isa.h"

const struct ft_isa *ft_isa_at(size_t idx) {
    return idx == 0 ? &ft_isa_portable : NULL;
}
