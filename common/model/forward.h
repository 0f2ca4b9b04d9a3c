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

#ifdef __cplusplus
}
#endif
#endif
