/* whole: a step of a whole model as one kernel, for a few rows.
 * Owns:    nothing; memory is the caller's, on the device where "dev" says so.
 * Runs in: the loop thread of a worker whose device is a GPU.
 * Never:   gives a row other bits than the kernels of kernels.h would, one operation at a time. */
#ifndef FT_GPU_KERNELS_WHOLE_H
#define FT_GPU_KERNELS_WHOLE_H

#include <stdbool.h>

#include "common/gpu/kernels/kernels.h"
#include "common/gpu/kernels/map.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FT_WHOLE_ROWS_MAX 16
#define FT_WHOLE_ROWS_ALONE 8 /* with more, blocks go in pairs that share tiles */
#define FT_WHOLE_PART_BYTES 6 /* of a number in scratch: three bf16 numbers */

#define FT_WHOLE_COLUMNS 1024 /* of a box of maps; of half_maps half */

/* Matrices of a layer, all of bf16. */
enum ft_whole_matrix {
    FT_WHOLE_Q,
    FT_WHOLE_K,
    FT_WHOLE_V,
    FT_WHOLE_O,
    FT_WHOLE_GATE,
    FT_WHOLE_UP,
    FT_WHOLE_DOWN,
    FT_WHOLE_MATRICES
};

/* The rest of a layer; biases are f32 or NULL. */
struct ft_whole_layer {
    const float *q_bias, *k_bias, *v_bias, *o_bias, *gate_bias, *up_bias, *down_bias;
    const float *attn_norm, *mlp_norm;
    float *kv;
    int32_t window; /* positions; 0: all */
    int32_t unused;
};

/* By which blocks find each other. Zero before the first launch; a launch leaves it so, but for
 * is_abandoned. One launch at a time may use it. */
struct ft_whole_state {
    uint32_t assembled, arrived, left;
    /* Set when a launch gave up before it wrote anything, because not all of its blocks had a
     * processor within patience_ns. Later launches then do nothing either, until the host has
     * cleared it and run the step by single kernels. */
    uint32_t is_abandoned;
};

/* Logits of the picked rows.
 * dev   maps  [n_layers * FT_WHOLE_MATRICES + 1], of each layer's matrices, then of the head, which
 *       is [vocab, hidden], for boxes of FT_WHOLE_COLUMNS; half_maps  the same for half of
 *       them;  layers  [n_layers];  embed  [*, hidden] embed_elem
 * dev   norm [hidden], inv_freq [head_dim / 2] f32
 * dev   tokens, positions, slots  [n_rows];  picks  [n_picks] rows;  pieces  [n_pieces], as
 *       ft_span_cut cuts n_spans spans, each with blocks of its own;  table  block tables
 * dev   x [n_rows, hidden], squares [n_rows, hidden / 16], q [n_rows, n_heads * head_dim]  f32,
 *       scratch; normed, attended, gate  scratch of 6 bytes for each of [n_rows, hidden],
 *       [n_rows, n_heads * head_dim] and [n_rows, intermediate]
 * dev   rows  row i of n_picks at rows + i * row_stride, or host memory that the GPU writes to */
struct ft_op_whole {
    const struct ft_whole_map *maps, *half_maps;
    const struct ft_whole_layer *layers;
    int32_t n_layers, hidden, intermediate, n_heads, n_kv_heads, head_dim, vocab;
    float eps, scale;
    const void *embed;
    enum ft_elem embed_elem;
    bool has_biases; /* any layer */
    const float *norm, *inv_freq;

    int32_t n_rows, n_spans, n_pieces, n_picks, len_max;
    const int32_t *tokens, *positions, *slots, *picks;
    const struct ft_span *pieces;
    const int32_t *table;

    float *x, *squares, *q;
    void *normed, *attended, *gate;
    float *rows;
    int64_t row_stride;
    struct ft_whole_state *state;
    uint32_t *gave_up; /* NULL, or host memory that the GPU writes to: 1 when it gave up */
    uint64_t patience_ns;
    /* dev  NULL, or [2 + 12 * n_layers]: when the first block came to each barrier and when it
     * passed it, by the card's clock; for benchmarks */
    uint64_t *marks_ns;
};

cudaError_t k_whole_setup(struct k_target *on);
/* NULL, or why this step has to be run by single kernels, for the log. */
const char *k_whole_refuses(const struct k_target *on, const struct ft_op_whole *op);
/* A step that is not refused. */
cudaError_t k_whole(const struct k_target *on, const struct ft_op_whole *op);

#ifdef __cplusplus
}
#endif
#endif
