/* rpc: servers and clients over the gRPC C core, on one event loop per process.
 * Owns:    completion queue, server, channels, calls; payloads only during a callback.
 * Runs in: every process; the loop thread only, but for ft_rpc_loop_post and the work of jobs.
 * Never:   looks into payloads (see common/wire); lets a gRPC type out. */
#ifndef FT_RPC_RPC_H
#define FT_RPC_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"
#include "common/rpc/secure.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- loop ----------------------------------------------------------------------------------- */

struct ft_rpc_loop;
typedef void (*ft_rpc_fn)(void *user);

/* One per process. spin_ns: so long after the last event (timers are none) look for the next one,
 * giving the core to whoever wants it between looks, before blocking; 0 blocks at once. Initialises
 * gRPC. */
enum ft_code ft_rpc_loop_create(struct ft_rpc_loop **out, int64_t spin_ns, struct ft_err *err);
/* Everything made on the loop must be closed before. gRPC stays up, and its threads asleep, until
 * the process ends. */
void ft_rpc_loop_destroy(struct ft_rpc_loop **loop);

/* Handle events until stop is called. */
void ft_rpc_loop_run(struct ft_rpc_loop *loop);
void ft_rpc_loop_stop(struct ft_rpc_loop *loop);
/* Handle what is ready, waiting until deadline_ns (ft_clock_now_ns time) for the first event.
 * Returns the number of events handled, 0 at the deadline. */
int ft_rpc_loop_step(struct ft_rpc_loop *loop, int64_t deadline_ns);
/* Something beside gRPC that the loop looks at: before each event, and while it looks for the next
 * one instead of blocking. Whoever hands something over that way while the loop sleeps has to send
 * an event too. */
struct ft_rpc_watch {
    bool (*look)(void *user); /* handle one thing that is there; false: nothing is */
    /* The loop is going to block unless the look that follows finds something (true), or has come
     * back (false). */
    void (*doze)(void *user, bool asleep);
    void *user;
    struct ft_rpc_watch *next;
};
/* The watch is borrowed until unwatch, which its own look may call. */
void ft_rpc_loop_watch(struct ft_rpc_loop *loop, struct ft_rpc_watch *watch);
void ft_rpc_loop_unwatch(struct ft_rpc_loop *loop, struct ft_rpc_watch *watch);
/* Run fn(user) on the loop thread. Any thread; the only such function. */
enum ft_code ft_rpc_loop_post(struct ft_rpc_loop *loop, ft_rpc_fn fn, void *user);
/* Block SIGTERM, SIGINT and SIGHUP in this thread (call before other threads start: before
 * ft_rpc_loop_create) and deliver them as fn(user, signo) on the loop thread, until the loop is
 * destroyed: what came too late for its last step is dropped. */
typedef void (*ft_rpc_signal_fn)(void *user, int signo);
void ft_rpc_signals_block(void);
enum ft_code ft_rpc_loop_on_signal(struct ft_rpc_loop *loop, ft_rpc_signal_fn fn, void *user,
                                   struct ft_err *err);

/* Timers are embedded by their owner, zero-initialised, at a stable address while set. */
struct ft_rpc_timer {
    int64_t at_ns;
    ft_rpc_fn fn;
    void *user;
    size_t heap_idx; /* 0: not set */
};
enum ft_code ft_rpc_timer_set(struct ft_rpc_loop *loop, struct ft_rpc_timer *timer, int64_t at_ns,
                              ft_rpc_fn fn, void *user);
void ft_rpc_timer_cancel(struct ft_rpc_loop *loop, struct ft_rpc_timer *timer);

/* ---- offload: long work off the loop --------------------------------------------------------- */

struct ft_rpc_offload; /* a few threads; they sleep while there is nothing to do */

/* Embedded by its owner, at a stable address until done returns. */
struct ft_rpc_job {
    void (*work)(void *user, int32_t thread); /* in thread 0 .. n_threads - 1 */
    ft_rpc_fn done;                           /* on the loop, later, exactly once */
    void *user;
    struct ft_rpc_job *next;
};

enum ft_code ft_rpc_offload_create(struct ft_rpc_offload **out, struct ft_rpc_loop *loop,
                                   int32_t n_threads, struct ft_err *err);
/* Jobs begin in the order in which they were given. */
void ft_rpc_offload_give(struct ft_rpc_offload *offload, struct ft_rpc_job *job);
/* Wait for every job, work and done. May run the loop; not from a callback of a job. */
void ft_rpc_offload_close(struct ft_rpc_offload **offload);

/* ---- status --------------------------------------------------------------------------------- */

struct ft_rpc_status {
    int code;       /* grpc_status_code as a number: 0 OK, 1 CANCELLED, 3 INVALID_ARGUMENT, ... */
    char text[512]; /* valid UTF-8 */
    int32_t retry_after_ms; /* as a peer's trailing metadata of that name say; 0: they do not */
};
struct ft_rpc_status ft_rpc_status_from_err(const struct ft_err *err);
const char *ft_rpc_status_name(int code); /* "INVALID_ARGUMENT" */

