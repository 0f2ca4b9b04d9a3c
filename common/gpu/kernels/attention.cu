/* Causal attention of grouped queries over paged KV.
 *
 * Positions are cut in segments (0 .. 31, 32 .. 63, ...). A segment gives each query a maximum, a
 * sum and a weighted sum of values; these are merged in order of segments (Milakov and Gimelshein
 * 2018). The order of all sums follows from a query's position and window alone, whether segments
 * are dealt out to blocks and merged by a second kernel or one block goes through them all. */
#include "common/gpu/kernels/attention.cuh"

struct attention_args {
    struct ft_op_attention op;
    int32_t n_tiles;    /* of queries, in a piece and KV head */
    int32_t n_segments; /* dealt out to blocks; 0: each block goes through them all */
    float *partial;     /* [n_segments, n_rows, n_heads, head_dim + 2]: values, maximum, sum */
};

/* What a query's values so far, and those of a segment that it sees, are scaled with. */
struct factors {
    float before, next;
    bool is_seen;
};
template <int N>
static __device__ __forceinline__ void merge_values(struct weighted<N> &sums,
                                                    const struct weighted<N> &next,
                                                    const struct factors factors[N / GROUP][2]) {
#pragma unroll
    for (int n = 0; n < N / GROUP; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const struct factors &f = factors[n][i % 2];
            if (f.is_seen)
                sums.at[n][i] = merge_value(sums.at[n][i], next.at[n][i], f.before, f.next);
        }
}

/* A block has N queries of a piece and KV head, and one segment or all of them; a warp has some of
 * the dimensions, sixteen at a time. Reads the keys and values of its segments once, 8 * head_dim
 * bytes a position. */
template <int N, int DIM>
static __global__ void __launch_bounds__(TEAM)
    attention_kernel(const __grid_constant__ struct attention_args a) {
    constexpr int OWN = DIM / (TEAM / 32 * STEP), APART = TEAM / 32 * STEP;
    __shared__ struct tile<N, DIM> t;
    const struct ft_op_attention &op = a.op;
    k_let_next_start();
    /* pieces and blocks are older than the step's first kernel */
    struct ft_span piece = op.pieces[blockIdx.z];
    int32_t group = op.n_heads / op.kv.n_heads, dim = op.kv.head_dim;
    int32_t kv_head = blockIdx.y / a.n_tiles, first = blockIdx.y % a.n_tiles * N;
    int32_t n_there = min(N, piece.n_rows * group - first);
    int32_t low = lowest(op, piece.position + first / group);
    int32_t high = piece.position + (first + n_there - 1) / group;
    int32_t segment = low / SEGMENT, last_segment = high / SEGMENT;
    bool is_split = a.n_segments > 0;
    if (is_split) {
        segment += blockIdx.x;
        if (segment > last_segment)
            n_there = 0;
        last_segment = segment;
    }
    struct source s = {op.kv.base + kv_head * ft_kv_head_floats(dim),
                       ft_kv_block_floats(op.kv.n_heads, dim),
                       (int32_t)ft_kv_padded_dim(dim),
                       op.blocks + piece.table,
                       {}};
    if (n_there > 0)
        seek(s, segment * SEGMENT, high);
    k_wait();
    if (n_there <= 0)
        return;
    load_tile(op, piece, kv_head, first, t);
    int32_t own = (int32_t)threadIdx.x / 32 * STEP, lane = threadIdx.x % 32;
    struct weighted<N> sums[OWN] = {};
    struct softmax state[N / GROUP][2]; /* of the lane's queries, as in struct weighted */
#pragma unroll
    for (int n = 0; n < N / GROUP; n++)
        state[n][0] = state[n][1] = {-INFINITY, 0.0f};
    for (; segment <= last_segment; segment++) {
        int32_t base = segment * SEGMENT;
        struct segment_values values[OWN] = {};
        if (!is_split)
            seek(s, base, high);
        score<false>(s, t, base);
#pragma unroll
        for (int m = 0; m < OWN; m++)
            if (own + m * APART < s.padded)
                values[m] = load_values<false>(s, base, own + m * APART, t.all_low, t.all_high);
        __syncthreads();
        weigh<false>(t, op.scale, base);
        __syncthreads();
        struct factors factors[N / GROUP][2] = {};
#pragma unroll
        for (int n = 0; n < N / GROUP; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int32_t query = n * GROUP + lane % 4 * 2 + i;
                struct factors &f = factors[n][i];
                f.is_seen = t.low[query] < base + SEGMENT && t.high[query] >= base;
                if (f.is_seen)
                    state[n][i] = merge(state[n][i], t.softmax[query], &f.before, &f.next);
            }
#pragma unroll
        for (int m = 0; m < OWN; m++)
            if (own + m * APART < s.padded)
                merge_values(sums[m],
                             add_values<false>(s, t, base, own + m * APART, values[m]), factors);
        __syncthreads();
    }
    int64_t n_queries = (int64_t)op.n_rows * op.n_heads;
#pragma unroll
    for (int i = 0; i < N / GROUP * 2; i++) {
        int32_t query = i / 2 * GROUP + lane % 4 * 2 + i % 2;
        /* a piece's later rows may see a segment that its first ones do not, and the reverse */
        if (t.high[query] < 0 || (is_split && (t.low[query] > segment * SEGMENT - 1 ||
                                               t.high[query] < (segment - 1) * SEGMENT)))
            continue;
        float *to = is_split
                        ? a.partial + ((segment - 1) * n_queries + t.at[query]) * (dim + 2)
                        : op.out + t.at[query] * dim;
        float factor = is_split ? 1.0f : __frcp_rn(state[i / 2][i % 2].sum);
#pragma unroll
        for (int m = 0; m < OWN; m++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                int32_t d = own + m * APART + lane / 4 * 2 + j;
                if (d < dim)
                    to[d] = __fmul_rn(sums[m].at[i / 2][j * 2 + i % 2], factor);
            }
        if (is_split && threadIdx.x < 4) {
            to[dim] = state[i / 2][i % 2].max;
            to[dim + 1] = state[i / 2][i % 2].sum;
        }
    }
}

