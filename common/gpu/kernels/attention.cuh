/* attention: what kernels of attention share: a segment of positions for some queries, and merging.
 * Owns:    nothing.
 * Runs in: nvcc's files only.
 * Never:   knows how segments are dealt out. */
#ifndef FT_GPU_KERNELS_ATTENTION_CUH
#define FT_GPU_KERNELS_ATTENTION_CUH

#include "common/gpu/kernels/linear.cuh"

#define SEGMENT 32  /* positions */
#define STEP 16     /* columns that an mma sums over: dimensions of a key, positions of a value */
#define QUARTERS 4  /* of a key's steps: every fourth one */
#define TEAM 128    /* threads of a block of attention_kernel */
#define TOGETHER 16 /* segments on their way at a time, when they are merged */
#define DIM_MAX FT_OPS_HEAD_DIM_MAX

/* IS_NEAR: KV is in shared memory (see near_key), for eight warps of the whole step. Else it is read
 * where it lies, by the four warps of a block. */
template <bool IS_NEAR> static __device__ __forceinline__ constexpr int32_t warps_of(void) {
    return IS_NEAR ? 8 : TEAM / 32;
}

static __device__ __forceinline__ int32_t lowest(const struct ft_op_attention &op, int32_t p) {
    return op.window > 0 && p >= op.window ? p - op.window + 1 : 0;
}

/* What has been summed up of a query: values apart, weights relative to exp(max). */
struct softmax {
    float max, sum;
};

/* The factors that values so far and values of the next segment are to be scaled with. */
static __device__ __forceinline__ struct softmax merge(struct softmax a, struct softmax b,
                                                       float *factor_a, float *factor_b) {
    struct softmax out;
    out.max = fmaxf(a.max, b.max);
    *factor_a = expf(a.max - out.max);
    *factor_b = expf(b.max - out.max);
    out.sum = __fmaf_rn(b.sum, *factor_b, __fmul_rn(a.sum, *factor_a));
    return out;
}
static __device__ __forceinline__ float merge_value(float a, float b, float factor_a,
                                                    float factor_b) {
    return __fmaf_rn(b, factor_b, __fmul_rn(a, factor_a));
}

/* n columns of a query in parts: [n / STEP][ORDERS][STEP] of bf16. Behind them a gap, so that what
 * lanes read together of queries side by side lies in different banks. */
#define PART_BYTES (STEP * 2)
#define STEP_BYTES (ORDERS * PART_BYTES)
#define QUERY_BYTES(n) ((n) / STEP * STEP_BYTES + 32)
#define SCORES_STRIDE (SEGMENT + 4) /* likewise */

/* N queries of one piece and KV head, in shared memory: a multiple of GROUP, which are the columns
 * of an mma. */
template <int N, int DIM> struct alignas(16) tile {
    char q[N][QUERY_BYTES(DIM)];
    float scores[QUARTERS][N][SCORES_STRIDE];
    char weights[N][QUERY_BYTES(SEGMENT)];
    struct softmax softmax[N];
    int32_t low[N], high[N];   /* positions seen; high < low: no such query */
    int32_t all_low, all_high; /* those that any query sees lie between */
    int32_t to[N]; /* for results apart from others: where they begin; below 0: nowhere */
    int64_t at[N]; /* row * n_heads + head */
};

/* What the queries of a tile see, by one thread: of a piece's queries those from one on. */
template <int N, int DIM>
static __device__ __forceinline__ void find_seen(const struct ft_op_attention &op,
                                                 const struct ft_span &piece, int32_t first,
                                                 int32_t group, struct tile<N, DIM> &t) {
    int32_t last = min((first + N - 1) / group, piece.n_rows - 1);
    t.all_low = lowest(op, piece.position + first / group);
    t.all_high = piece.position + last;
}

/* Four numbers of a query, from a column on that is a multiple of four. */
static __device__ __forceinline__ void put_columns(char *query, int32_t column, float4 v) {
    uint32_t low[ORDERS], high[ORDERS];
    split_pair(v.x, v.y, low, ORDERS);
    split_pair(v.z, v.w, high, ORDERS);
    char *to = query + column / STEP * STEP_BYTES + column % STEP * 2;
#pragma unroll
    for (int p = 0; p < ORDERS; p++)
        *(uint2 *)(to + p * PART_BYTES) = make_uint2(low[p], high[p]);
}

