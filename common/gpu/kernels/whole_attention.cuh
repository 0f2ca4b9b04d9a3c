/* whole_attention: attention within the whole step's kernel. A block has a segment of positions for
 * all queries of a span and KV head; its KV comes into shared memory, for the block's teams.
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
    int32_t n = (int32_t)ft_kv_head_floats(op.kv.head_dim) / 4;
#pragma unroll 1
    for (int32_t i = 0; i < BLOCKS; i++) {
        const float4 *from = i == 0 ? unit.blocks[0] : unit.blocks[BLOCKS - 1];
        int32_t end = (unit.segment * BLOCKS + i + 1) * FT_OPS_KV_BLOCK;
        if (from == NULL || (end > unit.span.position) != is_new)
            continue;
        float4 *to = (float4 *)(kv + i * a.at.kv_block_bytes);
#pragma unroll 2
        for (int32_t j = threadIdx.x; j < n; j += COMPUTE)
            k_fetch_start(to + j, from + j);
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
    float *scratch = (float *)(memory + a.at.tiles) + warp * 3 * SCALED; /* of this warp */
    float(*factors)[2] = (float(*)[2])scratch;
    static_assert(WHOLE_WARPS * 3 * SCALED * sizeof(float) <= sizeof(struct tile<4, DIM_WHOLE>),
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
template <int Q>
static __device__ __forceinline__ void
find_queries(const struct ft_op_attention &op, const struct unit &unit, int32_t first,
             const struct partials &p, struct tile<Q, DIM_WHOLE> &t) {
    int32_t group = op.n_heads / op.kv.n_heads, own = (int32_t)team_thread<false>();
    int32_t base = unit.segment * SEGMENT;
    if (own < Q) {
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
        find_common(op, unit.span, first, group, t);
}

/* q of a tile's queries, a query by a warp at a time. */
template <int Q>
static __device__ __forceinline__ void load_queries(const struct ft_op_attention &op,
                                                    const struct partials &p,
                                                    struct tile<Q, DIM_WHOLE> &t) {
    int32_t own = (int32_t)team_thread<false>(), d = own % 32 * 4;
#pragma unroll
    for (int k = 0; k < Q / TEAM_WARPS; k++) {
        int32_t query = own / 32 + k * TEAM_WARPS;
        if (d < p.dim)
            *(float4 *)&t.q[query][d] =
                t.high[query] >= 0 ? __ldcg((const float4 *)(op.q + t.at[query] * p.dim + d))
                                   : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    team_sync<false>();
}

/* A segment for a tile of queries, by a team. */
template <int Q>
static __device__ __forceinline__ void
attend_tile(const struct partials &p, float scale, struct tile<Q, DIM_WHOLE> &t,
            const struct source &s, int32_t base, int32_t last) {
    int32_t dim = p.dim, width = dim > 64 ? TEAM : dim > 32 ? 64 : 32;
    int32_t own = (int32_t)team_thread<false>();
    float values[Q][1];
    score<false>(s, t, base, last);
    team_sync<false>();
    weigh<false>(t, scale, base);
    team_sync<false>();
    add_values<false, Q, 1>(s, t, width, base, last, values);
#pragma unroll
    for (int i = 0; i < Q; i++) {
        int32_t to = t.to[i];
        if (to >= 0 && own < dim)
            p.at[to + own] = values[i][0];
    }
    if (own < Q && t.to[own] >= 0) {
        p.at[t.to[own] + dim] = t.softmax[own].max;
        p.at[t.to[own] + dim + 1] = t.softmax[own].sum;
    }
}

static __device__ __forceinline__ int32_t queries_in(const struct ft_op_attention &op,
                                                     const struct unit &unit) {
    return unit.span.n_rows * (op.n_heads / op.kv.n_heads);
}

template <int Q>
static __device__ __forceinline__ struct tile<Q, DIM_WHOLE> *
tile_of_team(const struct whole_args &a, char *memory) {
    return (struct tile<Q, DIM_WHOLE> *)(memory + a.at.tiles) + threadIdx.x / TEAM;
}

/* The team's first tile of a unit. */
template <int Q>
static __device__ __forceinline__ void find_first(const struct whole_args &a, char *memory,
                                                  const struct unit &unit) {
    const struct ft_op_attention &op = ((struct small *)(memory + a.at.small))->attention;
    int32_t first = (int32_t)threadIdx.x / TEAM * Q;
    if (first < queries_in(op, unit))
        find_queries<Q>(op, unit, first, partials_of(a), *tile_of_team<Q>(a, memory));
}

/* A unit whose old KV is on its way, and whose first tiles are known; KV of the next one goes on
 * its way, beside it. */
template <int Q>
static __device__ __forceinline__ void attend_unit(const struct whole_args &a,
                                                   const struct unit &unit, int32_t kv_at,
                                                   const struct unit &next, int32_t next_at) {
    K_SHARED_MEMORY(char, memory); /* said here, so that it is known to be shared */
    char *kv = memory + kv_at;
    struct small *small = (struct small *)(memory + a.at.small);
    const struct ft_op_attention &op = small->attention;
    int32_t team = threadIdx.x / TEAM, base = unit.segment * SEGMENT;
    int32_t n = queries_in(op, unit);
    struct tile<Q, DIM_WHOLE> &t = *tile_of_team<Q>(a, memory);
    struct partials p = partials_of(a);
    start_kv(a, op, unit, kv, true);
    if (team * Q < n)
        load_queries<Q>(op, p, t);
    k_fetch_wait();
    block_sync();
    if (next.span.n_rows > 0) /* then there is room for two */
        start_kv(a, op, next, memory + next_at, false);
#pragma unroll 1
    for (int32_t first = team * Q; first < n; first += TEAMS * Q) {
        if (first != team * Q) {
            find_queries<Q>(op, unit, first, p, t);
            team_sync<false>();
            load_queries<Q>(op, p, t);
        }
        struct source source = {
            NULL,
            0,
            (int32_t)ft_kv_padded_dim(op.kv.head_dim),
            NULL,
            {(const float *)kv, (const float *)(kv + (BLOCKS - 1) * a.at.kv_block_bytes)}};
        attend_tile<Q>(p, op.scale, t, source, base,
                       min(unit.span.position + unit.span.n_rows - 1, base + SEGMENT - 1));
        team_sync<false>(); /* the tile's memory is written anew */
    }
    block_sync();
}

/* All units of this block. Begins between the halves of the barrier behind q, k and v: KV that is
 * older than the step need not wait. Apart from the rest, whose registers it would take. */
template <int Q> static __device__ __noinline__ void attend(int32_t small_at, uint32_t n_passed) {
    K_SHARED_MEMORY(char, memory);
    struct small *small = (struct small *)(memory + small_at);
    const struct whole_args &a = small->args;
    int32_t u = (int32_t)blockIdx.x, n_blocks = (int32_t)gridDim.x;
    struct unit unit = unit_at(small->attention, small, a.op.n_spans, u);
    bool has_next = unit_at(small->attention, small, a.op.n_spans, u + n_blocks).span.n_rows > 0;
    int32_t at = a.at.kv, next_at = at + (a.at.n_kv - 1) * BLOCKS * a.at.kv_block_bytes;
    if (unit.span.n_rows > 0) {
        start_kv(a, small->attention, unit, memory + at, false);
        find_first<Q>(a, memory, unit);
    }
    whole_await(a.op, n_passed);
#pragma unroll 1
    while (unit.span.n_rows > 0) {
        struct unit next = {};
        if (has_next)
            next = unit_at(small->attention, small, a.op.n_spans, u + n_blocks);
        attend_unit<Q>(a, unit, at, next, next_at);
        unit = next;
        if (!has_next)
            break;
        find_first<Q>(a, memory, unit);
        team_sync<false>();
        int32_t free_at = at;
        at = next_at;
        next_at = free_at;
        u += n_blocks;
        has_next = unit_at(small->attention, small, a.op.n_spans, u + n_blocks).span.n_rows > 0;
    }
}

#endif
