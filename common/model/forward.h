/* forward: one pass of a batch through the layers.
 * Owns:    nothing; it works in the plan's memory.
 * Runs in: draft_worker, target_worker; loop thread only.
 * Never:   checks what a batch says (model.c does). */
#ifndef FT_MODEL_FORWARD_H
#define FT_MODEL_FORWARD_H

#include "common/model/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* See ft_model_forward. */
enum ft_code ft_forward_run(struct ft_plan *plan, const struct ft_batch_seq *seqs, int32_t n_seqs,
                            float *rows, int64_t row_stride, struct ft_err *err);

/* The same without waiting for it. rows may be plan->logits. */
void ft_forward_start(struct ft_plan *plan, const struct ft_batch_seq *seqs, int32_t n_seqs,
                      float *rows, int64_t row_stride);
/* The program that such a step will be is noted, nothing is computed. false: it is noted already,
 * or such a step is none. */
bool ft_forward_note(struct ft_plan *plan, const struct ft_batch_seq *seqs, int32_t n_seqs,
                     float *rows, int64_t row_stride);
/* One token of each of n_rows sequences, whose ids are on the device: logits go to plan->logits.
 * Starts nothing but operations that follow from its arguments and device memory. */
void ft_forward_token(struct ft_plan *plan, const struct ft_plan_ids *ids, int32_t n_rows,
                      int32_t len_max);
/* Lengths that steps are alike for: len, rounded up. */
int32_t ft_forward_len(int32_t len);

#ifdef __cplusplus
}
#endif
#endif
