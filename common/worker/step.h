/* step: one step of a worker: forget what is released, check and truncate each sequence, then
 * append to each, compute all of them together, answer in order.
 * Owns:    scratch of one step.
 * Runs in: draft_worker, target_worker; loop thread only.
 * Never:   lets one sequence's trouble touch another: each has a status of its own. */
#ifndef FT_WORKER_STEP_H
#define FT_WORKER_STEP_H

#include "common/worker/worker.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A sequence that takes part in the forward pass. */
struct ft_step_seq {
    const struct ft_wire_seq_step *in;
    struct ft_wire_seq_result *out; /* status OK, first_row and n_rows are set already */
    struct ft_kvseq *seq;           /* the tokens are appended */
    struct ft_step_need need;
    int32_t start; /* length before them, to go back to */
    int32_t n_hit; /* of the tokens, found in the prefix cache */
};

struct ft_step {
    uint32_t generation;
    struct ft_step_seq *seqs; /* [n_seqs] */
    int32_t n_seqs;
    struct ft_batch_seq *batch; /* scratch of forward passes, as long as seqs */
    struct ft_arena *arena;     /* of one step: results, details, drafted ids */
    int32_t n_rows;
    struct { /* of the step's limits, taken by sequences that passed the check */
        int32_t n_seqs, n_rows, n_positions;
    } used;
    uint64_t serial; /* counts steps; stamps sequences */
};

struct ft_step *ft_step_create(int32_t n_seqs_max); /* NULL: memory is out */
void ft_step_destroy(struct ft_step **step);

/* Do it. The worker is attached, in->epoch is its own and in->generation is 0 or 1.
 * out   lives until the next step
 * fail  FT_E_PROC_*: the model failed or memory is out; the process should end */
enum ft_code ft_step_execute(struct ft_worker *worker, const struct ft_wire_step *in,
                             struct ft_wire_step_reply *out, struct ft_err *err);

/* ---- for the roles ---- */

/* Batch entry of a planned sequence: its tokens but for those found in the cache. */
struct ft_batch_seq ft_step_batch_seq(const struct ft_step_seq *s);
/* One forward pass over step->batch[0 .. n - 1], counted; n may be 0. */
enum ft_code ft_step_forward(struct ft_worker *worker, int32_t n, float *rows, int64_t row_stride,
                             struct ft_err *err);
/* Index of the first value that is NaN or +inf, -1 when there is none: -inf is a token without a
 * chance. */
int32_t ft_step_find_non_finite(const float *row, int32_t n);
/* Give the sequence a status; the KV that this step added is dropped. text is copied. */
void ft_step_fail_seq(struct ft_worker *worker, struct ft_step_seq *s,
                      enum ft_wire_seq_status status, const char *text);

#ifdef __cplusplus
}
#endif
#endif
