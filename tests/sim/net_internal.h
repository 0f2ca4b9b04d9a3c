/* net_internal: what net.c (time and events) and calls.c (rpc.h) share. */
#ifndef SIM_NET_INTERNAL_H
#define SIM_NET_INTERNAL_H

#include "common/base/buf.h"
#include "sim/net.h"

enum { NET_TIMERS_MAX = 4096, NET_TRAILERS_MAX = 4 };

struct ft_rpc_loop {
    struct ft_rpc_loop *next;
    struct ft_rpc_timer *timers[NET_TIMERS_MAX];
    size_t n_timers;
    int64_t busy_until_ns;
    bool dead;
    struct ft_rpc_watch *watches;
};

struct ft_rpc_server {
    struct ft_rpc_server *next;
    struct ft_rpc_loop *loop;
    struct ft_rpc_server_opts opts;
    char endpoint[128];
    bool started;
};

struct ft_rpc_client {
    struct ft_rpc_loop *loop;
    const char *peer;
    char endpoint[128];
};

/* Both ends of a call. An end that is gone is NULL; the call is freed when both are and nothing of
 * it is on its way. */
struct ft_rpc_call {
    struct ft_rpc_call *next;
    int refs; /* events on their way */
    /* client end */
    struct ft_rpc_client *client;
    struct ft_rpc_loop *client_loop;
    ft_rpc_unary_fn unary_fn;
    const struct ft_rpc_stream_handlers *handlers;
    void *client_user;
    bool reads;
    struct ft_buf reply; /* unary: the message that came */
    struct net_event *unread_first, *unread_last;
    struct ft_str metadata_key, metadata_value;
    /* server end */
    struct ft_rpc_server *server;
    struct ft_rpc_loop *server_loop;
    const struct ft_rpc_method *method;
    void *server_user;
    bool seen, finished, over, cancelled;
    int n_in_flight; /* messages that the client has not read */
    int64_t deadline_ns;
    char path[128];
    struct {
        char key[32], value[64];
    } trailers[NET_TRAILERS_MAX];
    int n_trailers;
    int64_t last_at_ns[2]; /* arrival of the last message, to the server and to the client */
};

struct ft_rpc_stream {
    struct ft_rpc_call call;
};

struct net_event {
    int64_t at_ns;
    uint64_t serial;
    struct ft_rpc_loop *loop; /* where it happens */
    struct ft_rpc_call *call;
    void (*fn)(struct net_event *event);
    struct net_event *next; /* unread */
    struct ft_rpc_status status;
    bool rings; /* for what lies in shared memory */
    size_t len;
    char bytes[]; /* [len] */
};

/* An event of call, latency from now, behind those of the same direction (0 to the server, 1 to
 * the client). Copies message. */
struct net_event *net_send(struct ft_rpc_call *call, int direction, struct ft_str message,
                           void (*fn)(struct net_event *event));
void net_push(struct net_event *event);
int64_t net_latency_ns(void);
/* A call lost an event or an end. */
void net_call_unref(struct ft_rpc_call *call);
/* Duplicate event by chance, when the call's stream is of that kind. */
void net_maybe_duplicate(const struct net_event *event);
/* calls.c: every call of a process that died. */
void net_cut_calls(struct ft_rpc_loop *loop);

#endif
