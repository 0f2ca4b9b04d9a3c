/* ahead: all tokens of a draft step on the GPU where the model is, the host waits once.
 * Owns:    lists of one step, from create to destroy.
 * Runs in: draft_worker; loop thread only.
 * Never:   drafts other tokens than the host would: what it cannot draft it leaves to it. */
#ifndef DW_AHEAD_H
#define DW_AHEAD_H

#include "draft_worker/drafting.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dw_ahead;

/* *out stays NULL where the model is in the host's memory. fail FT_E_PROC_MEMORY */
enum ft_code dw_ahead_create(struct dw_ahead **out, struct ft_worker *worker, struct ft_err *err);
void dw_ahead_destroy(struct dw_ahead **ahead);

/* The step whose batch is step->batch, of which the first n sequences draft as list says, those
 * that draft most first. *done false: nothing happened that the host's way would not undo. */
enum ft_code dw_ahead_run(struct dw_ahead *ahead, struct ft_worker *worker, struct ft_step *step,
                          struct dw_drafting *list, int32_t n, bool *done, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
