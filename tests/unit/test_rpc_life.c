/* Servers and clients that come and go. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "support/awake.h"
#include "support/rpc_fixture.h"
#include "support/rpc_main.h"

#define CANCELLED 1
#define UNAVAILABLE 14

static struct rpc_answer echo_within(struct ft_rpc_client *client, int ms) {
    struct ft_rpc_call_opts opts = {.deadline_ns = rpc_in_ms(ms), .wait_for_ready = true};
    return rpc_ask(client, "/test.Echo/Unary", ft_str_c("ok"), &opts);
}

START_TEST(absent_server_is_unavailable_at_once) {
    ft_rpc_server_close(&fx.server, 0);
    int64_t start_ns = ft_awake_ns();
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Unary", ft_str_c("x"), NULL);
    ck_assert_int_eq(a.status.code, UNAVAILABLE);
    ck_assert_int_lt(ft_awake_ns() - start_ns, 5000000000);
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Bidi", NULL);
    ck_assert(rpc_wait_int(&talk.done, 1, 10000));
    ck_assert_int_eq(talk.status.code, UNAVAILABLE);
    a = echo_within(fx.client, 50);
    ck_assert_int_eq(a.status.code, 4); /* it waited */
}
END_TEST

START_TEST(client_opened_before_its_server_connects_when_it_comes) {
    ft_rpc_server_close(&fx.server, 0);
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Bidi",
                  &(struct ft_rpc_call_opts){.wait_for_ready = true});
    ft_rpc_stream_send(talk.stream, ft_str_c("0"));
    rpc_run_ms(300);
    ck_assert_int_eq(talk.done, 0);
    int64_t start_ns = ft_awake_ns();
    fx.server = rpc_fixture_serve(fx.endpoint, NULL, NULL);
    ck_assert(rpc_wait_int(&talk.messages, 1, 10000));
    /* The longest pause between attempts is 100 ms, give or take core's jitter of 20 %. */
    ck_assert_int_lt(ft_awake_ns() - start_ns, 400000000);
    ft_rpc_stream_cancel(talk.stream);
    ck_assert(rpc_wait_int(&talk.done, 1, 10000));
}
END_TEST

START_TEST(client_reconnects_soon_after_a_long_outage) {
    ck_assert_int_eq(echo_within(fx.client, 1000).status.code, 0);
    ft_rpc_server_close(&fx.server, 0);
    for (int i = 0; i < 10; i++) { /* would have grown a backoff without a bound */
        rpc_ask(fx.client, "/test.Echo/Unary", ft_str_c("x"), NULL);
        rpc_run_ms(100);
    }
    fx.server = rpc_fixture_serve(fx.endpoint, NULL, NULL);
    int64_t start_ns = ft_awake_ns();
    ck_assert_int_eq(echo_within(fx.client, 2000).status.code, 0);
    ck_assert_int_lt(ft_awake_ns() - start_ns, 400000000);
}
END_TEST

START_TEST(kick_cuts_a_long_backoff_short) {
    struct ft_rpc_client *client = rpc_fixture_connect(
        fx.endpoint, &(struct ft_rpc_client_opts){.reconnect_backoff_ms = 20000});
    ft_rpc_server_close(&fx.server, 0);
    for (int i = 0; i < 6; i++) { /* 0.1, 0.16, 0.26, 0.41, 0.66, 1.05 s */
        rpc_ask(client, "/test.Echo/Unary", ft_str_c("x"), NULL);
        ft_rpc_client_kick(client);
        rpc_run_ms(30);
    }
    rpc_run_ms(300);
    fx.server = rpc_fixture_serve(fx.endpoint, NULL, NULL);
    int64_t start_ns = ft_awake_ns();
    ft_rpc_client_kick(client);
    ck_assert_int_eq(echo_within(client, 5000).status.code, 0);
    ck_assert_int_lt(ft_awake_ns() - start_ns, 600000000);
    ft_rpc_client_close(&client);
}
END_TEST

/* The echo server in a process of its own, so that it can be killed. */
static pid_t g_child;
static char g_child_folder[64], g_child_endpoint[96];

static void stop_child(void *user, int signo) {
    bool *stops = user;
    *stops = signo == SIGTERM;
}

