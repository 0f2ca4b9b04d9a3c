/* Servers, clients and calls of rpc.h over simulated messages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/net_internal.h"

static struct ft_rpc_server *g_servers;
static struct ft_rpc_call *g_calls;

static struct ft_rpc_status status_of(int code, const char *text) {
    struct ft_rpc_status status = {.code = code};
    snprintf(status.text, sizeof status.text, "%s", text == NULL ? "" : text);
    return status;
}

const char *ft_rpc_status_name(int code) {
    static char name[32];
    snprintf(name, sizeof name, "status %d", code);
    return name;
}

struct ft_rpc_status ft_rpc_status_from_err(const struct ft_err *err) {
    return status_of(ft_code_grpc_status(err->code), err->text);
}

/* ---- life of a call ------------------------------------------------------------------------- */

void net_call_unref(struct ft_rpc_call *call) {
    if (call == NULL || --call->refs > 0)
        return;
    FT_ASSERT(call->client == NULL && call->server == NULL);
    struct ft_rpc_call **link = &g_calls;
    while (*link != call)
        link = &(*link)->next;
    *link = call->next;
    ft_buf_fini(&call->reply);
    free(call);
}

static struct ft_rpc_call *call_create(struct ft_rpc_client *client, const char *path,
                                       const struct ft_rpc_call_opts *opts) {
    struct ft_rpc_stream *stream = calloc(1, sizeof *stream);
    struct ft_rpc_call *call = &stream->call;
    call->next = g_calls;
    g_calls = call;
    call->refs = 1; /* the client's end */
    call->client = client;
    call->client_loop = client->loop;
    call->reads = true;
    call->deadline_ns = opts->deadline_ns == 0 ? INT64_MAX : opts->deadline_ns;
    call->metadata_key = ft_str_c(opts->metadata_key);
    call->metadata_value = ft_str_c(opts->metadata_value);
    ft_buf_init(&call->reply, 0);
    snprintf(call->path, sizeof call->path, "%s", path);
    return call;
}

static void drop_unread(struct ft_rpc_call *call) {
    while (call->unread_first != NULL) {
        struct net_event *event = call->unread_first;
        call->unread_first = event->next;
        free(event);
    }
    call->unread_last = NULL;
}

/* The client hears the end, once. */
static void client_done(struct ft_rpc_call *call, const struct ft_rpc_status *status) {
    if (call->client == NULL)
        return;
    call->client = NULL;
    drop_unread(call);
    if (call->unary_fn != NULL)
        call->unary_fn(call->client_user, status,
                       status->code == 0 ? ft_buf_str(&call->reply) : (struct ft_str){NULL, 0});
    else
        call->handlers->on_done(call->client_user, status);
    net_call_unref(call);
}

static void server_gone(struct ft_rpc_call *call) {
    struct ft_rpc_server *server = call->server;
    if (server == NULL)
        return;
    call->over = true;
    if (call->seen && call->method->on_gone != NULL)
        call->method->on_gone(call, server->opts.service);
    call->server = NULL;
    net_call_unref(call);
}

static void on_gone_event(struct net_event *event) {
    server_gone(event->call);
    free(event);
}

/* The client left, or time is up. */
static void on_cancel_event(struct net_event *event) {
    struct ft_rpc_call *call = event->call;
    free(event);
    if (call->server == NULL || call->over)
        return;
    call->over = call->cancelled = true;
    if (call->seen && !call->finished && call->method->on_cancelled != NULL)
        call->method->on_cancelled(call, call->server->opts.service);
    if (net_below(2) == 0)
        server_gone(call);
    else
        net_send(call, 0, (struct ft_str){NULL, 0}, on_gone_event);
}

static void cancel_server(struct ft_rpc_call *call) {
    if (call->server_loop != NULL)
        net_send(call, 0, (struct ft_str){NULL, 0}, on_cancel_event);
}

static void on_done_event(struct net_event *event) {
    struct ft_rpc_call *call = event->call;
    if (call->unread_first != NULL && call->client != NULL) {
        event->next = NULL; /* the end is read behind what is not read yet */
        call->unread_last->next = event;
        call->unread_last = event;
        return;
    }
    struct ft_rpc_status status = event->status;
    free(event);
    client_done(call, &status);
    if (call->server != NULL && call->finished)
        net_send(call, 0, (struct ft_str){NULL, 0}, on_gone_event);
}

