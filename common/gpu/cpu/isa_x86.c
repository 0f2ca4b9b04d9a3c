#include "common/gpu/cpu/isa.h"

static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

static bool has_all(void) {
    return true;
}

static const struct {
    const struct ft_isa *isa;
    bool (*runs_here)(void);
} isas[] = {
    {&ft_isa_avx512, has_avx512},
    {&ft_isa_avx2, has_avx2},
    {&ft_isa_portable, has_all},
};

const struct ft_isa *ft_isa_at(size_t idx) {
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++)
        if (isas[i].runs_here() && idx-- == 0)
            return isas[i].isa;
    return NULL;
}
