/* Causal attention of grouped queries over paged KV.
 *
 * Positions are cut in segments (0 .. 31, 32 .. 63, ...). A segment gives each query a maximum, a
 * sum and a weighted sum of values; these are merged in order of segments (Milakov and Gimelshein
 * 2018). The order of all sums follows from a query's position and window alone, whether segments
 * are dealt out to blocks and merged by a second kernel or one block goes through them all. */
#include "common/gpu/kernels/launch.cuh"

#define SEGMENT 32 /* positions */
#define QUARTERS 4 /* of the dimensions of a key; THREADS / SEGMENT */
#define THREADS 128
#define WARPS (THREADS / 32)
#define DIM_MAX FT_OPS_HEAD_DIM_MAX

struct attention_args {
    struct ft_op_attention op;
    int32_t n_tiles;    /* of queries, in a piece and KV head */
    int32_t n_segments; /* dealt out to blocks; 0: each block goes through them all */
    float *partial;     /* [n_segments, n_rows, n_heads, head_dim + 2]: values, maximum, sum */
};

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
template <int Q> struct tile {
    float q[Q][DIM_MAX];
    float scores[QUARTERS][Q][SEGMENT]; /* then weights in [0] */
    float values[WARPS][Q][32];         /* of groups of positions, for small heads */
    struct softmax softmax[Q];
    int32_t low[Q], high[Q]; /* positions seen; high < low: no such query */
    int64_t at[Q];           /* row * n_heads + head */
};

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

