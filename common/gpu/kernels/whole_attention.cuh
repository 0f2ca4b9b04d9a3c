/* whole_attention: attention within the whole step's kernel. A block has a segment of positions for
 * all queries of a span and KV head; its KV comes into shared memory.
 * Owns:    nothing.
 * Runs in: nvcc's files only.
 * Never:   waits for another block: barriers stand between attending and merging. */
#ifndef FT_GPU_KERNELS_WHOLE_ATTENTION_CUH
#define FT_GPU_KERNELS_WHOLE_ATTENTION_CUH

#include "common/gpu/kernels/whole.cuh"

struct unit {
    struct ft_span span; /* no rows: there is no such unit */
    int32_t kv_head, segment;
    const float4 *blocks[BLOCKS]; /* its KV; NULL: behind the last position */
};

/* Spans from the pieces that they are cut in, by one thread. */
static __device__ __forceinline__ void find_spans(const struct ft_op_whole &op,
                                                  struct small *small) {
    int32_t n = -1;
    for (int32_t i = 0; i < op.n_pieces; i++) {
        struct ft_span piece = op.pieces[i];
        if (n >= 0 && small->spans[n].table == piece.table)
            small->spans[n].n_rows += piece.n_rows;
        else
            small->spans[++n] = piece;
    }
}

static __device__ __forceinline__ void find_blocks(const struct ft_op_attention &op,
                                                   struct unit &unit) {
    int32_t last = unit.span.position + unit.span.n_rows - 1;
#pragma unroll
    for (int32_t i = 0; i < BLOCKS; i++) {
        int32_t block = unit.segment * BLOCKS + i;
        if (block * FT_OPS_KV_BLOCK <= last)
            unit.blocks[i] =
                (const float4 *)(op.kv.base +
                                 op.blocks[unit.span.table + block] *
                                     ft_kv_block_floats(op.kv.n_heads, op.kv.head_dim) +
                                 unit.kv_head * ft_kv_head_floats(op.kv.head_dim));
    }
}

static __device__ __forceinline__ struct unit
unit_at(const struct ft_op_attention &op, const struct small *small, int32_t n_spans, int32_t u) {
    struct unit unit = {};
    for (int32_t i = 0; i < n_spans; i++) {
        struct ft_span span = small->spans[i];
        int32_t first = lowest(op, span.position) / SEGMENT;
        int32_t n = (span.position + span.n_rows - 1) / SEGMENT - first + 1;
        if (u < n * op.kv.n_heads) {
            unit.span = span;
            unit.kv_head = u / n;
            unit.segment = first + u % n;
            find_blocks(op, unit);
            return unit;
        }
        u -= n * op.kv.n_heads;
    }
    return unit;
}

/* What attention in a layer is of, by one thread. */
static __device__ __forceinline__ void begin_attention(const struct ft_op_whole &op, int32_t layer,
                                                       struct ft_op_attention &of) {
    of.q = op.q;
    of.n_heads = op.n_heads;
    of.scale = op.scale;
    of.window = op.layers[layer].window;
    of.n_rows = op.n_rows;
    of.blocks = op.table;
    of.kv = {op.layers[layer].kv, op.n_kv_heads, op.head_dim};
}

/* Start blocks of a unit's KV on their way into shared memory: those that this step writes to, or
 * those that it does not. */
static __device__ __forceinline__ void start_kv(const struct whole_args &a,
                                                const struct ft_op_attention &op,
                                                const struct unit &unit, char *kv, bool is_new) {
    int32_t dim = op.kv.head_dim; /* a head has no padding here */
#pragma unroll 1
    for (int32_t i = 0; i < BLOCKS; i++) {
        const float4 *from = i == 0 ? unit.blocks[0] : unit.blocks[BLOCKS - 1];
        int32_t end = (unit.segment * BLOCKS + i + 1) * FT_OPS_KV_BLOCK;
        if (from == NULL || (end > unit.span.position) != is_new)
            continue;
        char *to = kv + i * a.at.kv_block_bytes;
        int32_t n = dim * FT_OPS_KV_BLOCK / 4; /* vectors of keys, and as many of values */
#pragma unroll 2
        for (int32_t j = threadIdx.x; j < n; j += COMPUTE) {
            int32_t in_value = j % (dim / 4), position = j / (dim / 4);
            k_fetch_start(to + near_key(j / 4, j % 4), from + j);
            k_fetch_start(to + near_values(dim, position) + in_value * 16, from + n + j);
        }
    }
}