static void on_deadline_event(struct net_event *event) {
    struct ft_rpc_call *call = event->call;
    free(event);
    if (call->client == NULL)
        return;
    struct ft_rpc_status status = status_of(4, "Deadline Exceeded");
    cancel_server(call);
    client_done(call, &status);
}

void net_cut_calls(struct ft_rpc_loop *loop) {
    for (struct ft_rpc_call *call = g_calls, *next; call != NULL; call = next) {
        next = call->next;
        bool held = false;
        if (call->server_loop == loop) {
            if (call->client != NULL) {
                struct net_event *event =
                    net_send(call, 1, (struct ft_str){NULL, 0}, on_done_event);
                event->status = status_of(14, "Connection reset by peer");
            }
            held = call->server != NULL;
            call->server = NULL; /* a dead process hears nothing */
            call->server_loop = NULL;
            call->over = true;
        }
        if (call->client_loop == loop && call->client != NULL) {
            cancel_server(call);
            call->client = NULL;
            drop_unread(call);
            net_call_unref(call);
        }
        if (held)
            net_call_unref(call);
    }
}

/* ---- to the server -------------------------------------------------------------------------- */

static struct ft_rpc_server *find_server(const char *endpoint) {
    for (struct ft_rpc_server *s = g_servers; s != NULL; s = s->next)
        if (s->started && !s->loop->dead && strcmp(s->endpoint, endpoint) == 0)
            return s;
    return NULL;
}

static const struct ft_rpc_method *find_method(const struct ft_rpc_server *server,
                                               const char *path) {
    for (size_t i = 0; i < server->opts.n_methods; i++)
        if (strcmp(server->opts.methods[i].path, path) == 0)
            return &server->opts.methods[i];
    return NULL;
}

static void on_request_event(struct net_event *event) {
    struct ft_rpc_call *call = event->call;
    if (call->server != NULL && !call->over && !call->finished) {
        call->seen = true;
        call->method->on_message(call, call->server->opts.service,
                                 (struct ft_str){event->bytes, event->len});
    }
    free(event);
}

static void on_open_event(struct net_event *event) {
    struct ft_rpc_call *call = event->call;
    free(event);
    if (call->server == NULL || call->over)
        return;
    call->seen = true;
    if (call->method->on_open != NULL)
        call->method->on_open(call, call->server->opts.service);
}

/* Find the server; without one the client hears of it. */
static bool reach(struct ft_rpc_call *call, const char *endpoint) {
    struct ft_rpc_server *server = find_server(endpoint);
    const struct ft_rpc_method *method = server == NULL ? NULL : find_method(server, call->path);
    if (method == NULL) {
        struct net_event *event = net_send(call, 1, (struct ft_str){NULL, 0}, on_done_event);
        event->status = status_of(server == NULL ? 14 : 12, "not there");
        return false;
    }
    call->server = server;
    call->server_loop = server->loop;
    call->method = method;
    call->refs++; /* the server's end */
    if (call->deadline_ns != INT64_MAX) {
        struct net_event *event = calloc(1, sizeof *event);
        *event = (struct net_event){.at_ns = call->deadline_ns,
                                    .loop = call->client_loop,
                                    .call = call,
                                    .fn = on_deadline_event};
        call->refs++;
        net_push(event);
    }
    return true;
}

/* ---- servers -------------------------------------------------------------------------------- */

enum ft_code ft_rpc_server_create(struct ft_rpc_server **out, struct ft_rpc_loop *loop,
                                  const struct ft_rpc_server_opts *opts, struct ft_err *err) {
    (void)err;
    struct ft_rpc_server *server = calloc(1, sizeof *server);
    server->loop = loop;
    server->opts = *opts;
    server->next = g_servers;
    g_servers = server;
    *out = server;
    return FT_OK;
}

enum ft_code ft_rpc_server_listen(struct ft_rpc_server *server, const char *endpoint, int *port,
                                  struct ft_err *err) {
    (void)port;
    (void)err;
    snprintf(server->endpoint, sizeof server->endpoint, "%s", endpoint);
    return FT_OK;
}

enum ft_code ft_rpc_server_start(struct ft_rpc_server *server, struct ft_err *err) {
    (void)err;
    server->started = true;
    return FT_OK;
}

void ft_rpc_server_limit_calls(struct ft_rpc_server *server, int32_t calls_max) {
    server->opts.calls_max = calls_max;
}

