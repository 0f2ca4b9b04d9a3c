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
    ft_pool_fn linear;    /* struct ft_op_linear; see ft_isa_linear_items */
    ft_pool_fn rope;      /* struct ft_op_rope; a row */
    ft_pool_fn attention; /* struct ft_op_attention; see ft_isa_attention_items */
};

extern const struct ft_isa ft_isa_avx512, ft_isa_avx2, ft_isa_portable;

/* Instruction sets this machine can run, fastest first; NULL past the last. */
const struct ft_isa *ft_isa_at(size_t idx);

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

/* Queries (a row and a head) that share a KV head and are computed together, at most; and the
 * number that share each load. */
#define FT_ISA_QUERIES 32
#define FT_ISA_QUERY_BATCH 4

/* Queries of one span and KV head. */
static inline int32_t ft_isa_queries(const struct ft_op_attention *op, const struct ft_span *span) {
    return span->n_rows * (op->n_heads / op->kv.n_heads);
}
/* Queries of an item. Few are cut into small items, so that every thread gets some. */
static inline int32_t ft_isa_portion(int32_t n_queries) {
    return n_queries > FT_ISA_QUERIES ? FT_ISA_QUERIES : FT_ISA_QUERY_BATCH;
}
/* Items of one span: for each KV head, its queries in portions. */
static inline int32_t ft_isa_span_items(const struct ft_op_attention *op,
                                        const struct ft_span *span) {
    int32_t n = ft_isa_queries(op, span), portion = ft_isa_portion(n);
    return op->kv.n_heads * ((n + portion - 1) / portion);
}
static inline int32_t ft_isa_attention_items(const struct ft_op_attention *op) {
    int32_t n = 0;
    for (int32_t i = 0; i < op->n_spans; i++)
        n += ft_isa_span_items(op, &op->spans[i]);
    return n;
}

#ifdef __cplusplus
}
#endif
#endif
