/* rpc_internal: what the files of this layer share; the only header that shows gRPC types.
 * Owns:    nothing by itself; see each struct.
 * Runs in: every process; the loop thread only, but for the mailbox's post.
 * Never:   is included from outside common/rpc. */
#ifndef FT_RPC_RPC_INTERNAL_H
#define FT_RPC_RPC_INTERNAL_H

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <pthread.h>
#include <sys/types.h>

#include "common/rpc/acceptor.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/rpc.h"
#include "common/rpc/tls.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a completion queue hands back: fn(owner, ok). Embedded in its owner, which counts it as
 * pending from the start of the batch until fn is called. */
struct ft_rpc_tag {
    void (*fn)(void *owner, bool ok);
    void *owner;
};

/* Start a batch. A refused batch is a mistake of ours and leaves its slot of the call blocked for
 * ever, so the call is cancelled; returns false, and the tag will not come. */
bool ft_rpc_batch_start(grpc_call *call, const grpc_op *ops, size_t n_ops, struct ft_rpc_tag *tag);
gpr_timespec ft_rpc_timespec(int64_t at_ns); /* ft_clock_now_ns time; INT64_MAX: never */
int64_t ft_rpc_time_ns(gpr_timespec t);      /* the inverse, from any gRPC clock */

/* ---- timer.c: binary heap, 1-based so that index 0 means "not set" ----------------------------
 */

struct ft_rpc_timers {
    struct ft_rpc_timer **heap;
    size_t n, cap;
};
int64_t ft_rpc_timers_next(const struct ft_rpc_timers *timers); /* INT64_MAX: none */
/* Run what is due at now_ns; returns how many. */
int ft_rpc_timers_run(struct ft_rpc_timers *timers, int64_t now_ns);
void ft_rpc_timers_fini(struct ft_rpc_timers *timers);

/* ---- mailbox.c: closures from other threads ---------------------------------------------------
 */

struct ft_rpc_letter {
    ft_rpc_fn fn;
    void *user;
};
struct ft_rpc_mailbox {
    pthread_mutex_t mutex; /* guards letters, n, cap and wake_pending */
    struct ft_rpc_letter *letters;
    size_t n, cap;
    bool wake_pending; /* the tag is in the queue already */
    struct ft_rpc_tag tag;
    grpc_channel *channel; /* lame: exists only so that a call on it can carry the tag */
    grpc_call *call;
};
enum ft_code ft_rpc_mailbox_init(struct ft_rpc_mailbox *box, grpc_completion_queue *cq,
                                 struct ft_err *err);
enum ft_code ft_rpc_mailbox_post(struct ft_rpc_mailbox *box, ft_rpc_fn fn, void *user);
/* Runs what was not yet delivered. Before the queue is shut down. */
void ft_rpc_mailbox_fini(struct ft_rpc_mailbox *box);

/* ---- signal.c -------------------------------------------------------------------------------- */

struct ft_rpc_signals;
/* Stop the thread. A signal that waits in the mailbox is dropped when its turn comes: whoever
 * handles signals may be gone. NULL is none. */
void ft_rpc_signals_end(struct ft_rpc_signals *signals);
/* After end, and after the mailbox, whose letters point here. */
void ft_rpc_signals_close(struct ft_rpc_signals **signals);

/* ---- loop.c ---------------------------------------------------------------------------------- */

struct ft_rpc_loop {
    grpc_completion_queue *cq;
    int64_t spin_ns;
    int64_t last_event_ns;
    bool stop;   /* asked for; cleared when run returns */
    bool dozing; /* the watches have been told so */
    bool looked; /* the last event was a watch's: gRPC is next */
    struct ft_rpc_watch *watches;
    struct ft_rpc_timers timers;
    struct ft_rpc_mailbox mailbox;
    struct ft_rpc_signals *signals; /* NULL: none wanted */
};

/* ---- payload.c: messages as bytes -------------------------------------------------------------
 */

grpc_byte_buffer *ft_rpc_payload_create(struct ft_str message);

/* Contiguous bytes of a received message. Short ones lie inside the slice: never copy the view. */
struct ft_rpc_view {
    grpc_slice slice;
    struct ft_str str;
};
/* fail FT_E_REQ_UNSUPPORTED: compressed */
enum ft_code ft_rpc_view_open(struct ft_rpc_view *view, grpc_byte_buffer *payload);
void ft_rpc_view_close(struct ft_rpc_view *view);

/* Messages that wait for the one write that may be outstanding. */
struct ft_rpc_outbox {
    grpc_byte_buffer **ring;
    size_t head, n, cap; /* cap is a power of two */
    size_t bytes;        /* waiting and in flight */
    size_t bytes_max;
    size_t flight_bytes; /* of the write that is outstanding */
};
/* Copies message. A message is always taken when nothing else waits: it may be larger than
 * bytes_max. fail FT_E_REQ_EXHAUSTED, FT_E_PROC_MEMORY */
enum ft_code ft_rpc_outbox_push(struct ft_rpc_outbox *box, struct ft_str message);
/* The oldest message, now in flight; the caller destroys it. NULL: none. */
grpc_byte_buffer *ft_rpc_outbox_pop(struct ft_rpc_outbox *box);
void ft_rpc_outbox_landed(struct ft_rpc_outbox *box); /* the write is over */
void ft_rpc_outbox_clear(struct ft_rpc_outbox *box);  /* drop what waits */
void ft_rpc_outbox_fini(struct ft_rpc_outbox *box);

/* ---- status.c -------------------------------------------------------------------------------- */

/* Any bytes become valid UTF-8 that fits. */
void ft_rpc_status_set(struct ft_rpc_status *status, int code, struct ft_str text);