void ft_rpc_server_close(struct ft_rpc_server **server, int64_t grace_ns) {
    (void)grace_ns;
    struct ft_rpc_server *s = *server;
    *server = NULL;
    if (s == NULL)
        return;
    for (bool again = true; again;) {
        again = false;
        for (struct ft_rpc_call *call = g_calls; call != NULL && !again; call = call->next) {
            if (call->server != s)
                continue;
            call->over = again = true;
            server_gone(call);
        }
    }
    struct ft_rpc_server **link = &g_servers;
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    free(s);
}

/* ---- what a server does with a call --------------------------------------------------------- */

static void read_message(struct ft_rpc_call *call, struct ft_str message);

static void on_reply_event(struct net_event *event) {
    struct ft_rpc_call *call = event->call;
    if (call->client == NULL) {
        free(event);
    } else if (!call->reads || call->unread_first != NULL) {
        event->next = NULL;
        if (call->unread_last != NULL)
            call->unread_last->next = event;
        else
            call->unread_first = event;
        call->unread_last = event;
    } else {
        read_message(call, (struct ft_str){event->bytes, event->len});
        free(event);
    }
}

static void on_landed_event(struct net_event *event) {
    struct ft_rpc_call *call = event->call;
    free(event);
    call->n_in_flight--;
    if (call->server != NULL && ft_rpc_call_writable(call) && call->method->on_writable != NULL)
        call->method->on_writable(call, call->server->opts.service);
}

static void read_message(struct ft_rpc_call *call, struct ft_str message) {
    if (call->server_loop != NULL)
        net_send(call, 0, (struct ft_str){NULL, 0}, on_landed_event);
    if (call->unary_fn != NULL)
        ft_buf_add(&call->reply, message.ptr, message.len);
    else
        call->handlers->on_message(call->client_user, message);
}

void net_stream_read(struct ft_rpc_stream *stream, bool on) {
    struct ft_rpc_call *call = &stream->call;
    call->reads = on;
    call->refs++;
    while (call->reads && call->client != NULL && call->unread_first != NULL) {
        struct net_event *event = call->unread_first;
        call->unread_first = event->next;
        if (call->unread_first == NULL)
            call->unread_last = NULL;
        if (event->fn == on_done_event)
            on_done_event(event);
        else {
            read_message(call, (struct ft_str){event->bytes, event->len});
            free(event);
        }
    }
    net_call_unref(call);
}

enum ft_code ft_rpc_call_send(struct ft_rpc_call *call, struct ft_str message) {
    if (call->over || call->finished)
        return FT_E_REQ_CANCELLED;
    call->n_in_flight++;
    struct net_event *event = net_send(call, 1, message, on_reply_event);
    event->rings = call->method->kind == FT_RPC_BIDI && message.len == 0;
    if (call->method->kind == FT_RPC_BIDI)
        net_maybe_duplicate(event);
    return FT_OK;
}

bool ft_rpc_call_writable(const struct ft_rpc_call *call) {
    return call->n_in_flight <= 0 && !call->over && !call->finished;
}

void ft_rpc_call_finish(struct ft_rpc_call *call, int code, const char *text) {
    if (call->finished || call->over)
        return;
    call->finished = true;
    struct net_event *event = net_send(call, 1, (struct ft_str){NULL, 0}, on_done_event);
    event->status = status_of(code, text);
    if (call->client == NULL) /* nobody will read it */
        net_send(call, 0, (struct ft_str){NULL, 0}, on_gone_event);
}

void ft_rpc_call_fail(struct ft_rpc_call *call, const struct ft_err *err) {
    ft_rpc_call_finish(call, ft_code_grpc_status(err->code), err->text);
}

void ft_rpc_call_reply(struct ft_rpc_call *call, struct ft_str message) {
    if (ft_rpc_call_send(call, message) == FT_OK)
        ft_rpc_call_finish(call, 0, NULL);
}

void ft_rpc_call_trailer(struct ft_rpc_call *call, const char *key, const char *value) {
    FT_ASSERT(call->n_trailers < NET_TRAILERS_MAX);
    int i = call->n_trailers++;
    snprintf(call->trailers[i].key, sizeof call->trailers[i].key, "%s", key);
    snprintf(call->trailers[i].value, sizeof call->trailers[i].value, "%s", value);
}

const char *net_stream_trailer(const struct ft_rpc_stream *stream, const char *key) {
    for (int i = 0; i < stream->call.n_trailers; i++)
        if (strcmp(stream->call.trailers[i].key, key) == 0)
            return stream->call.trailers[i].value;
    return NULL;
}

void ft_rpc_call_set_user(struct ft_rpc_call *call, void *user) {
    call->server_user = user;
}

