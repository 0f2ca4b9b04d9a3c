/* health: grpc.health.v1 as the readiness has it: Check, and Watch with a message at each change.
 * Owns:    what it knows of the calls that watch.
 * Runs in: coordinator; loop thread only.
 * Never:   decides who is healthy: see readiness.h. */
#ifndef CO_HEALTH_H
#define CO_HEALTH_H

#include "common/rpc/rpc.h"
#include "coordinator/readiness.h"

#ifdef __cplusplus
extern "C" {
#endif

struct co_app;
struct co_health_watch;

struct co_health {
    struct co_readiness_listener listener;
    struct co_health_watch *watches;
};

/* After the readiness, before the server starts. */
void co_health_open(struct co_app *app);
/* Ends every watch, UNAVAILABLE. Before the server closes. */
void co_health_close(struct co_app *app);

/* Handlers; service is the app. */
void co_health_check(struct ft_rpc_call *call, void *service, struct ft_str message);
void co_health_watch(struct ft_rpc_call *call, void *service, struct ft_str message);
void co_health_watch_gone(struct ft_rpc_call *call, void *service);

#ifdef __cplusplus
}
#endif
#endif
