/* verify: the target's role: rows of logits for the last positions of each sequence.
 * Owns:    nothing.
 * Runs in: target_worker; loop thread only.
 * Never:   samples or decides: the coordinator reads the rows where they lie. */
#ifndef TW_VERIFY_H
#define TW_VERIFY_H

#include "common/worker/worker.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct ft_worker_role tw_verify_role;

#ifdef __cplusplus
}
#endif

#endif
