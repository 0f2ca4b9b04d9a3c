/* ptx: all that the kernels say to the machine in its own words.
 * Owns:    nothing.
 * Runs in: nvcc's files only. tests/gpu/sim has a twin of this header that runs on the host.
 * Never:   decides anything: an instruction each. */
#ifndef FT_GPU_KERNELS_PTX_CUH
#define FT_GPU_KERNELS_PTX_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include "common/gpu/kernels/map.h"

/* Programmatic dependent launch: a kernel starts while the one before it ends. What it does before
 * k_wait may touch nothing that an earlier kernel writes or reads to write: weights alone. */
static __device__ __forceinline__ void k_wait(void) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
static __device__ __forceinline__ void k_let_next_start(void) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* The block's dynamic shared memory, inside a kernel. */
#define K_SHARED_MEMORY(type, name) extern __shared__ __align__(1024) type name[]

/* Streamed once: past the first-level cache, which is for x. */
static __device__ __forceinline__ uint4 k_load_weights(const void *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* d += a b: 16 outputs by 8 rows, 16 columns of bf16. */
static __device__ __forceinline__ void k_mma(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Start 16 bytes on their way into shared memory; and until all that this thread has started is
 * there. */
static __device__ __forceinline__ void k_fetch_start(void *shared, const void *global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(global)
                 : "memory");
}
/* Only the first n bytes of 16, or 4 bytes of 4; what is missing becomes 0. */
static __device__ __forceinline__ void k_fetch_part(void *shared, const void *global, int32_t n) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(global), "r"(n)
                 : "memory");
}
static __device__ __forceinline__ void k_fetch_word(void *shared, const void *global) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(global)
                 : "memory");
}
static __device__ __forceinline__ void k_fetch_wait(void) {
    asm volatile("cp.async.wait_all;" ::: "memory");
}
/* What this thread has started since the last time is a group; until all groups but the last N are
 * there. */
static __device__ __forceinline__ void k_fetch_commit(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N> static __device__ __forceinline__ void k_fetch_wait_but(void) {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Words in shared memory that say when a turn is over: when n threads have arrived, and as many
 * bytes as one of them said have come by bulk copies. Turns are told apart by their parity.
 * k_turn_setup by one thread, then a barrier, before anything else. */
static __device__ __forceinline__ void k_turn_setup(uint64_t *word, uint32_t n) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;\n\tfence.mbarrier_init.release.cluster;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(word)),
                 "r"(n)
                 : "memory");
}
static __device__ __forceinline__ void k_turn_arrive(uint64_t *word) {
    asm volatile(
        "mbarrier.arrive.shared.b64 _, [%0];" ::"r"((uint32_t)__cvta_generic_to_shared(word))
        : "memory");
}
/* The same when what the warp has read is in registers: read has a word of each vector, none is
 * 0, and the compiler does not know it. An arrival alone may overtake reads that are under way, and
 * a fence waits for all others too. */
static __device__ __forceinline__ void k_turn_arrive_read(uint64_t *word, uint32_t read,
                                                          uint32_t none) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(word) + (read & none))
                 : "memory");
}
/* Arrive, and say how many bytes will come. */
static __device__ __forceinline__ void k_turn_expect(uint64_t *word, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(word)),
                 "r"(bytes)
                 : "memory");
}
/* Until the turn of this parity is over. */
static __device__ __forceinline__ void k_turn_wait(uint64_t *word, uint32_t parity) {
    uint32_t is_over;
    do
        asm volatile("{\n\t.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(is_over)
                     : "r"((uint32_t)__cvta_generic_to_shared(word)), "r"(parity)
                     : "memory");
    while (is_over == 0);
}
/* Into the second-level cache, and the map where boxes are started: what the next stages read first
 * has been pushed out by weights since it was read last. */
static __device__ __forceinline__ void k_prefetch(const void *global) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}
static __device__ __forceinline__ void k_prefetch_map(const struct ft_whole_map *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/* For what is read once: it is the first to leave the second-level cache. */
static __device__ __forceinline__ uint64_t k_policy_once(void) {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
static __device__ __forceinline__ uint64_t k_policy_usual(void) {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
/* Start a box of a matrix on its way into shared memory, by a unit of its own: eight rows of
 * sixteen groups of 64 columns, [8][16][64] of bf16, or of as many groups as its map says, zero
 * where the matrix has none. The eight vectors of a group lie in the order number xor (group % 8).
 */
#define K_BOX_ROWS 8
#define K_BOX_COLUMNS 1024
#define K_BOX_BYTES (K_BOX_ROWS * K_BOX_COLUMNS * 2)
static __device__ __forceinline__ void k_box_start(void *shared, const struct ft_whole_map *map,
                                                   int32_t row, int32_t column, uint64_t *word,
                                                   uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(map), "r"(0), "r"(column / 64), "r"(row),
                 "r"((uint32_t)__cvta_generic_to_shared(word)), "l"(policy)
                 : "memory");
}
/* The same for N chunks of 32 columns of 64 rows, one after the other: [N][64][32] of bf16. The
 * four vectors of a row lie in the order number xor (row / 2 % 4). */
template <int N>
static __device__ __forceinline__ void k_chunks_start(void *shared, const struct ft_whole_map *map,
                                                      int32_t row, int32_t column, uint64_t *word,
                                                      uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(map), "r"(0), "r"(row), "r"(column / 32),
                 "r"((uint32_t)__cvta_generic_to_shared(word)), "l"(policy)
                 : "memory");
}
/* The same for bytes that lie together, a multiple of 16 as both addresses are. */
static __device__ __forceinline__ void k_bulk_start(void *shared, const void *global,
                                                    uint32_t bytes, uint64_t *word) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];" ::"r"((uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(global), "r"(bytes), "r"((uint32_t)__cvta_generic_to_shared(word))
                 : "memory");
}
/* What others wrote, as far as this thread knows of it, comes before the bulk copies that it starts
 * next: these read and write past the caches that other instructions go through. */
