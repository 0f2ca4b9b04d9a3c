#include "coordinator/group.h"

#include <stdlib.h>

#include "coordinator/app.h"
#include "coordinator/drain.h"

struct co_group *co_group_create(struct co_app *app, struct ft_rpc_call *call) {
    struct co_group *group = calloc(1, sizeof *group);
    if (group == NULL)
        return NULL;
    group->app = app;
    group->call = call;
    app->n_calls++;
    return group;
}

void co_group_discard(struct co_group *group) {
    group->app->n_calls--;
    free(group);
}

void co_group_add(struct co_group *group, struct co_request *r) {
    FT_ASSERT(r->index >= 0 && r->index < CO_GROUP_MAX && group->members[r->index] == NULL);
    group->members[r->index] = r;
    group->n_members++;
    group->n_open++;
    r->group = group;
    r->call = group->call;
}

static void end_if_empty(struct co_group *group) {
    if (group->call == NULL && group->n_members == 0)
        free(group);
}

void co_group_said(struct co_request *r) {
    struct co_group *group = r->group;
    struct ft_rpc_call *call = r->call;
    r->call = NULL;
    if (--group->n_open == 0)
        ft_rpc_call_finish(call, 0, NULL);
}

void co_group_fail(struct co_request *r) {
    struct co_group *group = r->group;
    struct ft_rpc_call *call = r->call;
    for (int32_t i = 0; i < CO_GROUP_MAX; i++) {
        struct co_request *member = group->members[i];
        if (member == NULL || member->call == NULL)
            continue;
        member->call = NULL; /* nobody listens any more */
        member->is_orphan = true;
        member->app->n_orphans += member != r || member->state != CO_REQUEST_ENDED;
    }
    ft_rpc_call_fail(call, &r->error);
}

void co_group_reap(struct co_app *app) {
    if (app->n_orphans == 0)
        return;
    app->n_orphans = 0;
    for (struct co_request *r = app->first, *next; r != NULL; r = next) {
        next = r->next;
        if (r->call == NULL && r->state != CO_REQUEST_ENDED)
            co_request_event(r, CO_EVENT_CANCEL); /* frees r alone */
        else
            co_request_collect(r);
    }
}

void co_group_forget(struct co_request *r) {
    struct co_group *group = r->group;
    group->members[r->index] = NULL;
    group->n_members--;
    end_if_empty(group);
}

bool co_group_waits(const struct co_request *r) {
    const struct co_request *first = r->group->members[0];
    return r->index > 0 && first != NULL && first->state != CO_REQUEST_ENDED &&
           first->n == first->n_prompt;
}

/* The group must outlive the walk over it: one more member holds it. */
void co_group_flush(struct co_group *group) {
    group->n_members++;
    for (int32_t i = 0; i < CO_GROUP_MAX; i++) {
        struct co_request *r = group->members[i];
        if (r == NULL)
            continue;
        co_request_flush(r);
        co_request_collect(r); /* one that had ended, but not said so */
    }
    group->n_members--;
    end_if_empty(group);
}

void co_group_cancel(struct co_group *group) {
    group->n_members++;
    for (int32_t i = 0; i < CO_GROUP_MAX; i++)
        if (group->members[i] != NULL)
            co_request_event(group->members[i], CO_EVENT_CANCEL);
    group->n_members--;
    end_if_empty(group);
}

void co_group_call_gone(struct co_group *group) {
    group->n_members++;
    group->call = NULL;
    group->app->n_calls--;
    for (int32_t i = 0; i < CO_GROUP_MAX; i++)
        if (group->members[i] != NULL)
            co_request_call_gone(group->members[i]);
    co_drain_look(group->app);
    group->n_members--;
    end_if_empty(group);
}
