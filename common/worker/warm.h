/* warm: programs of a worker's steps are noted before the first request pays for them.
 * Owns:    nothing.
 * Runs in: draft_worker, target_worker; loop thread, or the thread that loads the worker.
 * Never:   fails a worker: what cannot be noted now is noted when it comes. */
#ifndef FT_WORKER_WARM_H
#define FT_WORKER_WARM_H

#include "common/worker/worker.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The worker is open and holds no sequence. A target's programs name the place of its rows, which a
 * coordinator brings: here it does each kind of step once; a draft's are noted. */
void ft_warm_start(struct ft_worker *worker);
/* A region is attached: the programs that name it are noted. */
void ft_warm_attach(struct ft_worker *worker);

#ifdef __cplusplus
}
#endif
#endif
