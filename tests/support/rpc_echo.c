#include "support/rpc_echo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a streaming call still has to send, or how much it has read. */
struct job {
    long n_left;
    size_t len;
    char *bytes;
    int n_read;
};

static struct job *job_create(struct ft_rpc_call *call) {
    struct job *job = calloc(1, sizeof *job);
    ft_rpc_call_set_user(call, job);
    return job;
}

static struct job *parse_job(struct ft_rpc_call *call, struct ft_str message) {
    char text[64] = {0};
    memcpy(text, message.ptr, message.len < sizeof text - 1 ? message.len : sizeof text - 1);
    struct job *job = job_create(call);
    char *end;
    job->n_left = strtol(text, &end, 10);
    job->len = (size_t)strtol(end, NULL, 10);
    job->bytes = malloc(job->len + 1);
    memset(job->bytes, 's', job->len);
    return job;
}

static void on_gone(struct ft_rpc_call *call, void *service) {
    struct rpc_echo *echo = service;
    echo->gone++;
    if (echo->hanging == call)
        echo->hanging = NULL;
    struct job *job = ft_rpc_call_user(call);
    if (job != NULL) {
        free(job->bytes);
        free(job);
    }
}

static void on_cancelled(struct ft_rpc_call *call, void *service) {
    struct rpc_echo *echo = service;
    (void)call;
    echo->cancelled++;
}

static void count(struct ft_rpc_call *call, struct rpc_echo *echo) {
    echo->messages++;
    echo->deadline_ns = ft_rpc_call_deadline_ns(call);
}

static void unary(struct ft_rpc_call *call, void *service, struct ft_str message) {
    count(call, service);
    ft_rpc_call_reply(call, message);
}

static void fail(struct ft_rpc_call *call, void *service, struct ft_str message) {
    count(call, service);
    char text[2048] = {0};
    memcpy(text, message.ptr, message.len < sizeof text - 1 ? message.len : sizeof text - 1);
    char *end;
    long code = strtol(text, &end, 10);
    ft_rpc_call_finish(call, (int)code, *end == ' ' ? end + 1 : end);
}

static void meta(struct ft_rpc_call *call, void *service, struct ft_str message) {
    count(call, service);
    (void)message;
    struct ft_str value = ft_rpc_call_metadata(call, "x-key");
    char text[256];
    snprintf(text, sizeof text, "%.*s", (int)value.len, value.ptr == NULL ? "" : value.ptr);
    ft_rpc_call_trailer(call, "x-back", text);
    ft_rpc_call_trailer(call, "x-peer", ft_rpc_call_peer(call));
    ft_rpc_call_reply(call, value);
}

static void peer(struct ft_rpc_call *call, void *service, struct ft_str message) {
    count(call, service);
    (void)message;
    ft_rpc_call_reply(call, ft_str_c(ft_rpc_call_peer(call)));
}

static void mute(struct ft_rpc_call *call, void *service, struct ft_str message) {
    count(call, service);
    (void)message;
    ft_rpc_call_finish(call, 0, NULL);
}

static void hang(struct ft_rpc_call *call, void *service, struct ft_str message) {
    struct rpc_echo *echo = service;
    count(call, echo);
    (void)message;
    echo->hanging = call;
}

static void stream_more(struct ft_rpc_call *call, void *service) {
    struct rpc_echo *echo = service;
    struct job *job = ft_rpc_call_user(call);
    echo->writable++;
    for (; job->n_left > 0 && ft_rpc_call_writable(call); job->n_left--)
        ft_rpc_call_send(call, (struct ft_str){job->bytes, job->len});
    if (job->n_left == 0)
        ft_rpc_call_finish(call, 0, "done");
}

static void stream(struct ft_rpc_call *call, void *service, struct ft_str message) {
    count(call, service);
    parse_job(call, message);
    stream_more(call, service);
}

static void flood(struct ft_rpc_call *call, void *service, struct ft_str message) {
    struct rpc_echo *echo = service;
    count(call, echo);
    struct job *job = parse_job(call, message);
    for (echo->last_send = FT_OK; job->n_left > 0 && echo->last_send == FT_OK; job->n_left--) {
        echo->last_send = ft_rpc_call_send(call, (struct ft_str){job->bytes, job->len});
        echo->flood_sent += echo->last_send == FT_OK;
    }
    ft_rpc_call_finish(call, 0, NULL);
}

static void open_counted(struct ft_rpc_call *call, void *service) {
    struct rpc_echo *echo = service;
    echo->opened++;
    job_create(call);
}

static void bidi(struct ft_rpc_call *call, void *service, struct ft_str message) {
    struct rpc_echo *echo = service;
    count(call, echo);
    if (message.len > 6 && memcmp(message.ptr, "close ", 6) == 0)
        ft_rpc_call_finish(call, message.ptr[6] - '0', "closed on request");
    else
        echo->last_send = ft_rpc_call_send(call, message);
}

static void bidi_half_close(struct ft_rpc_call *call, void *service) {
    struct rpc_echo *echo = service;
    echo->half_closed++;
    ft_rpc_call_finish(call, 0, NULL);
}

static void bidi_writable(struct ft_rpc_call *call, void *service) {
    struct rpc_echo *echo = service;
    (void)call;
    echo->writable++;
}

static void sink(struct ft_rpc_call *call, void *service, struct ft_str message) {
    struct job *job = ft_rpc_call_user(call);
    count(call, service);
    (void)message;
    job->n_read++;
}

static void sink_half_close(struct ft_rpc_call *call, void *service) {
    struct rpc_echo *echo = service;
    struct job *job = ft_rpc_call_user(call);
    echo->half_closed++;
    char text[32];
    snprintf(text, sizeof text, "%d", job->n_read);
    ft_rpc_call_send(call, ft_str_c(text));
    ft_rpc_call_finish(call, 0, NULL);
}

#define UNARY(name, handler)                                                                       \
    {                                                                                              \
        .path = "/test.Echo/" name, .kind = FT_RPC_UNARY, .on_message = handler,                   \
        .on_cancelled = on_cancelled, .on_gone = on_gone                                           \
    }

const struct ft_rpc_method k_rpc_echo_methods[] = {
    UNARY("Unary", unary),
    UNARY("Fail", fail),
    UNARY("Meta", meta),
    UNARY("Peer", peer),
    UNARY("Mute", mute),
    UNARY("Hang", hang),
    {.path = "/test.Echo/Stream",
     .kind = FT_RPC_SERVER_STREAM,
     .on_message = stream,
     .on_writable = stream_more,
     .on_cancelled = on_cancelled,
     .on_gone = on_gone},
    {.path = "/test.Echo/Flood",
     .kind = FT_RPC_SERVER_STREAM,
     .on_message = flood,
     .on_cancelled = on_cancelled,
     .on_gone = on_gone},
    {.path = "/test.Echo/Bidi",
     .kind = FT_RPC_BIDI,
     .on_open = open_counted,
     .on_message = bidi,
     .on_half_close = bidi_half_close,
     .on_writable = bidi_writable,
     .on_cancelled = on_cancelled,
     .on_gone = on_gone},
    {.path = "/test.Echo/Sink",
     .kind = FT_RPC_BIDI,
     .on_open = open_counted,
     .on_message = sink,
     .on_half_close = sink_half_close,
     .on_cancelled = on_cancelled,
     .on_gone = on_gone},
};
const size_t k_rpc_echo_n_methods = sizeof k_rpc_echo_methods / sizeof k_rpc_echo_methods[0];
