#include "common/rpc/rpc_internal.h"

#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <limits.h>
#include <linux/sockios.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clock.h"

#define MESSAGE_DEFAULT ((size_t)4 << 20)
#define MESSAGE_LIMIT ((size_t)1 << 30) /* gRPC counts bytes in an int */
#define QUEUE_DEFAULT ((size_t)1 << 20)
#define CALLS_DEFAULT 4096
#define CROWD_MAX 256 /* calls of methods in_crowd past calls_max: each is short, or a watch */
#define KEEPALIVE_DEFAULT_MS 30000
#define LINGER_DEFAULT_MS 5000
#define NO_UID ((uid_t)-1)

static void on_shutdown(void *owner, bool ok) {
    struct ft_rpc_server *server = owner;
    (void)ok;
    server->is_shut_down = true;
}

static grpc_arg int_arg(const char *key, int value) {
    return (grpc_arg){
        .type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value = {.integer = value}};
}

/* Pings are a matter of the whole core server, not of one connection. A local peer that dies closes
 * its Unix socket, so there a ping tells nothing; but it ends the connection of a server whose loop
 * is in one callback for long (a worker's step), because nobody reads the answer. Core's own
 * default is a ping every two hours. */
static void create_core(struct ft_rpc_server *server, bool pings) {
    const struct ft_rpc_server_opts *opts = &server->opts;
    grpc_arg args[] = {
        int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, (int)opts->message_max),
        int_arg(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, (int)opts->reply_max),
        /* Else a second server shares the port, and takes half of the connections. */
        int_arg(GRPC_ARG_ALLOW_REUSEPORT, 0),
        int_arg(GRPC_ARG_ENABLE_CHANNELZ, 0),
        /* Core would unpack a compressed message whatever its size: a few MiB become GiB. */
        int_arg(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE),
        int_arg(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0),
        int_arg(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0),
        /* Who connects and says nothing is dropped; so is a peer whose host vanished. */
        int_arg(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10000),
        int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, pings ? opts->keepalive_ms : INT_MAX),
        int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, opts->keepalive_ms / 3),
        /* Clients may ask as often themselves; the default answers GOAWAY too_many_pings. */
        int_arg(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        int_arg(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000),
    };
    grpc_channel_args list = {sizeof args / sizeof args[0], args};
    server->core = grpc_server_create(&list, NULL);
    grpc_server_register_completion_queue(server->core, server->loop->cq, NULL);
}

void ft_rpc_server_limit_calls(struct ft_rpc_server *server, int32_t calls_max) {
    server->opts.calls_max = calls_max > 0 ? calls_max : CALLS_DEFAULT;
}

enum ft_code ft_rpc_server_create(struct ft_rpc_server **out, struct ft_rpc_loop *loop,
                                  const struct ft_rpc_server_opts *opts, struct ft_err *err) {
    if (opts->message_max > MESSAGE_LIMIT || opts->reply_max > MESSAGE_LIMIT)
        return ft_err_set(err, FT_E_PROC_CONFIG, "rpc",
                          "message_max is %zu and reply_max %zu, at most %zu", opts->message_max,
                          opts->reply_max, MESSAGE_LIMIT);
    struct ft_rpc_server *server = calloc(1, sizeof *server);
    if (server == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "rpc", "no memory for a server");
    ft_rpc_accept_guard();
    server->loop = loop;
    server->opts = *opts;
    if (server->opts.message_max == 0)
        server->opts.message_max = MESSAGE_DEFAULT;
    if (server->opts.reply_max == 0)
        server->opts.reply_max = server->opts.message_max;
    if (server->opts.send_queue_max == 0)
        server->opts.send_queue_max = QUEUE_DEFAULT;
    ft_rpc_server_limit_calls(server, opts->calls_max);
    if (server->opts.keepalive_ms <= 0)
        server->opts.keepalive_ms = KEEPALIVE_DEFAULT_MS;
    if (server->opts.linger_ms <= 0)
        server->opts.linger_ms = LINGER_DEFAULT_MS;
    for (size_t i = 0; i < opts->n_methods; i++)
        FT_ASSERT(opts->methods[i].path != NULL && opts->methods[i].on_message != NULL);
    server->on_shutdown = (struct ft_rpc_tag){on_shutdown, server};
    *out = server;
    return FT_OK;
}

static int add_port(struct ft_rpc_server *server, const char *address) {
    if (server->core == NULL)
        create_core(server, true);
    struct ft_rpc_tls_feed *feed = &server->feeds[server->n_listening];
    *feed = (struct ft_rpc_tls_feed){.tls = server->opts.tls};
    grpc_server_credentials *creds = feed->tls != NULL ? ft_rpc_tls_server_credentials(feed)
                                                       : grpc_insecure_server_credentials_create();
    int port = grpc_server_add_http2_port(server->core, address, creds);
    grpc_server_credentials_release(creds);
    return port;
}

