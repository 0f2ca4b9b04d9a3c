/* peer: one worker as the coordinator sees it: connection, epoch, shared rows, steps in flight.
 * Owns:    the channel, the step stream and the mapped region of one worker.
 * Runs in: coordinator; loop thread only.
 * Never:   knows requests; uses anything of an epoch that has ended. */
#ifndef CO_PEER_H
#define CO_PEER_H

#include "common/ipc/region.h"
#include "common/rpc/rpc.h"
#include "common/wire/worker.h"

#ifdef __cplusplus
extern "C" {
#endif

enum co_peer_state {
    CO_PEER_DOWN,       /* waiting to try again */
    CO_PEER_DESCRIBING, /* Describe sent */
    CO_PEER_ATTACHING,  /* Attach sent, once or twice */
    CO_PEER_UP          /* region mapped, stream open */
};

struct co_peer;

struct co_peer_events {
    /* The worker said what it is; another code than FT_OK refuses it (tried again later). */
    enum ft_code (*on_described)(void *user, struct co_peer *peer, struct ft_err *err);
    void (*on_up)(void *user, struct co_peer *peer);
    /* It was up and is not any more; what was sent will not be answered. */
    void (*on_down)(void *user, struct co_peer *peer, const char *why);
    /* A reply to the step that is in flight; lives until the call returns. */
    void (*on_reply)(void *user, struct co_peer *peer, const struct ft_wire_step_reply *reply);
};

struct co_peer_opts {
    struct ft_rpc_loop *loop;
    const char *role;     /* "target" or "draft"; static */
    const char *endpoint; /* must outlive the peer */
    int32_t step_timeout_ms;
    uint64_t coordinator_epoch;
    struct ft_device *const *device; /* what reads rows on a GPU, once it is there; else NULL */
    const struct co_peer_events *events;
    void *user;
};

enum ft_code co_peer_open(struct co_peer **out, const struct co_peer_opts *opts,
                          struct ft_err *err);
void co_peer_close(struct co_peer **peer); /* runs the loop */

/* NULL is a peer that is never up. */
bool co_peer_up(const struct co_peer *peer);
const char *co_peer_role(const struct co_peer *peer);
const struct ft_wire_describe *co_peer_describe(const struct co_peer *peer); /* of the last epoch */
const struct ft_region *co_peer_region(const struct co_peer *peer);          /* while up */
uint64_t co_peer_restarts(const struct co_peer *peer);   /* epochs seen after the first */
const char *co_peer_trouble(const struct co_peer *peer); /* why it is not up, "" while up */
int64_t co_peer_up_ns(const struct co_peer *peer);       /* it is up since so long; 0: down */

/* Send a step; at most one is in flight. step_id, both epochs and generation are filled in.
 * fail FT_E_PEER_UNAVAILABLE: not up */
enum ft_code co_peer_step(struct co_peer *peer, struct ft_wire_step *step);
bool co_peer_busy(const struct co_peer *peer);
/* Of the next step on. */
void co_peer_set_step_timeout(struct co_peer *peer, int32_t timeout_ms);
/* The worker broke the protocol: drop it; it is tried again. */
void co_peer_fail(struct co_peer *peer, const char *why);

/* Ask for statistics; fn gets NULL when the worker is down or does not answer in time. */
typedef void (*co_peer_stats_fn)(void *user, const struct ft_wire_worker_stats *stats);
void co_peer_stats(struct co_peer *peer, co_peer_stats_fn fn, void *user);

/* One unary call of the worker's service, of whatever epoch it is; not asked twice. fn is called
 * exactly once, at once when the call cannot be made. */
void co_peer_call(struct co_peer *peer, const char *method, struct ft_str message,
                  int64_t timeout_ms, ft_rpc_unary_fn fn, void *user);

#ifdef __cplusplus
}
#endif
#endif
