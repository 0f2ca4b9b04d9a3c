/* attention: what kernels of attention share: a segment of positions for a few queries, and
 * merging. Owns:    nothing. Runs in: nvcc's files only. Never:   knows how segments are dealt out.
 */
#ifndef FT_GPU_KERNELS_ATTENTION_CUH
#define FT_GPU_KERNELS_ATTENTION_CUH

#include "common/gpu/kernels/launch.cuh"

#define SEGMENT 32 /* positions */
#define QUARTERS 4 /* of the dimensions of a key; TEAM / SEGMENT */
#define TEAM 128   /* threads that go through a segment together */
#define TEAM_WARPS (TEAM / 32)
#define TOGETHER 16 /* segments on their way at a time, when they are merged */
#define DIM_MAX FT_OPS_HEAD_DIM_MAX

/* ALONE: the team is the block, and KV is read where it lies. Else a block has several teams, with
 * a barrier each, and KV is in shared memory. */
template <bool ALONE> static __device__ __forceinline__ uint32_t team_thread(void) {
    return ALONE ? threadIdx.x : threadIdx.x % TEAM;
}
template <bool ALONE> static __device__ __forceinline__ void team_sync(void) {
    if (ALONE)
        __syncthreads();
    else
        k_sync_some(1 + (int32_t)threadIdx.x / TEAM, TEAM);
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

/* Q queries of one piece and KV head, in shared memory. */
template <int Q, int DIM> struct alignas(16) tile {
    float q[Q][DIM];
    float scores[QUARTERS][Q][SEGMENT]; /* then weights in [0] */
    float values[TEAM_WARPS][Q][32];    /* of groups of positions, for small heads */
    struct softmax softmax[Q];
    int32_t low[Q], high[Q];   /* positions seen; high < low: no such query */
    int32_t all_low, all_high; /* positions that every query there sees */
    int32_t to[Q]; /* for results apart from others: where they begin; below 0: nowhere */
    int64_t at[Q]; /* row * n_heads + head */
};

/* What every query of a tile sees, by one thread: of a piece's queries those from one on. */
template <int Q, int DIM>
static __device__ __forceinline__ void find_common(const struct ft_op_attention &op,
                                                   const struct ft_span &piece, int32_t first,
                                                   int32_t group, struct tile<Q, DIM> &t) {
    int32_t last = min((first + Q - 1) / group, piece.n_rows - 1);
    t.all_low = lowest(op, piece.position + last);
    t.all_high = piece.position + first / group;
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

/* of position base + at */
static __device__ __forceinline__ const float *block_at(const struct source &s, int32_t at) {
    return at < FT_OPS_KV_BLOCK ? s.blocks[0] : s.blocks[BLOCKS - 1];
}

template <bool ALONE> static __device__ __forceinline__ float load_kv(const float *p) {
    return ALONE ? __ldcg(p) : *p;
}

/* A thread has a position and a quarter of the dimensions of all queries. */
template <bool ALONE, int Q, int DIM>
static __device__ __forceinline__ void score(const struct source &s, struct tile<Q, DIM> &t,
                                             int32_t base, int32_t last) {
    int32_t at = team_thread<ALONE>() % SEGMENT, quarter = team_thread<ALONE>() / SEGMENT,
            position = base + at;
    if (position > last)
        return;
    int32_t n = s.padded / QUARTERS, first = quarter * n;
    const float *key = block_at(s, at) + at % FT_OPS_KV_BLOCK + first * FT_OPS_KV_BLOCK;
    float sums[Q] = {};
#pragma unroll(ALONE ? 8 : 2) /* shared memory is near, and so should the code be */
    for (int32_t d = 0; d < n; d += 4) {
        float k[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            k[i] = load_kv<ALONE>(key + (d + i) * FT_OPS_KV_BLOCK);
#pragma unroll
        for (int i = 0; i < Q; i++) {
            float4 q = *(const float4 *)&t.q[i][first + d];
            sums[i] = __fmaf_rn(q.x, k[0], sums[i]);
            sums[i] = __fmaf_rn(q.y, k[1], sums[i]);
            sums[i] = __fmaf_rn(q.z, k[2], sums[i]);
            sums[i] = __fmaf_rn(q.w, k[3], sums[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < Q; i++)
        t.scores[quarter][i][at] = sums[i];
}

/* A warp has every TEAM_WARPS-th query, a lane a position. */
template <bool ALONE, int Q, int DIM>
static __device__ __forceinline__ void weigh(struct tile<Q, DIM> &t, float scale, int32_t base) {
    constexpr int N = Q / TEAM_WARPS;
    static_assert(Q % TEAM_WARPS == 0, "as many for each warp");
    int32_t lane = team_thread<ALONE>() % 32, position = base + lane;
    int32_t first = team_thread<ALONE>() / 32;
    float scores[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
        int32_t i = first + k * TEAM_WARPS;
        float s = t.scores[0][i][lane];
#pragma unroll
        for (int j = 1; j < QUARTERS; j++)
            s = __fadd_rn(s, t.scores[j][i][lane]);
        bool is_seen = position >= t.low[i] && position <= t.high[i];
        scores[k] = is_seen ? __fmul_rn(s, scale) : -INFINITY;
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        int32_t i = first + k * TEAM_WARPS;
        float s = scores[k], max = k_warp_max(s), weight = s == -INFINITY ? 0.0f : expf(s - max);
        float sum = k_warp_sum(weight);
        t.scores[0][i][lane] = weight;
        if (lane == 0)
            t.softmax[i] = {max, sum};
    }
}

/* Weighted sums of values. A thread has D dimensions of one of TEAM / width groups of
 * positions, of all queries; the groups' sums are added in order. A block of values is on its way
 * at a time. */
#define AHEAD FT_OPS_KV_BLOCK
template <bool ALONE, int Q, int D, int DIM>
static __device__ __forceinline__ void add_values(const struct source &s, struct tile<Q, DIM> &t,
                                                  int32_t width, int32_t base, int32_t last,
                                                  float out[Q][D]) {
    int32_t n_groups = TEAM / width, group = team_thread<ALONE>() / width,
            d = team_thread<ALONE>() % width;
    int32_t n = SEGMENT / n_groups;
#pragma unroll
    for (int i = 0; i < Q; i++)
#pragma unroll
        for (int j = 0; j < D; j++)
            out[i][j] = 0.0f;
    int32_t end = min(last - base, (group + 1) * n - 1); /* positions count from base here */
    for (int32_t from = group * n; from <= end; from += AHEAD) {
        const float *value =
            block_at(s, from) + (FT_OPS_KV_BLOCK + from % FT_OPS_KV_BLOCK) * s.padded + d;
        float v[AHEAD][D];
#pragma unroll
        for (int p = 0; p < AHEAD; p++)
#pragma unroll
            for (int j = 0; j < D; j++)
                v[p][j] = from + p <= end && d + j * TEAM < s.padded
                              ? load_kv<ALONE>(value + p * s.padded + j * TEAM)
                              : 0.0f;
        bool are_all_seen = from + AHEAD - 1 <= end && t.all_low <= base + from &&
                            t.all_high >= base + from + AHEAD - 1;
        if (are_all_seen) {
#pragma unroll
            for (int i = 0; i < Q; i++)
#pragma unroll
                for (int p = 0; p < AHEAD; p += 4) {
                    float4 w = *(const float4 *)&t.scores[0][i][from + p];
#pragma unroll
                    for (int j = 0; j < D; j++) {
                        out[i][j] = __fmaf_rn(w.x, v[p][j], out[i][j]);
                        out[i][j] = __fmaf_rn(w.y, v[p + 1][j], out[i][j]);
                        out[i][j] = __fmaf_rn(w.z, v[p + 2][j], out[i][j]);
                        out[i][j] = __fmaf_rn(w.w, v[p + 3][j], out[i][j]);
                    }
                }
            continue;
        }
#pragma unroll
        for (int i = 0; i < Q; i++) {
            int32_t low = t.low[i] - base - from, high = min(t.high[i] - base, end) - from;
#pragma unroll
            for (int p = 0; p < AHEAD; p++)
                if (p >= low && p <= high)
#pragma unroll
                    for (int j = 0; j < D; j++)
                        out[i][j] = __fmaf_rn(t.scores[0][i][from + p], v[p][j], out[i][j]);
        }
    }
    if (n_groups == 1)
        return;
    /* width is at most 64 here, and D is 1: [n_groups][Q][width] fits where [TEAM_WARPS][Q][32] is
     */
    float *shared = &t.values[0][0][0];
#pragma unroll
    for (int i = 0; i < Q; i++)
        shared[(group * Q + i) * width + d] = out[i][0];
    team_sync<ALONE>();
#pragma unroll
    for (int i = 0; i < Q; i++) {
        out[i][0] = shared[i * width + d];
        for (int32_t g = 1; g < n_groups; g++)
            out[i][0] = __fadd_rn(out[i][0], shared[(g * Q + i) * width + d]);
    }
}

/* For a team that is the block. */
template <int Q, int DIM>
static __device__ __forceinline__ void load_tile(const struct ft_op_attention &op,
                                                 const struct ft_span &piece, int32_t kv_head,
                                                 int32_t first, struct tile<Q, DIM> &t) {
    int32_t dim = op.kv.head_dim, padded = (int32_t)ft_kv_padded_dim(dim);
    int32_t group = op.n_heads / op.kv.n_heads;
    if (threadIdx.x < Q) {
        int32_t i = first + threadIdx.x, row = i / group;
        bool is_there = row < piece.n_rows;
        int32_t high = piece.position + row;
        t.high[threadIdx.x] = is_there ? high : -1;
        t.low[threadIdx.x] = is_there ? lowest(op, high) : 0;
        t.at[threadIdx.x] = (int64_t)(piece.row + row) * op.n_heads + kv_head * group + i % group;
    }
    if (threadIdx.x == 0)
        find_common(op, piece, first, group, t);
    __syncthreads();
    for (int32_t i = threadIdx.x; i < Q * padded; i += TEAM) {
        int32_t query = i / padded, d = i % padded;
        bool is_there = t.high[query] >= 0 && d < dim;
        t.q[query][d] = is_there ? __ldcg(op.q + t.at[query] * dim + d) : 0.0f;
    }
    __syncthreads();
}

#endif