static __device__ __forceinline__ void k_fence_bulk(void) {
    asm volatile("fence.proxy.async;" ::: "memory");
}
/* threadIdx.x, asked anew: what is worked out from it is not kept in registers from elsewhere. */
static __device__ __forceinline__ int32_t k_thread(void) {
    int32_t thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

/* What this thread wrote in shared memory is there, and what it reads there has been read, before
 * what it says next, or a lane beside it behind k_sync_warp. An arrival alone sees to neither: the
 * machine may let it overtake what other lanes, and even this one, have under way. */
static __device__ __forceinline__ void k_fence_block(void) {
    asm volatile("fence.acq_rel.cta;" ::: "memory");
}

/* A barrier of a warp's threads. */
static __device__ __forceinline__ void k_sync_warp(void) {
    __syncwarp();
}

/* Registers of a thread from here on, by all of four warps: first some give theirs away, then
 * others take them. Machines that cannot go on as they were. */
template <int N> static __device__ __forceinline__ void k_give_registers(void) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N) : "memory");
#endif
}
template <int N> static __device__ __forceinline__ void k_take_registers(void) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N) : "memory");
#endif
}

/* A barrier of n threads of the block; number 0 is __syncthreads' own. */
static __device__ __forceinline__ void k_sync_some(int32_t number, int32_t n) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(n) : "memory");
}

/* This block's number in its cluster; a barrier of all the cluster's threads in two halves; and two
 * numbers into another block's memory, at the place that own has in this one's, 8-byte aligned:
 * eight of the bytes that the turn of the word there has been told to expect. */
static __device__ __forceinline__ uint32_t k_cluster_rank(void) {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
static __device__ __forceinline__ void k_cluster_arrive(void) {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
static __device__ __forceinline__ void k_cluster_wait(void) {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/* An arrival by which nothing is told: not for what has been written. */
static __device__ __forceinline__ void k_cluster_meet(void) {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
static __device__ __forceinline__ void k_store_there(float *own, uint32_t rank, float first,
                                                     float second, uint64_t *word) {
    asm volatile("{\n\t.reg .u32 there, word;\n\t"
                 "mapa.shared::cluster.u32 there, %0, %2;\n\t"
                 "mapa.shared::cluster.u32 word, %1, %2;\n\t"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {%3, %4}, "
                 "[word];\n\t}" ::"r"((uint32_t)__cvta_generic_to_shared(own)),
                 "r"((uint32_t)__cvta_generic_to_shared(word)), "r"(rank), "f"(first), "f"(second)
                 : "memory");
}

/* k_turn_arrive_read at the same word of another block of the cluster. Nothing else is told: a
 * release would wait for all that was written. */
static __device__ __forceinline__ void k_turn_arrive_there(uint64_t *word, uint32_t rank,
                                                           uint32_t read, uint32_t none) {
    asm volatile("{\n\t.reg .u32 word;\n\t"
                 "mapa.shared::cluster.u32 word, %0, %1;\n\t"
                 "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [word];\n\t}" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(word) + (read & none)),
                 "r"(rank)
                 : "memory");
}

/* Words that blocks tell each other by. What a thread wrote before k_tell is seen by who reads it
 * after k_ask has returned what k_tell made of the word. */
static __device__ __forceinline__ uint32_t k_tell(uint32_t *word, uint32_t add) {
    uint32_t old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(word), "r"(add)
                 : "memory");
    return old;
}
/* k_tell for who does not ask what the word was: nothing is waited for. */
static __device__ __forceinline__ void k_add(uint32_t *word, uint32_t add) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(word), "r"(add) : "memory");
}
static __device__ __forceinline__ uint32_t k_swap_if(uint32_t *word, uint32_t is, uint32_t then) {
    uint32_t old;
    asm volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(old)
                 : "l"(word), "r"(is), "r"(then)
                 : "memory");
    return old;
}
static __device__ __forceinline__ uint32_t k_ask(const uint32_t *word) {
    uint32_t v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(word) : "memory");
    return v;
}
static __device__ __forceinline__ void k_set(uint32_t *word, uint32_t to) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(to) : "memory");
}

/* 16 bytes at once, for the host too: who sees some of them sees all. */
static __device__ __forceinline__ void k_store_whole(void *to, uint64_t low, uint64_t high) {
    asm volatile("{\n\t.reg .b128 all;\n\t"
                 "mov.b128 all, {%1, %2};\n\t"
                 "st.relaxed.sys.global.b128 [%0], all;\n\t}" ::"l"(to),
                 "l"(low), "l"(high)
                 : "memory");
}

/* Between two looks at a word that another block will change. */
static __device__ __forceinline__ void k_relax(void) {
}

/* The card's clock, ns. */
static __device__ __forceinline__ uint64_t k_now_ns(void) {
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
}

#endif
