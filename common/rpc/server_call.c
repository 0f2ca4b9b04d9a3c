#include "common/rpc/rpc_internal.h"

#include <grpc/support/alloc.h>
#include <grpc/support/string_util.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"

/* A call lives as long as anything of it is pending: a tag in the completion queue, or a callback
 * that is running (which may run the loop). The tag of RECV_CLOSE is out from begin to the end of
 * the call, so a call that waits for its handler stays alive. */

static void hold(struct ft_rpc_call *call) {
    call->pending++;
}

static void release(struct ft_rpc_call *call) {
    if (--call->pending > 0)
        return;
    if (call->seen && call->method->on_gone != NULL) {
        call->pending++; /* on_gone may still ask the call for things */
        call->method->on_gone(call, call->server->opts.service);
    }
    struct ft_rpc_server *server = call->server;
    server->n_crowd -= call->in_crowd;
    if (call->method != NULL) /* a refused one is refused again */
        ft_rpc_server_linger(server, call->slowest_ns);
    ft_rpc_call_destroy(call);
    server->n_calls--;
    ft_rpc_server_arm(server);
}

static bool start(struct ft_rpc_call *call, const grpc_op *ops, size_t n_ops,
                  struct ft_rpc_tag *tag) {
    bool started = ft_rpc_batch_start(call->core, ops, n_ops, tag);
    if (started)
        hold(call);
    return started;
}

/* ---- receiving ------------------------------------------------------------------------------ */

static void receive(struct ft_rpc_call *call) {
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &call->received};
    start(call, &op, 1, &call->on_received);
}

static void deliver(struct ft_rpc_call *call, grpc_byte_buffer *payload) {
    struct ft_rpc_view view;
    if (ft_rpc_view_open(&view, payload) != FT_OK) {
        ft_rpc_call_finish(call, GRPC_STATUS_UNIMPLEMENTED, "compressed messages are not accepted");
    } else {
        call->seen = true;
        call->method->on_message(call, call->server->opts.service, view.str);
    }
    ft_rpc_view_close(&view);
    grpc_byte_buffer_destroy(payload);
}

static void on_half_close(struct ft_rpc_call *call) {
    if (call->method->kind != FT_RPC_BIDI)
        ft_rpc_call_finish(call, GRPC_STATUS_INVALID_ARGUMENT, "the call carries no message");
    else if (call->method->on_half_close != NULL)
        call->method->on_half_close(call, call->server->opts.service);
}

static void on_received(void *owner, bool ok) {
    struct ft_rpc_call *call = owner;
    grpc_byte_buffer *payload = call->received;
    call->received = NULL;
    if (call->over || call->finished) {
        if (payload != NULL)
            grpc_byte_buffer_destroy(payload);
    } else if (payload != NULL) {
        deliver(call, payload);
        if (call->method->kind == FT_RPC_BIDI && !call->over && !call->finished)
            receive(call);
    } else if (ok && !grpc_call_failed_before_recv_message(call->core)) {
        on_half_close(call);
    }
    release(call);
}

/* ---- sending -------------------------------------------------------------------------------- */

static void pump(struct ft_rpc_call *call);

static void on_sent(void *owner, bool ok) {
    struct ft_rpc_call *call = owner;
    (void)ok; /* a failed write is followed by on_close, which tells the handler */
    call->sending = false;
    int64_t took_ns = ft_clock_now_ns() - call->sent_ns;
    call->slowest_ns = took_ns > call->slowest_ns ? took_ns : call->slowest_ns;
    ft_rpc_outbox_landed(&call->outbox);
    if (!call->over) {
        pump(call);
        if (!call->finished && ft_rpc_call_writable(call) && call->method != NULL &&
            call->method->on_writable != NULL)
            call->method->on_writable(call, call->server->opts.service);
    }
    release(call);
}

static grpc_op status_op(struct ft_rpc_call *call, grpc_slice *text) {
    grpc_op op = {.op = GRPC_OP_SEND_STATUS_FROM_SERVER};
    *text = grpc_slice_from_copied_string(call->status.text);
    op.data.send_status_from_server.status = (grpc_status_code)call->status.code;
    op.data.send_status_from_server.status_details = text;
    op.data.send_status_from_server.trailing_metadata = call->trailers;
    op.data.send_status_from_server.trailing_metadata_count = call->n_trailers;
    return op;
}

