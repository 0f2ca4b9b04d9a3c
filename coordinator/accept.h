/* accept: one sequence's reply to a target step: accept, commit, count.
 * Owns:    nothing; rows are read where the workers wrote them.
 * Runs in: coordinator; loop thread only.
 * Never:   trusts a row, an id or a count that a worker sent without a check. */
#ifndef CO_ACCEPT_H
#define CO_ACCEPT_H

#include "coordinator/app.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Take a draft worker's result for entry i of the round: ids, q rows, what its KV holds. A result
 * that is not OK leaves the entry without drafts. false: the worker broke the protocol. */
bool co_accept_draft(struct co_app *app, int32_t i, const struct ft_wire_seq_result *result,
                     uint32_t generation);

/* Before any of a reply's results is taken: where rows lie on the GPU, add what entry i will decide
 * to the step's batch of app->decider, which is to run then. What is not added is decided here. */
void co_accept_prepare(struct co_app *app, int32_t i, const struct ft_wire_seq_result *result,
                       uint32_t generation);

/* Take the target worker's result for entry i: prefill progress, or accept and commit. The request
 * may have ended after it. false: the worker broke the protocol. */
bool co_accept_target(struct co_app *app, int32_t i, const struct ft_wire_seq_result *result,
                      uint32_t generation);

#ifdef __cplusplus
}
#endif
#endif
