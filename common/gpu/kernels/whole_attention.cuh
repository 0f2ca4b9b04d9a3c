/* whole_attention: attention within the whole step's kernel, by teams of a block's threads.
 * Owns:    nothing.
 * Runs in: nvcc's files only.
 * Never:   waits for a team of another block: who comes last merges. */
#ifndef FT_GPU_KERNELS_WHOLE_ATTENTION_CUH
#define FT_GPU_KERNELS_WHOLE_ATTENTION_CUH

#include "common/gpu/kernels/whole.cuh"

/* Queries of a piece and KV head, and one segment of the positions that they see. */
struct unit {
    struct ft_span piece;
    int32_t kv_head, first, n; /* queries of the piece's rows in this head's group; n 0: nothing */
    int32_t segment, n_segments, high;
    int32_t merge; /* which counter */
};

template <int Q>
static __device__ __forceinline__ struct unit unit_at(const struct whole_args &a,
                                                      const struct ft_op_attention &op, int32_t u) {
    struct unit unit;
    int32_t group = op.n_heads / op.kv.n_heads;
    unit.merge = u / a.n_segments;
    unit.kv_head = unit.merge % op.kv.n_heads;
    int32_t tile = unit.merge / op.kv.n_heads;
    unit.piece = op.pieces[tile / a.n_tiles];
    unit.first = tile % a.n_tiles * Q;
    unit.n = min(Q, unit.piece.n_rows * group - unit.first);
    int32_t low = lowest(op, unit.piece.position + unit.first / group);
    unit.high = unit.piece.position + (unit.first + unit.n - 1) / group;
    unit.segment = low / SEGMENT + u % a.n_segments;
    unit.n_segments = unit.high / SEGMENT - low / SEGMENT + 1;
    if (unit.segment > unit.high / SEGMENT)
        unit.n = 0;
    return unit;
}

static __device__ __forceinline__ struct ft_op_attention
attention_of(const struct ft_op_whole &op, const struct ft_whole_layer &layer) {
    struct ft_op_attention of = {};
    of.q = op.q;
    of.out = op.attended;
    of.n_heads = op.n_heads;
    of.scale = op.scale;
    of.window = layer.window;
    of.pieces = op.pieces;
    of.n_pieces = op.n_pieces;
    of.n_rows = op.n_rows;
    of.blocks = op.table;
    of.kv = {layer.kv, op.n_kv_heads, op.head_dim};
    return of;
}

static __device__ __forceinline__ struct source source_of(const struct ft_op_attention &op,
                                                          const struct unit &unit) {
    int32_t dim = op.kv.head_dim;
    struct source s = {op.kv.base + unit.kv_head * ft_kv_head_floats(dim),
                       ft_kv_block_floats(op.kv.n_heads, dim),
                       dim,
                       op.blocks + unit.piece.table,
                       {}};
    seek(s, unit.segment * SEGMENT, min(unit.high, unit.segment * SEGMENT + SEGMENT - 1));
    return s;
}

/* Keys and values of a team's first unit on their way, while q is still being computed. */
template <int Q>
static __device__ __forceinline__ void prefetch_kv(const struct whole_args &a,
                                                   const struct ft_op_attention &op, int32_t u,
                                                   int32_t n_units) {
    if (u >= n_units)
        return;
    struct unit unit = unit_at<Q>(a, op, u);
    if (unit.n <= 0)
        return;
    struct source s = source_of(op, unit);
    int32_t lines = (int32_t)(ft_kv_head_floats(op.kv.head_dim) * 4 / 128);
    for (int32_t i = team_thread<false>(); i < BLOCKS * lines; i += TEAM)
        if (unit.segment * SEGMENT + i / lines * FT_OPS_KV_BLOCK <= unit.high)
            k_prefetch((i < lines ? s.blocks[0] : s.blocks[BLOCKS - 1]) + i % lines * 32);
}

