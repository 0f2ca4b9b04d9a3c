/* logits: made-up logits for benchmarks of the decision.
 * Owns:    nothing.
 * Runs in: benchmarks.
 * Never:   draws anything but by philox: the same rows everywhere. */
#ifndef FT_BENCH_LOGITS_H
#define FT_BENCH_LOGITS_H

#include <math.h>
#include <stdint.h>

#include "common/spec/philox.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline double bench_uniform(uint64_t row, uint32_t id, uint32_t lane) {
    uint32_t block[4];
    ft_philox_block(1, row, lane, id, block);
    return (block[0] + 0.5) * 0x1p-32;
}

/* Of token id: normal noise of a model, told apart by lane, and a part shared by all models, target
 * and draft, that makes some ids likely. */
static inline float bench_logit(uint64_t row, uint32_t id, uint32_t lane) {
    double shared = -log(bench_uniform(row, id, 7));
    double own = sqrt(-2 * log(bench_uniform(row, id, lane))) *
                 cos(6.2831853 * bench_uniform(row, id, lane + 1));
    return (float)(1.6 * shared + 0.7 * own);
}

#ifdef __cplusplus
}
#endif
#endif
