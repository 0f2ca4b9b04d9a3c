/* kernels_attention: causal attention of grouped queries over paged KV.
 * Owns:    nothing; scratch is on the stack.
 * Runs in: any thread; written in the vocabulary of a vec_*.h that is included before.
 * Never:   lets a position that a query does not see into its sums, not even times zero: stale
 *          KV may hold NaN.
 *
 * A query goes through segments of fixed positions (0 .. 127, 128 .. 255, ...) with a running
 * maximum and sum (Milakov and Gimelshein 2018), so its order of operations follows from its
 * position and window alone. Queries beside it only share the loads. */
#ifndef FT_GPU_CPU_KERNELS_ATTENTION_H
#define FT_GPU_CPU_KERNELS_ATTENTION_H

#include "common/gpu/cpu/kernels_rows.h"

#define SEGMENT 128 /* positions */
#define BLOCK_VECS (FT_OPS_KV_BLOCK / VEC_LANES)

struct query {
    const float *q;
    float *out;
    int32_t low, high; /* positions it sees */
    float max, sum;
    float acc[FT_OPS_HEAD_DIM_MAX];
};

/* The KV head that a portion of queries attends to. */
struct att_head {
    const float *kv; /* of block 0 */
    int64_t block_floats, padded;
    int32_t head_dim;
    float scale;
    const int32_t *blocks; /* of the sequence */
    int32_t last_block;    /* that any of the queries sees */
};

INLINE const float *block_keys(const struct att_head *head, int32_t block) {
    return head->kv + head->blocks[block] * head->block_floats;
}

/* Scores of n queries against a block of keys, seen or not. On the way the block's values and the
 * next keys are fetched: a hardware stream ends with each 4 KiB of keys or values. */
INLINE void score_block(const struct att_head *head, int32_t block, struct query *q,
                        float (*scores)[SEGMENT], int n, bool fetch) {
    int32_t at = block * FT_OPS_KV_BLOCK % SEGMENT;
    const float *keys = block_keys(head, block);
    const float *next = block < head->last_block ? block_keys(head, block + 1) : keys;
    vec s[FT_ISA_QUERY_BATCH][VEC_SCORE_SUMS][BLOCK_VECS];
    for (int i = 0; i < n; i++)
        for (int a = 0; a < VEC_SCORE_SUMS; a++)
            for (int b = 0; b < BLOCK_VECS; b++)
                s[i][a][b] = v_zero();
    for (int32_t d = 0; d < head->head_dim; d += VEC_SCORE_SUMS)
        for (int a = 0; a < VEC_SCORE_SUMS; a++)
            for (int b = 0; b < BLOCK_VECS; b++) {
                const float *key = keys + (d + a) * FT_OPS_KV_BLOCK + b * VEC_LANES;
                vec k = v_load(key);
                if (fetch && b == 0) {
                    v_prefetch(key + head->padded * FT_OPS_KV_BLOCK);
                    v_prefetch(next + (d + a) * FT_OPS_KV_BLOCK);
                }
                for (int i = 0; i < n; i++)
                    s[i][a][b] = v_fma(v_set1(q[i].q[d + a]), k, s[i][a][b]);
            }
    for (int i = 0; i < n; i++)
        for (int b = 0; b < BLOCK_VECS; b++) {
            vec sum = s[i][0][b];
            for (int a = 1; a < VEC_SCORE_SUMS; a++)
                sum = v_add(sum, s[i][a][b]);
            v_store(scores[i] + at + b * VEC_LANES, v_mul(sum, v_set1(head->scale)));
        }
}

/* Turn the scores of positions from .. to of a segment into weights, and bring the query's
 * maximum, sum and output to the new maximum. */
static void softmax_segment(struct query *q, float *scores, int32_t from, int32_t to,
                            int64_t padded) {
    int32_t first = from / VEC_LANES * VEC_LANES;
    vec max = v_set1(-INFINITY);
    for (int32_t i = first; i <= to; i += VEC_LANES)
        max = v_max(v_within(v_load(scores + i), i, from, to, -INFINITY), max);
    float new_max = v_reduce_max(max);
    new_max = q->max > new_max ? q->max : new_max;
    vec sum = v_zero();
    for (int32_t i = first; i <= to; i += VEC_LANES) {
        vec p = v_exp(v_sub(v_load(scores + i), v_set1(new_max)));
        p = v_within(p, i, from, to, 0.0f);
        v_store(scores + i, p);
        sum = v_add(sum, p);
    }
    vec rescale = v_exp(v_set1(q->max - new_max));
    float first_lane[VEC_LANES];
    v_store(first_lane, rescale);
    q->sum = q->sum * first_lane[0] + v_sum(sum);
    q->max = new_max;
    for (int64_t d = 0; d < padded; d += VEC_LANES)
        v_store(q->acc + d, v_mul(v_load(q->acc + d), rescale));
}

