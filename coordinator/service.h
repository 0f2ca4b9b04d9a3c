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

/* The rest of Admin (operate.c), but for Trace. */
void co_operate_health(struct ft_rpc_call *call, void *service, struct ft_str message);
void co_operate_list(struct ft_rpc_call *call, void *service, struct ft_str message);
void co_operate_cancel(struct ft_rpc_call *call, void *service, struct ft_str message);
void co_operate_drain(struct ft_rpc_call *call, void *service, struct ft_str message);
void co_operate_resume(struct ft_rpc_call *call, void *service, struct ft_str message);
void co_operate_set(struct ft_rpc_call *call, void *service, struct ft_str message);
void co_operate_reload_draft(struct ft_rpc_call *call, void *service, struct ft_str message);
void co_operate_reload_gone(struct ft_rpc_call *call, void *service);

/* Who calls: what client_metadata_key says, or the address without its port. Lives with the call.
 */
struct ft_str co_service_client(const struct co_app *app, const struct ft_rpc_call *call);

#ifdef __cplusplus
}
#endif
#endif
