/* ptx: the twin of common/gpu/kernels/ptx.cuh that runs on the host. */
#ifndef FT_GPU_KERNELS_PTX_CUH
#define FT_GPU_KERNELS_PTX_CUH

#include "cuda_runtime.h"

static inline void k_wait(void) {
}
static inline void k_let_next_start(void) {
}
#define K_SHARED_MEMORY(type, name) type *name = (type *)sim_shared()
static inline uint4 k_load_weights(const void *p) {
    return *(const uint4 *)p;
}
static inline void k_mma(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    sim_mma(d, a, b);
}
static inline void k_fetch_start(void *shared, const void *global) {
    sim_fetch_start(shared, global);
}
static inline void k_fetch_close(void) {
    sim_fetch_close();
}
template <int N> static inline void k_fetch_wait(void) {
    sim_fetch_wait(N);
}
static inline void k_prefetch(const void *global) {
    volatile char touched = *(const char *)global; /* a line that is not there is found out */
    (void)touched;
}
static inline void k_sync_some(int32_t number, int32_t n) {
    sim_barrier(number, n);
}
static inline uint32_t k_tell(uint32_t *word, uint32_t add) {
    sim_relax();
    uint32_t old = *word;
    *word += add;
    return old;
}
static inline uint32_t k_swap_if(uint32_t *word, uint32_t is, uint32_t then) {
    sim_relax();
    uint32_t old = *word;
    if (old == is)
        *word = then;
    return old;
}
static inline uint32_t k_ask(const uint32_t *word) {
    sim_relax();
    return *word;
}
static inline void k_set(uint32_t *word, uint32_t to) {
    sim_relax();
    *word = to;
}
static inline void k_relax(void) {
    sim_relax();
}
static inline uint64_t k_now_ns(void) {
    return sim_now_ns();
}

#endif
