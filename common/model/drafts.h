/* drafts: tokens drafted one after another on the device where the model is, with no host in
 * between: forward, choose, forward, ... as one program. Owns:    the lists of one step on the
 * device and their copy here, from create to destroy. Runs in: draft_worker; loop thread only.
 * Never:   allocates after create; knows sampling: what is to be chosen comes as rows of choice.h.
 */
#ifndef FT_MODEL_DRAFTS_H
#define FT_MODEL_DRAFTS_H

#include "common/gpu/choice.h"
#include "common/model/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_drafts;

/* fail FT_E_PROC_MEMORY */
enum ft_code ft_drafts_create(struct ft_drafts **out, struct ft_plan *plan,
                              const struct ft_drafts_opts *opts, struct ft_err *err);
void ft_drafts_destroy(struct ft_drafts **drafts);

/* Behind a forward pass whose logits are in plan->logits, row i that of step->seqs[i]. */
bool ft_drafts_fit(const struct ft_drafts *drafts, const struct ft_draft_step *step);
enum ft_code ft_drafts_run(struct ft_drafts *drafts, const struct ft_draft_step *step,
                           struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