void *ft_rpc_call_user(const struct ft_rpc_call *call) {
    return call->server_user;
}

bool ft_rpc_call_cancelled(const struct ft_rpc_call *call) {
    return call->cancelled;
}

int64_t ft_rpc_call_deadline_ns(const struct ft_rpc_call *call) {
    return call->deadline_ns;
}

struct ft_str ft_rpc_call_metadata(const struct ft_rpc_call *call, const char *key) {
    return ft_str_eq(call->metadata_key, ft_str_c(key)) ? call->metadata_value
                                                        : (struct ft_str){NULL, 0};
}

const char *ft_rpc_call_path(const struct ft_rpc_call *call) {
    return call->method->path;
}

const char *ft_rpc_call_peer(const struct ft_rpc_call *call) {
    return call->client != NULL ? call->client->peer : "ipv4:127.0.0.1:1";
}

/* ---- clients -------------------------------------------------------------------------------- */

enum ft_code ft_rpc_client_open(struct ft_rpc_client **out, struct ft_rpc_loop *loop,
                                const char *endpoint, const struct ft_rpc_client_opts *opts,
                                struct ft_err *err) {
    (void)opts;
    (void)err;
    struct ft_rpc_client *client = calloc(1, sizeof *client);
    client->loop = loop;
    client->peer = "ipv4:127.0.0.1:1";
    snprintf(client->endpoint, sizeof client->endpoint, "%s", endpoint);
    *out = client;
    return FT_OK;
}

void net_client_set_peer(struct ft_rpc_client *client, const char *peer) {
    client->peer = peer;
}

void ft_rpc_client_close(struct ft_rpc_client **client) {
    struct ft_rpc_client *c = *client;
    *client = NULL;
    if (c == NULL)
        return;
    struct ft_rpc_status status = status_of(1, "cancelled");
    for (bool again = true; again;) {
        again = false;
        for (struct ft_rpc_call *call = g_calls; call != NULL && !again; call = call->next) {
            if (call->client != c)
                continue;
            again = true;
            cancel_server(call);
            client_done(call, &status);
        }
    }
    free(c);
}

void ft_rpc_client_kick(struct ft_rpc_client *client) {
    (void)client;
}

enum ft_code ft_rpc_client_unary(struct ft_rpc_client *client, const char *path,
                                 struct ft_str message, const struct ft_rpc_call_opts *opts,
                                 ft_rpc_unary_fn fn, void *user, struct ft_err *err) {
    (void)err;
    struct ft_rpc_call *call = call_create(client, path, opts);
    call->unary_fn = fn;
    call->client_user = user;
    if (reach(call, client->endpoint))
        net_send(call, 0, message, on_request_event);
    return FT_OK;
}

enum ft_code ft_rpc_stream_open(struct ft_rpc_stream **out, struct ft_rpc_client *client,
                                const char *path, const struct ft_rpc_call_opts *opts,
                                const struct ft_rpc_stream_handlers *handlers, void *user,
                                struct ft_err *err) {
    (void)err;
    struct ft_rpc_call *call = call_create(client, path, opts);
    call->handlers = handlers;
    call->client_user = user;
    if (reach(call, client->endpoint) && call->method->kind == FT_RPC_BIDI)
        net_send(call, 0, (struct ft_str){NULL, 0}, on_open_event);
    *out = (struct ft_rpc_stream *)(void *)call;
    return FT_OK;
}

enum ft_code ft_rpc_stream_send(struct ft_rpc_stream *stream, struct ft_str message) {
    if (stream->call.client == NULL)
        return FT_E_REQ_CANCELLED;
    if (stream->call.server_loop != NULL)
        net_send(&stream->call, 0, message, on_request_event)->rings = message.len == 0;
    return FT_OK;
}

void ft_rpc_stream_half_close(struct ft_rpc_stream *stream) {
    (void)stream;
}

static void on_cancelled_event(struct net_event *event) {
    struct ft_rpc_call *call = event->call;
    free(event);
    struct ft_rpc_status status = status_of(1, "cancelled");
    client_done(call, &status);
}

void ft_rpc_stream_cancel(struct ft_rpc_stream *stream) {
    struct ft_rpc_call *call = &stream->call;
    if (call->client == NULL)
        return;
    cancel_server(call);
    call->reads = false; /* nothing but the end follows */
    drop_unread(call);
    net_send(call, 1, (struct ft_str){NULL, 0}, on_cancelled_event);
}
