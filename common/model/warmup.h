/* warmup: programs of the steps to come (shapes.h) are noted before they come.
 * Owns:    nothing past a call.
 * Runs in: draft_worker, target_worker; between steps, or before the first.
 * Never:   leaves a trace in what a later step computes. */
#ifndef FT_MODEL_WARMUP_H
#define FT_MODEL_WARMUP_H

#include "common/model/drafts.h"

#ifdef __cplusplus
extern "C" {
#endif

/* See ft_model_warm_up. drafts NULL: a model that does not draft on its device. */
enum ft_code ft_warmup_run(struct ft_plan *plan, struct ft_drafts *drafts,
                           const struct ft_warmup_opts *opts, struct ft_warmup_done *done,
                           struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
