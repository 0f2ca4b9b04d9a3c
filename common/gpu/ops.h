/* ops: the operations that a transformer is made of, as every device offers them.
 * Owns:    nothing; memory is the caller's, on the device where "dev" says so, or the host's.
 * Runs in: draft_worker, target_worker; loop thread only. An operation may return before it is
 *          done; operations and copies of one device happen in order.
 * Never:   lets a row's bits depend on the other rows: each sum has an order of its own that is
 *          fixed by shapes and, in attention, by the row's position alone (DESIGN 7). Two devices,
 *          or two variants of one, may differ within the tolerances. */
#ifndef FT_GPU_OPS_H
#define FT_GPU_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Functions of layouts are for kernels too. */
#ifdef __CUDACC__
#define FT_OPS_INLINE static __host__ __device__ inline
#else
#define FT_OPS_INLINE static inline
#endif

/* Same order as enum ft_dtype of the model layer. */
enum ft_elem { FT_ELEM_F32, FT_ELEM_F16, FT_ELEM_BF16 };

#define FT_OPS_KV_BLOCK 16      /* positions of a KV block */
#define FT_OPS_HEAD_DIM_MAX 256 /* largest head in use today; bounds the kernels' scratch */
#define FT_OPS_PARTS_MAX 3      /* q, k and v */

/* Memory is row-major and dense unless a stride says otherwise. Unless a tolerance is given the
 * result is exact, or each number is rounded once per arithmetic operation. */

/* out[i] = src[idx[i]], widened to f32.
 * dev   src  [*, n_cols] elem;  idx  [n_rows];  out  [n_rows, n_cols] f32, apart from src */
struct ft_op_gather {
    const void *src;
    enum ft_elem elem;
    int32_t n_cols;
    const int32_t *idx;
    int32_t n_rows;
    float *out;
};

/* Cosines and sines of the rotary angles positions[i] * inv_freq[j], product rounded to f32.
 * dev   positions  [n_rows];  inv_freq  [n_pairs];  out  [n_rows, 2, n_pairs] f32: cos, then sin
 * tol   2e-7 absolute;  source: Su et al. 2021, eq. 34 */
struct ft_op_angles {
    const int32_t *positions;
    const float *inv_freq;
    int32_t n_rows, n_pairs;
    float *out;
};

/* out = x / sqrt(mean(x^2) + eps) * weight, row by row.
 * dev   x, out  [n_rows, n_cols] f32; out may be x;  weight  [n_cols] f32
 * tol   2e-6 relative;  source: Zhang and Sennrich 2019, eq. 4 */
struct ft_op_rmsnorm {
    const float *x;
    const float *weight;
    float eps;
    int32_t n_rows, n_cols;
    float *out;
};

struct ft_matrix {
    const void *weight; /* [n_out, n_in] elem, used where it is; any alignment */
    enum ft_elem elem;
    int32_t n_out;
    const float *bias; /* [n_out] or NULL */
    float *out;        /* row i at out + i * out_stride */
    int64_t out_stride;
};

enum ft_linear_end {
    FT_LINEAR_STORE, /* out = y */
    FT_LINEAR_ADD,   /* out += y */
    FT_LINEAR_SWIGLU /* two parts, gate and up: out of gate = silu(gate) * up; out of up is
                      * scratch. Source: Shazeer 2020, eq. 6 */
};

/* y = x weight^T + bias for one to FT_OPS_PARTS_MAX matrices that share x; the stored weights are
 * widened, sums are f32. With a norm, x is first normalised as ft_op_rmsnorm does.
 * dev   x  [n_rows, n_in] f32, apart from every out;  norm  [n_in] f32 or NULL, with its eps
 * dev   normed  [n_rows, n_in] f32, scratch for a norm, apart from x and every out
 * tol   1e-6 * n_in^0.5 relative to the sum of |x * weight| */
struct ft_op_linear {
    const float *x;
    int32_t n_rows, n_in;
    int32_t n_parts;
    struct ft_matrix parts[FT_OPS_PARTS_MAX];
    enum ft_linear_end end;
    const float *norm;
    float eps;
    float *normed;
};

/* KV of one layer: per block and KV head FT_OPS_KV_BLOCK keys, one number of all of them after
 * the other ([padded head_dim][16]), then as many values ([16][padded head_dim]). Padding is zero.
 */
struct ft_kv {
    float *base;
    int32_t n_heads, head_dim;
};

FT_OPS_INLINE int64_t ft_kv_padded_dim(int32_t head_dim) {
    return ((int64_t)head_dim + 15) / 16 * 16;
}
/* Floats of one KV head in a block, keys and values; and of a whole block. */
FT_OPS_INLINE int64_t ft_kv_head_floats(int32_t head_dim) {
    return 2 * FT_OPS_KV_BLOCK * ft_kv_padded_dim(head_dim);
}
FT_OPS_INLINE int64_t ft_kv_block_floats(int32_t n_heads, int32_t head_dim) {
    return n_heads * ft_kv_head_floats(head_dim);
}