/* ---- server --------------------------------------------------------------------------------- */

struct ft_rpc_server;
struct ft_rpc_call; /* one call, as the server sees it; alive until on_gone returns */

enum ft_rpc_kind { FT_RPC_UNARY, FT_RPC_SERVER_STREAM, FT_RPC_BIDI };

/* UNARY and SERVER_STREAM: on_message exactly once, with the request; it answers at once or later.
 * BIDI: on_open, then on_message for each message, then on_half_close.
 * on_gone is always last, exactly once, for every call that had any callback; after the peer
 * went, cancelled, or the deadline passed it comes without a finish of ours.
 * Every pointer but on_message may be NULL. */
struct ft_rpc_method {
    const char *path; /* "/foretoken.v1.Inference/Generate" */
    enum ft_rpc_kind kind;
    bool in_drain; /* answered while the server drains (see close), too */
    bool in_crowd; /* answered past calls_max, too: 256 such calls at once */
    void (*on_open)(struct ft_rpc_call *call, void *service);
    void (*on_message)(struct ft_rpc_call *call, void *service, struct ft_str message);
    void (*on_half_close)(struct ft_rpc_call *call, void *service);
    void (*on_writable)(struct ft_rpc_call *call, void *service);  /* the queued sends are gone */
    void (*on_cancelled)(struct ft_rpc_call *call, void *service); /* peer gone or deadline; on_gone
                                                                      follows */
    void (*on_gone)(struct ft_rpc_call *call, void *service);
};

struct ft_rpc_server_opts {
    const struct ft_rpc_method *methods; /* [n_methods], must outlive the server */
    size_t n_methods;
    void *service;         /* handed to every handler */
    size_t message_max;    /* bytes, received; 0: 4 MiB */
    size_t reply_max;      /* bytes, sent; 0: message_max */
    size_t send_queue_max; /* bytes queued per call before send fails; 0: 1 MiB */
    int32_t calls_max;     /* past it RESOURCE_EXHAUSTED, retry-after-ms; 0: 4096 */
    /* A server with a TCP endpoint asks connections that are silent for so long, and ends those
     * that say nothing for a third of it; 0: 30 s. One with Unix endpoints alone never asks. */
    int32_t keepalive_ms;
    int32_t linger_ms;      /* for clients that read late, at most, at a close; 0: 5 s */
    struct ft_rpc_tls *tls; /* what TCP endpoints speak; NULL: plain. Outlives the server. */
    struct ft_rpc_socket_rule socket; /* of Unix endpoints, which never speak TLS */
    /* A connection to a Unix endpoint was closed: the user is none of the rule's. May be NULL. */
    void (*on_peer_refused)(void *service, uint32_t uid);
    /* Before a call's first handler; may add trailers; a failure ends it with err. May be NULL. */
    enum ft_code (*admit)(struct ft_rpc_call *call, void *service, struct ft_err *err);
};

enum ft_code ft_rpc_server_create(struct ft_rpc_server **out, struct ft_rpc_loop *loop,
                                  const struct ft_rpc_server_opts *opts, struct ft_err *err);
/* endpoint "unix:PATH" or "HOST:PORT" ("[::1]:0" allowed; *port receives the bound TCP port; may
 * be NULL). A Unix socket is refused when a live server holds it, and has the mode of the rule
 * whatever the umask. fail FT_E_PROC_CONFIG names the endpoint. Before start. */
enum ft_code ft_rpc_server_listen(struct ft_rpc_server *server, const char *endpoint, int *port,
                                  struct ft_err *err);
enum ft_code ft_rpc_server_start(struct ft_rpc_server *server, struct ft_err *err);
/* Another calls_max, for calls that come from now on. */
void ft_rpc_server_limit_calls(struct ft_rpc_server *server, int32_t calls_max);
/* Drain: new calls see UNAVAILABLE (but in_drain), running ones have grace_ns, and linger_ms to be
 * read, unless it is 0. Then cancel and free all. Runs the loop; not from a handler. */
void ft_rpc_server_close(struct ft_rpc_server **server, int64_t grace_ns);

/* Queue a message; copies it. fail FT_E_REQ_EXHAUSTED: send_queue_max; FT_E_REQ_CANCELLED: the
 * call is over. Real back-pressure: stop when not writable, go on in on_writable. */
