#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "support/awake.h"
#include "support/rpc_fixture.h"
#include "support/rpc_main.h"

#define CANCELLED 1
#define DEADLINE_EXCEEDED 4
#define RESOURCE_EXHAUSTED 8
#define UNIMPLEMENTED 12
#define INTERNAL 13
#define UNAVAILABLE 14

START_TEST(unary_echo_returns_the_message) {
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Unary", ft_str_c("hello"), NULL);
    ck_assert_int_eq(a.status.code, 0);
    ck_assert_str_eq(a.bytes, "hello");
    ck_assert(rpc_wait_int(&fx.echo.gone, 1, 10000));
    ck_assert_int_eq(fx.echo.cancelled, 0);
    ck_assert(fx.echo.deadline_ns == INT64_MAX);
}
END_TEST

START_TEST(unary_of_any_size_up_to_the_limit_comes_back) {
    static const size_t sizes[] = {0, 1, 22, 23, 24, 4096, 65536, 1 << 20, 3 << 20, 4 << 20};
    char *bytes = malloc(4 << 20);
    for (size_t i = 0; i < 4 << 20; i++)
        bytes[i] = (char)(i * 2654435761u >> 13);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct ft_buf out;
        ft_buf_init(&out, 0);
        struct ft_rpc_status status = ft_rpc_client_unary_sync(
            fx.client, "/test.Echo/Unary", (struct ft_str){bytes, sizes[i]}, NULL, &out);
        ck_assert_msg(status.code == 0, "%zu bytes: %s", sizes[i], status.text);
        ck_assert(ft_str_eq(ft_buf_str(&out), (struct ft_str){bytes, sizes[i]}));
        ft_buf_fini(&out);
    }
    free(bytes);
}
END_TEST

/* The receiver's limit counts, each way; the text says what was too large. */
START_TEST(dev57_oversize_unary_is_refused_with_both_sizes) {
    size_t len = (4 << 20) + 1;
    char *bytes = calloc(1, len);
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Unary", (struct ft_str){bytes, len}, NULL);
    ck_assert_int_eq(a.status.code, RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(a.status.text, "4194305"));
    ck_assert_int_eq(fx.echo.messages, 0);
    ck_assert_int_eq(fx.echo.gone, 0); /* no handler saw it, so none is told that it went */

    struct ft_rpc_client *small =
        rpc_fixture_connect(fx.endpoint, &(struct ft_rpc_client_opts){.message_max = 1000});
    a = rpc_ask(small, "/test.Echo/Unary", (struct ft_str){bytes, 1001}, NULL);
    ck_assert_int_eq(a.status.code, RESOURCE_EXHAUSTED);
    ck_assert_uint_eq(a.len, 0);
    ft_rpc_client_close(&small);
    a = rpc_ask(fx.client, "/test.Echo/Unary", ft_str_c("still here"), NULL);
    ck_assert_int_eq(a.status.code, 0);
    free(bytes);
}
END_TEST

START_TEST(reply_past_the_limit_of_the_server_is_refused) {
    rpc_fixture_restart(&(struct ft_rpc_server_opts){.message_max = 100});
    char bytes[101] = {0};
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Unary", (struct ft_str){bytes, 100}, NULL);
    ck_assert_int_eq(a.status.code, 0);
    a = rpc_ask(fx.client, "/test.Echo/Unary", (struct ft_str){bytes, 101}, NULL);
    ck_assert_int_eq(a.status.code, RESOURCE_EXHAUSTED);
}
END_TEST

START_TEST(finish_with_status_delivers_code_and_text) {
    for (int code = 1; code <= 16; code++) {
        char message[64];
        snprintf(message, sizeof message, "%d why: \xC3\xA9 100%% \"sure\"", code);
        struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Fail", ft_str_c(message), NULL);
        ck_assert_int_eq(a.status.code, code);
        ck_assert_str_eq(a.status.text, "why: \xC3\xA9 100% \"sure\"");
        ck_assert_uint_eq(a.len, 0);
    }
}
END_TEST

START_TEST(status_text_is_valid_utf8_whatever_it_was) {
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Fail", ft_str_c("3 a\xFF\xF0\x9Fz"), NULL);
    ck_assert_int_eq(a.status.code, 3);
    ck_assert_str_eq(a.status.text, "a???z");
    char message[1200] = "3 ";
    for (size_t i = 2; i + 2 < sizeof message; i += 2)
        memcpy(message + i, "\xC3\xA9", 3);
    a = rpc_ask(fx.client, "/test.Echo/Fail", ft_str_c(message), NULL);
    ck_assert_uint_eq(strlen(a.status.text), 510);
    ck_assert_uint_eq(ft_utf8_valid_prefix(ft_str_c(a.status.text)), 510);
    ck_assert_str_eq(ft_rpc_status_name(3), "INVALID_ARGUMENT");
    ck_assert_str_eq(ft_rpc_status_name(16), "UNAUTHENTICATED");
    ck_assert_str_eq(ft_rpc_status_name(17), "UNKNOWN");
}
END_TEST