enum ft_code ft_rpc_server_listen(struct ft_rpc_server *server, const char *endpoint, int *port,
                                  struct ft_err *err) {
    FT_ASSERT(!server->started);
    struct ft_rpc_endpoint parsed;
    enum ft_code code = ft_rpc_endpoint_parse(&parsed, endpoint, err);
    if (code != FT_OK)
        return code;
    if (server->n_listening == FT_RPC_LISTEN_MAX)
        return ft_err_set(err, FT_E_PROC_CONFIG, "rpc", "endpoint '%s': a server has at most %d",
                          endpoint, FT_RPC_LISTEN_MAX);
    int bound = 0;
    if (parsed.is_unix) {
        code = ft_rpc_acceptor_open(&server->acceptors[server->n_acceptors], &parsed,
                                    &server->opts.socket, err);
        if (code != FT_OK)
            return code;
        server->n_acceptors++;
    } else {
        bound = add_port(server, parsed.address);
        if (bound == 0)
            return ft_err_set_os(err, FT_E_PROC_CONFIG, ft_rpc_endpoint_bind_errno(&parsed), "rpc",
                                 "cannot listen on %s", endpoint);
    }
    server->n_listening++;
    if (port != NULL)
        *port = bound;
    return FT_OK;
}

static bool note_uid(struct ft_rpc_server *server, int fd, uid_t uid) {
    if ((size_t)fd >= server->n_fd_uids) {
        size_t n = (size_t)fd * 2 + 64;
        uid_t *grown = realloc(server->fd_uids, n * sizeof *grown);
        if (grown == NULL)
            return false;
        for (size_t i = server->n_fd_uids; i < n; i++)
            grown[i] = NO_UID;
        server->fd_uids = grown;
        server->n_fd_uids = n;
    }
    server->fd_uids[fd] = uid;
    return true;
}

static void on_connected(void *user, int fd, uid_t uid) {
    struct ft_rpc_server *server = user;
    if (fd < 0) {
        if (server->opts.on_peer_refused != NULL)
            server->opts.on_peer_refused(server->opts.service, uid);
        return;
    }
    if (!note_uid(server, fd, uid)) {
        close(fd);
        return;
    }
    grpc_server_credentials *creds = grpc_insecure_server_credentials_create();
    grpc_server_add_channel_from_fd(server->core, fd, creds);
    grpc_server_credentials_release(creds);
}

enum ft_code ft_rpc_server_start(struct ft_rpc_server *server, struct ft_err *err) {
    FT_ASSERT(!server->started);
    if (server->n_listening == 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, "rpc", "a server without an endpoint");
    if (server->core == NULL)
        create_core(server, false);
    grpc_server_start(server->core);
    server->started = true;
    for (size_t i = 0; i < server->n_acceptors; i++) {
        enum ft_code code =
            ft_rpc_acceptor_begin(server->acceptors[i], server->loop, on_connected, server, err);
        if (code != FT_OK)
            return code;
    }
    ft_rpc_server_arm(server);
    if (server->waiting == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "rpc", "no memory for a call");
    return FT_OK;
}

static const struct ft_rpc_method *find_method(const struct ft_rpc_server *server,
                                               grpc_slice path) {
    for (size_t i = 0; i < server->opts.n_methods; i++)
        if (grpc_slice_str_cmp(path, server->opts.methods[i].path) == 0)
            return &server->opts.methods[i];
    return NULL;
}

/* Calls that are being refused are in n_calls, but not in n_crowd: however many of them there are,
 * they keep out no call of a method in_crowd. */
static bool has_place(struct ft_rpc_call *call, const struct ft_rpc_method *method) {
    struct ft_rpc_server *server = call->server;
    if (server->n_calls <= server->opts.calls_max)
        return true;
    call->in_crowd = method->in_crowd && server->n_crowd < CROWD_MAX;
    server->n_crowd += call->in_crowd;
    return call->in_crowd;
}

/* Calls end all the time: it is worth asking again, about a short answer later. */
static void refuse_crowded(struct ft_rpc_call *call) {
    ft_rpc_call_trailer(call, "retry-after-ms", "500");
    ft_rpc_call_refuse(call, GRPC_STATUS_RESOURCE_EXHAUSTED, "too many calls at once");
}

static void on_accept(void *owner, bool ok) {
    struct ft_rpc_call *call = owner;
    struct ft_rpc_server *server = call->server;
    server->waiting = NULL;
    if (!ok) { /* the server is shutting down */
        ft_rpc_call_destroy(call);
        return;
    }
    server->n_calls++;
    ft_rpc_server_arm(server);
    const struct ft_rpc_method *method = find_method(server, call->details.method);
    bool answers = !server->draining || (method != NULL && method->in_drain);
    if (server->closing || !answers)
        ft_rpc_call_refuse(call, GRPC_STATUS_UNAVAILABLE, "the server is draining");
    else if (method == NULL)
        ft_rpc_call_refuse(call, GRPC_STATUS_UNIMPLEMENTED, "no such method");
    else if (!has_place(call, method))
        refuse_crowded(call);
    else
        ft_rpc_call_begin(call, method);
}

