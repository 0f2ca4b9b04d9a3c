/* cuda_fp16: f16 numbers of weights, on the host.
 * Owns:    nothing.
 * Runs in: tests.
 * Never:   is seen by a build for a card. */
#ifndef TESTS_GPU_SIM_CUDA_FP16_H
#define TESTS_GPU_SIM_CUDA_FP16_H

#include "cuda_runtime.h"

struct sim_half {
    uint16_t bits;
};
static inline sim_half __ushort_as_half(uint16_t bits) {
    return {bits};
}
static inline float __half2float(sim_half h) {
    int32_t exponent = h.bits >> 10 & 31, fraction = h.bits & 1023;
    float size = exponent == 31  ? (fraction == 0 ? INFINITY : NAN)
                 : exponent == 0 ? ldexpf((float)fraction, -24)
                                 : ldexpf((float)(1024 + fraction), exponent - 25);
    return (h.bits >> 15) != 0 ? -size : size;
}

#endif
