/* group: the n continuations of one call: each a request of its own, told apart by its index.
 * Owns:    the call's place; from the call's acceptance until it is gone and no request is left.
 * Runs in: coordinator; loop thread only.
 * Never:   frees a request other than by co_request_collect of that request itself. */
#ifndef CO_GROUP_H
#define CO_GROUP_H

#include "coordinator/request.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CO_GROUP_MAX 64 /* n of a request: all of them may be running at once */

struct co_group {
    struct ft_rpc_call *call;                 /* NULL once gone or answered with an error */
    struct co_request *members[CO_GROUP_MAX]; /* by index; NULL once freed */
    int32_t n_members;                        /* not yet freed */
    int32_t n_open;                           /* have more to say */
    int32_t next;                             /* index of who is the next to say something */
    struct co_app *app;
};

/* NULL: memory is out. It ends by itself once the call is gone and the members are. */
struct co_group *co_group_create(struct co_app *app, struct ft_rpc_call *call);
/* One that got no members: its call is answered otherwise. */
void co_group_discard(struct co_group *group);
/* Before any of its members runs. */
void co_group_add(struct co_group *group, struct co_request *r);

/* r has said its last: the call ends with the last of them. */
void co_group_said(struct co_request *r);
/* r failed, and the call with it: the others end by the next co_group_reap. */
void co_group_fail(struct co_request *r);
/* End what a failed call left. Called where no list of requests is being walked. */
void co_group_reap(struct co_app *app);
/* r is about to be freed. */
void co_group_forget(struct co_request *r);

/* Others are still to come of the prompt that the first one computes: they find it in the target's
 * prefix cache once it has. */
bool co_group_waits(const struct co_request *r);

/* Events of the call. */
void co_group_flush(struct co_group *group);
void co_group_cancel(struct co_group *group);
void co_group_call_gone(struct co_group *group);

#ifdef __cplusplus
}
#endif
#endif