#define BLOCKS (SEGMENT / FT_OPS_KV_BLOCK) /* of a segment */

/* The tile's KV, and where the blocks of the segment in hand lie. */
struct source {
    const float *kv; /* of block 0, this head */
    int64_t block_floats;
    int32_t padded;
    const int32_t *table;
    const float *blocks[BLOCKS];
};

static __device__ __forceinline__ void seek(struct source &s, int32_t base, int32_t last) {
#pragma unroll
    for (int i = 0; i < BLOCKS; i++)
        if (base + i * FT_OPS_KV_BLOCK <= last)
            s.blocks[i] = s.kv + s.table[base / FT_OPS_KV_BLOCK + i] * s.block_floats;
}

/* Where a block's vectors of four floats lie in shared memory, in bytes: lanes that ask for four
 * columns each of an mma's sixteen, and for two numbers beside each other, find them in different
 * banks. Two dimensions of keys have 128 bytes, whose order differs from four dimensions to the
 * next; there is a gap behind every four values. */
static __device__ __forceinline__ int32_t near_key(int32_t d, int32_t vector) {
    return d / 2 * 128 + ((d % 2 * 4 + vector) ^ d / 4 % 4 * 2) * 16;
}
#define VALUES_GAP 32
static __device__ __forceinline__ int32_t near_values(int32_t padded, int32_t position) {
    return (padded * FT_OPS_KV_BLOCK + position * padded) * 4 + position / 4 * VALUES_GAP;
}
#define NEAR_BYTES(head_bytes) ((head_bytes) + FT_OPS_KV_BLOCK / 4 * VALUES_GAP)

/* Dimension d of the keys of two positions of a block; two dimensions of a position's value. */
template <bool IS_NEAR>
static __device__ __forceinline__ float2 two_keys(const float *block, int32_t d, int32_t position) {
    if (IS_NEAR)
        return *(const float2 *)((const char *)block + near_key(d, position / 4) +
                                 position % 4 * 4);
    return __ldcg((const float2 *)(block + d * FT_OPS_KV_BLOCK + position));
}
template <bool IS_NEAR>
static __device__ __forceinline__ float2 two_values(const float *block, int32_t padded,
                                                    int32_t position, int32_t d) {
    if (IS_NEAR)
        return *(const float2 *)((const char *)block + near_values(padded, position) + d * 4);
    return __ldcg((const float2 *)(block + (FT_OPS_KV_BLOCK + position) * padded + d));
}

/* A lane's numbers of sixteen rows and sixteen columns for an mma: rows lane / 4 * 2 and the next,
 * columns from lane % 4 * 4 on. */
struct four_columns {
    float2 at[4];
};
struct four_parts {
    uint32_t at[ORDERS][4];
};
static __device__ __forceinline__ struct four_parts split(const struct four_columns &v) {
    struct four_parts parts;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t even[ORDERS], odd[ORDERS];
        split_pair(v.at[2 * i].x, v.at[2 * i + 1].x, even, ORDERS);
        split_pair(v.at[2 * i].y, v.at[2 * i + 1].y, odd, ORDERS);
#pragma unroll
        for (int p = 0; p < ORDERS; p++) {
            parts.at[p][2 * i] = even[p];
            parts.at[p][2 * i + 1] = odd[p];
        }
    }
    return parts;
}

/* Sums of products by size, of the rows above and eight queries: lane % 4 has two of these. The
 * first row's, then the second's. */
struct eight_sums {
    float at[ORDERS][4];
};
static __device__ __forceinline__ float sum_of(const struct eight_sums &sums, int i) {
    return by_size(sums.at[0][i], sums.at[1][i], sums.at[2][i]);
}

/* queries: a step's columns of the lane's query, in parts. Products below 2^-16 are left out. */
static __device__ __forceinline__ void multiply(const struct four_parts &rows, const char *queries,
                                                struct eight_sums &sums) {
    uint32_t parts[ORDERS][2];
#pragma unroll
    for (int p = 0; p < ORDERS; p++) {
        uint2 four = *(const uint2 *)(queries + p * PART_BYTES);
        parts[p][0] = four.x;
        parts[p][1] = four.y;
    }
#pragma unroll
    for (int order = 0; order < ORDERS; order++)
#pragma unroll
        for (int p = 0; p <= order; p++)
            k_mma(sums.at[order], rows.at[p], parts[order - p]);
}

