/* cuda_runtime: what nvcc knows by itself, as far as the kernels use it, for a C++ compiler.
 * Owns:    nothing.
 * Runs in: tests.
 * Never:   is seen by a build for a card. */
#ifndef TESTS_GPU_SIM_CUDA_RUNTIME_H
#define TESTS_GPU_SIM_CUDA_RUNTIME_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cuda_runtime_api.h"
#include "sim.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static /* of one block at a time */
#define __syncthreads() sim_barrier(0, 0)

typedef sim_dim3 dim3;
extern sim_dim3 threadIdx, blockIdx, blockDim, gridDim; /* of the thread that runs */
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(16) int4 {
    int32_t x, y, z, w;
};

/* ---- launching */

enum cudaLaunchAttributeID {
    cudaLaunchAttributeProgrammaticStreamSerialization,
    cudaLaunchAttributeClusterDimension
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    struct {
        int programmaticStreamSerializationAllowed;
        struct {
            unsigned x, y, z;
        } clusterDim;
    } val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **args);
/* Two: so that items come one after the other, and end at different times. */
static inline cudaError_t cudaOccupancyMaxActiveClusters(int *n, const void *,
                                                         const cudaLaunchConfig_t *) {
    *n = 2;
    return cudaSuccess;
}
enum {
    cudaFuncAttributeNonPortableClusterSizeAllowed = 1,
    cudaFuncAttributeMaxDynamicSharedMemorySize
};
static inline cudaError_t cudaFuncSetAttribute(const void *, int, int) {
    return cudaSuccess;
}

/* ---- arithmetic */

static inline float2 make_float2(float x, float y) {
    return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}
static inline uint2 make_uint2(uint32_t x, uint32_t y) {
    return {x, y};
}
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
    return {x, y, z, w};
}
static inline int4 make_int4(int32_t x, int32_t y, int32_t z, int32_t w) {
    return {x, y, z, w};
}
static inline int32_t min(int32_t a, int32_t b) {
    return a < b ? a : b;
}
static inline int32_t max(int32_t a, int32_t b) {
    return a > b ? a : b;
}
static inline float __fadd_rn(float a, float b) {
    return a + b;
}
static inline float __fsub_rn(float a, float b) {
    return a - b;
}
static inline float __fmul_rn(float a, float b) {
    return a * b;
}
static inline float __fdiv_rn(float a, float b) {
    return a / b;
}
static inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
static inline float __frcp_rn(float a) {
    return 1.0f / a;
}
static inline float __fsqrt_rn(float a) {
    return sqrtf(a);
}
static inline uint32_t __float_as_uint(float a) {
    uint32_t bits;
    memcpy(&bits, &a, sizeof bits);
    return bits;
}
static inline float __uint_as_float(uint32_t bits) {
    float a;
    memcpy(&a, &bits, sizeof a);
    return a;
}
static inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++)
        out |= (uint32_t)(both >> (selector >> 4 * i & 7) * 8 & 0xFF) << 8 * i;
    return out;
}
static inline float __int_as_float(int32_t bits) {
    return __uint_as_float((uint32_t)bits);
}
static inline double __dadd_rn(double a, double b) {
    return a + b;
}
static inline double __dsub_rn(double a, double b) {
    return a - b;
}
static inline double __dmul_rn(double a, double b) {
    return a * b;
}
static inline double __ddiv_rn(double a, double b) {
    return a / b;
}
static inline int __ffs(int32_t x) {
    return __builtin_ffs(x);
}
static inline int __popc(uint32_t x) {
    return __builtin_popcount(x);
}

/* ---- warps */

template <class T> static inline uint64_t sim_bits(T value) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T> static inline T sim_value(uint64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T> static inline T sim_shuffle(T value, int lane) {
    return sim_value<T>(sim_exchange(sim_bits(value))[lane]);
}
template <class T> static inline T __shfl_sync(uint32_t, T value, int lane) {
    return sim_shuffle(value, lane % 32);
}
template <class T> static inline T __shfl_xor_sync(uint32_t, T value, int mask) {
    return sim_shuffle(value, (int)threadIdx.x % 32 ^ mask);
}
template <class T> static inline T __shfl_up_sync(uint32_t, T value, int n) {
    int lane = (int)threadIdx.x % 32;
    return sim_shuffle(value, lane >= n ? lane - n : lane);
}
template <class T> static inline T __shfl_down_sync(uint32_t, T value, int n, int width) {
    int lane = (int)threadIdx.x % 32;
    return sim_shuffle(value, lane % width + n < width ? lane + n : lane);
}
static inline uint32_t __ballot_sync(uint32_t, int is_true) {
    const uint64_t *all = sim_exchange(is_true != 0);
    uint32_t votes = 0;
    for (int i = 0; i < 32; i++)
        votes |= (uint32_t)all[i] << i;
    return votes;
}
static inline int __all_sync(uint32_t mask, int is_true) {
    return __ballot_sync(mask, is_true) == 0xFFFFFFFFu;
}
static inline void __syncwarp(void) {
    sim_exchange(0);
}
template <class T> static inline T __reduce_max_sync(uint32_t, T value) {
    const uint64_t *all = sim_exchange(sim_bits(value));
    for (int i = 0; i < 32; i++)
        value = sim_value<T>(all[i]) > value ? sim_value<T>(all[i]) : value;
    return value;
}
template <class T> static inline T __reduce_min_sync(uint32_t, T value) {
    const uint64_t *all = sim_exchange(sim_bits(value));
    for (int i = 0; i < 32; i++)
        value = sim_value<T>(all[i]) < value ? sim_value<T>(all[i]) : value;
    return value;
}
template <class T, class U> static inline T atomicAdd(T *to, U more) {
    T old = *to;
    *to = (T)(old + (T)more);
    return old;
}
template <class T, class U> static inline T atomicOr(T *to, U more) {
    T old = *to;
    *to = old | (T)more;
    return old;
}
template <class T, class U> static inline T atomicMax(T *to, U other) {
    T old = *to;
    *to = (T)other > old ? (T)other : old;
    return old;
}
template <class T, class U> static inline T atomicMin(T *to, U other) {
    T old = *to;
    *to = (T)other < old ? (T)other : old;
    return old;
}
static inline void __threadfence_system(void) {
}
template <class T> static inline T __ldcg(const T *p) {
    return *p;
}
template <class T> static inline T __ldcs(const T *p) {
    return *p;
}
template <class T> static inline T __ldg(const T *p) {
    return *p;
}

#endif
