/* launch: what every kernel file shares: launching behind the kernel before, sums of a block.
 * Owns:    nothing.
 * Runs in: nvcc's files only.
 * Never:   leaves the order of a sum to the compiler or to chance. */
#ifndef FT_GPU_KERNELS_LAUNCH_CUH
#define FT_GPU_KERNELS_LAUNCH_CUH

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "common/gpu/kernels/kernels.h"
#include "common/gpu/kernels/ptx.cuh"

struct k_shape {
    dim3 grid, block;
    size_t shared_bytes;
    unsigned n_cluster; /* blocks of a cluster, along x */
};

static inline cudaLaunchAttribute k_in_clusters(unsigned n) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = n;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    return attribute;
}

/* op is the kernel's one parameter, passed by value. */
static inline cudaError_t k_launch(const struct k_target *on, const void *kernel,
                                   struct k_shape shape, void *op) {
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1] = k_in_clusters(shape.n_cluster);
    cudaLaunchConfig_t config = {};
    config.gridDim = shape.grid;
    config.blockDim = shape.block;
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = on->stream;
    config.attrs = attributes;
    config.numAttrs = shape.n_cluster > 1 ? 2 : 1;
    void *args[] = {op};
    return cudaLaunchKernelExC(&config, kernel, args);
}

/* Clusters of a kernel that run at the same time: processors lie in groups, and a group may leave
 * some over. */
static inline cudaError_t k_clusters_count(const void *kernel, struct k_shape shape, int32_t *out) {
    cudaLaunchAttribute attribute = k_in_clusters(shape.n_cluster);
    cudaLaunchConfig_t config = {};
    config.gridDim = shape.grid;
    config.blockDim = shape.block;
    config.dynamicSmemBytes = shape.shared_bytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int n = 0;
    cudaError_t error = cudaOccupancyMaxActiveClusters(&n, kernel, &config);
    *out = n;
    return error;
}

static inline unsigned k_ceil_div(int64_t a, int64_t b) {
    return (unsigned)((a + b - 1) / b);
}

/* A number of any type that weights may have. */
static __device__ __forceinline__ float k_widen(const void *src, int32_t elem, int64_t at) {
    if (elem == FT_ELEM_F32)
        return ((const float *)src)[at];
    uint16_t bits = ((const uint16_t *)src)[at];
    if (elem == FT_ELEM_F16)
        return __half2float(__ushort_as_half(bits));
    return __uint_as_float((uint32_t)bits << 16);
}

static __device__ __forceinline__ float k_warp_sum(float x) {
    for (int i = 16; i > 0; i /= 2)
        x = __fadd_rn(x, __shfl_xor_sync(0xFFFFFFFFu, x, i));
    return x;
}
/* In pairs: lanes that differ in bits from FIRST to LAST have the same sum. */
template <int FIRST, int LAST> static __device__ __forceinline__ float k_lanes_sum(float x) {
#pragma unroll
    for (int i = FIRST; i <= LAST; i *= 2)
        x = __fadd_rn(x, __shfl_xor_sync(0xFFFFFFFFu, x, i));
    return x;
}
/* k_warp_sum of N numbers of each lane, a power of two up to 32: lanes exchange what the other one
 * goes on with. Lane i has the sum of number i / (32 / N). */
template <int N, int BIT = 16>
static __device__ __forceinline__ float k_warp_sums(const float (&x)[N]) {
    if constexpr (BIT == 0) {
        return x[0];
    } else {
        constexpr int LEFT = N > 1 ? N / 2 : 1;
        bool is_upper = (threadIdx.x & BIT) != 0;
        float sums[LEFT];
#pragma unroll
        for (int j = 0; j < LEFT; j++) {
            float kept = is_upper ? x[N - LEFT + j] : x[j];
            float given = is_upper ? x[j] : x[N - LEFT + j];
            sums[j] = __fadd_rn(kept, __shfl_xor_sync(0xFFFFFFFFu, given, BIT));
        }
        return k_warp_sums<LEFT, BIT / 2>(sums);
    }
}
static __device__ __forceinline__ float k_warp_max(float x) {
    for (int i = 16; i > 0; i /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, i));
    return x;
}

/* What a row is multiplied with, from its sum of squares. */
static __device__ __forceinline__ float k_norm_scale(float sum, int32_t n, float eps) {
    return __frcp_rn(__fsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)n), eps)));
}
/* The same from the sums of the warps that have a part of the row each, added up in order. */
template <int N_WARPS>
static __device__ __forceinline__ float k_norm_scale_of(const float *sums, int32_t n, float eps) {
    float sum = sums[0];
    for (int w = 1; w < N_WARPS; w++)
        sum = __fadd_rn(sum, sums[w]);
    return k_norm_scale(sum, n, eps);
}
static __device__ __forceinline__ float k_norm_apply(float x, float scale, float weight) {
    return __fmul_rn(__fmul_rn(x, scale), weight);
}

#endif
