/* isa: the kernels of one instruction set.
 * Owns:    nothing.
 * Runs in: any thread.
 * Never:   changes a row's bits with the other rows of a call or with the split into pieces. */
#ifndef FT_GPU_CPU_ISA_H
#define FT_GPU_CPU_ISA_H

#include <stdbool.h>
#include <stddef.h>

#include "common/gpu/cpu/pool.h"
#include "common/gpu/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Each kernel computes items begin .. end - 1 of the operation that arg points to. */
struct ft_isa {
    const char *name;
    ft_pool_fn gather;    /* struct ft_op_gather; an item is a row */
    ft_pool_fn rmsnorm;   /* struct ft_op_rmsnorm; a row */
    ft_pool_fn linear;    /* struct ft_isa_linear; see ft_isa_linear_items */
    ft_pool_fn rope;      /* struct ft_op_rope; see ft_isa_rope_items */
    ft_pool_fn attention; /* struct ft_isa_attention; see ft_isa_span_items */
};

extern const struct ft_isa ft_isa_avx512, ft_isa_avx2, ft_isa_portable;

/* Instruction sets this machine can run, fastest first; NULL past the last. */
const struct ft_isa *ft_isa_at(size_t idx);

/* A matrix product as its kernel gets it. */
struct ft_isa_linear {
    const struct ft_op_linear *op;
    bool streamed; /* the weights will have left every cache before they are read again */
};

/* Output rows that a linear kernel computes together. */
#define FT_ISA_ROW_GROUP 4

static inline int32_t ft_isa_groups(int32_t n_out) {
    return n_out / FT_ISA_ROW_GROUP + (n_out % FT_ISA_ROW_GROUP != 0);
}

/* Row groups of all parts, one part after the other; a pair of groups where gate and up meet. */
static inline int32_t ft_isa_linear_items(const struct ft_op_linear *op) {
    int32_t n = ft_isa_groups(op->parts[0].n_out);
    for (int32_t i = 1; op->end != FT_LINEAR_SWIGLU && i < op->n_parts; i++)
        n += ft_isa_groups(op->parts[i].n_out);
    return n;
}

/* An item is a KV head of so many rows: keys of neighbouring positions share cache lines, which
 * two threads would take from each other. */
#define FT_ISA_ROPE_ROWS 16
static inline int32_t ft_isa_rope_items(const struct ft_op_rope *op) {
    return (op->n_rows + FT_ISA_ROPE_ROWS - 1) / FT_ISA_ROPE_ROWS * op->kv.n_heads;
}

/* Queries (a row and a head) that share a KV head and are computed together, at most; and how many
 * a small item has. */
#define FT_ISA_QUERIES 32
#define FT_ISA_QUERIES_SMALL 4

/* Positions that attention goes through before it merges results. They decide the order of its
 * sums, so every path has the same ones. */
#define FT_ISA_STRETCH 128

/* An attention operation as it is cut into items: portions of the queries of a KV head, and with
 * n_stretches > 0 also their stretches of positions, which leave their results in parts. */
struct ft_isa_attention {
    const struct ft_op_attention *op;
    bool small;              /* few queries are cut into small items */
    int32_t n_stretches;     /* parts of a query, those of the longest span; 0: not cut */
    float *parts;            /* [rows, n_heads, n_stretches, ft_isa_part_floats] */
    _Atomic int32_t *n_left; /* [portions] stretches that are still to be computed */
};

/* Floats of a partial result: the output, a maximum, a sum; whole cache lines. */
#define FT_ISA_PART_EXTRA 16
static inline int64_t ft_isa_part_floats(int32_t head_dim) {
    return ft_kv_padded_dim(head_dim) + FT_ISA_PART_EXTRA;
}

/* First position that a row sees. */
static inline int32_t ft_isa_window_low(const struct ft_op_attention *op, int32_t position) {
    return op->window > 0 && position >= op->window ? position - op->window + 1 : 0;
}
/* Stretches that rows of a span see. */
static inline void ft_isa_span_stretches(const struct ft_op_attention *op,
                                         const struct ft_span *span, int32_t *first, int32_t *n) {
    *first = ft_isa_window_low(op, span->position) / FT_ISA_STRETCH;
    *n = (span->position + span->n_rows - 1) / FT_ISA_STRETCH - *first + 1;
}
/* Queries of one span and KV head. */
static inline int32_t ft_isa_queries(const struct ft_op_attention *op, const struct ft_span *span) {
    return span->n_rows * (op->n_heads / op->kv.n_heads);
}
/* Queries of an item. */
static inline int32_t ft_isa_portion(const struct ft_isa_attention *job,
                                     const struct ft_span *span) {
    return job->small && ft_isa_queries(job->op, span) <= FT_ISA_QUERIES ? FT_ISA_QUERIES_SMALL
                                                                         : FT_ISA_QUERIES;
}
/* Portions of one span: for each KV head, its queries cut up. */
static inline int32_t ft_isa_span_portions(const struct ft_isa_attention *job,
                                           const struct ft_span *span) {
    int32_t n = ft_isa_queries(job->op, span), portion = ft_isa_portion(job, span);
    return job->op->kv.n_heads * ((n + portion - 1) / portion);
}
static inline int32_t ft_isa_span_items(const struct ft_isa_attention *job,
                                        const struct ft_span *span) {
    int32_t first, n;
    ft_isa_span_stretches(job->op, span, &first, &n);
    return ft_isa_span_portions(job, span) * (job->n_stretches > 0 ? n : 1);
}

#ifdef __cplusplus
}
#endif
#endif
