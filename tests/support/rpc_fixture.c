#include "support/rpc_fixture.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "support/awake.h"

struct rpc_fixture fx;

struct ft_rpc_server *rpc_fixture_serve(const char *endpoint, const struct ft_rpc_server_opts *opts,
                                        int *port) {
    struct ft_rpc_server_opts o = opts == NULL ? (struct ft_rpc_server_opts){0} : *opts;
    if (o.methods == NULL) {
        o.methods = k_rpc_echo_methods;
        o.n_methods = k_rpc_echo_n_methods;
        o.service = &fx.echo;
    }
    struct ft_err err = {0};
    struct ft_rpc_server *server = NULL;
    ck_assert_msg(ft_rpc_server_create(&server, fx.loop, &o, &err) == FT_OK, "%s", err.text);
    ck_assert_msg(ft_rpc_server_listen(server, endpoint, port, &err) == FT_OK, "%s", err.text);
    ck_assert_msg(ft_rpc_server_start(server, &err) == FT_OK, "%s", err.text);
    return server;
}

struct ft_rpc_client *rpc_fixture_connect(const char *endpoint,
                                          const struct ft_rpc_client_opts *opts) {
    struct ft_err err = {0};
    struct ft_rpc_client *client = NULL;
    ck_assert_msg(ft_rpc_client_open(&client, fx.loop, endpoint, opts, &err) == FT_OK, "%s",
                  err.text);
    return client;
}

void rpc_fixture_setup(void) {
    fx = (struct rpc_fixture){0};
    snprintf(fx.folder, sizeof fx.folder, "/tmp/ft_rpc_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(fx.folder));
    snprintf(fx.path, sizeof fx.path, "%s/s", fx.folder);
    snprintf(fx.endpoint, sizeof fx.endpoint, "unix:%s", fx.path);
    struct ft_err err = {0};
    ck_assert_msg(ft_rpc_loop_create(&fx.loop, 0, &err) == FT_OK, "%s", err.text);
    fx.server = rpc_fixture_serve(fx.endpoint, NULL, NULL);
    fx.client = rpc_fixture_connect(fx.endpoint, NULL);
}

void rpc_fixture_teardown(void) {
    ft_rpc_client_close(&fx.client);
    ft_rpc_server_close(&fx.server, 0);
    ft_rpc_loop_destroy(&fx.loop);
    /* The server leaves nothing behind: neither its socket nor its lock. */
    ck_assert_int_eq(rmdir(fx.folder), 0);
}

void rpc_fixture_restart(const struct ft_rpc_server_opts *opts) {
    ft_rpc_server_close(&fx.server, 0);
    fx.server = rpc_fixture_serve(fx.endpoint, opts, NULL);
}

int64_t rpc_in_ms(int ms) {
    return ft_clock_now_ns() + (int64_t)ms * 1000000;
}

bool rpc_wait_int(const int *value, int wanted, int max_ms) {
    int64_t until_ns = rpc_in_ms(max_ms);
    while (*value != wanted && ft_clock_now_ns() < until_ns)
        ft_rpc_loop_step(fx.loop, until_ns);
    return *value == wanted;
}

void rpc_run_ms(int ms) {
    int64_t left_ns = (int64_t)ms * 1000000, until_ns = ft_awake_ns() + left_ns;
    for (; left_ns > 0; left_ns = until_ns - ft_awake_ns())
        ft_rpc_loop_step(fx.loop, ft_clock_now_ns() + left_ns);
}

void rpc_answer_fn(void *user, const struct ft_rpc_status *status, struct ft_str reply) {
    struct rpc_answer *answer = user;
    answer->status = *status;
    answer->len = reply.len;
    memcpy(answer->bytes, reply.ptr == NULL ? "" : reply.ptr,
           reply.len < sizeof answer->bytes - 1 ? reply.len : sizeof answer->bytes - 1);
    answer->done++;
}

struct rpc_answer rpc_ask(struct ft_rpc_client *client, const char *path, struct ft_str message,
                          const struct ft_rpc_call_opts *opts) {
    struct rpc_answer answer = {0};
    struct ft_err err = {0};
    ck_assert_msg(ft_rpc_client_unary(client, path, message, opts, rpc_answer_fn, &answer, &err) ==
                      FT_OK,
                  "%s", err.text);
    ck_assert_msg(rpc_wait_int(&answer.done, 1, 20000), "no answer from %s", path);
    return answer;
}

static void talk_message(void *user, struct ft_str message) {
    struct rpc_talk *talk = user;
    ck_assert_int_eq(talk->done, 0);
    size_t len = message.len < sizeof talk->last - 1 ? message.len : sizeof talk->last - 1;
    memcpy(talk->last, message.ptr, len);
    talk->last[len] = '\0';
    talk->in_order = talk->in_order && atoi(talk->last) == talk->messages;
    talk->messages++;
    talk->bytes += message.len;
    if (talk->on_message != NULL)
        talk->on_message(talk, message);
}

static void talk_writable(void *user) {
    struct rpc_talk *talk = user;
    ck_assert_int_eq(talk->done, 0);
    talk->writable++;
}

static void talk_done(void *user, const struct ft_rpc_status *status) {
    struct rpc_talk *talk = user;
    talk->status = *status;
    talk->done++;
    talk->stream = NULL;
}

const struct ft_rpc_stream_handlers k_rpc_talk_handlers = {
    .on_message = talk_message, .on_writable = talk_writable, .on_done = talk_done};

void rpc_talk_open(struct rpc_talk *talk, struct ft_rpc_client *client, const char *path,
                   const struct ft_rpc_call_opts *opts) {
    struct ft_err err = {0};
    talk->in_order = true;
    ck_assert_msg(ft_rpc_stream_open(&talk->stream, client, path, opts, &k_rpc_talk_handlers, talk,
                                     &err) == FT_OK,
                  "%s", err.text);
}