static void serve_child(int ready_fd) {
    bool stops = false;
    ft_rpc_signals_block();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct ft_err err = {0};
    struct ft_rpc_loop *loop = NULL;
    struct ft_rpc_server *server = NULL;
    struct rpc_echo echo = {0};
    struct ft_rpc_server_opts opts = {
        .methods = k_rpc_echo_methods, .n_methods = k_rpc_echo_n_methods, .service = &echo};
    if (ft_rpc_loop_create(&loop, 0, &err) != FT_OK ||
        ft_rpc_server_create(&server, loop, &opts, &err) != FT_OK ||
        ft_rpc_server_listen(server, g_child_endpoint, NULL, &err) != FT_OK ||
        ft_rpc_server_start(server, &err) != FT_OK ||
        ft_rpc_loop_on_signal(loop, stop_child, &stops, &err) != FT_OK) {
        fprintf(stderr, "child: %s\n", err.text);
        _exit(1);
    }
    if (write(ready_fd, "r", 1) != 1)
        _exit(1);
    while (!stops)
        ft_rpc_loop_step(loop, INT64_MAX);
    ft_rpc_server_close(&server, 5000000000);
    _exit(0);
}

static void start_child(void) {
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    g_child = fork();
    if (g_child == 0)
        serve_child(fds[1]);
    close(fds[1]);
    char c;
    ck_assert_int_eq(read(fds[0], &c, 1), 1);
    close(fds[0]);
}

static void kill_child(void) {
    if (g_child <= 0)
        return;
    kill(g_child, SIGKILL);
    waitpid(g_child, NULL, 0);
    g_child = 0;
}

/* The child is forked before gRPC is up: a forked gRPC hangs. So a second child, which takes the
 * place of the first one, waits for its turn from the start. */
static int g_turn_fd;
static pid_t g_spare;
static int g_spare_ready_fd;

static void start_spare(void) {
    int turn[2], ready[2];
    ck_assert_int_eq(pipe(turn), 0);
    ck_assert_int_eq(pipe(ready), 0);
    g_spare = fork();
    if (g_spare == 0) {
        char c;
        if (read(turn[0], &c, 1) != 1)
            _exit(1);
        serve_child(ready[1]);
    }
    close(turn[0]);
    close(ready[1]);
    g_turn_fd = turn[1];
    g_spare_ready_fd = ready[0];
}

