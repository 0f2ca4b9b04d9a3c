/* linear: what kernels that multiply with weights share: the order of a sum, numbers in parts.
 * Owns:    nothing.
 * Runs in: nvcc's files only.
 * Never:   knows where weights or x come from. */
#ifndef FT_GPU_KERNELS_LINEAR_CUH
#define FT_GPU_KERNELS_LINEAR_CUH

#include "common/gpu/kernels/launch.cuh"
#include "common/gpu/kernels/ptx.cuh"

#define WARPS 16 /* slices of the columns: each is every sixteenth pair of chunks */
#define SLICES 4 /* whose sums are added up before those of others */
#define THREADS (32 * WARPS)
#define CHUNK 32      /* columns: a lane's eight, four lanes side by side */
#define TILE 16       /* outputs of an mma */
#define GROUP 8       /* rows of an mma */
#define ORDERS 3      /* sizes of products: 1, 2^-8, 2^-16 */
#define SUM_STRIDE 20 /* floats between rows of a tile's sums: free of bank conflicts */
#define X_PAD 16      /* floats between rows of x: likewise */

/* Chunk i of those that a warp has, and how many it has of n. */
static __device__ __forceinline__ int32_t chunk_of(int32_t warp, int32_t i) {
    return i / 2 * (2 * WARPS) + warp * 2 + i % 2;
}
static __device__ __forceinline__ int32_t chunks_of(int32_t warp, int32_t n) {
    return n / (2 * WARPS) * 2 + min(max(n % (2 * WARPS) - 2 * warp, 0), 2);
}

/* An output from the sums of pairs of slices, which lie apart floats from one another: two pairs
 * are added up before those sums are, in order. */
static __device__ __forceinline__ float add_pairs(const float *sums, int32_t apart) {
    float sum = 0.0f;
#pragma unroll
    for (int g = 0; g < WARPS / 2; g += SLICES / 2) {
        float part = __fadd_rn(sums[g * apart], sums[(g + 1) * apart]);
        sum = g == 0 ? part : __fadd_rn(sum, part);
    }
    return sum;
}
/* The same from the sums of slices. */
static __device__ __forceinline__ float add_slices(const float *sums, int32_t apart) {
    float pairs[WARPS / 2];
#pragma unroll
    for (int i = 0; i < WARPS / 2; i++)
        pairs[i] = __fadd_rn(sums[2 * i * apart], sums[(2 * i + 1) * apart]);
    return add_pairs(pairs, 1);
}

static __device__ __forceinline__ uint32_t top_halves(float a, float b) {
    return __byte_perm(__float_as_uint(a), __float_as_uint(b), 0x7632);
}
static __device__ __forceinline__ float below_top(float a) {
    float top = __uint_as_float(__float_as_uint(a) & 0xFFFF0000u);
    return __fsub_rn(a, top);
}

/* Two numbers as n pairs of bf16, largest first; exact for n = 3. */
static __device__ __forceinline__ void split_pair(float a, float b, uint32_t *parts, int n) {
    parts[0] = top_halves(a, b);
    if (n < 2)
        return;
    a = below_top(a);
    b = below_top(b);
    parts[1] = top_halves(a, b);
    if (n < 3)
        return;
    parts[2] = top_halves(below_top(a), below_top(b));
}
/* The same for numbers that may be infinite: infinity is its own largest part. */
static __device__ __forceinline__ void split_x(float a, float b, uint32_t parts[3]) {
    parts[0] = top_halves(a, b);
    a = isinf(a) ? 0.0f : below_top(a);
    b = isinf(b) ? 0.0f : below_top(b);
    parts[1] = top_halves(a, b);
    parts[2] = top_halves(below_top(a), below_top(b));
}

/* Sums of products of each size. */
static __device__ __forceinline__ float by_size(float large, float middle, float small) {
    return __fadd_rn(__fadd_rn(small, middle), large);
}

/* This lane's eight columns of a row of x, in parts: two mma's pairs of each. */
static __device__ __forceinline__ void load_x(const float *from, bool is_there,
                                              uint32_t x[ORDERS][4]) {
    float4 a = make_float4(0.0f, 0.0f, 0.0f, 0.0f), b = a;
    if (is_there) {
        a = *(const float4 *)from;
        b = *(const float4 *)(from + 4);
    }
    float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t parts[ORDERS];
        split_x(v[2 * i], v[2 * i + 1], parts);
#pragma unroll
        for (int p = 0; p < ORDERS; p++)
            x[p][i] = parts[p];
    }
}

static __device__ __forceinline__ float silu(float x) {
    return x / (1.0f + expf(-x));
}

/* A norm's squares are summed up by sixteen columns, in pairs; then those of every 128th sixteen, in
 * order; then these 128, in pairs. Four columns; and sixteen, of which lanes side by side have four
 * each. */
static __device__ __forceinline__ float squares_of(float4 v) {
    return __fadd_rn(__fadd_rn(__fmul_rn(v.x, v.x), __fmul_rn(v.y, v.y)),
                     __fadd_rn(__fmul_rn(v.z, v.z), __fmul_rn(v.w, v.w)));
}
static __device__ __forceinline__ float squares_of_sixteen(float squares) {
    return k_lanes_sum<1, 2>(squares);
}
/* What warps have summed up of THREADS * 4 columns that follow one another, and of every such many
 * on: eight of the 128 sums are in a warp. */
static __device__ __forceinline__ float squares_of_warp(float sum) {
    return k_lanes_sum<4, 16>(sum);
}
static __device__ __forceinline__ float scale_of_warps(const float *sums, int32_t n, float eps) {
    float all[WARPS];
#pragma unroll
    for (int i = 0; i < WARPS; i++)
        all[i] = sums[i];
#pragma unroll
    for (int left = WARPS / 2; left > 0; left /= 2)
#pragma unroll
        for (int i = 0; i < left; i++)
            all[i] = __fadd_rn(all[2 * i], all[2 * i + 1]);
    return k_norm_scale(all[0], n, eps);
}

/* Four numbers of a row of x, times the norm where there is one; and their squares, then. */
static __device__ __forceinline__ float4 weigh_four(const float *x, const float *norm, int32_t at,
                                                    float &squares) {
    float4 v = __ldcg((const float4 *)(x + at));
    if (norm == NULL)
        return v;
    float4 w = __ldg((const float4 *)(norm + at));
    squares = squares_of(v);
    return make_float4(__fmul_rn(v.x, w.x), __fmul_rn(v.y, w.y), __fmul_rn(v.z, w.z),
                       __fmul_rn(v.w, w.w));
}

/* Many rows at a time, in linear_many.cu. false: not of this shape, or more than scratch has room
 * for. */
#define MANY_ROWS 64 /* that share a place in scratch */
bool k_linear_many_does(const struct k_target *on, const struct ft_op_linear *op);
cudaError_t k_linear_many(const struct k_target *on, const struct ft_op_linear *op);
cudaError_t k_linear_many_setup(struct k_target *on); /* sets n_clusters */

#endif