/* Per row: normalise each head of q and k where norms are given, rotate both (rotate-half form),
 * and write k and v into the row's KV slot, block * FT_OPS_KV_BLOCK + position % FT_OPS_KV_BLOCK.
 * dev   q       [n_rows, n_heads, head_dim] f32, changed in place
 * dev   k, v    [n_rows, kv.n_heads, head_dim] f32; k is scratch afterwards
 * dev   angles  [n_rows, 2, head_dim / 2] f32, as ft_op_angles makes them
 * dev   slots   [n_rows], all different
 * dev   q_norm, k_norm  [head_dim] f32 or NULL;  eps  of both norms */
struct ft_op_rope {
    float *q, *k;
    const float *v;
    int32_t n_rows, n_heads;
    const float *angles;
    const int32_t *slots;
    const float *q_norm, *k_norm;
    float eps;
    struct ft_kv kv;
};

/* Consecutive rows of one sequence. */
struct ft_span {
    int32_t row, n_rows;
    int32_t position; /* of the first row */
    int32_t table;    /* index in blocks of the sequence's block 0 */
};

/* Spans cut into pieces of few rows, for devices that deal them out to many processors. */
#define FT_OPS_PIECE_ROWS 4
/* Cut one span; returns how many pieces. out [(n_rows + FT_OPS_PIECE_ROWS - 1) / .._ROWS] */
FT_OPS_INLINE int32_t ft_span_cut(const struct ft_span *span, struct ft_span *out) {
    int32_t n = 0;
    for (int32_t at = 0; at < span->n_rows; at += FT_OPS_PIECE_ROWS, n++) {
        int32_t left = span->n_rows - at;
        out[n].row = span->row + at;
        out[n].n_rows = left < FT_OPS_PIECE_ROWS ? left : FT_OPS_PIECE_ROWS;
        out[n].position = span->position + at;
        out[n].table = span->table;
    }
    return n;
}

/* Causal attention over paged KV, grouped queries: row at position p sees p and what lies before
 * it, at most window positions (0: all).
 * dev   q, out  [n_rows, n_heads, head_dim] f32, apart;  blocks  block tables
 * host  spans   [n_spans], cover the rows in order
 * dev   pieces  [n_pieces], the same rows as ft_span_cut cuts them
 * tol   2e-5 relative to the largest |v|;  source: Vaswani et al. 2017, eq. 1 */
struct ft_op_attention {
    const float *q;
    float *out;
    int32_t n_heads;
    float scale;
    int32_t window;
    const struct ft_span *spans;
    int32_t n_spans;
    const struct ft_span *pieces;
    int32_t n_pieces;
    int32_t n_rows;
    int32_t len_max; /* positions that any row sees lie below it */
    const int32_t *blocks;
    struct ft_kv kv;
};

/* Read memory once and keep nothing of it: what reading alone costs, for benchmarks.
 * dev   memory  [bytes], 16-byte aligned */
struct ft_op_read {
    const void *memory;
    size_t bytes;
};

/* A layer of a model: matrices without .out, norms f32 [hidden] or of a head's [head_dim]. */
struct ft_op_layer {
    const float *attn_norm, *mlp_norm, *q_norm, *k_norm; /* the last two may be NULL */
    struct ft_matrix q, k, v, o, gate, up, down;
    struct ft_kv kv;
    int32_t window; /* positions; 0: all */
};

/* A step of a whole model, with the bits of the operations above one by one: logits of the picked
 * rows.
 * host  layers [n_layers], embed, head  as they were in the device's first step with these layers
 * dev   norm  [hidden];  inv_freq  [head_dim / 2]
 * dev   tokens, positions, slots  [n_rows];  picks  [n_picks] rows;  pieces  [n_pieces], as
 *       ft_span_cut cuts n_spans spans of different sequences;  table  block tables
 * out   row i of n_picks at rows + i * row_stride */
struct ft_op_step {
    const struct ft_op_layer *layers;
    const struct ft_matrix *embed, *head;
    const float *norm, *inv_freq;
    int32_t n_layers, hidden, n_heads;
    float eps;

    int32_t n_rows, n_spans, n_pieces, n_picks;
    int32_t len_max; /* positions that any row sees lie below it */
    const int32_t *tokens, *positions, *slots, *picks;
    const struct ft_span *pieces;
    const int32_t *table;

    float *rows;
    int64_t row_stride;
};

struct ft_device;
struct ft_op_choose; /* choice.h */

struct ft_ops {
    void (*gather)(struct ft_device *device, const struct ft_op_gather *op);
    void (*angles)(struct ft_device *device, const struct ft_op_angles *op);
    void (*rmsnorm)(struct ft_device *device, const struct ft_op_rmsnorm *op);
    void (*linear)(struct ft_device *device, const struct ft_op_linear *op);
    void (*rope)(struct ft_device *device, const struct ft_op_rope *op);
    void (*attention)(struct ft_device *device, const struct ft_op_attention *op);
    void (*read)(struct ft_device *device, const struct ft_op_read *op);
    /* Of a device whose memory is not the host's: rows of the host's are decided by spec. */
    void (*choose)(struct ft_device *device, const struct ft_op_choose *op);
    /* false: this device does not do this step as one. What it does, gave_up of device.h may undo.
     */
    bool (*step)(struct ft_device *device, const struct ft_op_step *op);
};

#ifdef __cplusplus
}
#endif
#endif