/* A warp has a quarter of the dimensions, and one of the segment's blocks or each in turn. */
template <bool IS_NEAR, int N, int DIM>
static __device__ __forceinline__ void score(const struct source &s, struct tile<N, DIM> &t,
                                             int32_t base) {
    constexpr int STEPS = DIM / STEP / QUARTERS, OWN = BLOCKS * QUARTERS / warps_of<IS_NEAR>();
    int32_t lane = k_thread() % 32, quarter = k_thread() / 32 % QUARTERS;
    int32_t first = k_thread() / 32 / QUARTERS, n_steps = s.padded / STEP;
    struct four_columns keys[OWN][STEPS] = {};
#pragma unroll
    for (int b = 0; b < OWN; b++)
#pragma unroll
        for (int i = 0; i < STEPS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int32_t block = first + b, step = quarter + i * QUARTERS;
                if (base + block * FT_OPS_KV_BLOCK <= t.all_high && step < n_steps)
                    keys[b][i].at[j] =
                        two_keys<IS_NEAR>(block == 0 ? s.blocks[0] : s.blocks[BLOCKS - 1],
                                          step * STEP + lane % 4 * 4 + j, lane / 4 * 2);
            }
#pragma unroll
    for (int b = 0; b < OWN; b++) {
        struct eight_sums sums[N / GROUP] = {};
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            if (quarter + i * QUARTERS >= n_steps)
                break;
            struct four_parts parts = split(keys[b][i]);
#pragma unroll
            for (int n = 0; n < N / GROUP; n++)
                multiply(parts,
                         t.q[n * GROUP + lane / 4] + (quarter + i * QUARTERS) * STEP_BYTES +
                             lane % 4 * 8,
                         sums[n]);
        }
        int32_t position = (first + b) * FT_OPS_KV_BLOCK + lane / 4 * 2;
#pragma unroll
        for (int n = 0; n < N / GROUP; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                *(float2 *)&t.scores[quarter][n * GROUP + lane % 4 * 2 + i][position] =
                    make_float2(sum_of(sums[n], i), sum_of(sums[n], 2 + i));
    }
}

/* A warp has every query whose turn it is, a lane a position. */
template <bool IS_NEAR, int N, int DIM>
static __device__ __forceinline__ void weigh(struct tile<N, DIM> &t, float scale, int32_t base) {
    constexpr int OWN = N / warps_of<IS_NEAR>();
    static_assert(N % warps_of<IS_NEAR>() == 0, "as many for each warp");
    int32_t lane = k_thread() % 32, position = base + lane, first = k_thread() / 32;
    float scores[OWN];
#pragma unroll
    for (int k = 0; k < OWN; k++) {
        int32_t i = first + k * warps_of<IS_NEAR>();
        float s = t.scores[0][i][lane];
#pragma unroll
        for (int j = 1; j < QUARTERS; j++)
            s = __fadd_rn(s, t.scores[j][i][lane]);
        bool is_seen = position >= t.low[i] && position <= t.high[i];
        scores[k] = is_seen ? __fmul_rn(s, scale) : -INFINITY;
    }
#pragma unroll
    for (int k = 0; k < OWN; k++) {
        int32_t i = first + k * warps_of<IS_NEAR>();
        float s = scores[k], max = k_warp_max(s), weight = s == -INFINITY ? 0.0f : expf(s - max);
        float sum = k_warp_sum(weight);
        uint32_t parts[ORDERS];
        split_pair(weight, 0.0f, parts, ORDERS);
        char *to = t.weights[i] + lane / STEP * STEP_BYTES + lane % STEP * 2;
#pragma unroll
        for (int p = 0; p < ORDERS; p++)
            *(uint16_t *)(to + p * PART_BYTES) = (uint16_t)parts[p];
        if (lane == 0)
            t.softmax[i] = {max, sum};
    }
}