/* A block merges the segments of one query, a thread two dimensions of it. */
static __global__ void __launch_bounds__(TEAM)
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
                values[i][j] = d + j * TEAM < dim ? __ldcg(from + d + j * TEAM) : 0.0f;
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
        if (d + j * TEAM < dim)
            op.out[at * dim + d + j * TEAM] = __fmul_rn(sums[j], factor);
}

template <int N, int DIM>
static cudaError_t launch(const struct k_target *on, struct attention_args *args) {
    const struct ft_op_attention *op = &args->op;
    int32_t rows = op->n_pieces == op->n_rows ? 1 : FT_OPS_PIECE_ROWS;
    args->n_tiles = (int32_t)k_ceil_div(rows * (op->n_heads / op->kv.n_heads), N);
    /* segments are numbered from the first one a piece sees, but stored under their own number */
    dim3 grid(args->n_segments > 0 ? (unsigned)args->n_segments : 1,
              (unsigned)(op->kv.n_heads * args->n_tiles), (unsigned)op->n_pieces);
    return k_launch(on, (const void *)attention_kernel<N, DIM>, {grid, dim3(TEAM), 0, 1}, args);
}

extern "C" cudaError_t k_attention(const struct k_target *on, const struct ft_op_attention *op) {
    struct attention_args args = {*op, 0, 0, on->scratch};
    int64_t n_segments = k_ceil_div(op->len_max, SEGMENT);
    int64_t segment_floats = (int64_t)op->n_rows * op->n_heads * (op->kv.head_dim + 2);
    if (n_segments > 1 &&
        n_segments * segment_floats <= (int64_t)(on->scratch_bytes / sizeof(float)))
        args.n_segments = (int32_t)n_segments;
    bool is_few = op->n_pieces == op->n_rows && op->n_heads / op->kv.n_heads <= GROUP;
    cudaError_t error = op->kv.head_dim > DIM_MAX / 2 ? launch<8, DIM_MAX>(on, &args)
                        : is_few                      ? launch<8, DIM_MAX / 2>(on, &args)
                                                      : launch<16, DIM_MAX / 2>(on, &args);
    if (error != cudaSuccess || args.n_segments == 0)
        return error;
    dim3 grid((unsigned)op->n_heads, (unsigned)(op->n_pieces * FT_OPS_PIECE_ROWS));
    return k_launch(on, (const void *)merge_kernel, {grid, dim3(TEAM), 0, 1}, &args);
}
