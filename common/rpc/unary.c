#include "common/rpc/rpc_internal.h"

#include <stdlib.h>

#include "common/base/buf.h"

struct unary {
    struct ft_rpc_link link;
    struct ft_rpc_client *client;
    struct ft_rpc_request request;
    struct ft_rpc_ending ending;
    struct ft_rpc_tag on_done;
    grpc_byte_buffer *message; /* kept for a second attempt; shares its bytes with the first */
    grpc_byte_buffer *reply;
    bool may_retry;
    ft_rpc_unary_fn fn;
    void *user;
};

static void unary_destroy(struct unary *unary) {
    if (unary->reply != NULL)
        grpc_byte_buffer_destroy(unary->reply);
    grpc_byte_buffer_destroy(unary->message);
    ft_rpc_ending_fini(&unary->ending);
    ft_rpc_request_fini(&unary->request);
    free(unary);
}

/* All of the call is one batch: one event. */
static void launch(struct unary *unary) {
    grpc_byte_buffer *message = grpc_byte_buffer_copy(unary->message);
    grpc_op ops[6] = {0};
    ops[0] = ft_rpc_request_op(&unary->request);
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = message;
    ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[3].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &unary->ending.headers;
    ops[4].op = GRPC_OP_RECV_MESSAGE;
    ops[4].data.recv_message.recv_message = &unary->reply;
    ops[5] = ft_rpc_ending_op(&unary->ending);
    bool started = ft_rpc_batch_start(unary->link.core, ops, 6, &unary->on_done);
    FT_ASSERT(started); /* path, metadata and flags were checked; nothing else can be refused */
    grpc_byte_buffer_destroy(message);
}

/* The connection broke, and the server said nothing of its own. When a server was restarted, the
 * first call after it often goes onto the dead connection, wait_for_ready or not. Core's status
 * for that looks like one from the peer, so a server of ours marks those it means. */
static bool died_on_connection(const struct unary *unary) {
    const struct ft_rpc_ending *ending = &unary->ending;
    return ending->code == GRPC_STATUS_UNAVAILABLE && ending->headers.count == 0 &&
           ending->trailers.count == 0;
}

static bool retry(struct unary *unary) {
    if (!unary->may_retry || unary->client->closing || !died_on_connection(unary))
        return false;
    unary->may_retry = false;
    ft_rpc_client_end(&unary->link);
    ft_rpc_ending_fini(&unary->ending);
    ft_rpc_ending_init(&unary->ending);
    enum ft_code code = ft_rpc_client_begin(unary->client, &unary->link, &unary->request, NULL);
    FT_ASSERT(code == FT_OK); /* only a closing client refuses */
    launch(unary);
    return true;
}

static void report(struct unary *unary) {
    struct ft_rpc_status status;
    struct ft_rpc_view view = {.slice = grpc_empty_slice()};
    ft_rpc_ending_status(&unary->ending, &status);
    if (status.code == GRPC_STATUS_OK && unary->reply == NULL)
        ft_rpc_status_set(&status, GRPC_STATUS_INTERNAL, ft_str_c("the server sent no reply"));
    else if (status.code == GRPC_STATUS_OK && ft_rpc_view_open(&view, unary->reply) != FT_OK)
        ft_rpc_status_set(&status, GRPC_STATUS_INTERNAL, ft_str_c("the reply is compressed"));
    unary->fn(unary->user, &status, status.code == GRPC_STATUS_OK ? view.str : (struct ft_str){0});
    ft_rpc_view_close(&view);
}

static void on_done(void *owner, bool ok) {
    struct unary *unary = owner;
    (void)ok; /* the status tells more */
    if (retry(unary))
        return;
    report(unary);
    ft_rpc_client_end(&unary->link);
    unary_destroy(unary);
}

enum ft_code ft_rpc_client_unary(struct ft_rpc_client *client, const char *path,
                                 struct ft_str message, const struct ft_rpc_call_opts *opts,
                                 ft_rpc_unary_fn fn, void *user, struct ft_err *err) {
    struct unary *unary = calloc(1, sizeof *unary);
    if (unary == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "rpc", "no memory for a call");
    unary->client = client;
    unary->fn = fn;
    unary->user = user;
    unary->on_done = (struct ft_rpc_tag){on_done, unary};
    enum ft_code code = ft_rpc_request_init(&unary->request, client, path, opts, err);
    if (code != FT_OK) {
        free(unary);
        return code;
    }
    ft_rpc_ending_init(&unary->ending);
    unary->message = ft_rpc_payload_create(message);
    code = ft_rpc_client_begin(client, &unary->link, &unary->request, err);
    if (code != FT_OK) {
        unary_destroy(unary);
        return code;
    }
    /* A connection that was never there cannot have died. */
    unary->may_retry =
        (opts == NULL || !opts->no_retry) &&
        grpc_channel_check_connectivity_state(client->channel, 0) == GRPC_CHANNEL_READY;
    launch(unary);
    return FT_OK;
}

struct sync_result {
    struct ft_rpc_status status;
    struct ft_buf *out;
    bool done;
};

static void on_sync_reply(void *user, const struct ft_rpc_status *status, struct ft_str reply) {
    struct sync_result *result = user;
    result->status = *status;
    if (result->out != NULL)
        ft_buf_add_str(result->out, reply);
    result->done = true;
}

struct ft_rpc_status ft_rpc_client_unary_sync(struct ft_rpc_client *client, const char *path,
                                              struct ft_str message,
                                              const struct ft_rpc_call_opts *opts,
                                              struct ft_buf *out) {
    struct sync_result result = {.out = out};
    struct ft_err err = {0};
    struct ft_rpc_loop *loop = client->loop;
    if (ft_rpc_client_unary(client, path, message, opts, on_sync_reply, &result, &err) != FT_OK)
        return ft_rpc_status_from_err(&err);
    /* The call was linked last; it is cancelled when the loop is told to stop. */
    struct ft_rpc_link *link = client->calls.prev;
    while (!result.done) {
        if (loop->stop && link != NULL) {
            grpc_call_cancel(link->core, NULL);
            link = NULL;
        }
        ft_rpc_loop_step(loop, INT64_MAX);
    }
    return result.status;
}
