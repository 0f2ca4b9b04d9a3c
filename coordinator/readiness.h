/* readiness: whether the service can make a token, why not, and who wants to know.
 * Owns:    nothing; a struct of the app, listeners are embedded by their owners.
 * Runs in: coordinator; loop thread only.
 * Never:   acts on a change: it tells its listeners. */
#ifndef CO_READINESS_H
#define CO_READINESS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A drain outweighs everything, then comes what the target is. */
enum co_readiness_state {
    CO_READINESS_STARTING,    /* no token can be made yet; requests are refused */
    CO_READINESS_READY,       /* requests are served */
    CO_READINESS_UNAVAILABLE, /* the target is lost; requests wait for it to come back */
    CO_READINESS_DRAINING     /* an operator or a signal said so; running requests go on */
};

struct co_readiness;

/* The state or its reason is another one now. Must not change the readiness itself. */
typedef void (*co_readiness_fn)(void *user, const struct co_readiness *readiness);

/* Embedded by its owner, zero-initialised, at a stable address while it listens. */
struct co_readiness_listener {
    co_readiness_fn fn;
    void *user;
    struct co_readiness_listener *next;
};

struct co_readiness {
    enum co_readiness_state state;
    char reason[FT_ERR_TEXT_MAX]; /* why it is not ready, "" while it is */
    int64_t since_ns;             /* the state began, ft_clock_now_ns time */
    uint64_t n_changes;           /* of the state, since init */
    /* what state and reason follow from */
    bool serving, target_lost, draining;
    char why_starting[FT_ERR_TEXT_MAX], why_lost[FT_ERR_TEXT_MAX], why_draining[FT_ERR_TEXT_MAX];
    struct co_readiness_listener *listeners; /* in the order in which they came */
    bool telling;
};

/* Starting, with no listener. */
void co_readiness_init(struct co_readiness *readiness);

/* fn is called at each change from now on, not at once: the caller looks at the state itself. */
void co_readiness_listen(struct co_readiness *readiness, struct co_readiness_listener *listener,
                         co_readiness_fn fn, void *user);
/* One that does not listen is no error. May be called from the listener itself. */
void co_readiness_unlisten(struct co_readiness *readiness, struct co_readiness_listener *listener);

/* What the app tells. A text is kept up to its bound; a repetition changes nothing. */
void co_readiness_starting(struct co_readiness *readiness, const char *why); /* what is missing */
void co_readiness_serving(struct co_readiness *readiness); /* a token can be made, first time */
void co_readiness_target_lost(struct co_readiness *readiness, const char *why);
void co_readiness_target_back(struct co_readiness *readiness);
void co_readiness_drain(struct co_readiness *readiness, const char *why);
void co_readiness_resume(struct co_readiness *readiness);

/* "starting", "ready", "unavailable", "draining" */
const char *co_readiness_name(enum co_readiness_state state);

#ifdef __cplusplus
}
#endif
#endif
