#include "common/rpc/rpc_internal.h"

#include <stdlib.h>

struct ft_rpc_stream {
    struct ft_rpc_link link;
    struct ft_rpc_client *client;
    struct ft_rpc_request request;
    struct ft_rpc_ending ending;
    struct ft_rpc_tag on_opened, on_received, on_sent, on_status;
    const struct ft_rpc_stream_handlers *handlers;
    void *user;
    struct ft_rpc_outbox outbox;
    grpc_byte_buffer *received;
    int pending; /* tags that are out, and callbacks that are running */
    bool sending;
    bool half_closed; /* asked for */
    bool close_sent;
    bool cancelled; /* by us: nothing but on_done follows */
    bool over;      /* the status has come */
    bool compressed;
};

static void stream_destroy(struct ft_rpc_stream *stream) {
    if (stream->received != NULL)
        grpc_byte_buffer_destroy(stream->received);
    ft_rpc_outbox_fini(&stream->outbox);
    ft_rpc_ending_fini(&stream->ending);
    ft_rpc_request_fini(&stream->request);
    free(stream);
}

static void release(struct ft_rpc_stream *stream) {
    if (--stream->pending > 0)
        return;
    struct ft_rpc_status status;
    ft_rpc_ending_status(&stream->ending, &status);
    if (stream->compressed)
        ft_rpc_status_set(&status, GRPC_STATUS_INTERNAL, ft_str_c("a message is compressed"));
    stream->pending++; /* on_done may still call cancel or send */
    stream->handlers->on_done(stream->user, &status);
    ft_rpc_client_end(&stream->link);
    stream_destroy(stream);
}

static bool start(struct ft_rpc_stream *stream, const grpc_op *ops, size_t n_ops,
                  struct ft_rpc_tag *tag) {
    bool started = ft_rpc_batch_start(stream->link.core, ops, n_ops, tag);
    if (started)
        stream->pending++;
    return started;
}

static void receive(struct ft_rpc_stream *stream) {
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &stream->received};
    start(stream, &op, 1, &stream->on_received);
}

static void on_received(void *owner, bool ok) {
    struct ft_rpc_stream *stream = owner;
    grpc_byte_buffer *payload = stream->received;
    (void)ok; /* no payload: the status tells why */
    stream->received = NULL;
    if (payload != NULL) {
        struct ft_rpc_view view;
        if (ft_rpc_view_open(&view, payload) != FT_OK) {
            stream->compressed = true;
            ft_rpc_stream_cancel(stream);
        } else if (!stream->cancelled) {
            stream->handlers->on_message(stream->user, view.str);
        }
        ft_rpc_view_close(&view);
        grpc_byte_buffer_destroy(payload);
        /* Until there are no more: what core holds back keeps the status from coming. */
        receive(stream);
    }
    release(stream);
}

/* Write what is next: one batch is out at a time, and the last message takes the end with it. */
static void pump(struct ft_rpc_stream *stream) {
    if (stream->sending || stream->over || stream->close_sent)
        return;
    grpc_op ops[2] = {0};
    size_t n_ops = 0;
    grpc_byte_buffer *payload = ft_rpc_outbox_pop(&stream->outbox);
    bool last = stream->half_closed && stream->outbox.n == 0;
    if (payload == NULL && !last)
        return;
    if (payload != NULL) {
        ops[n_ops].op = GRPC_OP_SEND_MESSAGE;
        ops[n_ops++].data.send_message.send_message = payload;
    }
    if (last)
        ops[n_ops++].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    stream->close_sent = last;
    stream->sending = start(stream, ops, n_ops, &stream->on_sent);
    if (payload != NULL)
        grpc_byte_buffer_destroy(payload); /* core has taken its slices */
}

static void on_sent(void *owner, bool ok) {
    struct ft_rpc_stream *stream = owner;
    stream->sending = false;
    ft_rpc_outbox_landed(&stream->outbox);
    /* A failed write means that the call is over; the status is on its way. */
    if (ok && !stream->cancelled) {
        pump(stream);
        if (ft_rpc_stream_writable(stream) && stream->handlers->on_writable != NULL)
            stream->handlers->on_writable(stream->user);
    }
    release(stream);
}

static void on_opened(void *owner, bool ok) {
    (void)ok;
    release(owner);
}

static void on_status(void *owner, bool ok) {
    struct ft_rpc_stream *stream = owner;
    (void)ok; /* always true */
    stream->over = true;
    ft_rpc_outbox_clear(&stream->outbox);
    release(stream);
}

static void launch(struct ft_rpc_stream *stream) {
    grpc_op ops[2] = {ft_rpc_ending_op(&stream->ending)};
    bool started = start(stream, ops, 1, &stream->on_status);
    FT_ASSERT(started); /* a fresh call takes it */
    ops[0] = ft_rpc_request_op(&stream->request);
    ops[1] = (grpc_op){.op = GRPC_OP_RECV_INITIAL_METADATA};
    ops[1].data.recv_initial_metadata.recv_initial_metadata = &stream->ending.headers;
    start(stream, ops, 2, &stream->on_opened);
    receive(stream);
}

enum ft_code ft_rpc_stream_open(struct ft_rpc_stream **out, struct ft_rpc_client *client,
                                const char *path, const struct ft_rpc_call_opts *opts,
                                const struct ft_rpc_stream_handlers *handlers, void *user,
                                struct ft_err *err) {
    FT_ASSERT(handlers->on_message != NULL && handlers->on_done != NULL);
    struct ft_rpc_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "rpc", "no memory for a stream");
    stream->client = client;
    stream->handlers = handlers;
    stream->user = user;
    stream->outbox.bytes_max = client->send_queue_max;
    stream->on_opened = (struct ft_rpc_tag){on_opened, stream};
    stream->on_received = (struct ft_rpc_tag){on_received, stream};
    stream->on_sent = (struct ft_rpc_tag){on_sent, stream};
    stream->on_status = (struct ft_rpc_tag){on_status, stream};
    enum ft_code code = ft_rpc_request_init(&stream->request, client, path, opts, err);
    if (code != FT_OK) {
        free(stream);
        return code;
    }
    ft_rpc_ending_init(&stream->ending);
    code = ft_rpc_client_begin(client, &stream->link, &stream->request, err);
    if (code != FT_OK) {
        stream_destroy(stream);
        return code;
    }
    launch(stream);
    *out = stream;
    return FT_OK;
}

enum ft_code ft_rpc_stream_send(struct ft_rpc_stream *stream, struct ft_str message) {
    if (stream->over || stream->cancelled || stream->half_closed)
        return FT_E_REQ_CANCELLED;
    enum ft_code code = ft_rpc_outbox_push(&stream->outbox, message);
    if (code == FT_OK)
        pump(stream);
    return code;
}

bool ft_rpc_stream_writable(const struct ft_rpc_stream *stream) {
    return !stream->sending && stream->outbox.n == 0 && !stream->over && !stream->cancelled &&
           !stream->half_closed;
}

void ft_rpc_stream_half_close(struct ft_rpc_stream *stream) {
    if (stream->half_closed || stream->cancelled)
        return;
    stream->half_closed = true;
    pump(stream);
}

void ft_rpc_stream_cancel(struct ft_rpc_stream *stream) {
    if (stream->cancelled || stream->over)
        return;
    stream->cancelled = true;
    ft_rpc_outbox_clear(&stream->outbox);
    grpc_call_cancel(stream->link.core, NULL);
}
