#include "coordinator/readiness.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"

void co_readiness_init(struct co_readiness *readiness) {
    memset(readiness, 0, sizeof *readiness);
    readiness->since_ns = ft_clock_now_ns();
    snprintf(readiness->why_starting, sizeof readiness->why_starting, "the service is starting");
    memcpy(readiness->reason, readiness->why_starting, sizeof readiness->reason);
}

void co_readiness_listen(struct co_readiness *readiness, struct co_readiness_listener *listener,
                         co_readiness_fn fn, void *user) {
    struct co_readiness_listener **at = &readiness->listeners;
    for (; *at != NULL; at = &(*at)->next)
        FT_ASSERT(*at != listener);
    *listener = (struct co_readiness_listener){.fn = fn, .user = user};
    *at = listener;
}

void co_readiness_unlisten(struct co_readiness *readiness, struct co_readiness_listener *listener) {
    struct co_readiness_listener **at = &readiness->listeners;
    while (*at != NULL && *at != listener)
        at = &(*at)->next;
    if (*at != NULL)
        *at = listener->next;
}

static enum co_readiness_state state_of(const struct co_readiness *readiness, const char **reason) {
    if (readiness->draining) {
        *reason = readiness->why_draining;
        return CO_READINESS_DRAINING;
    }
    if (!readiness->serving) {
        *reason = readiness->why_starting;
        return CO_READINESS_STARTING;
    }
    *reason = readiness->target_lost ? readiness->why_lost : "";
    return readiness->target_lost ? CO_READINESS_UNAVAILABLE : CO_READINESS_READY;
}

static void update(struct co_readiness *readiness) {
    const char *reason;
    enum co_readiness_state state = state_of(readiness, &reason);
    if (state == readiness->state && strcmp(reason, readiness->reason) == 0)
        return;
    FT_ASSERT(!readiness->telling);
    if (state != readiness->state) {
        readiness->since_ns = ft_clock_now_ns();
        readiness->n_changes++;
    }
    readiness->state = state;
    snprintf(readiness->reason, sizeof readiness->reason, "%s", reason);
    readiness->telling = true;
    for (struct co_readiness_listener *l = readiness->listeners, *next; l != NULL; l = next) {
        next = l->next;
        l->fn(l->user, readiness);
    }
    readiness->telling = false;
}

void co_readiness_starting(struct co_readiness *readiness, const char *why) {
    snprintf(readiness->why_starting, sizeof readiness->why_starting, "%s", why);
    update(readiness);
}

void co_readiness_serving(struct co_readiness *readiness) {
    readiness->serving = true;
    update(readiness);
}

void co_readiness_target_lost(struct co_readiness *readiness, const char *why) {
    readiness->target_lost = true;
    snprintf(readiness->why_lost, sizeof readiness->why_lost, "%s", why);
    update(readiness);
}

void co_readiness_target_back(struct co_readiness *readiness) {
    readiness->target_lost = false;
    update(readiness);
}

void co_readiness_drain(struct co_readiness *readiness, const char *why) {
    readiness->draining = true;
    snprintf(readiness->why_draining, sizeof readiness->why_draining, "%s", why);
    update(readiness);
}

void co_readiness_resume(struct co_readiness *readiness) {
    readiness->draining = false;
    update(readiness);
}

const char *co_readiness_name(enum co_readiness_state state) {
    static const char *const names[] = {"starting", "ready", "unavailable", "draining"};
    return names[state];
}