/* ---- accept.c -------------------------------------------------------------------------------- */

/* From now on listeners of this process survive it running out of file descriptors. Any thread. */
void ft_rpc_accept_guard(void);

/* ---- server.c, server_call.c ----------------------------------------------------------------- */

#define FT_RPC_LISTEN_MAX 8   /* endpoints of one server: a Unix socket, TCP, and room */
#define FT_RPC_TRAILERS_MAX 4 /* as rpc.h says; one more is ours */
/* Trailer of an UNAVAILABLE that a server of ours means: the connection is well, and asking again
 * is not for the client's layer to do. */
#define FT_RPC_MEANT_KEY "ft-meant"

struct ft_rpc_server {
    struct ft_rpc_loop *loop;
    struct ft_rpc_server_opts opts; /* defaults filled in */
    grpc_server *core;
    struct ft_rpc_acceptor *acceptors[FT_RPC_LISTEN_MAX]; /* of Unix sockets */
    size_t n_acceptors;
    struct ft_rpc_tls_feed feeds[FT_RPC_LISTEN_MAX]; /* of TCP endpoints */
    size_t n_listening;
    uid_t *fd_uids; /* [n_fd_uids] who is at the other end of a Unix socket, by descriptor */
    size_t n_fd_uids;
    bool started, draining, closing;
    struct ft_rpc_call *waiting; /* takes the next call; NULL when there is none to take it */
    int32_t n_calls;             /* calls that core gave us and that are not gone */
    int32_t n_crowd;             /* of them, those let in past calls_max */
    int64_t linger_until_ns;     /* so long what they were sent may not have been read yet */
    struct ft_rpc_tag on_shutdown;
    bool is_shut_down;
};

struct ft_rpc_call {
    struct ft_rpc_server *server;
    const struct ft_rpc_method *method; /* NULL: refused, no handler ever sees it */
    grpc_call *core;
    grpc_call_details details;
    grpc_metadata_array metadata;
    struct ft_rpc_tag on_accept, on_received, on_sent, on_close;
    int pending; /* tags that are out, and callbacks that are running */
    grpc_byte_buffer *received;
    struct ft_rpc_outbox outbox;
    grpc_metadata trailers[FT_RPC_TRAILERS_MAX + 1];
    size_t n_trailers;
    struct ft_rpc_status status; /* what finish was given */
    int core_cancelled;          /* written by core with on_close */
    bool seen;                   /* a handler was called: on_gone is owed */
    bool sending;                /* on_sent is out */
    int64_t sent_ns, slowest_ns; /* since when; and the longest that it was out */
    bool headers_sent, message_sent, finished, status_sent;
    bool over; /* core says that the call has ended */
    bool cancelled;
    bool in_crowd; /* counts among the server's n_crowd */
    char *peer;    /* from gpr, made when asked for */
    void *user;
};

/* A call has ended of which a message was on its way for as long as slowest_ns. */
void ft_rpc_server_linger(struct ft_rpc_server *server, int64_t slowest_ns);
/* Arm the server for one more call, if it is not and may be. */
void ft_rpc_server_arm(struct ft_rpc_server *server);
struct ft_rpc_call *ft_rpc_call_create(struct ft_rpc_server *server);
void ft_rpc_call_destroy(struct ft_rpc_call *call);
/* core has filled in call: let its method have it. */
void ft_rpc_call_begin(struct ft_rpc_call *call, const struct ft_rpc_method *method);
/* Answer without a handler. */
void ft_rpc_call_refuse(struct ft_rpc_call *call, int code, const char *text);

/* ---- client.c, unary.c, stream.c ------------------------------------------------------------- */

/* A running call of a client: what close must cancel. */
struct ft_rpc_link {
    struct ft_rpc_link *prev, *next;
    grpc_call *core;
};

struct ft_rpc_client {
    struct ft_rpc_loop *loop;
    grpc_channel *channel;
    size_t send_queue_max;
    char *authorization;      /* value of that metadata; NULL: none */
    struct ft_rpc_link calls; /* ring; empty when it points at itself */
    bool closing;
};

/* What a call is made of; kept so that it can be made again. */
struct ft_rpc_request {
    grpc_slice path;
    grpc_metadata metadata[2]; /* the token's, and the call's own */
    size_t n_metadata;
    gpr_timespec deadline;
    uint32_t flags; /* of the initial metadata */
};
/* fail FT_E_REQ_INVALID: path or metadata that HTTP/2 cannot carry */
enum ft_code ft_rpc_request_init(struct ft_rpc_request *request, const struct ft_rpc_client *client,
                                 const char *path, const struct ft_rpc_call_opts *opts,
                                 struct ft_err *err);
void ft_rpc_request_fini(struct ft_rpc_request *request);
grpc_op ft_rpc_request_op(struct ft_rpc_request *request);

/* Create the core call of request and link it. fail FT_E_PEER_UNAVAILABLE: closing */
enum ft_code ft_rpc_client_begin(struct ft_rpc_client *client, struct ft_rpc_link *link,
                                 const struct ft_rpc_request *request, struct ft_err *err);
void ft_rpc_client_end(struct ft_rpc_link *link);

/* Where core leaves the end of a client's call. */
struct ft_rpc_ending {
    grpc_metadata_array headers, trailers;
    grpc_status_code code;
    grpc_slice text;
};
void ft_rpc_ending_init(struct ft_rpc_ending *ending);
void ft_rpc_ending_fini(struct ft_rpc_ending *ending);
grpc_op ft_rpc_ending_op(struct ft_rpc_ending *ending);
void ft_rpc_ending_status(const struct ft_rpc_ending *ending, struct ft_rpc_status *out);

#ifdef __cplusplus
}
#endif
#endif
