#include "common/rpc/rpc_internal.h"

#include <grpc/grpc_security.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"

#define MESSAGE_DEFAULT ((size_t)4 << 20)
#define MESSAGE_LIMIT ((size_t)1 << 30) /* gRPC counts bytes in an int */
#define QUEUE_DEFAULT ((size_t)1 << 20)
/* Connecting to a Unix socket costs one system call, so a worker that is back is found at once;
 * core does not go below 100 ms. */
#define BACKOFF_UNIX_MS 100
#define BACKOFF_TCP_MS 1000
/* A channel destroyed while it connects keeps gRPC running for seconds; a local attempt ends in
 * less than this. */
#define SETTLE_NS ((int64_t)50000000)

static grpc_arg int_arg(const char *key, int value) {
    return (grpc_arg){
        .type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value = {.integer = value}};
}

/* fail FT_E_PROC_CONFIG */
static enum ft_code create_credentials(grpc_channel_credentials **out,
                                       const struct ft_rpc_endpoint *endpoint,
                                       const struct ft_rpc_client_opts *opts, struct ft_err *err) {
    if (opts->tls == NULL) {
        *out = grpc_insecure_credentials_create();
        return FT_OK;
    }
    if (endpoint->is_unix)
        return ft_err_set(err, FT_E_PROC_CONFIG, "rpc", "unix:%s: a Unix socket does not speak TLS",
                          endpoint->path);
    return ft_rpc_tls_client_credentials(out, opts->tls, err);
}

