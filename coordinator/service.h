/* service: foretoken.v1.Inference and foretoken.v1.Admin, as a table of methods.
 * Owns:    nothing; requests belong to the app.
 * Runs in: coordinator; loop thread only.
 * Never:   computes: it checks, queues and answers. */
#ifndef CO_SERVICE_H
#define CO_SERVICE_H

#include "coordinator/app.h"

#ifdef __cplusplus
extern "C" {
#endif

const struct ft_rpc_method *co_service_methods(size_t *n);

/* Admin.GetStats (admin.c). */
void co_admin_get_stats(struct ft_rpc_call *call, void *service, struct ft_str message);
/* Admin.Trace (admin_trace.c). */
void co_admin_trace(struct ft_rpc_call *call, void *service, struct ft_str message);
void co_admin_gone(struct ft_rpc_call *call, void *service);

#ifdef __cplusplus
}
#endif
#endif