/* Write what is next: one batch is out at a time, and the last message goes with the status. */
static void pump(struct ft_rpc_call *call) {
    if (call->sending || call->over || call->status_sent)
        return;
    grpc_op ops[3] = {0};
    size_t n_ops = 0;
    grpc_byte_buffer *payload = ft_rpc_outbox_pop(&call->outbox);
    bool last = call->finished && call->outbox.n == 0;
    if (payload == NULL && !last)
        return;
    if (!call->headers_sent)
        ops[n_ops++].op = GRPC_OP_SEND_INITIAL_METADATA;
    if (payload != NULL) {
        ops[n_ops].op = GRPC_OP_SEND_MESSAGE;
        ops[n_ops++].data.send_message.send_message = payload;
    }
    grpc_slice text = grpc_empty_slice();
    if (last)
        ops[n_ops++] = status_op(call, &text);
    call->headers_sent = true;
    call->status_sent = last;
    call->sent_ns = ft_clock_now_ns();
    call->sending = start(call, ops, n_ops, &call->on_sent);
    /* Core has taken the message's slices and a copy of the text. */
    grpc_slice_unref(text);
    if (payload != NULL)
        grpc_byte_buffer_destroy(payload);
}

enum ft_code ft_rpc_call_send(struct ft_rpc_call *call, struct ft_str message) {
    if (call->over || call->finished)
        return FT_E_REQ_CANCELLED;
    if (message.len > call->server->opts.reply_max)
        return FT_E_REQ_TOO_LARGE;
    enum ft_code code = ft_rpc_outbox_push(&call->outbox, message);
    if (code != FT_OK)
        return code;
    call->message_sent = true;
    pump(call);
    return FT_OK;
}

bool ft_rpc_call_writable(const struct ft_rpc_call *call) {
    return !call->sending && call->outbox.n == 0 && !call->over && !call->finished;
}

static void add_trailer(struct ft_rpc_call *call, const char *key, grpc_slice value) {
    call->trailers[call->n_trailers++] =
        (grpc_metadata){.key = grpc_slice_from_copied_string(key), .value = value};
}

static void finish(struct ft_rpc_call *call, int code, struct ft_str text) {
    if (call->finished || call->over)
        return;
    call->finished = true;
    if (code == GRPC_STATUS_OK && call->method != NULL && call->method->kind == FT_RPC_UNARY &&
        !call->message_sent) {
        code = GRPC_STATUS_INTERNAL;
        text = ft_str_c("the handler gave no reply");
    }
    ft_rpc_status_set(&call->status, code, text);
    if (code == GRPC_STATUS_UNAVAILABLE)
        add_trailer(call, FT_RPC_MEANT_KEY, grpc_slice_from_static_string("1"));
    pump(call);
}

void ft_rpc_call_finish(struct ft_rpc_call *call, int code, const char *text) {
    finish(call, code, ft_str_c(text));
}

void ft_rpc_call_fail(struct ft_rpc_call *call, const struct ft_err *err) {
    finish(call, ft_code_grpc_status(err->code), ft_str_c(err->text));
}

void ft_rpc_call_reply(struct ft_rpc_call *call, struct ft_str message) {
    /* Message and status are to leave in one write, so nothing is pumped in between. */
    if (call->finished || call->over)
        return;
    enum ft_code code = message.len > call->server->opts.reply_max
                            ? FT_E_REQ_TOO_LARGE
                            : ft_rpc_outbox_push(&call->outbox, message);
    if (code == FT_OK) {
        call->message_sent = true;
        finish(call, GRPC_STATUS_OK, (struct ft_str){0});
    } else {
        finish(call, GRPC_STATUS_RESOURCE_EXHAUSTED, ft_str_c("the reply is too large"));
    }
}

static grpc_slice legal_value(const char *value) {
    grpc_slice slice = grpc_slice_from_copied_string(value);
    uint8_t *bytes = GRPC_SLICE_START_PTR(slice);
    for (size_t i = 0; i < GRPC_SLICE_LENGTH(slice); i++)
        if (bytes[i] < 0x20 || bytes[i] > 0x7E)
            bytes[i] = '?';
    return slice;
}

void ft_rpc_call_trailer(struct ft_rpc_call *call, const char *key, const char *value) {
    if (call->finished || call->over)
        return;
    FT_ASSERT(call->n_trailers < FT_RPC_TRAILERS_MAX);
    add_trailer(call, key, legal_value(value));
    grpc_slice name = call->trailers[call->n_trailers - 1].key;
    FT_ASSERT(grpc_header_key_is_legal(name) && !grpc_is_binary_header(name));
}

/* ---- life ----------------------------------------------------------------------------------- */

