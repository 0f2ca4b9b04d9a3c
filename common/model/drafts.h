/* drafts: tokens drafted one after another on the device where the model is, with no host in
 * between: forward, choose, forward, ... as one program.
 * Owns:    the lists of one step on the device and their copy here, from create to destroy.
 * Runs in: draft_worker; loop thread only.
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

bool ft_drafts_fit(const struct ft_drafts *drafts, const struct ft_draft_step *step);
/* A forward pass over batch, which leaves the logits of step->seqs[i] in row i of plan->logits, and
 * the drafts behind it. */
enum ft_code ft_drafts_run(struct ft_drafts *drafts, const struct ft_batch_seq *batch,
                           int32_t n_batch, const struct ft_draft_step *step, struct ft_err *err);
/* The program that drafts such a step, behind its forward pass, is noted; nothing is computed.
 * false: it is noted already. */
bool ft_drafts_note(struct ft_drafts *drafts, const struct ft_draft_step *step);

#ifdef __cplusplus
}
#endif
#endif
