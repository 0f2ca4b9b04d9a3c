/* reload: another model for a running worker, loaded beside the one that serves.
 * Owns:    the thread that loads, from begin until done is called or cancel returns.
 * Runs in: draft_worker; begin, done and cancel on the loop thread.
 * Never:   touches the worker that serves from its thread. */
#ifndef FT_WORKER_RELOAD_H
#define FT_WORKER_RELOAD_H

#include "common/rpc/rpc.h"
#include "common/worker/worker.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_reload;

/* On the loop thread, once: fresh is the caller's, or NULL and err says why. */
typedef void (*ft_reload_fn)(void *user, struct ft_worker *fresh, int64_t load_ns,
                             const struct ft_err *err);

/* Load the model in dir with the parameters of worker; both are in memory for a while. One with
 * another tokenizer is refused. fail FT_E_REQ_INVALID: dir; FT_E_PROC_* */
enum ft_code ft_reload_begin(struct ft_reload **out, struct ft_rpc_loop *loop,
                             const struct ft_worker *worker, struct ft_str dir, ft_reload_fn done,
                             void *user, struct ft_err *err);
/* Wait for the thread and drop what it loaded; done is not called. NULL inside is no error. */
void ft_reload_cancel(struct ft_reload **reload);

#ifdef __cplusplus
}
#endif
#endif