/* Where segments leave what they have summed up, query by query: values, maximum and sum. */
struct partials {
    float *at;
    int32_t dim, n_queries;
};
static __device__ __forceinline__ struct partials partials_of(const struct whole_args &a) {
    return {a.partial, a.op.head_dim, a.op.n_rows * a.op.n_heads};
}
#define PARTIAL_PAD 4
static __device__ __forceinline__ float *partial_of(const struct partials &p, int32_t segment,
                                                    int32_t query) {
    return p.at + ((int64_t)segment * p.n_queries + query) * (p.dim + PARTIAL_PAD);
}

/* What some segments of a query are scaled with, as merge has it, a segment by a lane; the sum by
 * all of them. */
#define SCALED 32
static __device__ __forceinline__ struct softmax
scale_segments(const struct partials &p, struct softmax state, int32_t query, int32_t first,
               int32_t n, float factors[SCALED][2], float sums[SCALED]) {
    int32_t lane = threadIdx.x % 32;
    const float *from = partial_of(p, first + min(lane, n - 1), query) + p.dim;
    float own = __ldcg(from), sum = __ldcg(from + 1), max = own;
    for (int i = 1; i < 32; i *= 2) { /* of all segments before, too */
        float other = __shfl_up_sync(0xFFFFFFFFu, max, i);
        max = lane >= i ? fmaxf(max, other) : max;
    }
    max = fmaxf(max, state.max);
    float before = __shfl_up_sync(0xFFFFFFFFu, max, 1);
    before = lane == 0 ? state.max : before;
    factors[lane][0] = expf(before - max);
    factors[lane][1] = expf(own - max);
    sums[lane] = sum;
    state.max = __shfl_sync(0xFFFFFFFFu, max, 31); /* lanes behind the last have the last again */
    k_sync_warp();
#pragma unroll 8
    for (int32_t j = 0; j < n; j++)
        state.sum = __fmaf_rn(sums[j], factors[j][1], __fmul_rn(state.sum, factors[j][0]));
    return state;
}

/* Four dimensions of some segments. */
#define VALUES_AHEAD 8
struct four_ahead {
    float4 at[VALUES_AHEAD];
};
static __device__ __forceinline__ struct four_ahead
load_segments(const struct partials &p, int32_t query, int32_t d, int32_t first, int32_t n) {
    struct four_ahead values = {};
    const float *from = partial_of(p, first, query) + d;
    int64_t step = (int64_t)p.n_queries * (p.dim + PARTIAL_PAD);
#pragma unroll
    for (int j = 0; j < VALUES_AHEAD; j++, from += step)
        if (j < n && d < p.dim)
            values.at[j] = __ldcg((const float4 *)from);
    return values;
}

static __device__ __forceinline__ void add_segments(float4 &sum, const struct four_ahead &values,
                                                    int32_t n, const float (*factors)[2]) {
#pragma unroll
    for (int j = 0; j < VALUES_AHEAD; j++)
        if (j < n) {
            float fa = factors[j][0], fb = factors[j][1];
            float4 v = values.at[j];
            sum = make_float4(merge_value(sum.x, v.x, fa, fb), merge_value(sum.y, v.y, fa, fb),
                              merge_value(sum.z, v.z, fa, fb), merge_value(sum.w, v.w, fa, fb));
        }
}

/* The segments of all queries in order, as merge_kernel does, into x of the next matrix: a query by
 * a warp of all blocks, a lane has four dimensions. */