/* The segments of a unit's queries in order, as merge_kernel does: a thread has one dimension. */
static __device__ __forceinline__ void
merge_unit(const struct whole_args &a, const struct ft_op_attention &op, const struct unit &unit) {
    int32_t dim = op.kv.head_dim, group = op.n_heads / op.kv.n_heads;
    int32_t width = dim > 64 ? TEAM : 64, d = (int32_t)team_thread<false>() % width;
    int64_t n_queries = (int64_t)op.n_rows * op.n_heads;
    for (int32_t i = (int32_t)team_thread<false>() / width; i < unit.n; i += TEAM / width) {
        int32_t row = (unit.first + i) / group, high = unit.piece.position + row;
        int64_t at = (int64_t)(unit.piece.row + row) * op.n_heads + unit.kv_head * group +
                     (unit.first + i) % group;
        struct softmax state = {-INFINITY, 0.0f};
        float sum = 0.0f;
        int32_t last = high / SEGMENT;
        for (int32_t s = lowest(op, high) / SEGMENT; s <= last; s += TOGETHER) {
            struct softmax next[TOGETHER];
            float values[TOGETHER];
#pragma unroll
            for (int j = 0; j < TOGETHER; j++) {
                const float *from = a.partial + (min(s + j, last) * n_queries + at) * (dim + 2);
                next[j] = {__ldcg(from + dim), __ldcg(from + dim + 1)};
                values[j] = d < dim ? __ldcg(from + d) : 0.0f;
            }
#pragma unroll
            for (int j = 0; j < TOGETHER; j++) {
                float fa, fb;
                if (s + j > last)
                    break;
                state = merge(state, next[j], &fa, &fb);
                sum = merge_value(sum, values[j], fa, fb);
            }
        }
        if (d < dim)
            op.out[at * dim + d] = __fmul_rn(sum, __frcp_rn(state.sum));
    }
}

/* A unit's segment, by a team; the team that hands in the last one of its queries merges them. */
template <int Q>
static __device__ __forceinline__ void
attend_unit(const struct whole_args &a, const struct ft_op_attention &op,
            struct tile<Q, DIM_WHOLE> &t, const struct unit &unit, uint32_t *arrived) {
    int32_t dim = op.kv.head_dim, base = unit.segment * SEGMENT;
    int32_t last = min(unit.high, base + SEGMENT - 1);
    int32_t width = dim > 64 ? TEAM : dim > 32 ? 64 : 32;
    struct source s = source_of(op, unit);
    load_tile<false>(op, unit.piece, unit.kv_head, unit.first, t);
    float values[Q][1];
    score<false>(s, t, base, last);
    team_sync<false>();
    weigh<false>(t, op.scale, base);
    team_sync<false>();
    add_values<false, Q, 1>(s, t, width, base, last, values);
    int64_t n_queries = (int64_t)op.n_rows * op.n_heads;
    int32_t d = (int32_t)team_thread<false>();
#pragma unroll
    for (int i = 0; i < Q; i++) {
        if (t.high[i] < 0 || t.low[i] >= base + SEGMENT || t.high[i] < base || d >= width)
            continue;
        float *to = a.partial + (unit.segment * n_queries + t.at[i]) * (dim + 2);
        if (d < dim)
            to[d] = values[i][0];
        if (d == 0) {
            to[dim] = t.softmax[i].max;
            to[dim + 1] = t.softmax[i].sum;
        }
    }
    team_sync<false>();
    uint32_t *counter = &a.op.state->merges[unit.merge];
    if (d == 0)
        *arrived = k_tell(counter, 1);
    team_sync<false>();
    if (*arrived == (uint32_t)unit.n_segments - 1) {
        merge_unit(a, op, unit);
        if (d == 0)
            k_set(counter, 0);
    }
}

template <int Q>
static __device__ __forceinline__ void attend(const struct whole_args &a, const struct shared &s,
                                              const struct ft_op_attention &op, int32_t u,
                                              int32_t n_units) {
    int32_t team = threadIdx.x / TEAM;
    struct tile<Q, DIM_WHOLE> *tiles = (struct tile<Q, DIM_WHOLE> *)s.sums;
    for (; u < n_units; u += TEAMS * (int32_t)gridDim.x) {
        struct unit unit = unit_at<Q>(a, op, u);
        if (unit.n > 0)
            attend_unit<Q>(a, op, tiles[team], unit, &s.small->arrived[team]);
    }
}

#endif
