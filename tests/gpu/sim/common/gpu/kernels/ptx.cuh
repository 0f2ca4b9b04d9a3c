/* ptx: the twin of common/gpu/kernels/ptx.cuh that runs on the host. */
#ifndef FT_GPU_KERNELS_PTX_CUH
#define FT_GPU_KERNELS_PTX_CUH

#include "cuda_runtime.h"

#include "common/gpu/kernels/map.h"

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
static inline void k_fetch_part(void *shared, const void *global, int32_t n) {
    sim_fetch_part(shared, global, (size_t)n, 16);
}
static inline void k_fetch_word(void *shared, const void *global) {
    sim_fetch_part(shared, global, 4, 4);
}
static inline void k_fetch_wait(void) {
    sim_fetch_commit();
    sim_fetch_wait(0);
}
static inline void k_fetch_commit(void) {
    sim_fetch_commit();
}
template <int N> static inline void k_fetch_wait_but(void) {
    sim_fetch_wait(N);
}
static inline uint32_t k_cluster_rank(void) {
    return sim_cluster_rank();
}
static inline void k_cluster_arrive(void) {
    sim_cluster_arrive();
}
static inline void k_cluster_meet(void) {
    sim_cluster_arrive();
}
static inline void k_cluster_wait(void) {
    sim_cluster_wait();
}
static inline void k_store_there(float *own, uint32_t rank, float first, float second,
                                 uint64_t *word) {
    const float both[2] = {first, second};
    sim_store_there(own, rank, both, sizeof both, word);
}
static inline void k_turn_setup(uint64_t *word, uint32_t n) {
    sim_turn_setup(word, n);
}
static inline void k_turn_arrive(uint64_t *word) {
    sim_turn_arrive(word, 0);
}
static inline void k_turn_arrive_read(uint64_t *word, uint32_t, uint32_t) {
    sim_turn_arrive(word, 0);
}
static inline void k_turn_arrive_there(uint64_t *word, uint32_t rank, uint32_t, uint32_t) {
    sim_turn_arrive_there(word, rank);
}
static inline void k_turn_expect(uint64_t *word, uint32_t bytes) {
    sim_turn_arrive(word, bytes);
}
static inline void k_turn_wait(uint64_t *word, uint32_t parity) {
    sim_turn_wait(word, parity);
}
static inline uint64_t k_policy_once(void) {
    return 0;
}
static inline uint64_t k_policy_usual(void) {
    return 0;
}
#define K_BOX_ROWS 8
#define K_BOX_COLUMNS 1024
#define K_BOX_BYTES (K_BOX_ROWS * K_BOX_COLUMNS * 2)
static inline void k_box_start(void *shared, const struct ft_whole_map *map, int32_t row,
                               int32_t column, uint64_t *word, uint64_t) {
    sim_box_start(shared, map, row, column, word);
}
template <int N>
static inline void k_chunks_start(void *shared, const struct ft_whole_map *map, int32_t row,
                                  int32_t column, uint64_t *word, uint64_t) {
    sim_chunks_start(shared, map, row, column, N, word);
}
static inline void k_bulk_start(void *shared, const void *global, uint32_t bytes, uint64_t *word) {
    sim_bulk_start(shared, global, bytes, word);
}
static inline void k_fence_block(void) {
}
template <int N> static inline void k_give_registers(void) {
}
template <int N> static inline void k_take_registers(void) {
}
static inline int32_t k_thread(void) {
    return (int32_t)threadIdx.x;
}
static inline void k_sync_warp(void) {
    sim_exchange(0);
}
static inline void k_fence_bulk(void) {
}
static inline void k_prefetch(const void *global) {
    (void)*(const volatile char *)global;
}
static inline void k_prefetch_map(const struct ft_whole_map *map) {
    (void)*(const volatile char *)map;
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
static inline void k_add(uint32_t *word, uint32_t add) {
    k_tell(word, add);
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
static inline void k_store_whole(void *to, uint64_t low, uint64_t high) {
    memcpy(to, &low, sizeof low);
    memcpy((char *)to + sizeof low, &high, sizeof high);
}
static inline void k_relax(void) {
    sim_relax();
}
static inline uint64_t k_now_ns(void) {
    return sim_now_ns();
}

#endif