static __device__ __noinline__ void merge_all(int32_t small_at) {
    K_SHARED_MEMORY(char, memory);
    const struct small *small = (const struct small *)(memory + small_at);
    const struct whole_args &a = small->args;
    const struct ft_op_whole &op = a.op;
    struct partials p = partials_of(a);
    int32_t warp = (int32_t)threadIdx.x / 32, d = (int32_t)threadIdx.x % 32 * 4;
    float *scratch = (float *)(memory + a.at.tile) + warp * 3 * SCALED; /* of this warp */
    float(*factors)[2] = (float(*)[2])scratch;
    static_assert(WHOLE_WARPS * 3 * SCALED * sizeof(float) <= sizeof(struct tile<8, DIM_WHOLE>),
                  "room for all warps");
#pragma unroll 1
    for (int32_t query = (int32_t)blockIdx.x + warp * (int32_t)gridDim.x; query < p.n_queries;
         query += WHOLE_WARPS * (int32_t)gridDim.x) {
        int32_t row = query / op.n_heads, high = small->positions[row];
        int32_t first = lowest(small->attention, high) / SEGMENT, left = high / SEGMENT - first + 1;
        struct softmax state = {-INFINITY, 0.0f};
        float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
        for (; left > 0; first += SCALED, left -= SCALED) {
            struct four_ahead values = load_segments(p, query, d, first, left);
            state = scale_segments(p, state, query, first, min(left, SCALED), factors,
                                   scratch + 2 * SCALED);
#pragma unroll 1
            for (int32_t j = 0; j < min(left, SCALED); j += VALUES_AHEAD) {
                struct four_ahead next = load_segments(p, query, d, first + j + VALUES_AHEAD,
                                                       min(left, SCALED) - j - VALUES_AHEAD);
                add_segments(sum, values, min(left, SCALED) - j, factors + j);
                values = next;
            }
            k_sync_warp();
        }
        float whole = __frcp_rn(state.sum);
        if (d < p.dim)
            put_four(parts_at((char *)op.attended, op.n_rows, row, query % op.n_heads * p.dim + d),
                     make_float4(__fmul_rn(sum.x, whole), __fmul_rn(sum.y, whole),
                                 __fmul_rn(sum.z, whole), __fmul_rn(sum.w, whole)));
    }
}

/* A tile's queries and what they see, which no stage of the step changes. */
template <int N>
static __device__ __forceinline__ void
find_queries(const struct ft_op_attention &op, const struct unit &unit, int32_t first,
             const struct partials &p, struct tile<N, DIM_WHOLE> &t) {
    int32_t group = op.n_heads / op.kv.n_heads, own = (int32_t)threadIdx.x;
    int32_t base = unit.segment * SEGMENT;
    if (own < N) {
        int32_t row = (first + own) / group, high = unit.span.position + row;
        bool is_there = row < unit.span.n_rows;
        int32_t low = is_there ? lowest(op, high) : 0;
        int32_t query =
            (unit.span.row + row) * op.n_heads + unit.kv_head * group + (first + own) % group;
        t.high[own] = is_there ? high : -1;
        t.low[own] = low;
        t.at[own] = query;
        t.to[own] = is_there && low < base + SEGMENT && high >= base
                        ? (unit.segment * p.n_queries + query) * (p.dim + PARTIAL_PAD)
                        : -1;
    }
    if (own == 0)
        find_seen(op, unit.span, first, group, t);
}