/* Add the values of positions from .. to (of the sequence), weighted, to n queries; n_vecs
 * vectors of the output, from dimension d on. */
INLINE void values_strip(const struct att_head *head, struct query *q, float (*weights)[SEGMENT],
                         int32_t from, int32_t to, int64_t d, int n, int n_vecs) {
    vec acc[FT_ISA_QUERY_BATCH][VEC_PV_VECS];
    for (int i = 0; i < n; i++)
        for (int v = 0; v < n_vecs; v++)
            acc[i][v] = v_load(q[i].acc + d + v * VEC_LANES);
    for (int32_t p = from; p <= to;) {
        int32_t block = p / FT_OPS_KV_BLOCK;
        const float *values = block_keys(head, block) + FT_OPS_KV_BLOCK * head->padded + d;
        int32_t last = i_min(to, block * FT_OPS_KV_BLOCK + FT_OPS_KV_BLOCK - 1);
        for (; p <= last; p++) {
            const float *value = values + p % FT_OPS_KV_BLOCK * head->padded;
            for (int v = 0; v < n_vecs; v++) {
                vec x = v_load(value + v * VEC_LANES);
                for (int i = 0; i < n; i++)
                    acc[i][v] = v_fma(v_set1(weights[i][p % SEGMENT]), x, acc[i][v]);
            }
        }
    }
    for (int i = 0; i < n; i++)
        for (int v = 0; v < n_vecs; v++)
            v_store(q[i].acc + d + v * VEC_LANES, acc[i][v]);
}

INLINE void values_range(const struct att_head *head, struct query *q, float (*weights)[SEGMENT],
                         int32_t from, int32_t to, int n) {
    int64_t d = 0;
    for (; d + VEC_PV_VECS * VEC_LANES <= head->padded; d += VEC_PV_VECS * VEC_LANES)
        values_strip(head, q, weights, from, to, d, n, VEC_PV_VECS);
    for (; d < head->padded; d += VEC_LANES)
        values_strip(head, q, weights, from, to, d, n, 1);
}

static void values_one(const struct att_head *head, struct query *q, float (*weights)[SEGMENT],
                       int32_t from, int32_t to) {
    if (from <= to)
        values_range(head, q, weights, from, to, 1);
}

/* n queries through the segment that starts at position base; each sees part of it. */
INLINE void attend(const struct att_head *head, struct query *q, int32_t base, int n, bool fetch) {
    _Alignas(64) float scores[FT_ISA_QUERY_BATCH][SEGMENT];
    int32_t low[FT_ISA_QUERY_BATCH], high[FT_ISA_QUERY_BATCH];
    int32_t union_low = base + SEGMENT, union_high = base, both_low = base,
            both_high = base + SEGMENT - 1;
    for (int i = 0; i < n; i++) {
        low[i] = i_max(q[i].low, base);
        high[i] = i_min(q[i].high, base + SEGMENT - 1);
        union_low = i_min(union_low, low[i]);
        union_high = i_max(union_high, high[i]);
        both_low = i_max(both_low, low[i]);
        both_high = i_min(both_high, high[i]);
    }
    for (int32_t b = union_low / FT_OPS_KV_BLOCK; b <= union_high / FT_OPS_KV_BLOCK; b++)
        score_block(head, b, q, scores, n, fetch);
    for (int i = 0; i < n; i++)
        softmax_segment(&q[i], scores[i], low[i] - base, high[i] - base, head->padded);
    /* Each query takes its positions in ascending order; where all see the same, together. */
    for (int i = 0; i < n; i++)
        values_one(head, &q[i], &scores[i], low[i], i_min(high[i], both_low - 1));
    if (both_low <= both_high)
        values_range(head, q, scores, both_low, both_high, n);
    for (int i = 0; i < n; i++)
        values_one(head, &q[i], &scores[i], i_max(both_low, both_high + 1), high[i]);
}