enum ft_code ft_rpc_call_send(struct ft_rpc_call *call, struct ft_str message);
bool ft_rpc_call_writable(const struct ft_rpc_call *call); /* nothing is queued or outstanding */
/* End the call after what is queued. A second finish is ignored. text may be NULL. */
void ft_rpc_call_finish(struct ft_rpc_call *call, int code, const char *text);
void ft_rpc_call_fail(struct ft_rpc_call *call, const struct ft_err *err);
/* Unary: message and OK. */
void ft_rpc_call_reply(struct ft_rpc_call *call, struct ft_str message);
/* Trailing metadata, before finish; at most 4; key lower-case ASCII. */
void ft_rpc_call_trailer(struct ft_rpc_call *call, const char *key, const char *value);

void ft_rpc_call_set_user(struct ft_rpc_call *call, void *user);
void *ft_rpc_call_user(const struct ft_rpc_call *call);
bool ft_rpc_call_cancelled(const struct ft_rpc_call *call);
int64_t ft_rpc_call_deadline_ns(const struct ft_rpc_call *call); /* INT64_MAX: none */
/* Value of request metadata key, .ptr NULL when absent; valid while the call lives. */
struct ft_str ft_rpc_call_metadata(const struct ft_rpc_call *call, const char *key);
/* "ipv4:10.0.0.1:4711", or "unix:uid=1000". */
const char *ft_rpc_call_peer(const struct ft_rpc_call *call);
const char *ft_rpc_call_path(const struct ft_rpc_call *call); /* of its method */

/* ---- client --------------------------------------------------------------------------------- */

struct ft_rpc_client;
struct ft_rpc_stream; /* one call, as the client sees it; alive until on_done returns */

struct ft_rpc_client_opts {
    size_t message_max;           /* bytes, received; 0: 4 MiB */
    int64_t reconnect_backoff_ms; /* longest pause between attempts, at least 100; 0: 100 for a
                                     Unix socket, 1000 for TCP */
    size_t send_queue_max;        /* bytes queued per stream before send fails; 0: 1 MiB */
    const struct ft_rpc_client_tls *tls; /* NULL: plain */
    const char *bearer;                  /* token that each call carries; NULL or "": none */
};

/* Connects lazily and reconnects by itself. endpoint as for listen. A token is given to TLS, Unix
 * sockets and loopback alone: FT_E_PROC_CONFIG elsewhere. */
enum ft_code ft_rpc_client_open(struct ft_rpc_client **out, struct ft_rpc_loop *loop,
                                const char *endpoint, const struct ft_rpc_client_opts *opts,
                                struct ft_err *err);
/* Cancels what is running and waits for it. Runs the loop; not from a callback of this client. */
void ft_rpc_client_close(struct ft_rpc_client **client);
/* Try to connect now, whatever the backoff says. */
void ft_rpc_client_kick(struct ft_rpc_client *client);

struct ft_rpc_call_opts {
    int64_t deadline_ns; /* ft_clock_now_ns time; 0: none */
    bool wait_for_ready; /* wait for a connection instead of failing UNAVAILABLE */
    const char *metadata_key, *metadata_value; /* one pair, may be NULL */
    bool no_retry; /* unary: do not ask again when the connection broke under the call. Set it
                      where asking twice is not the same as asking once. */
};

/* reply is empty unless status->code is 0. Called exactly once. */
typedef void (*ft_rpc_unary_fn)(void *user, const struct ft_rpc_status *status,
                                struct ft_str reply);
enum ft_code ft_rpc_client_unary(struct ft_rpc_client *client, const char *path,
                                 struct ft_str message, const struct ft_rpc_call_opts *opts,
                                 ft_rpc_unary_fn fn, void *user, struct ft_err *err);
/* For tools and tests: runs the loop until the reply is there; out, where it goes, may be NULL. */
struct ft_buf;
struct ft_rpc_status ft_rpc_client_unary_sync(struct ft_rpc_client *client, const char *path,
                                              struct ft_str message,
                                              const struct ft_rpc_call_opts *opts,
                                              struct ft_buf *out);

struct ft_rpc_stream_handlers {
    void (*on_message)(void *user, struct ft_str message);
    void (*on_writable)(void *user);                                 /* may be NULL */
    void (*on_done)(void *user, const struct ft_rpc_status *status); /* last, exactly once */
};
/* Server-streaming (send one, half-close) and bidirectional calls. handlers must outlive it. */
enum ft_code ft_rpc_stream_open(struct ft_rpc_stream **out, struct ft_rpc_client *client,
                                const char *path, const struct ft_rpc_call_opts *opts,
                                const struct ft_rpc_stream_handlers *handlers, void *user,
                                struct ft_err *err);
/* As ft_rpc_call_send; also FT_E_REQ_CANCELLED after half_close. */
enum ft_code ft_rpc_stream_send(struct ft_rpc_stream *stream, struct ft_str message);
bool ft_rpc_stream_writable(const struct ft_rpc_stream *stream);
void ft_rpc_stream_half_close(struct ft_rpc_stream *stream);
/* Nothing but on_done follows, later, from the loop. */
void ft_rpc_stream_cancel(struct ft_rpc_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
