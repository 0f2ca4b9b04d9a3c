/* whole_model: a small random model on a GPU, and a step of it by single kernels and as a whole.
 * Owns:    all device memory, from create to destroy.
 * Runs in: tests and benchmarks, on a card or in the simulation.
 * Never:   hides a failure: what goes wrong ends the test. */
#ifndef TESTS_GPU_WHOLE_MODEL_H
#define TESTS_GPU_WHOLE_MODEL_H

#include "common/gpu/kernels/whole.h"

struct whole_shape {
    int32_t hidden, intermediate, n_heads, n_kv_heads, head_dim, vocab, n_layers, window;
    bool has_biases;
    int32_t len_max;
};

/* Sequences of a step: n_rows rows from position on. */
struct whole_seq {
    int32_t position, n_rows;
};
#define WHOLE_SEQS_MAX 8

struct whole_model;

/* KV of every position is random. */
struct whole_model *whole_model_create(const struct whole_shape *shape, int32_t n_rows_max,
                                       uint64_t seed);
void whole_model_destroy(struct whole_model *m);

/* Where the next steps go; the default stream unless set. */
struct k_target *whole_model_target(struct whole_model *m);

/* Rows of the sequences; the last n_picks of all rows are picked. */
void whole_model_place(struct whole_model *m, const struct whole_seq *seqs, int32_t n_seqs,
                       int32_t n_picks);
/* KV as it was after create, results NaN. */
void whole_model_reset(struct whole_model *m);
/* Until then the first layer's KV of this position of the first sequence is of what a broken step
 * leaves behind: keys NaN, values infinite. */
void whole_model_spoil(struct whole_model *m, int32_t position);

cudaError_t whole_model_single(struct whole_model *m);
/* Fails the test when the step is refused. */
cudaError_t whole_model_whole(struct whole_model *m);
struct ft_op_whole *whole_model_op(struct whole_model *m);

/* All that a step leaves behind: logits [n_picks, vocab], then KV. Freed by the caller. */
float *whole_model_results(struct whole_model *m, int64_t *n);
struct ft_whole_state whole_model_state(struct whole_model *m);
void whole_model_clear(struct whole_model *m);

#endif
