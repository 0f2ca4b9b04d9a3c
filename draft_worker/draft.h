/* draft: the draft worker's role: tokens drafted one after another inside one step.
 * Owns:    scratch logits, counts and the transform, in worker->role_state.
 * Runs in: draft_worker; loop thread only.
 * Never:   decides what is accepted: it says what it drew, and from which q. */
#ifndef DW_DRAFT_H
#define DW_DRAFT_H

#include "common/worker/worker.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct ft_worker_role dw_draft_role;

#ifdef __cplusplus
}
#endif

#endif