START_TEST(status_from_err_maps_the_code) {
    struct ft_err err = {0};
    ft_err_set(&err, FT_E_REQ_EXHAUSTED, "test", "queue is full");
    struct ft_rpc_status status = ft_rpc_status_from_err(&err);
    ck_assert_int_eq(status.code, RESOURCE_EXHAUSTED);
    ck_assert_str_eq(status.text, "queue is full");
}
END_TEST

START_TEST(unary_handler_without_reply_is_an_internal_error) {
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Mute", ft_str_c(""), NULL);
    ck_assert_int_eq(a.status.code, INTERNAL);
    ck_assert_str_eq(a.status.text, "the handler gave no reply");
}
END_TEST

START_TEST(unknown_method_is_unimplemented_at_once) {
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Unary", ft_str_c(""), NULL);
    int64_t start_ns = ft_awake_ns();
    a = rpc_ask(fx.client, "/test.Echo/Nothing", ft_str_c("x"), NULL);
    ck_assert_int_eq(a.status.code, UNIMPLEMENTED);
    ck_assert_str_eq(a.status.text, "no such method");
    a = rpc_ask(fx.client, "/test.Echo/Unar", ft_str_c("x"), NULL);
    ck_assert_int_eq(a.status.code, UNIMPLEMENTED);
    ck_assert_int_lt(ft_awake_ns() - start_ns, 1000000000);
    ck_assert_int_eq(fx.echo.messages, 1);
}
END_TEST

START_TEST(metadata_reaches_the_handler) {
    struct ft_rpc_call_opts opts = {.metadata_key = "x-key", .metadata_value = "a value"};
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Meta", ft_str_c(""), &opts);
    ck_assert_int_eq(a.status.code, 0);
    ck_assert_str_eq(a.bytes, "a value");
    a = rpc_ask(fx.client, "/test.Echo/Meta", ft_str_c(""), NULL);
    ck_assert_int_eq(a.status.code, 0);
    ck_assert_uint_eq(a.len, 0);
}
END_TEST