/* Sixteen dimensions of the values of a segment, from d on; zero outside of what is seen. */
struct segment_values {
    struct four_columns at[BLOCKS];
};
template <bool IS_NEAR>
static __device__ __forceinline__ struct segment_values
load_values(const struct source &s, int32_t base, int32_t d, int32_t low, int32_t high) {
    int32_t lane = k_thread() % 32;
    struct segment_values values = {};
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int32_t in_block = lane % 4 * 4 + j, position = base + b * FT_OPS_KV_BLOCK + in_block;
            if (position >= low && position <= high)
                values.at[b].at[j] =
                    two_values<IS_NEAR>(s.blocks[b], s.padded, in_block, d + lane / 4 * 2);
        }
    return values;
}

/* A lane's dimensions d + lane / 4 * 2 and the next, of queries lane % 4 * 2 and the next: the first
 * dimension's, then the second's. */
template <int N> struct weighted {
    float at[N / GROUP][4];
};

/* Values times weights, a warp's sixteen dimensions. What a query does not see has weight 0, and
 * must be finite for that: where a sum is not, each query has those that it sees alone. */
template <bool IS_NEAR, int N, int DIM>
static __device__ __forceinline__ struct weighted<N>
add_values(const struct source &s, const struct tile<N, DIM> &t, int32_t base, int32_t d,
           struct segment_values values) {
    int32_t lane = k_thread() % 32;
    struct weighted<N> out = {};
#pragma unroll 1
    for (int32_t only = -1;;) {
        struct eight_sums sums[N / GROUP] = {};
        bool is_finite = true;
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            struct four_parts parts = split(values.at[b]);
#pragma unroll
            for (int n = 0; n < N / GROUP; n++)
                multiply(parts, t.weights[n * GROUP + lane / 4] + b * STEP_BYTES + lane % 4 * 8,
                         sums[n]);
        }
#pragma unroll
        for (int n = 0; n < N / GROUP; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float sum = sum_of(sums[n], i);
                if (only < 0 || only == n * GROUP + lane % 4 * 2 + i % 2)
                    out.at[n][i] = sum;
                is_finite = is_finite && isfinite(sum);
            }
        if ((only < 0 && __all_sync(0xFFFFFFFFu, is_finite)) || ++only == N)
            return out;
        values = load_values<IS_NEAR>(s, base, d, t.low[only], t.high[only]);
    }
}

/* For a team that is the block: all columns of a query, zero behind its dimensions. */
static __device__ __forceinline__ float4 load_four(const float *q, int32_t d, int32_t dim) {
    if (dim % 4 == 0 && d < dim)
        return __ldcg((const float4 *)(q + d));
    return make_float4(d < dim ? __ldcg(q + d) : 0.0f, d + 1 < dim ? __ldcg(q + d + 1) : 0.0f,
                       d + 2 < dim ? __ldcg(q + d + 2) : 0.0f,
                       d + 3 < dim ? __ldcg(q + d + 3) : 0.0f);
}
template <int N, int DIM>
static __device__ __forceinline__ void load_tile(const struct ft_op_attention &op,
                                                 const struct ft_span &piece, int32_t kv_head,
                                                 int32_t first, struct tile<N, DIM> &t) {
    int32_t dim = op.kv.head_dim, n_fours = (int32_t)ft_kv_padded_dim(dim) / 4;
    int32_t group = op.n_heads / op.kv.n_heads;
    if (threadIdx.x < N) {
        int32_t i = first + threadIdx.x, row = i / group;
        bool is_there = row < piece.n_rows;
        int32_t high = piece.position + row;
        t.high[threadIdx.x] = is_there ? high : -1;
        t.low[threadIdx.x] = is_there ? lowest(op, high) : 0;
        t.at[threadIdx.x] = (int64_t)(piece.row + row) * op.n_heads + kv_head * group + i % group;
    }
    if (threadIdx.x == 0)
        find_seen(op, piece, first, group, t);
    __syncthreads();
    for (int32_t i = threadIdx.x; i < N * n_fours; i += TEAM) {
        int32_t query = i / n_fours, d = i % n_fours * 4;
        put_columns(t.q[query], d,
                    t.high[query] >= 0 ? load_four(op.q + t.at[query] * dim, d, dim)
                                       : make_float4(0.0f, 0.0f, 0.0f, 0.0f));
    }
    __syncthreads();
}

#endif
