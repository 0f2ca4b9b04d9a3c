/* handover: a step's stand-in for bench_handover: a kernel that is busy for a while, then says
 * which round it has seen.
 * Owns:    nothing.
 * Runs in: bench_handover.
 * Never:   starts from what the step before it has not written yet: its result says so. */
#ifndef BENCH_HANDOVER_H
#define BENCH_HANDOVER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* what a cudaStream_t points to */

#define HANDOVER_WRONG 0xFFFFFFFFu

/* Busy for busy_ns, then *to = round if *from was round at the begin, else HANDOVER_WRONG.
 * Returns a cudaError_t.
 * dev   from  what the step before wrote, or NULL: there is none
 * dev   to    the result, or pinned host memory for it */
int handover_step(struct CUstream_st *stream, uint64_t busy_ns, const uint32_t *from, uint32_t *to,
                  uint32_t round);

#ifdef __cplusplus
}
#endif
#endif