/* Takes creds. */
static grpc_channel *create_channel(const struct ft_rpc_endpoint *endpoint,
                                    const struct ft_rpc_client_opts *opts,
                                    grpc_channel_credentials *creds) {
    size_t message_max = opts->message_max == 0 ? MESSAGE_DEFAULT : opts->message_max;
    int64_t backoff_ms = opts->reconnect_backoff_ms;
    if (backoff_ms <= 0)
        backoff_ms = endpoint->is_unix ? BACKOFF_UNIX_MS : BACKOFF_TCP_MS;
    if (backoff_ms > INT32_MAX)
        backoff_ms = INT32_MAX;
    grpc_arg args[] = {
        int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, (int)message_max),
        int_arg(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100),
        int_arg(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, (int)backoff_ms),
        /* In spite of its name: how long one attempt to connect may take. */
        int_arg(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000),
        /* One connection for each client, so that none waits behind another's messages. */
        int_arg(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
        int_arg(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
        int_arg(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1),
        int_arg(GRPC_ARG_ENABLE_RETRIES, 0),
        int_arg(GRPC_ARG_ENABLE_CHANNELZ, 0),
        int_arg(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE),
        int_arg(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0),
        int_arg(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0),
        {.type = GRPC_ARG_STRING, .key = (char *)(uintptr_t)GRPC_SSL_TARGET_NAME_OVERRIDE_ARG},
    };
    bool named = opts->tls != NULL && opts->tls->authority != NULL && opts->tls->authority[0] != 0;
    grpc_channel_args list = {sizeof args / sizeof args[0], args};
    if (named)
        args[list.num_args - 1].value.string = (char *)(uintptr_t)opts->tls->authority;
    else
        list.num_args--;
    grpc_channel *channel = grpc_channel_create(endpoint->target, creds, &list);
    grpc_channel_credentials_release(creds);
    return channel;
}

static bool set_token(struct ft_rpc_client *client, const char *token) {
    static const char scheme[] = "Bearer ";
    size_t bytes = sizeof scheme + strlen(token);
    client->authorization = malloc(bytes);
    if (client->authorization != NULL)
        snprintf(client->authorization, bytes, "%s%s", scheme, token);
    return client->authorization != NULL;
}

enum ft_code ft_rpc_client_open(struct ft_rpc_client **out, struct ft_rpc_loop *loop,
                                const char *endpoint, const struct ft_rpc_client_opts *opts,
                                struct ft_err *err) {
    static const struct ft_rpc_client_opts defaults;
    if (opts == NULL)
        opts = &defaults;
    struct ft_rpc_endpoint parsed;
    enum ft_code code = ft_rpc_endpoint_parse(&parsed, endpoint, err);
    if (code != FT_OK)
        return code;
    if (!parsed.is_unix && parsed.port == 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, "rpc",
                          "endpoint '%s': nobody can be reached at port 0", endpoint);
    if (opts->message_max > MESSAGE_LIMIT)
        return ft_err_set(err, FT_E_PROC_CONFIG, "rpc", "message_max is %zu, at most %zu",
                          opts->message_max, MESSAGE_LIMIT);
    bool has_token = opts->bearer != NULL && opts->bearer[0] != 0;
    if (has_token && opts->tls == NULL && !ft_rpc_endpoint_is_local(&parsed))
        return ft_err_set(err, FT_E_PROC_CONFIG, "rpc",
                          "endpoint '%s': a token is not sent beyond this host without TLS",
                          endpoint);
    grpc_channel_credentials *creds = NULL;
    code = create_credentials(&creds, &parsed, opts, err);
    if (code != FT_OK)
        return code;
    struct ft_rpc_client *client = calloc(1, sizeof *client);
    if (client != NULL && has_token && !set_token(client, opts->bearer)) {
        free(client);
        client = NULL;
    }
    if (client == NULL) {
        grpc_channel_credentials_release(creds);
        return ft_err_set(err, FT_E_PROC_MEMORY, "rpc", "no memory for a client");
    }
    client->loop = loop;
    client->send_queue_max = opts->send_queue_max == 0 ? QUEUE_DEFAULT : opts->send_queue_max;
    client->calls.prev = client->calls.next = &client->calls;
    client->channel = create_channel(&parsed, opts, creds);
    *out = client;
    return FT_OK;
}

static bool is_connecting(const struct ft_rpc_client *client) {
    return grpc_channel_check_connectivity_state(client->channel, 0) == GRPC_CHANNEL_CONNECTING;
}

void ft_rpc_client_close(struct ft_rpc_client **client) {
    struct ft_rpc_client *c = *client;
    if (c == NULL)
        return;
    *client = NULL;
    c->closing = true;
    for (struct ft_rpc_link *link = c->calls.next; link != &c->calls; link = link->next)
        grpc_call_cancel(link->core, NULL);
    while (c->calls.next != &c->calls)
        ft_rpc_loop_step(c->loop, INT64_MAX);
    int64_t until_ns = ft_clock_now_ns() + SETTLE_NS;
    while (is_connecting(c) && ft_clock_now_ns() < until_ns)
        ft_rpc_loop_step(c->loop, ft_clock_now_ns() + 1000000);
    grpc_channel_destroy(c->channel);
    if (c->authorization != NULL)
        explicit_bzero(c->authorization, strlen(c->authorization));
    free(c->authorization);
    free(c);
}

void ft_rpc_client_kick(struct ft_rpc_client *client) {
    grpc_channel_reset_connect_backoff(client->channel);
    grpc_channel_check_connectivity_state(client->channel, 1);
}

/* ---- what unary.c and stream.c share --------------------------------------------------------- */

static bool is_path(const char *path) {
    if (path[0] != '/')
        return false;
    for (const char *c = path; *c != '\0'; c++)
        if (*c <= 0x20 || *c > 0x7E)
            return false;
    return true;
}

static enum ft_code add_metadata(struct ft_rpc_request *request, const char *key, const char *value,
                                 struct ft_err *err) {
    grpc_metadata *pair = &request->metadata[request->n_metadata++];
    pair->key = grpc_slice_from_copied_string(key);
    pair->value = grpc_slice_from_copied_string(value);
    if (!grpc_header_key_is_legal(pair->key) || grpc_is_binary_header(pair->key))
        return ft_err_set(err, FT_E_REQ_INVALID, "rpc",
                          "metadata key '%s': wanted lower-case ASCII letters, digits, '-', '_', "
                          "'.', and no '-bin' at the end",
                          key);
    if (!grpc_header_nonbin_value_is_legal(pair->value))
        return ft_err_set(err, FT_E_REQ_INVALID, "rpc",
                          "metadata '%s': the value has bytes that are not printable ASCII", key);
    return FT_OK;
}

enum ft_code ft_rpc_request_init(struct ft_rpc_request *request, const struct ft_rpc_client *client,
                                 const char *path, const struct ft_rpc_call_opts *opts,
                                 struct ft_err *err) {
    static const struct ft_rpc_call_opts defaults;
    if (opts == NULL)
        opts = &defaults;
    if (!is_path(path))
        return ft_err_set(err, FT_E_REQ_INVALID, "rpc", "method path '%s': wanted /SERVICE/METHOD",
                          path);
    *request = (struct ft_rpc_request){
        .path = grpc_slice_from_copied_string(path),
        .deadline = ft_rpc_timespec(opts->deadline_ns == 0 ? INT64_MAX : opts->deadline_ns),
        .flags = opts->wait_for_ready ? GRPC_INITIAL_METADATA_WAIT_FOR_READY |
                                            GRPC_INITIAL_METADATA_WAIT_FOR_READY_EXPLICITLY_SET
                                      : 0};
    enum ft_code code = FT_OK;
    if (client->authorization != NULL)
        code = add_metadata(request, "authorization", client->authorization, err);
    if (code == FT_OK && opts->metadata_key != NULL && opts->metadata_value != NULL)
        code = add_metadata(request, opts->metadata_key, opts->metadata_value, err);
    if (code != FT_OK)
        ft_rpc_request_fini(request);
    return code;
}

void ft_rpc_request_fini(struct ft_rpc_request *request) {
    grpc_slice_unref(request->path);
    for (size_t i = 0; i < request->n_metadata; i++) {
        grpc_slice_unref(request->metadata[i].key);
        grpc_slice_unref(request->metadata[i].value);
    }
}

grpc_op ft_rpc_request_op(struct ft_rpc_request *request) {
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA, .flags = request->flags};
    op.data.send_initial_metadata.count = request->n_metadata;
    op.data.send_initial_metadata.metadata = request->metadata;
    return op;
}

