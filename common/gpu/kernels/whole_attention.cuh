/* whole_attention: attention within the whole step's kernel. A block has a segment of positions for
 * all queries of a span and KV head; its KV comes into shared memory, for the block's teams.
 * Owns:    nothing.
 * Runs in: nvcc's files only.
 * Never:   waits for another block: the team that is last to hand in merges. */
#ifndef FT_GPU_KERNELS_WHOLE_ATTENTION_CUH
#define FT_GPU_KERNELS_WHOLE_ATTENTION_CUH

#include "common/gpu/kernels/whole.cuh"

struct unit {
    struct ft_span span; /* no rows: there is no such unit */
    int32_t span_number, kv_head, segment;
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

static __device__ __forceinline__ struct unit
unit_at(const struct ft_op_attention &op, const struct small *small, int32_t n_spans, int32_t u) {
    struct unit unit = {};
    for (; unit.span_number < n_spans; unit.span_number++) {
        struct ft_span span = small->spans[unit.span_number];
        int32_t first = lowest(op, span.position) / SEGMENT;
        int32_t n = (span.position + span.n_rows - 1) / SEGMENT - first + 1;
        if (u < n * op.kv.n_heads) {
            unit.span = span;
            unit.kv_head = u / n;
            unit.segment = first + u % n;
            return unit;
        }
        u -= n * op.kv.n_heads;
    }
    return unit;
}

/* What attention in a layer is of, by one thread. */
static __device__ __forceinline__ void begin_attention(const struct ft_op_whole &op,
                                                       int32_t layer,
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
    int32_t last = unit.span.position + unit.span.n_rows - 1;
#pragma unroll 1
    for (int32_t i = 0; i < BLOCKS; i++) {
        int32_t block = unit.segment * BLOCKS + i, first = block * FT_OPS_KV_BLOCK;
        if (first > last || (first + FT_OPS_KV_BLOCK > unit.span.position) != is_new)
            continue;
        const float4 *from =
            (const float4 *)(op.kv.base +
                             op.blocks[unit.span.table + block] *
                                 ft_kv_block_floats(op.kv.n_heads, op.kv.head_dim) +
                             unit.kv_head * ft_kv_head_floats(op.kv.head_dim));
        float4 *to = (float4 *)(kv + i * a.at.kv_block_bytes);
#pragma unroll 2
        for (int32_t j = threadIdx.x; j < n; j += COMPUTE)
            k_fetch_start(to + j, from + j);
    }
}

/* A number of x, in parts. */
static __device__ __forceinline__ void put_one(char *x, int32_t n, int32_t row, int32_t column,
                                               float value) {
    char *to = parts_at(x, n, row, column);
    uint32_t parts[ORDERS];
    split_x(value, 0.0f, parts);
#pragma unroll
    for (int p = 0; p < ORDERS; p++)
        *(uint16_t *)(to + p * COLUMN_BYTES) = (uint16_t)parts[p];
}

/* Where segments leave what they have summed up, query by query: values, maximum and sum. */
struct partials {
    float *at;
    int32_t dim, n_queries;
};
#define PARTIAL_PAD 4
static __device__ __forceinline__ float *partial_of(const struct partials &p, int32_t segment,
                                                    int32_t query) {
    return p.at + ((int64_t)segment * p.n_queries + query) * (p.dim + PARTIAL_PAD);
}

/* What some segments of a query are scaled with, as merge has it, a segment by a lane; the sum by
 * all of them. */
#define SCALED 32
static __device__ __forceinline__ struct softmax scale_segments(const struct partials &p,
                                                                struct softmax state,
                                                                int32_t query, int32_t first,
                                                                int32_t n,
                                                                float factors[SCALED][2],
                                                                float sums[SCALED]) {
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

/* The segments of a tile's n queries in order, as merge_kernel does, into x of the next matrix: a
 * query by a warp, a lane has four dimensions. */
template <int Q>
static __device__ __noinline__ void merge_tile(struct partials p, int32_t tile_at, int32_t n,
                                               char *x, int32_t n_rows, int32_t n_heads) {
    K_SHARED_MEMORY(char, memory);
    struct tile<Q, DIM_WHOLE> &t = *(struct tile<Q, DIM_WHOLE> *)(memory + tile_at);
    int32_t warp = (int32_t)team_thread<false>() / 32, d = (int32_t)threadIdx.x % 32 * 4;
    float *scratch = &t.scores[0][0][0] + warp * 3 * SCALED; /* of this warp */
    float(*factors)[2] = (float(*)[2])scratch;
    static_assert(TEAM_WARPS * 3 * SCALED <= QUARTERS * 4 * SEGMENT, "room for all warps");
#pragma unroll 1
    for (int32_t i = warp; i < n; i += TEAM_WARPS) {
        int32_t query = (int32_t)t.at[i], first = t.low[i] / SEGMENT;
        int32_t left = t.high[i] / SEGMENT - first + 1;
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
        float whole = __frcp_rn(state.sum), four[4] = {sum.x, sum.y, sum.z, sum.w};
        if (d < p.dim)
#pragma unroll
            for (int k = 0; k < 4; k++)
                put_one(x, n_rows, query / n_heads, query % n_heads * p.dim + d + k,
                        __fmul_rn(four[k], whole));
    }
}

/* A segment for a tile of queries, by a team. */
template <int Q>
static __device__ __forceinline__ void attend_tile(const struct partials &p, float scale,
                                                   struct tile<Q, DIM_WHOLE> &t,
                                                   const struct source &s, int32_t base,
                                                   int32_t last) {
    int32_t dim = p.dim, width = dim > 64 ? TEAM : dim > 32 ? 64 : 32;
    float values[Q][1];
    score<false>(s, t, base, last);
    team_sync<false>();
    weigh<false>(t, scale, base);
    team_sync<false>();
    add_values<false, Q, 1>(s, t, width, base, last, values);
    int32_t d = (int32_t)team_thread<false>();
#pragma unroll
    for (int i = 0; i < Q; i++) {
        if (t.high[i] < 0 || t.low[i] >= base + SEGMENT || t.high[i] < base || d >= width)
            continue;
        float *to = partial_of(p, base / SEGMENT, (int32_t)t.at[i]);
        if (d < dim)
            to[d] = values[i][0];
        if (d == 0) {
            to[dim] = t.softmax[i].max;
            to[dim + 1] = t.softmax[i].sum;
        }
    }
}

/* A tile's first and last segment. */
struct stretch {
    int32_t first, last;
};
static __device__ __forceinline__ struct stretch
stretch_of(const struct ft_op_attention &op, const struct unit &unit, int32_t first, int32_t n) {
    int32_t group = op.n_heads / op.kv.n_heads;
    return {lowest(op, unit.span.position + first / group) / SEGMENT,
            (unit.span.position + (first + n - 1) / group) / SEGMENT};
}

/* A unit whose old KV is on its way; that of the next one goes on its way, beside it. */
template <int Q>
static __device__ __forceinline__ void
attend_unit(const struct whole_args &a, const struct unit &unit, int32_t kv_at,
            const struct unit &next, int32_t next_at) {
    K_SHARED_MEMORY(char, memory); /* said here, so that it is known to be shared */
    char *kv = memory + kv_at;
    struct small *small = (struct small *)(memory + a.at.small);
    const struct ft_op_attention &op = small->attention;
    int32_t team = threadIdx.x / TEAM, base = unit.segment * SEGMENT;
    int32_t n = unit.span.n_rows * (op.n_heads / op.kv.n_heads);
    struct tile<Q, DIM_WHOLE> &t = ((struct tile<Q, DIM_WHOLE> *)(memory + a.at.tiles))[team];
    start_kv(a, op, unit, kv, true);
    if (team * Q < n)
        load_tile<false>(op, unit.span, unit.kv_head, team * Q, t);
    k_fetch_wait();
    block_sync();
    if (next.span.n_rows > 0) /* then there is room for two */
        start_kv(a, op, next, memory + next_at, false);
#pragma unroll 1
    for (int32_t first = team * Q; first < n; first += TEAMS * Q) {
        int32_t n_own = min(Q, n - first);
        struct stretch seen = stretch_of(op, unit, first, n_own);
        if (unit.segment < seen.first || unit.segment > seen.last)
            continue;
        if (first != team * Q)
            load_tile<false>(op, unit.span, unit.kv_head, first, t);
        struct source source = {NULL,
                                0,
                                (int32_t)ft_kv_padded_dim(op.kv.head_dim),
                                NULL,
                                {(const float *)kv,
                                 (const float *)(kv + (BLOCKS - 1) * a.at.kv_block_bytes)}};
        struct partials p = {a.partial, op.kv.head_dim, op.n_rows * op.n_heads};
        attend_tile<Q>(p, op.scale, t, source, base,
                       min(unit.span.position + unit.span.n_rows - 1, base + SEGMENT - 1));
        uint32_t *counter =
            &a.op.state->merges[(unit.span_number * a.n_tiles + first / Q) * op.kv.n_heads +
                                unit.kv_head];
        team_sync<false>();
        if (team_thread<false>() == 0)
            small->arrived[team] = k_tell(counter, 1);
        team_sync<false>();
        if (small->arrived[team] == (uint32_t)(seen.last - seen.first)) {
            merge_tile<Q>(p, a.at.tiles + team * (int32_t)sizeof t, n_own, (char *)a.op.attended,
                          op.n_rows, op.n_heads);
            if (team_thread<false>() == 0)
                *counter = 0; /* the next one to look is behind a barrier of the grid */
        }
        team_sync<false>(); /* the tile's memory is written anew */
    }
    block_sync();
}

/* All units of this block. Begins between the halves of the barrier behind q, k and v: KV that is
 * older than the step need not wait. Apart from the rest, whose registers it would take. */
template <int Q>
static __device__ __noinline__ void attend(const struct whole_args &a, uint32_t n_passed) {
    K_SHARED_MEMORY(char, memory);
    struct small *small = (struct small *)(memory + a.at.small);
    int32_t u = (int32_t)blockIdx.x;
    struct unit unit = unit_at(small->attention, small, a.op.n_spans, u);
    int32_t at = a.at.kv, next_at = at + (a.at.n_kv - 1) * BLOCKS * a.at.kv_block_bytes;
    if (unit.span.n_rows > 0)
        start_kv(a, small->attention, unit, memory + at, false);
    whole_await(a.op, n_passed);
#pragma unroll 1
    while (unit.span.n_rows > 0) {
        u += (int32_t)gridDim.x;
        struct unit next = unit_at(small->attention, small, a.op.n_spans, u);
        attend_unit<Q>(a, unit, at, next, next_at);
        int32_t free_at = at;
        at = next_at;
        next_at = free_at;
        unit = next;
    }
}

#endif