/* q of a tile's queries, a query by a warp at a time. */
template <int N>
static __device__ __forceinline__ void load_queries(const struct ft_op_attention &op,
                                                    const struct partials &p,
                                                    struct tile<N, DIM_WHOLE> &t) {
    constexpr int OWN = N / WHOLE_WARPS;
    int32_t d = (int32_t)threadIdx.x % 32 * 4, warp = (int32_t)threadIdx.x / 32;
    float4 q[OWN];
    if (d >= p.dim)
        return;
#pragma unroll
    for (int k = 0; k < OWN; k++) {
        int32_t query = warp + k * WHOLE_WARPS;
        q[k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (t.high[query] >= 0)
            q[k] = __ldcg((const float4 *)(op.q + t.at[query] * p.dim + d));
    }
#pragma unroll
    for (int k = 0; k < OWN; k++)
        put_columns(t.q[warp + k * WHOLE_WARPS], d, q[k]);
}

/* A segment for a tile of queries; a warp has sixteen dimensions of their values. */
template <int N>
static __device__ __forceinline__ void attend_tile(const struct partials &p, float scale,
                                                   struct tile<N, DIM_WHOLE> &t,
                                                   const struct source &s, int32_t base) {
    int32_t own = (int32_t)threadIdx.x, lane = own % 32, d = own / 32 * STEP;
    static_assert(WHOLE_WARPS * STEP >= DIM_WHOLE, "a warp for each sixteen");
    score<true>(s, t, base);
    block_sync();
    weigh<true>(t, scale, base);
    block_sync();
    if (d < p.dim) {
        struct weighted<N> sums = add_values<true>(
            s, t, base, d, load_values<true>(s, base, d, t.all_low, t.all_high));
#pragma unroll
        for (int i = 0; i < N / GROUP * 2; i++) {
            int32_t to = t.to[i / 2 * GROUP + lane % 4 * 2 + i % 2];
            if (to >= 0)
                *(float2 *)(p.at + to + d + lane / 4 * 2) =
                    make_float2(sums.at[i / 2][i % 2], sums.at[i / 2][2 + i % 2]);
        }
    }
    if (own < N && t.to[own] >= 0)
        *(float2 *)(p.at + t.to[own] + p.dim) =
            make_float2(t.softmax[own].max, t.softmax[own].sum);
}

static __device__ __forceinline__ int32_t queries_in(const struct ft_op_attention &op,
                                                     const struct unit &unit) {
    return unit.span.n_rows * (op.n_heads / op.kv.n_heads);
}

template <int N>
static __device__ __forceinline__ struct tile<N, DIM_WHOLE> &tile_at(const struct whole_args &a,
                                                                     char *memory) {
    return *(struct tile<N, DIM_WHOLE> *)(memory + a.at.tile);
}

/* A unit whose old KV is on its way, and whose first tile is known; KV of the next one goes on its
 * way, beside it. */
template <int N>
static __device__ __forceinline__ void attend_unit(const struct whole_args &a,
                                                   const struct unit &unit, int32_t kv_at,
                                                   const struct unit &next, int32_t next_at) {
    K_SHARED_MEMORY(char, memory); /* said here, so that it is known to be shared */
    char *kv = memory + kv_at;
    struct small *small = (struct small *)(memory + a.at.small);
    const struct ft_op_attention &op = small->attention;
    int32_t n = queries_in(op, unit);
    struct tile<N, DIM_WHOLE> &t = tile_at<N>(a, memory);
    struct partials p = partials_of(a);
    start_kv(a, op, unit, kv, true);
    load_queries<N>(op, p, t);
    k_fetch_wait();
    block_sync();
    if (next.span.n_rows > 0) /* then there is room for two */
        start_kv(a, op, next, memory + next_at, false);
    struct source source = {NULL,
                            0,
                            op.kv.head_dim,
                            NULL,
                            {(const float *)kv, (const float *)(kv + a.at.kv_block_bytes)}};
    static_assert(BLOCKS == 2, "as many places");
#pragma unroll 1
    for (int32_t first = 0; first < n; first += N) {
        if (first != 0) {
            block_sync(); /* the tile's memory is written anew */
            find_queries<N>(op, unit, first, p, t);
            block_sync();
            load_queries<N>(op, p, t);
            block_sync();
        }
        attend_tile<N>(p, op.scale, t, source, unit.segment * SEGMENT);
    }
    block_sync();
}

/* All units of this block. Begins between the halves of the barrier behind q, k and v: KV that is
 * older than the step need not wait. Apart from the rest, whose registers it would take. */
template <int N> static __device__ __noinline__ void attend(int32_t small_at, uint32_t n_passed) {
    K_SHARED_MEMORY(char, memory);
    struct small *small = (struct small *)(memory + small_at);
    const struct whole_args &a = small->args;
    int32_t u = (int32_t)blockIdx.x, n_blocks = (int32_t)gridDim.x;
    struct unit unit = unit_at(small->attention, small, a.op.n_spans, u);
    bool has_next = unit_at(small->attention, small, a.op.n_spans, u + n_blocks).span.n_rows > 0;
    int32_t at = a.at.kv, next_at = at + (a.at.n_kv - 1) * BLOCKS * a.at.kv_block_bytes;
    if (unit.span.n_rows > 0) {
        start_kv(a, small->attention, unit, memory + at, false);
        find_queries<N>(small->attention, unit, 0, partials_of(a), tile_at<N>(a, memory));
    }
    whole_await(a.op, n_passed);
#pragma unroll 1
    while (unit.span.n_rows > 0) {
        struct unit next = {};
        if (has_next)
            next = unit_at(small->attention, small, a.op.n_spans, u + n_blocks);
        attend_unit<N>(a, unit, at, next, next_at);
        unit = next;
        if (!has_next)
            break;
        find_queries<N>(small->attention, unit, 0, partials_of(a), tile_at<N>(a, memory));
        block_sync();
        int32_t free_at = at;
        at = next_at;
        next_at = free_at;
        u += n_blocks;
        has_next = unit_at(small->attention, small, a.op.n_spans, u + n_blocks).span.n_rows > 0;
    }
}

#endif