static void attend_batch(const struct att_head *head, struct query *q, int32_t base, int32_t n) {
    switch (n) {
    case 1:
        attend(head, q, base, 1, false);
        return;
    case 2:
        attend(head, q, base, 2, false);
        return;
    case 3:
        attend(head, q, base, 3, false);
        return;
    default:
        attend(head, q, base, FT_ISA_QUERY_BATCH, false);
    }
}

/* The same for the first batch of an item, which waits for memory. */
static void attend_first(const struct att_head *head, struct query *q, int32_t base, int32_t n) {
    switch (n) {
    case 1:
        attend(head, q, base, 1, true);
        return;
    case 2:
        attend(head, q, base, 2, true);
        return;
    case 3:
        attend(head, q, base, 3, true);
        return;
    default:
        attend(head, q, base, FT_ISA_QUERY_BATCH, true);
    }
}

INLINE int32_t window_low(const struct ft_op_attention *op, int32_t position) {
    return op->window > 0 ? i_max(0, position - op->window + 1) : 0;
}

/* Queries first .. first + n - 1 of a span and a KV head; query i is row i / group, head
 * i % group of the group. */
static void attention_portion(const struct ft_op_attention *op, const struct ft_span *span,
                              int32_t kv_head, int32_t first, int32_t n) {
    struct query q[FT_ISA_QUERIES];
    int32_t dim = op->kv.head_dim, group = op->n_heads / op->kv.n_heads;
    struct att_head head = {.kv = op->kv.base + kv_head * ft_kv_head_floats(dim),
                            .block_floats = ft_kv_block_floats(op->kv.n_heads, dim),
                            .padded = ft_kv_padded_dim(dim),
                            .head_dim = dim,
                            .scale = op->scale,
                            .blocks = op->blocks + span->table};
    for (int32_t i = 0; i < n; i++) {
        int32_t row = (first + i) / group, h = kv_head * group + (first + i) % group;
        int64_t at = ((int64_t)(span->row + row) * op->n_heads + h) * dim;
        q[i].q = op->q + at;
        q[i].out = op->out + at;
        q[i].high = span->position + row;
        q[i].low = window_low(op, q[i].high);
        q[i].max = -INFINITY;
        q[i].sum = 0.0f;
        memset(q[i].acc, 0, (size_t)head.padded * sizeof(float));
    }
    int32_t low = window_low(op, span->position + first / group);
    int32_t high = span->position + (first + n - 1) / group;
    head.last_block = high / FT_OPS_KV_BLOCK;
    for (int32_t base = low / SEGMENT * SEGMENT; base <= high; base += SEGMENT) {
        /* low and high never fall from query to query, so those in sight are neighbours */
        int32_t from = 0, to = n;
        while (from < to && q[from].high < base)
            from++;
        while (from < to && q[to - 1].low >= base + SEGMENT)
            to--;
        if (from < to)
            attend_first(&head, q + from, base, i_min(FT_ISA_QUERY_BATCH, to - from));
        for (int32_t i = from + FT_ISA_QUERY_BATCH; i < to; i += FT_ISA_QUERY_BATCH)
            attend_batch(&head, q + i, base, i_min(FT_ISA_QUERY_BATCH, to - i));
    }
    for (int32_t i = 0; i < n; i++) {
        vec inverse = v_set1(1.0f / q[i].sum);
        for (int32_t d = 0; d < dim; d += VEC_LANES)
            v_store_n(q[i].out + d, v_mul(v_load(q[i].acc + d), inverse),
                      i_min(VEC_LANES, dim - d));
    }
}

static void attention(const void *arg, int32_t begin, int32_t end) {
    const struct ft_op_attention *op = arg;
    int32_t span_begin = 0; /* item of the span's first portion */
    for (int32_t s = 0; s < op->n_spans && span_begin < end; s++) {
        const struct ft_span *span = &op->spans[s];
        int32_t n_items = ft_isa_span_items(op, span), n_portions = n_items / op->kv.n_heads;
        int32_t n_queries = ft_isa_queries(op, span), portion = ft_isa_portion(n_queries);
        for (int32_t i = i_max(begin - span_begin, 0); i < i_min(end - span_begin, n_items); i++) {
            int32_t first = i % n_portions * portion;
            attention_portion(op, span, i / n_portions, first, i_min(portion, n_queries - first));
        }
        span_begin += n_items;
    }
}

#endif