void ft_rpc_server_arm(struct ft_rpc_server *server) {
    if (server->waiting != NULL || server->closing)
        return;
    /* Without memory the next call waits in core until a running one is gone. */
    struct ft_rpc_call *call = ft_rpc_call_create(server);
    if (call == NULL)
        return;
    call->on_accept = (struct ft_rpc_tag){on_accept, call};
    grpc_call_error e =
        grpc_server_request_call(server->core, &call->core, &call->details, &call->metadata,
                                 server->loop->cq, server->loop->cq, &call->on_accept);
    FT_ASSERT(e == GRPC_CALL_OK);
    server->waiting = call;
}

/* Core closes a connection with its last call, and a client that writes to it at that moment drops
 * what it has not read yet. (Going away politely would spare it, but core then cancels what other
 * clients ask meanwhile, where UNAVAILABLE is theirs.) So what ended last gets so long to be read,
 * a client that was slow before twice as long as it took then, and a Unix socket as long as it
 * holds bytes that nobody has read. */
#define LINGER_NS ((int64_t)50000000)
#define LINGER_SLOW_NS ((int64_t)2000000000)
#define LOOK_NS ((int64_t)5000000)

void ft_rpc_server_linger(struct ft_rpc_server *server, int64_t slowest_ns) {
    int64_t ns = 2 * slowest_ns;
    ns = ns < LINGER_NS ? LINGER_NS : ns > LINGER_SLOW_NS ? LINGER_SLOW_NS : ns;
    int64_t until_ns = ft_clock_now_ns() + ns;
    if (until_ns > server->linger_until_ns)
        server->linger_until_ns = until_ns;
}

/* The end of a connection is not told to us, so fd may be another file by now: of Unix sockets,
 * those that were accepted have a name, and those that connected have none. */
static bool holds_unread(int fd) {
    struct sockaddr_un name;
    socklen_t len = sizeof name;
    int n_bytes;
    return getsockname(fd, (struct sockaddr *)&name, &len) == 0 && name.sun_family == AF_UNIX &&
           len > offsetof(struct sockaddr_un, sun_path) && ioctl(fd, SIOCOUTQ, &n_bytes) == 0 &&
           n_bytes > 0;
}

static bool has_unread(const struct ft_rpc_server *server) {
    for (size_t fd = 0; fd < server->n_fd_uids; fd++)
        if (server->fd_uids[fd] != NO_UID && holds_unread((int)fd))
            return true;
    return false;
}

static void linger(struct ft_rpc_server *server) {
    int64_t now_ns = ft_clock_now_ns(), max_ns = now_ns + server->opts.linger_ms * INT64_C(1000000);
    while (now_ns < max_ns) {
        if (has_unread(server))
            ft_rpc_server_linger(server, 0);
        if (now_ns >= server->linger_until_ns)
            return;
        ft_rpc_loop_step(server->loop, now_ns + LOOK_NS);
        now_ns = ft_clock_now_ns();
    }
}

static void wait_for_calls(struct ft_rpc_server *server, int64_t grace_ns) {
    int64_t now_ns = ft_clock_now_ns();
    int64_t until_ns = grace_ns < INT64_MAX - now_ns ? now_ns + grace_ns : INT64_MAX;
    while (server->n_calls > 0 && now_ns < until_ns) {
        ft_rpc_loop_step(server->loop, until_ns);
        now_ns = ft_clock_now_ns();
    }
    if (grace_ns > 0 && server->n_calls == 0)
        linger(server);
}

static bool is_idle(const struct ft_rpc_server *server) {
    return server->is_shut_down && server->n_calls == 0 && server->waiting == NULL;
}

static void shut_down(struct ft_rpc_server *server) {
    if (server->core == NULL)
        return;
    grpc_server_shutdown_and_notify(server->core, server->loop->cq, &server->on_shutdown);
    grpc_server_cancel_all_calls(server->core);
    while (!is_idle(server))
        ft_rpc_loop_step(server->loop, INT64_MAX);
    grpc_server_destroy(server->core);
}

void ft_rpc_server_close(struct ft_rpc_server **server, int64_t grace_ns) {
    struct ft_rpc_server *s = *server;
    if (s == NULL)
        return;
    *server = NULL;
    s->draining = true;
    wait_for_calls(s, grace_ns);
    for (size_t i = 0; i < s->n_acceptors; i++)
        ft_rpc_acceptor_end(s->acceptors[i]);
    s->closing = true;
    shut_down(s);
    for (size_t i = 0; i < s->n_acceptors; i++)
        ft_rpc_acceptor_close(&s->acceptors[i]);
    free(s->fd_uids);
    free(s);
}
