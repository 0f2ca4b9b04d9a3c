/* service: the gRPC face of a worker: Describe, Attach, Release, GetStats and the step stream.
 * Owns:    the server and the one step stream; from open to close.
 * Runs in: draft_worker, target_worker; loop thread only.
 * Never:   serves two coordinators: the one whose step stream is open has the worker. */
#ifndef FT_WORKER_SERVICE_H
#define FT_WORKER_SERVICE_H

#include "common/rpc/rpc.h"
#include "common/worker/worker.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_service;

/* Listen on worker->params->listen and serve. loop and worker are borrowed.
 * fail FT_E_PROC_CONFIG names the endpoint; FT_E_PROC_MEMORY */
enum ft_code ft_service_open(struct ft_service **out, struct ft_rpc_loop *loop,
                             struct ft_worker *worker, struct ft_err *err);
void ft_service_close(struct ft_service **service); /* runs the loop */

/* Why the service stopped the loop by itself; code FT_OK when it did not. */
const struct ft_err *ft_service_failure(const struct ft_service *service);

#ifdef __cplusplus
}
#endif
#endif