static void on_close(void *owner, bool ok) {
    struct ft_rpc_call *call = owner;
    (void)ok; /* always true */
    call->over = true;
    call->cancelled = call->core_cancelled != 0;
    ft_rpc_outbox_clear(&call->outbox);
    if (call->cancelled && call->seen && !call->finished && call->method->on_cancelled != NULL)
        call->method->on_cancelled(call, call->server->opts.service);
    release(call);
}

struct ft_rpc_call *ft_rpc_call_create(struct ft_rpc_server *server) {
    struct ft_rpc_call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return NULL;
    call->server = server;
    call->outbox.bytes_max = server->opts.send_queue_max;
    call->on_received = (struct ft_rpc_tag){on_received, call};
    call->on_sent = (struct ft_rpc_tag){on_sent, call};
    call->on_close = (struct ft_rpc_tag){on_close, call};
    grpc_call_details_init(&call->details);
    grpc_metadata_array_init(&call->metadata);
    return call;
}

void ft_rpc_call_destroy(struct ft_rpc_call *call) {
    ft_rpc_outbox_fini(&call->outbox);
    for (size_t i = 0; i < call->n_trailers; i++) {
        grpc_slice_unref(call->trailers[i].key);
        grpc_slice_unref(call->trailers[i].value);
    }
    if (call->received != NULL)
        grpc_byte_buffer_destroy(call->received);
    gpr_free(call->peer);
    grpc_metadata_array_destroy(&call->metadata);
    grpc_call_details_destroy(&call->details);
    if (call->core != NULL)
        grpc_call_unref(call->core);
    free(call);
}

static void watch_close(struct ft_rpc_call *call) {
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
                  .data.recv_close_on_server.cancelled = &call->core_cancelled};
    bool started = start(call, &op, 1, &call->on_close);
    FT_ASSERT(started); /* a fresh call takes it */
}

void ft_rpc_call_begin(struct ft_rpc_call *call, const struct ft_rpc_method *method) {
    struct ft_err err = {0};
    call->method = method;
    hold(call);
    watch_close(call);
    if (call->server->opts.admit != NULL &&
        call->server->opts.admit(call, call->server->opts.service, &err) != FT_OK) {
        ft_rpc_call_fail(call, &err);
    } else if (method->kind == FT_RPC_BIDI) {
        call->seen = true;
        if (method->on_open != NULL)
            method->on_open(call, call->server->opts.service);
    }
    if (!call->over && !call->finished)
        receive(call);
    release(call);
}

void ft_rpc_call_refuse(struct ft_rpc_call *call, int code, const char *text) {
    hold(call);
    watch_close(call);
    ft_rpc_call_finish(call, code, text);
    release(call);
}

/* ---- what handlers ask ----------------------------------------------------------------------- */

void ft_rpc_call_set_user(struct ft_rpc_call *call, void *user) {
    call->user = user;
}

void *ft_rpc_call_user(const struct ft_rpc_call *call) {
    return call->user;
}

bool ft_rpc_call_cancelled(const struct ft_rpc_call *call) {
    return call->cancelled;
}

int64_t ft_rpc_call_deadline_ns(const struct ft_rpc_call *call) {
    return ft_rpc_time_ns(call->details.deadline);
}

struct ft_str ft_rpc_call_metadata(const struct ft_rpc_call *call, const char *key) {
    for (size_t i = 0; i < call->metadata.count; i++) {
        const grpc_metadata *pair = &call->metadata.metadata[i];
        if (grpc_slice_str_cmp(pair->key, key) == 0)
            return (struct ft_str){(const char *)GRPC_SLICE_START_PTR(pair->value),
                                   GRPC_SLICE_LENGTH(pair->value)};
    }
    return (struct ft_str){0};
}

const char *ft_rpc_call_peer(const struct ft_rpc_call *call) {
    /* Asked for by few calls, so made on demand; the text is not part of what callers see change.
     */
    struct ft_rpc_call *owner = (struct ft_rpc_call *)(uintptr_t)call;
    if (owner->peer == NULL)
        owner->peer = grpc_call_get_peer(owner->core);
    if (strncmp(owner->peer, "fd:", 3) != 0)
        return owner->peer;
    /* A connection to a Unix socket, which core knows by its descriptor alone. */
    size_t fd = strtoul(owner->peer + 3, NULL, 10);
    const struct ft_rpc_server *server = owner->server;
    char text[32];
    snprintf(text, sizeof text, "unix:uid=%u",
             fd < server->n_fd_uids ? (unsigned)server->fd_uids[fd] : (unsigned)-1);
    gpr_free(owner->peer);
    owner->peer = gpr_strdup(text);
    return owner->peer;
}

const char *ft_rpc_call_path(const struct ft_rpc_call *call) {
    return call->method != NULL ? call->method->path : "";
}