enum ft_code ft_rpc_client_begin(struct ft_rpc_client *client, struct ft_rpc_link *link,
                                 const struct ft_rpc_request *request, struct ft_err *err) {
    if (client->closing)
        return ft_err_set(err, FT_E_PEER_UNAVAILABLE, "rpc", "the client is closing");
    link->core =
        grpc_channel_create_call(client->channel, NULL, GRPC_PROPAGATE_DEFAULTS, client->loop->cq,
                                 request->path, NULL, request->deadline, NULL);
    link->next = &client->calls;
    link->prev = client->calls.prev;
    link->prev->next = link->next->prev = link;
    return FT_OK;
}

void ft_rpc_client_end(struct ft_rpc_link *link) {
    grpc_call_unref(link->core);
    link->prev->next = link->next;
    link->next->prev = link->prev;
    *link = (struct ft_rpc_link){0};
}

void ft_rpc_ending_init(struct ft_rpc_ending *ending) {
    *ending = (struct ft_rpc_ending){.text = grpc_empty_slice()};
    grpc_metadata_array_init(&ending->headers);
    grpc_metadata_array_init(&ending->trailers);
}

void ft_rpc_ending_fini(struct ft_rpc_ending *ending) {
    grpc_metadata_array_destroy(&ending->headers);
    grpc_metadata_array_destroy(&ending->trailers);
    grpc_slice_unref(ending->text);
}

grpc_op ft_rpc_ending_op(struct ft_rpc_ending *ending) {
    grpc_op op = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    op.data.recv_status_on_client.trailing_metadata = &ending->trailers;
    op.data.recv_status_on_client.status = &ending->code;
    op.data.recv_status_on_client.status_details = &ending->text;
    return op;
}

/* 0 where nothing, or no such number, is said. */
static int32_t retry_after_ms(const grpc_metadata_array *trailers) {
    for (size_t i = 0; i < trailers->count; i++) {
        const grpc_slice *value = &trailers->metadata[i].value;
        char text[16];
        if (grpc_slice_str_cmp(trailers->metadata[i].key, "retry-after-ms") != 0 ||
            GRPC_SLICE_LENGTH(*value) >= sizeof text)
            continue;
        memcpy(text, GRPC_SLICE_START_PTR(*value), GRPC_SLICE_LENGTH(*value));
        text[GRPC_SLICE_LENGTH(*value)] = '\0';
        long ms = strtol(text, NULL, 10);
        return ms < 0 ? 0 : ms > INT32_MAX ? INT32_MAX : (int32_t)ms;
    }
    return 0;
}

void ft_rpc_ending_status(const struct ft_rpc_ending *ending, struct ft_rpc_status *out) {
    ft_rpc_status_set(out, (int)ending->code,
                      (struct ft_str){(const char *)GRPC_SLICE_START_PTR(ending->text),
                                      GRPC_SLICE_LENGTH(ending->text)});
    out->retry_after_ms = retry_after_ms(&ending->trailers);
}