/* A thread has a position and a quarter of the dimensions of all queries. */
template <int Q>
static __device__ __forceinline__ void score(const struct source &s, struct tile<Q> &t,
                                             int32_t base, int32_t last) {
    int32_t at = threadIdx.x % SEGMENT, quarter = threadIdx.x / SEGMENT, position = base + at;
    if (position > last)
        return;
    int32_t n = s.padded / QUARTERS, first = quarter * n;
    const float *key = block_at(s, at) + at % FT_OPS_KV_BLOCK + first * FT_OPS_KV_BLOCK;
    float sums[Q] = {};
#pragma unroll 8
    for (int32_t d = 0; d < n; d += 4) {
        float k[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            k[i] = __ldcg(key + (d + i) * FT_OPS_KV_BLOCK);
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

/* A warp has a query at a time, a lane a position. */
template <int Q>
static __device__ __forceinline__ void weigh(struct tile<Q> &t, float scale, int32_t base) {
    int32_t lane = threadIdx.x % 32, position = base + lane;
    for (int i = threadIdx.x / 32; i < Q; i += WARPS) {
        bool is_seen = position >= t.low[i] && position <= t.high[i];
        float s = t.scores[0][i][lane];
#pragma unroll
        for (int j = 1; j < QUARTERS; j++)
            s = __fadd_rn(s, t.scores[j][i][lane]);
        s = is_seen ? __fmul_rn(s, scale) : -INFINITY;
        float max = k_warp_max(s), weight = s == -INFINITY ? 0.0f : expf(s - max);
        float sum = k_warp_sum(weight);
        t.scores[0][i][lane] = weight;
        if (lane == 0)
            t.softmax[i] = {max, sum};
    }
}

/* Weighted sums of values. A thread has D dimensions of one of THREADS / width groups of
 * positions, of all queries; the groups' sums are added in order. A block of values is on its way
 * at a time. */
#define AHEAD FT_OPS_KV_BLOCK
template <int Q, int D>
static __device__ __forceinline__ void add_values(const struct source &s, struct tile<Q> &t,
                                                  int32_t width, int32_t base, int32_t last,
                                                  float out[Q][D]) {
    int32_t n_groups = THREADS / width, group = threadIdx.x / width, d = threadIdx.x % width;
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
                v[p][j] = from + p <= end && d + j * THREADS < s.padded
                              ? __ldcg(value + p * s.padded + j * THREADS)
                              : 0.0f;
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
    /* width is at most 64 here, and D is 1: [n_groups][Q][width] fits where [WARPS][Q][32] is */
    float *shared = &t.values[0][0][0];
#pragma unroll
    for (int i = 0; i < Q; i++)
        shared[(group * Q + i) * width + d] = out[i][0];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < Q; i++) {
        out[i][0] = shared[i * width + d];
        for (int32_t g = 1; g < n_groups; g++)
            out[i][0] = __fadd_rn(out[i][0], shared[(g * Q + i) * width + d]);
    }
}

template <int Q>
static __device__ __forceinline__ void load_tile(const struct ft_op_attention &op,
                                                 const struct ft_span &piece, int32_t kv_head,
                                                 int32_t first, struct tile<Q> &t) {
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
    __syncthreads();
    for (int32_t i = threadIdx.x; i < Q * padded; i += THREADS) {
        int32_t query = i / padded, d = i % padded;
        bool is_there = t.high[query] >= 0 && d < dim;
        t.q[query][d] = is_there ? __ldcg(op.q + t.at[query] * dim + d) : 0.0f;
    }
    __syncthreads();
}

/* A block has Q queries of a piece and KV head, and one segment or all of them. Reads the keys and
 * values of its segments once, 8 * head_dim bytes a position. */
template <int Q, int D>
static __global__ void __launch_bounds__(THREADS)
    attention_kernel(const __grid_constant__ struct attention_args a) {
    __shared__ struct tile<Q> t;
    const struct ft_op_attention &op = a.op;
    k_let_next_start();
    /* pieces and blocks are older than the step's first kernel */
    struct ft_span piece = op.pieces[blockIdx.z];
    int32_t group = op.n_heads / op.kv.n_heads, dim = op.kv.head_dim;
    int32_t kv_head = blockIdx.y / a.n_tiles, first = blockIdx.y % a.n_tiles * Q;
    int32_t n = min(Q, piece.n_rows * group - first);
    int32_t low = lowest(op, piece.position + first / group);
    int32_t high = piece.position + (first + n - 1) / group;
    int32_t segment = low / SEGMENT, last_segment = high / SEGMENT;
    bool is_split = a.n_segments > 0;
    if (is_split) {
        segment += blockIdx.x;
        if (segment > last_segment)
            n = 0;
        last_segment = segment;
    }
    struct source s = {op.kv.base + kv_head * ft_kv_head_floats(dim),
                       ft_kv_block_floats(op.kv.n_heads, dim),
                       (int32_t)ft_kv_padded_dim(dim),
                       op.blocks + piece.table,
                       {}};
    if (n > 0)
        seek(s, segment * SEGMENT, high);
    k_wait();
    if (n <= 0)
        return;
    load_tile<Q>(op, piece, kv_head, first, t);
    int32_t width = D > 1 || s.padded > 64 ? THREADS : s.padded > 32 ? 64 : 32;
    float sums[Q][D] = {};
    struct softmax state[Q];
#pragma unroll
    for (int i = 0; i < Q; i++)
        state[i] = {-INFINITY, 0.0f};
    for (; segment <= last_segment; segment++) {
        int32_t base = segment * SEGMENT, last = min(high, base + SEGMENT - 1);
        float values[Q][D];
        if (!is_split)
            seek(s, base, last);
        score<Q>(s, t, base, last);
        __syncthreads();
        weigh<Q>(t, op.scale, base);
        __syncthreads();
        add_values<Q, D>(s, t, width, base, last, values);
#pragma unroll
        for (int i = 0; i < Q; i++) {
            if (t.low[i] >= base + SEGMENT || t.high[i] < base)
                continue; /* the query does not see this segment */
            float fa, fb;
            if (is_split) {
                state[i] = t.softmax[i];
                for (int j = 0; j < D; j++)
                    sums[i][j] = values[i][j];
                continue;
            }
            state[i] = merge(state[i], t.softmax[i], &fa, &fb);
#pragma unroll
            for (int j = 0; j < D; j++)
                sums[i][j] = merge_value(sums[i][j], values[i][j], fa, fb);
        }
        __syncthreads();
    }
    if ((int32_t)threadIdx.x >= width)
        return;
    int64_t n_queries = (int64_t)op.n_rows * op.n_heads;
#pragma unroll
    for (int i = 0; i < Q; i++) {
        /* a piece's later rows may see a segment that its first ones do not, and the reverse */
        if (t.high[i] < 0 ||
            (is_split && (t.low[i] > segment * SEGMENT - 1 || t.high[i] < (segment - 1) * SEGMENT)))
            continue;
        float *to = is_split ? a.partial + ((segment - 1) * n_queries + t.at[i]) * (dim + 2)
                             : op.out + t.at[i] * dim;
        float factor = is_split ? 1.0f : __frcp_rn(state[i].sum);
#pragma unroll
        for (int j = 0; j < D; j++) {
            int32_t d = threadIdx.x + j * THREADS;
            if (d < dim)
                to[d] = is_split ? sums[i][j] : __fmul_rn(sums[i][j], factor);
        }
        if (is_split && threadIdx.x == 0) {
            to[dim] = state[i].max;
            to[dim + 1] = state[i].sum;
        }
    }
}

#define TOGETHER 16 /* segments on their way at a time */

/* A block merges the segments of one query, a thread two dimensions of it. */
static __global__ void __launch_bounds__(THREADS)
    merge_kernel(const __grid_constant__ struct attention_args a) {
    const struct ft_op_attention &op = a.op;
    k_let_next_start();
    struct ft_span piece = op.pieces[blockIdx.y / FT_OPS_PIECE_ROWS];
    k_wait();
    int32_t row = blockIdx.y % FT_OPS_PIECE_ROWS, dim = op.kv.head_dim;
    if (row >= piece.n_rows)
        return;
    int32_t high = piece.position + row, d = threadIdx.x;
    int64_t n_queries = (int64_t)op.n_rows * op.n_heads;
    int64_t at = (int64_t)(piece.row + row) * op.n_heads + blockIdx.x;
    struct softmax state = {-INFINITY, 0.0f};
    float sums[2] = {0.0f, 0.0f};
    int32_t last = high / SEGMENT;
    for (int32_t s = lowest(op, high) / SEGMENT; s <= last; s += TOGETHER) {
        struct softmax next[TOGETHER];
        float values[TOGETHER][2];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const float *from = a.partial + (min(s + i, last) * n_queries + at) * (dim + 2);
            next[i] = {__ldcg(from + dim), __ldcg(from + dim + 1)};
#pragma unroll
            for (int j = 0; j < 2; j++)
                values[i][j] = d + j * THREADS < dim ? __ldcg(from + d + j * THREADS) : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            float fa, fb;
            if (s + i > last)
                break;
            state = merge(state, next[i], &fa, &fb);
#pragma unroll
            for (int j = 0; j < 2; j++)
                sums[j] = merge_value(sums[j], values[i][j], fa, fb);
        }
    }
    float factor = __frcp_rn(state.sum);
#pragma unroll
    for (int j = 0; j < 2; j++)
        if (d + j * THREADS < dim)
            op.out[at * dim + d + j * THREADS] = __fmul_rn(sums[j], factor);
}

template <int Q, int D>
static cudaError_t launch(const struct k_target *on, struct attention_args *args) {
    const struct ft_op_attention *op = &args->op;
    int32_t rows = op->n_pieces == op->n_rows ? 1 : FT_OPS_PIECE_ROWS;
    args->n_tiles = (int32_t)k_ceil_div(rows * (op->n_heads / op->kv.n_heads), Q);
    /* segments are numbered from the first one a piece sees, but stored under their own number */
    dim3 grid(args->n_segments > 0 ? (unsigned)args->n_segments : 1,
              (unsigned)(op->kv.n_heads * args->n_tiles), (unsigned)op->n_pieces);
    return k_launch(on, (const void *)attention_kernel<Q, D>, {grid, dim3(THREADS), 0, 1}, args);
}

extern "C" cudaError_t k_attention(const struct k_target *on, const struct ft_op_attention *op) {
    struct attention_args args = {*op, 0, 0, on->scratch};
    int64_t n_segments = k_ceil_div(op->len_max, SEGMENT);
    int64_t segment_floats = (int64_t)op->n_rows * op->n_heads * (op->kv.head_dim + 2);
    if (n_segments > 1 &&
        n_segments * segment_floats <= (int64_t)(on->scratch_bytes / sizeof(float)))
        args.n_segments = (int32_t)n_segments;
    bool is_few = op->n_pieces == op->n_rows && op->n_heads / op->kv.n_heads <= 4;
    cudaError_t error = op->kv.head_dim > THREADS ? launch<8, 2>(on, &args)
                        : is_few                  ? launch<4, 1>(on, &args)
                                                  : launch<8, 1>(on, &args);
    if (error != cudaSuccess || args.n_segments == 0)
        return error;
    dim3 grid((unsigned)op->n_heads, (unsigned)(op->n_pieces * FT_OPS_PIECE_ROWS));
    return k_launch(on, (const void *)merge_kernel, {grid, dim3(THREADS), 0, 1}, &args);
}
