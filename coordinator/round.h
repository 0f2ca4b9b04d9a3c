/* round: draft, verify, accept, commit: the loop that everything else serves.
 * Owns:    the batch in flight.
 * Runs in: coordinator; loop thread only.
 * Never:   loses a request to a worker's death: what a worker knew is sent again. */
#ifndef CO_ROUND_H
#define CO_ROUND_H

#include "coordinator/app.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Scratch for the pair's limits; called when the pair is known. fail FT_E_PROC_MEMORY */
enum ft_code co_round_init(struct co_app *app, struct ft_err *err);
void co_round_fini(struct co_app *app);

/* Begin a round if none runs, the target is up and somebody wants tokens. */
void co_round_kick(struct co_app *app);

void co_round_draft_reply(struct co_app *app, const struct ft_wire_step_reply *reply);
void co_round_target_reply(struct co_app *app, const struct ft_wire_step_reply *reply);
void co_round_draft_down(struct co_app *app);
void co_round_target_down(struct co_app *app);

#ifdef __cplusplus
}
#endif
#endif