START_TEST(request_that_http2_cannot_carry_is_refused) {
    struct rpc_answer a = {0};
    struct ft_err err = {0};
    static const struct {
        const char *path, *key, *value;
    } rows[] = {{"NoSlash", NULL, NULL}, {"/a b", NULL, NULL},   {"/a\n", NULL, NULL},
                {"", NULL, NULL},        {"/a/b", "Upper", "v"}, {"/a/b", "k", "line\nbreak"},
                {"/a/b", "k-bin", "v"},  {"/a/b", "", "v"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ft_rpc_call_opts opts = {.metadata_key = rows[i].key,
                                        .metadata_value = rows[i].value};
        ck_assert_int_eq(ft_rpc_client_unary(fx.client, rows[i].path, ft_str_c(""), &opts,
                                             rpc_answer_fn, &a, &err),
                         FT_E_REQ_INVALID);
    }
    rpc_run_ms(20);
    ck_assert_int_eq(a.done, 0);
}
END_TEST

START_TEST(deadline_ends_the_call_on_both_sides) {
    enum { DEADLINE_MS = 1000 };
    /* Connected before it counts: a call that ends on its way in has no other side. */
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Unary", ft_str_c(""), NULL);
    ck_assert(rpc_wait_int(&fx.echo.gone, 1, 10000));
    int64_t start_ns = ft_clock_now_ns();
    struct ft_rpc_call_opts opts = {.deadline_ns = start_ns + DEADLINE_MS * 1000000LL};
    a = rpc_ask(fx.client, "/test.Echo/Hang", ft_str_c(""), &opts);
    int64_t took_ns = ft_clock_now_ns() - start_ns;
    ck_assert_int_eq(a.status.code, DEADLINE_EXCEEDED);
    ck_assert_int_ge(took_ns, (DEADLINE_MS - 1) * 1000000LL);
    ck_assert_int_lt(took_ns, 10 * DEADLINE_MS * 1000000LL);
    ck_assert(rpc_wait_int(&fx.echo.gone, 2, 10000));
    ck_assert_int_eq(fx.echo.cancelled, 1);
    /* What travels is the time left; the way there is on top. */
    ck_assert_int_ge(fx.echo.deadline_ns, opts.deadline_ns - 20000000);
    ck_assert_int_lt(fx.echo.deadline_ns, opts.deadline_ns + DEADLINE_MS * 1000000LL);
    opts.deadline_ns = 1; /* long past */
    a = rpc_ask(fx.client, "/test.Echo/Hang", ft_str_c(""), &opts);
    ck_assert_int_eq(a.status.code, DEADLINE_EXCEEDED);
}
END_TEST

START_TEST(answer_after_the_call_ended_is_ignored) {
    struct rpc_answer a = {0};
    struct ft_err err = {0};
    ft_rpc_client_unary(fx.client, "/test.Echo/Hang", ft_str_c(""), NULL, rpc_answer_fn, &a, &err);
    ck_assert(rpc_wait_int(&fx.echo.messages, 1, 5000));
    struct ft_rpc_call *call = fx.echo.hanging;
    ck_assert(!ft_rpc_call_cancelled(call));
    ft_rpc_call_reply(call, ft_str_c("first"));
    ft_rpc_call_reply(call, ft_str_c("second"));
    ft_rpc_call_finish(call, INTERNAL, "third");
    ck_assert_int_eq(ft_rpc_call_send(call, ft_str_c("fourth")), FT_E_REQ_CANCELLED);
    ck_assert(rpc_wait_int(&a.done, 1, 10000));
    ck_assert_int_eq(a.status.code, 0);
    ck_assert_str_eq(a.bytes, "first");
}
END_TEST

START_TEST(five_hundred_calls_at_once_all_answer) {
    enum { N = 500 };
    struct rpc_answer *answers = calloc(N, sizeof answers[0]);
    struct ft_err err = {0};
    for (int i = 0; i < N; i++) {
        char text[32];
        snprintf(text, sizeof text, "call %d", i);
        ck_assert_int_eq(ft_rpc_client_unary(fx.client, "/test.Echo/Unary", ft_str_c(text), NULL,
                                             rpc_answer_fn, &answers[i], &err),
                         FT_OK);
    }
    for (int i = 0; i < N; i++) {
        char text[32];
        snprintf(text, sizeof text, "call %d", i);
        ck_assert(rpc_wait_int(&answers[i].done, 1, 10000));
        ck_assert_int_eq(answers[i].status.code, 0);
        ck_assert_str_eq(answers[i].bytes, text);
    }
    ck_assert(rpc_wait_int(&fx.echo.gone, N, 5000));
    free(answers);
}
END_TEST

START_TEST(methods_marked_so_answer_past_calls_max) {
    enum { N = 300, CROWD = 256 };
    static struct ft_rpc_method methods[16];
    static struct rpc_answer hanging[N];
    struct ft_err err = {0};
    ck_assert_uint_le(k_rpc_echo_n_methods, 16);
    for (size_t i = 0; i < k_rpc_echo_n_methods; i++) {
        methods[i] = k_rpc_echo_methods[i];
        methods[i].in_crowd = strcmp(methods[i].path, "/test.Echo/Hang") == 0;
    }
    rpc_fixture_restart(&(struct ft_rpc_server_opts){.methods = methods,
                                                     .n_methods = k_rpc_echo_n_methods,
                                                     .service = &fx.echo,
                                                     .calls_max = 2});
    for (int i = 0; i < N; i++)
        ft_rpc_client_unary(fx.client, "/test.Echo/Hang", ft_str_c(""), NULL, rpc_answer_fn,
                            &hanging[i], &err);
    ck_assert(rpc_wait_int(&fx.echo.messages, 2 + CROWD, 20000));
    int n_refused = 0;
    for (int64_t until_ns = rpc_in_ms(20000);
         n_refused < N - 2 - CROWD && ft_clock_now_ns() < until_ns;) {
        ft_rpc_loop_step(fx.loop, rpc_in_ms(10));
        n_refused = 0;
        for (int i = 0; i < N; i++)
            n_refused += hanging[i].done && hanging[i].status.code == RESOURCE_EXHAUSTED;
    }
    ck_assert_int_eq(n_refused, N - 2 - CROWD);
    ck_assert_int_eq(fx.echo.messages, 2 + CROWD);
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Unary", ft_str_c("x"), NULL);
    ck_assert_int_eq(a.status.code, RESOURCE_EXHAUSTED);
    ft_rpc_server_limit_calls(fx.server, 1000);
    a = rpc_ask(fx.client, "/test.Echo/Unary", ft_str_c("x"), NULL);
    ck_assert_int_eq(a.status.code, 0);
    ft_rpc_client_close(&fx.client); /* cancels the rest, whose places are free again */
    ft_rpc_server_limit_calls(fx.server, 2);
    fx.client = rpc_fixture_connect(fx.endpoint, NULL);
    ck_assert(rpc_wait_int(&fx.echo.gone, 3 + CROWD, 20000));
    a = rpc_ask(fx.client, "/test.Echo/Unary", ft_str_c("x"), NULL);
    ck_assert_int_eq(a.status.code, 0);
}
END_TEST

START_TEST(calls_past_calls_max_are_exhausted_and_the_others_go_on) {
    rpc_fixture_restart(&(struct ft_rpc_server_opts){.calls_max = 3});
    struct rpc_answer hanging[3] = {{{0}, 0, 0, {0}}};
    struct ft_err err = {0};
    struct ft_rpc_call_opts opts = {.deadline_ns = rpc_in_ms(3000)};
    for (int i = 0; i < 3; i++)
        ft_rpc_client_unary(fx.client, "/test.Echo/Hang", ft_str_c(""), &opts, rpc_answer_fn,
                            &hanging[i], &err);
    ck_assert(rpc_wait_int(&fx.echo.messages, 3, 2900));
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Unary", ft_str_c("x"), NULL);
    ck_assert_int_eq(a.status.code, RESOURCE_EXHAUSTED);
    ck_assert_str_eq(a.status.text, "too many calls at once");
    ck_assert_int_eq(a.status.retry_after_ms, 500);
    ft_rpc_call_reply(fx.echo.hanging, ft_str_c("one ends"));
    ck_assert(rpc_wait_int(&fx.echo.gone, 1, 2900));
    a = rpc_ask(fx.client, "/test.Echo/Unary", ft_str_c("x"), NULL);
    ck_assert_int_eq(a.status.code, 0);
    for (int i = 0; i < 3; i++)
        ck_assert(rpc_wait_int(&hanging[i].done, 1, 10000));
}
END_TEST

START_TEST(client_close_cancels_what_is_running) {
    struct rpc_answer a = {0};
    struct ft_err err = {0};
    ft_rpc_client_unary(fx.client, "/test.Echo/Hang", ft_str_c(""), NULL, rpc_answer_fn, &a, &err);
    ck_assert(rpc_wait_int(&fx.echo.messages, 1, 10000));
    ft_rpc_client_close(&fx.client);
    ck_assert_ptr_null(fx.client);
    ck_assert_int_eq(a.done, 1);
    ck_assert_int_eq(a.status.code, CANCELLED);
    ck_assert(rpc_wait_int(&fx.echo.gone, 1, 10000));
    ck_assert_int_eq(fx.echo.cancelled, 1);
    ck_assert_ptr_null(fx.echo.hanging);
}
END_TEST

static void stop_loop(void *user) {
    ft_rpc_loop_stop(user);
}

START_TEST(sync_call_ends_when_the_loop_is_stopped) {
    struct ft_rpc_timer timer = {0};
    ft_rpc_timer_set(fx.loop, &timer, rpc_in_ms(30), stop_loop, fx.loop);
    struct ft_rpc_status status =
        ft_rpc_client_unary_sync(fx.client, "/test.Echo/Hang", ft_str_c(""), NULL, NULL);
    ck_assert_int_eq(status.code, CANCELLED);
    status = ft_rpc_client_unary_sync(fx.client, "bad path", ft_str_c(""), NULL, NULL);
    ck_assert_int_eq(status.code, 3);
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("rpc_unary");
    TCase *t = tcase_create("unary");
    tcase_add_checked_fixture(t, rpc_fixture_setup, rpc_fixture_teardown);
    tcase_add_test(t, unary_echo_returns_the_message);
    tcase_add_test(t, unary_of_any_size_up_to_the_limit_comes_back);
    tcase_add_test(t, dev57_oversize_unary_is_refused_with_both_sizes);
    tcase_add_test(t, reply_past_the_limit_of_the_server_is_refused);
    tcase_add_test(t, finish_with_status_delivers_code_and_text);
    tcase_add_test(t, status_text_is_valid_utf8_whatever_it_was);
    tcase_add_test(t, status_from_err_maps_the_code);
    tcase_add_test(t, unary_handler_without_reply_is_an_internal_error);
    tcase_add_test(t, unknown_method_is_unimplemented_at_once);
    tcase_add_test(t, metadata_reaches_the_handler);
    tcase_add_test(t, request_that_http2_cannot_carry_is_refused);
    tcase_add_test(t, deadline_ends_the_call_on_both_sides);
    tcase_add_test(t, answer_after_the_call_ended_is_ignored);
    tcase_add_test(t, five_hundred_calls_at_once_all_answer);
    tcase_add_test(t, methods_marked_so_answer_past_calls_max);
    tcase_add_test(t, calls_past_calls_max_are_exhausted_and_the_others_go_on);
    tcase_add_test(t, client_close_cancels_what_is_running);
    tcase_add_test(t, sync_call_ends_when_the_loop_is_stopped);
    suite_add_tcase(s, t);
    return s;
}
