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
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
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
enum { cudaFuncAttributeMaxDynamicSharedMemorySize };
static inline cudaError_t cudaFuncSetAttribute(const void *, int, int) {
    return cudaSuccess;
}

/* ---- arithmetic */

static inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}
static inline uint2 make_uint2(uint32_t x, uint32_t y) {
    return {x, y};
}
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
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
static inline float __shfl_xor_sync(uint32_t, float value, int mask) {
    return sim_shuffle(value, (int)threadIdx.x % 32 ^ mask);
}
static inline float __shfl_sync(uint32_t, float value, int lane) {
    return sim_shuffle(value, lane);
}
static inline float __shfl_up_sync(uint32_t, float value, int n) {
    int lane = (int)threadIdx.x % 32;
    return sim_shuffle(value, lane >= n ? lane - n : lane);
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