static void child_setup(void) {
    fx = (struct rpc_fixture){0};
    snprintf(g_child_folder, sizeof g_child_folder, "/tmp/ft_rpc_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(g_child_folder));
    snprintf(g_child_endpoint, sizeof g_child_endpoint, "unix:%s/s", g_child_folder);
    start_spare();
    start_child();
    struct ft_err err = {0};
    ck_assert_int_eq(ft_rpc_loop_create(&fx.loop, 0, &err), FT_OK);
    fx.client = rpc_fixture_connect(g_child_endpoint, NULL);
}

static void child_teardown(void) {
    char path[128];
    ft_rpc_client_close(&fx.client);
    ft_rpc_loop_destroy(&fx.loop);
    kill_child();
    kill(g_spare, SIGKILL);
    waitpid(g_spare, NULL, 0);
    snprintf(path, sizeof path, "%s/s", g_child_folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/s.lock", g_child_folder);
    unlink(path);
    ck_assert_int_eq(rmdir(g_child_folder), 0);
}

/* Kill the server's process and let the spare take its socket over, without polling the client. */
static void replace_child(void) {
    kill_child();
    char c;
    ck_assert_int_eq(write(g_turn_fd, "t", 1), 1);
    ck_assert_int_eq(read(g_spare_ready_fd, &c, 1), 1);
}

/* Tell the server to close while what it sent lies unread; then read on, and answer it. */
static void sleep_near_the_end(struct rpc_talk *talk, struct ft_str message) {
    (void)message;
    if (talk->messages == 1880)
        kill(g_child, SIGTERM);
    if (talk->messages >= 1880 && talk->messages % 10 == 0)
        usleep(200000);
}

START_TEST(dev62_closing_server_waits_for_a_client_that_reads_late) {
    struct rpc_talk talk = {.on_message = sleep_near_the_end};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Stream", NULL);
    ft_rpc_stream_send(talk.stream, ft_str_c("2000 1000"));
    ft_rpc_stream_half_close(talk.stream);
    ck_assert(rpc_wait_int(&talk.done, 1, 20000));
    ck_assert_msg(talk.status.code == 0, "%s", talk.status.text);
    ck_assert_int_eq(talk.messages, 2000);
    int status;
    ck_assert_int_eq(waitpid(g_child, &status, 0), g_child);
    g_child = 0;
    ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(dev14_death_of_the_server_ends_the_stream_in_milliseconds) {
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Bidi",
                  &(struct ft_rpc_call_opts){.wait_for_ready = true});
    ft_rpc_stream_send(talk.stream, ft_str_c("0"));
    ck_assert(rpc_wait_int(&talk.messages, 1, 10000));
    kill(g_child, SIGKILL);
    int64_t start_ns = ft_awake_ns();
    ck_assert(rpc_wait_int(&talk.done, 1, 10000));
    int64_t took_ns = ft_awake_ns() - start_ns;
    ck_assert_int_eq(talk.status.code, UNAVAILABLE);
    ck_assert_int_lt(took_ns, 1000000000);
}
END_TEST

START_TEST(socket_of_a_killed_server_is_taken_over) {
    ck_assert_int_eq(echo_within(fx.client, 2000).status.code, 0);
    replace_child();
    struct rpc_answer a = echo_within(fx.client, 2000);
    ck_assert_msg(a.status.code == 0, "%s", a.status.text);
}
END_TEST

START_TEST(unary_on_a_dead_connection_is_asked_once_more) {
    ck_assert_int_eq(echo_within(fx.client, 2000).status.code, 0);
    replace_child();
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Unary", ft_str_c("again"), NULL);
    ck_assert_msg(a.status.code == 0, "%s", a.status.text);
    ck_assert_str_eq(a.bytes, "again");
}
END_TEST

START_TEST(unary_with_no_retry_on_a_dead_connection_is_unavailable) {
    ck_assert_int_eq(echo_within(fx.client, 2000).status.code, 0);
    replace_child();
    struct ft_rpc_call_opts opts = {.no_retry = true};
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Unary", ft_str_c("again"), &opts);
    ck_assert_int_eq(a.status.code, UNAVAILABLE);
    ck_assert_int_eq(echo_within(fx.client, 2000).status.code, 0);
}
END_TEST

START_TEST(unavailable_from_the_handler_is_not_asked_again) {
    ck_assert_int_eq(echo_within(fx.client, 2000).status.code, 0);
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Fail", ft_str_c("14 not now"), NULL);
    ck_assert_int_eq(a.status.code, UNAVAILABLE);
    ck_assert_str_eq(a.status.text, "not now");
    rpc_run_ms(30);
    ck_assert_int_eq(fx.echo.messages, 2);
}
END_TEST

START_TEST(dev62_close_with_grace_lets_running_calls_end) {
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Stream", NULL);
    ft_rpc_stream_send(talk.stream, ft_str_c("2000 1000"));
    ck_assert(rpc_wait_int(&fx.echo.messages, 1, 10000));
    ft_rpc_server_close(&fx.server, 5000000000);
    ck_assert_ptr_null(fx.server);
    ck_assert(rpc_wait_int(&talk.done, 1, 10000));
    ck_assert_msg(talk.status.code == 0, "%s", talk.status.text);
    ck_assert_int_eq(talk.messages, 2000);
    ck_assert_int_eq(fx.echo.cancelled, 0);
}
END_TEST

START_TEST(dev62_close_cancels_what_outlasts_the_grace) {
    struct rpc_talk talk = {0};
    struct rpc_answer a = {0};
    struct ft_err err = {0};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Bidi", NULL);
    ft_rpc_stream_send(talk.stream, ft_str_c("0"));
    ft_rpc_client_unary(fx.client, "/test.Echo/Hang", ft_str_c(""), NULL, rpc_answer_fn, &a, &err);
    ck_assert(rpc_wait_int(&fx.echo.messages, 2, 10000));
    int64_t awake_ns = ft_awake_ns(), start_ns = ft_clock_now_ns();
    ft_rpc_server_close(&fx.server, 100000000);
    ck_assert_int_ge(ft_clock_now_ns() - start_ns, 99000000);
    ck_assert_int_lt(ft_awake_ns() - awake_ns, 2000000000);
    ck_assert_int_eq(fx.echo.gone, 2);
    ck_assert_int_eq(fx.echo.cancelled, 2);
    ck_assert(rpc_wait_int(&talk.done, 1, 10000));
    ck_assert_int_eq(talk.status.code, UNAVAILABLE);
    ck_assert(rpc_wait_int(&a.done, 1, 10000));
    ck_assert_int_eq(a.status.code, UNAVAILABLE);
}
END_TEST

/* A call that a server closing has to wait for, and one that is asked meanwhile. */
struct drain {
    struct ft_rpc_timer timer;
    struct rpc_talk running;
    const char *path;
    struct rpc_answer answer;
};

static void on_drain_answer(void *user, const struct ft_rpc_status *status, struct ft_str reply) {
    struct drain *drain = user;
    rpc_answer_fn(&drain->answer, status, reply);
    ft_rpc_stream_send(drain->running.stream, ft_str_c("1"));
    ft_rpc_stream_half_close(drain->running.stream);
}

static void ask_in_drain(void *user) {
    struct drain *drain = user;
    struct ft_err err = {0};
    ck_assert_int_eq(ft_rpc_client_unary(fx.client, drain->path, ft_str_c("x"), NULL,
                                         on_drain_answer, drain, &err),
                     FT_OK);
}

/* Close the server; the answer to a call of path that comes while another one runs to its end. */
static struct rpc_answer ask_while_closing(const char *path) {
    struct drain drain = {.path = path};
    rpc_talk_open(&drain.running, fx.client, "/test.Echo/Bidi", NULL);
    ft_rpc_stream_send(drain.running.stream, ft_str_c("0"));
    ck_assert(rpc_wait_int(&drain.running.messages, 1, 10000));
    ft_rpc_timer_set(fx.loop, &drain.timer, rpc_in_ms(1), ask_in_drain, &drain);
    ft_rpc_server_close(&fx.server, 10000000000);
    ck_assert_int_eq(drain.answer.done, 1);
    ck_assert(rpc_wait_int(&drain.running.done, 1, 10000));
    ck_assert_int_eq(drain.running.status.code, 0);
    ck_assert_int_eq(drain.running.messages, 2);
    return drain.answer;
}

START_TEST(dev62_drain_refuses_new_calls_and_keeps_running_ones) {
    struct rpc_answer a = ask_while_closing("/test.Echo/Unary");
    ck_assert_int_eq(a.status.code, UNAVAILABLE);
    ck_assert_str_eq(a.status.text, "the server is draining");
}
END_TEST

START_TEST(method_marked_so_answers_while_the_server_drains) {
    struct ft_rpc_method methods[16];
    ck_assert_uint_le(k_rpc_echo_n_methods, 16);
    for (size_t i = 0; i < k_rpc_echo_n_methods; i++) {
        methods[i] = k_rpc_echo_methods[i];
        methods[i].in_drain = strcmp(methods[i].path, "/test.Echo/Unary") == 0;
    }
    struct ft_rpc_server_opts opts = {
        .methods = methods, .n_methods = k_rpc_echo_n_methods, .service = &fx.echo};
    rpc_fixture_restart(&opts);
    struct rpc_answer a = ask_while_closing("/test.Echo/Unary");
    ck_assert_msg(a.status.code == 0, "%s", a.status.text);
    ck_assert_str_eq(a.bytes, "x");
}
END_TEST

START_TEST(server_that_never_started_closes) {
    struct ft_rpc_server_opts opts = {.methods = k_rpc_echo_methods, .n_methods = 1};
    struct ft_rpc_server *server = NULL;
    struct ft_err err = {0};
    ck_assert_int_eq(ft_rpc_server_create(&server, fx.loop, &opts, &err), FT_OK);
    ft_rpc_server_close(&server, 1000000000);
    ck_assert_ptr_null(server);
    ft_rpc_server_close(&server, 0);
    ft_rpc_client_close(&fx.client);
    ft_rpc_client_close(&fx.client);
    opts.message_max = (size_t)1 << 31;
    ck_assert_int_eq(ft_rpc_server_create(&server, fx.loop, &opts, &err), FT_E_PROC_CONFIG);
}
END_TEST

/* Hold the loop up for many times keepalive_ms, with a stream open; whether it answers after. */
static bool outlives_a_long_callback(const char *endpoint, int keepalive_ms) {
    struct rpc_talk talk = {0};
    struct ft_rpc_client *client = rpc_fixture_connect(endpoint, NULL);
    rpc_talk_open(&talk, client, "/test.Echo/Bidi", NULL);
    ft_rpc_stream_send(talk.stream, ft_str_c("0"));
    ck_assert(rpc_wait_int(&talk.messages, 1, 10000));
    usleep((useconds_t)keepalive_ms * 10000);
    ft_rpc_stream_send(talk.stream, ft_str_c("1"));
    int64_t until_ns = rpc_in_ms(10000);
    while (talk.messages < 2 && talk.done == 0 && ft_clock_now_ns() < until_ns)
        ft_rpc_loop_step(fx.loop, until_ns);
    ck_assert_msg(talk.messages == 2 || talk.done == 1, "neither an echo nor an end");
    ft_rpc_client_close(&client);
    return talk.messages == 2;
}

START_TEST(long_callback_keeps_connections_of_unix_sockets_where_tcp_asks) {
    enum { KEEPALIVE_MS = 150 };
    char endpoint[32];
    int port = 0;
    struct ft_rpc_server_opts opts = {.keepalive_ms = KEEPALIVE_MS};
    rpc_fixture_restart(&opts);
    ck_assert(outlives_a_long_callback(fx.endpoint, KEEPALIVE_MS));
    struct ft_rpc_server *server = rpc_fixture_serve("127.0.0.1:0", &opts, &port);
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
    bool lives = true; /* where the thread of the timers was held up as well */
    for (int i = 0; i < 5 && lives; i++)
        lives = outlives_a_long_callback(endpoint, KEEPALIVE_MS);
    ck_assert(!lives);
    ft_rpc_server_close(&server, 0);
}
END_TEST

START_TEST(twenty_restarts_under_calls_lose_no_callback) {
    for (int i = 0; i < 20; i++) {
        struct rpc_answer answers[8] = {{{0}, 0, 0, {0}}};
        struct rpc_talk talk = {0};
        struct ft_err err = {0};
        for (int k = 0; k < 8; k++)
            ft_rpc_client_unary(fx.client, k % 2 ? "/test.Echo/Unary" : "/test.Echo/Hang",
                                ft_str_c("x"), NULL, rpc_answer_fn, &answers[k], &err);
        rpc_talk_open(&talk, fx.client, "/test.Echo/Bidi", NULL);
        ft_rpc_stream_send(talk.stream, ft_str_c("0"));
        if (i % 2 == 1)
            rpc_run_ms(5);
        rpc_fixture_restart(NULL);
        /* A call that was asked again hangs on the new server. */
        ft_rpc_server_close(&fx.server, 0);
        fx.server = NULL;
        for (int k = 0; k < 8; k++)
            ck_assert(rpc_wait_int(&answers[k].done, 1, 3000));
        ck_assert(rpc_wait_int(&talk.done, 1, 3000));
        fx.server = rpc_fixture_serve(fx.endpoint, NULL, NULL);
        ck_assert_int_eq(echo_within(fx.client, 3000).status.code, 0);
    }
    ck_assert_ptr_null(fx.echo.hanging);
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("rpc_life");
    TCase *t = tcase_create("life");
    tcase_add_checked_fixture(t, rpc_fixture_setup, rpc_fixture_teardown);
    tcase_add_test(t, absent_server_is_unavailable_at_once);
    tcase_add_test(t, client_opened_before_its_server_connects_when_it_comes);
    tcase_add_test(t, client_reconnects_soon_after_a_long_outage);
    tcase_add_test(t, kick_cuts_a_long_backoff_short);
    tcase_add_test(t, unavailable_from_the_handler_is_not_asked_again);
    tcase_add_test(t, dev62_close_with_grace_lets_running_calls_end);
    tcase_add_test(t, dev62_close_cancels_what_outlasts_the_grace);
    tcase_add_test(t, dev62_drain_refuses_new_calls_and_keeps_running_ones);
    tcase_add_test(t, method_marked_so_answers_while_the_server_drains);
    tcase_add_test(t, server_that_never_started_closes);
    tcase_add_test(t, long_callback_keeps_connections_of_unix_sockets_where_tcp_asks);
    tcase_add_test(t, twenty_restarts_under_calls_lose_no_callback);
    suite_add_tcase(s, t);
    t = tcase_create("process");
    tcase_add_checked_fixture(t, child_setup, child_teardown);
    tcase_add_test(t, dev62_closing_server_waits_for_a_client_that_reads_late);
    tcase_add_test(t, dev14_death_of_the_server_ends_the_stream_in_milliseconds);
    tcase_add_test(t, socket_of_a_killed_server_is_taken_over);
    tcase_add_test(t, unary_on_a_dead_connection_is_asked_once_more);
    tcase_add_test(t, unary_with_no_retry_on_a_dead_connection_is_unavailable);
    suite_add_tcase(s, t);
    return s;
}
