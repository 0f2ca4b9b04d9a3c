/* ptx: all that the kernels say to the machine in its own words.
 * Owns:    nothing.
 * Runs in: nvcc's files only. tests/gpu/sim has a twin of this header that runs on the host.
 * Never:   decides anything: an instruction each. */
#ifndef FT_GPU_KERNELS_PTX_CUH
#define FT_GPU_KERNELS_PTX_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* Programmatic dependent launch: a kernel starts while the one before it ends. What it does before
 * k_wait may touch nothing that an earlier kernel writes or reads to write: weights alone. */
static __device__ __forceinline__ void k_wait(void) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
static __device__ __forceinline__ void k_let_next_start(void) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* The block's dynamic shared memory, inside a kernel. */
#define K_SHARED_MEMORY(type, name) extern __shared__ __align__(16) type name[]

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
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Start 16 bytes on their way into shared memory; those since the last close are one group. */
static __device__ __forceinline__ void k_fetch_start(void *shared, const void *global) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(global)
                 : "memory");
}
static __device__ __forceinline__ void k_fetch_close(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* This thread's groups but the N latest have arrived. */
template <int N> static __device__ __forceinline__ void k_fetch_wait(void) {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* A line into the second-level cache. */
static __device__ __forceinline__ void k_prefetch(const void *global) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

/* A barrier of n threads of the block; number 0 is __syncthreads' own. */
static __device__ __forceinline__ void k_sync_some(int32_t number, int32_t n) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(n) : "memory");
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
