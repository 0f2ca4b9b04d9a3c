#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "support/awake.h"
#include "support/rpc_fixture.h"
#include "support/rpc_main.h"

#define CANCELLED 1
#define DEADLINE_EXCEEDED 4
#define RESOURCE_EXHAUSTED 8
#define UNIMPLEMENTED 12
#define UNAVAILABLE 14

START_TEST(server_stream_of_a_thousand_ends_ok) {
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Stream", NULL);
    ck_assert_int_eq(ft_rpc_stream_send(talk.stream, ft_str_c("1000 100")), FT_OK);
    ft_rpc_stream_half_close(talk.stream);
    ck_assert_int_eq(ft_rpc_stream_send(talk.stream, ft_str_c("late")), FT_E_REQ_CANCELLED);
    ck_assert(rpc_wait_int(&talk.done, 1, 10000));
    ck_assert_int_eq(talk.status.code, 0);
    ck_assert_int_eq(talk.messages, 1000);
    ck_assert_uint_eq(talk.bytes, 100000);
    ck_assert(rpc_wait_int(&fx.echo.gone, 1, 10000));
    ck_assert_int_eq(fx.echo.cancelled, 0);
}
END_TEST

START_TEST(server_stream_without_messages_ends_ok) {
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Stream", NULL);
    ft_rpc_stream_send(talk.stream, ft_str_c("0 0"));
    ft_rpc_stream_half_close(talk.stream);
    ck_assert(rpc_wait_int(&talk.done, 1, 10000));
    ck_assert_int_eq(talk.status.code, 0);
    ck_assert_int_eq(talk.messages, 0);
}
END_TEST

START_TEST(server_stream_without_request_is_invalid) {
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Stream", NULL);
    ft_rpc_stream_half_close(talk.stream);
    ck_assert(rpc_wait_int(&talk.done, 1, 10000));
    ck_assert_int_eq(talk.status.code, 3);
    ck_assert_str_eq(talk.status.text, "the call carries no message");
    ck_assert_int_eq(fx.echo.gone, 0);
}
END_TEST

START_TEST(bidi_echoes_in_order_and_half_close_ends_it) {
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Bidi", NULL);
    for (int i = 0; i < 500; i++) {
        char text[32];
        snprintf(text, sizeof text, "%d", i);
        ck_assert_int_eq(ft_rpc_stream_send(talk.stream, ft_str_c(text)), FT_OK);
    }
    ft_rpc_stream_half_close(talk.stream);
    ck_assert(rpc_wait_int(&talk.done, 1, 5000));
    ck_assert_int_eq(talk.status.code, 0);
    ck_assert_int_eq(talk.messages, 500);
    ck_assert(talk.in_order);
    ck_assert_int_eq(fx.echo.opened, 1);
    ck_assert_int_eq(fx.echo.half_closed, 1);
    ck_assert(rpc_wait_int(&fx.echo.gone, 1, 10000));
    ck_assert_int_eq(fx.echo.cancelled, 0);
}
END_TEST

START_TEST(bidi_ping_pong_is_writable_again_after_each_send) {
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Bidi", NULL);
    for (int i = 0; i < 100; i++) {
        char text[32];
        snprintf(text, sizeof text, "%d", i);
        ck_assert(ft_rpc_stream_writable(talk.stream));
        ft_rpc_stream_send(talk.stream, ft_str_c(text));
        ck_assert(!ft_rpc_stream_writable(talk.stream));
        ck_assert(rpc_wait_int(&talk.writable, i + 1, 10000));
        ck_assert(rpc_wait_int(&talk.messages, i + 1, 10000));
    }
    ck_assert(talk.in_order);
    ck_assert(rpc_wait_int(&fx.echo.writable, 100, 10000));
    ft_rpc_stream_cancel(talk.stream);
    ck_assert(rpc_wait_int(&talk.done, 1, 10000));
}
END_TEST

START_TEST(bidi_empty_messages_are_messages) {
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Bidi", NULL);
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(ft_rpc_stream_send(talk.stream, (struct ft_str){0}), FT_OK);
    ck_assert(rpc_wait_int(&talk.messages, 10, 10000));
    ft_rpc_stream_half_close(talk.stream);
    ck_assert(rpc_wait_int(&talk.done, 1, 10000));
    ck_assert_uint_eq(talk.bytes, 0);
}
END_TEST

START_TEST(dev23_client_cancel_is_told_to_the_handler_at_once) {
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Sink", NULL);
    ft_rpc_stream_send(talk.stream, ft_str_c("x"));
    ck_assert(rpc_wait_int(&fx.echo.messages, 1, 10000));
    int64_t start_ns = ft_awake_ns();
    ft_rpc_stream_cancel(talk.stream);
    ft_rpc_stream_cancel(talk.stream);
    ck_assert_int_eq(ft_rpc_stream_send(talk.stream, ft_str_c("y")), FT_E_REQ_CANCELLED);
    ck_assert(rpc_wait_int(&talk.done, 1, 10000));
    ck_assert_int_eq(talk.status.code, CANCELLED);
    ck_assert(rpc_wait_int(&fx.echo.gone, 1, 10000));
    ck_assert_int_lt(ft_awake_ns() - start_ns, 3000000000);
    ck_assert_int_eq(fx.echo.cancelled, 1);
    ck_assert_int_eq(fx.echo.half_closed, 0); /* a cancel is not the end of the input */
}
END_TEST

START_TEST(cancel_before_anything_was_sent_leaves_no_call) {
    for (int i = 0; i < 50; i++) {
        struct rpc_talk talk = {0};
        rpc_talk_open(&talk, fx.client, "/test.Echo/Bidi", NULL);
        if (i % 2 == 1)
            ft_rpc_stream_send(talk.stream, ft_str_c("x"));
        ft_rpc_stream_cancel(talk.stream);
        ck_assert(rpc_wait_int(&talk.done, 1, 10000));
        ck_assert_int_eq(talk.messages, 0);
    }
    rpc_run_ms(50);
    ck_assert_int_eq(fx.echo.gone, fx.echo.opened);
}
END_TEST

static void cancel_third(struct rpc_talk *talk, struct ft_str message) {
    (void)message;
    if (talk->messages == 3)
        ft_rpc_stream_cancel(talk->stream);
}

START_TEST(cancel_inside_on_message_is_the_last_message) {
    struct rpc_talk talk = {.on_message = cancel_third};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Stream", NULL);
    ft_rpc_stream_send(talk.stream, ft_str_c("1000000 100"));
    ft_rpc_stream_half_close(talk.stream);
    ck_assert(rpc_wait_int(&talk.done, 1, 5000));
    ck_assert_int_eq(talk.status.code, CANCELLED);
    ck_assert_int_eq(talk.messages, 3);
    ck_assert(rpc_wait_int(&fx.echo.gone, 1, 10000));
    ck_assert_int_eq(fx.echo.cancelled, 1);
}
END_TEST

START_TEST(handler_ends_a_bidi_call_that_the_client_keeps_open) {
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Bidi", NULL);
    ft_rpc_stream_send(talk.stream, ft_str_c("0"));
    ft_rpc_stream_send(talk.stream, ft_str_c("close 9"));
    ck_assert(rpc_wait_int(&talk.done, 1, 10000));
    ck_assert_int_eq(talk.status.code, 9);
    ck_assert_str_eq(talk.status.text, "closed on request");
    ck_assert_int_eq(talk.messages, 1);
    ck_assert(rpc_wait_int(&fx.echo.gone, 1, 10000));
    ck_assert_int_eq(fx.echo.cancelled, 0);
    ck_assert_int_eq(fx.echo.half_closed, 0);
}
END_TEST

START_TEST(deadline_ends_a_stream_on_both_sides) {
    struct rpc_talk talk = {0};
    /* Connected before it counts. */
    rpc_ask(fx.client, "/test.Echo/Unary", ft_str_c(""), NULL);
    ck_assert(rpc_wait_int(&fx.echo.gone, 1, 10000));
    rpc_talk_open(&talk, fx.client, "/test.Echo/Bidi",
                  &(struct ft_rpc_call_opts){.deadline_ns = rpc_in_ms(1000)});
    ft_rpc_stream_send(talk.stream, ft_str_c("0"));
    ck_assert(rpc_wait_int(&talk.done, 1, 10000));
    ck_assert_int_eq(talk.status.code, DEADLINE_EXCEEDED);
    ck_assert_int_eq(talk.messages, 1);
    ck_assert(rpc_wait_int(&fx.echo.gone, 2, 10000));
    ck_assert_int_eq(fx.echo.cancelled, 1);
}
END_TEST

/* on_message that does not return holds the reader back: nothing more is read meanwhile. */
static void dawdle_at_third(struct rpc_talk *talk, struct ft_str message) {
    (void)message;
    if (talk->messages != 3)
        return;
    int n_sent = -1;
    for (int i = 0; i < 30 && n_sent != fx.echo.writable; i++) {
        n_sent = fx.echo.writable;
        rpc_run_ms(150);
    }
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Unary", ft_str_c("others go on"), NULL);
    ck_assert_int_eq(a.status.code, 0);
    rpc_run_ms(100);
    ck_assert_int_eq(fx.echo.writable, n_sent);
    ck_assert_int_eq(talk->messages, 3);
    ft_rpc_stream_cancel(talk->stream);
}

START_TEST(slow_reader_stops_the_writer) {
    struct rpc_talk talk = {.on_message = dawdle_at_third};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Stream", NULL);
    ft_rpc_stream_send(talk.stream, ft_str_c("100000 1000"));
    ft_rpc_stream_half_close(talk.stream);
    ck_assert(rpc_wait_int(&talk.done, 1, 3000));
    ck_assert_int_eq(talk.messages, 3);
    /* 100 MB were wanted; what core buffers is bounded by its flow-control windows. */
    ck_assert_int_gt(fx.echo.writable, 10);
    ck_assert_int_lt(fx.echo.writable, 20000);
    ck_assert(rpc_wait_int(&fx.echo.gone, 2, 10000));
}
END_TEST

static void pause_at_third(struct rpc_talk *talk, struct ft_str message) {
    (void)message;
    if (talk->messages == 3)
        rpc_run_ms(1000);
}

/* It has shown that it may need long for the last of it, too. */
START_TEST(closing_server_lingers_for_a_slow_reader) {
    struct rpc_talk talk = {.on_message = pause_at_third};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Stream", NULL);
    ft_rpc_stream_send(talk.stream, ft_str_c("400 100000"));
    ft_rpc_stream_half_close(talk.stream);
    ck_assert(rpc_wait_int(&talk.done, 1, 20000));
    ck_assert_int_eq(talk.messages, 400);
    ck_assert(rpc_wait_int(&fx.echo.gone, 1, 10000));
    int64_t start_ns = ft_clock_now_ns();
    ft_rpc_server_close(&fx.server, 10000000000);
    ck_assert_int_ge(ft_clock_now_ns() - start_ns, 500000000);
}
END_TEST

START_TEST(send_past_the_queue_is_exhausted_and_what_was_taken_arrives) {
    rpc_fixture_restart(&(struct ft_rpc_server_opts){.send_queue_max = 100000});
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Flood", NULL);
    ft_rpc_stream_send(talk.stream, ft_str_c("1000 1000"));
    ft_rpc_stream_half_close(talk.stream);
    ck_assert(rpc_wait_int(&talk.done, 1, 10000));
    ck_assert_int_eq(fx.echo.last_send, FT_E_REQ_EXHAUSTED);
    ck_assert_int_eq(fx.echo.flood_sent, 100);
    ck_assert_int_eq(talk.messages, 100);
    ck_assert_int_eq(talk.status.code, 0);
}
END_TEST

START_TEST(client_send_past_the_queue_is_exhausted_and_what_was_taken_arrives) {
    struct ft_rpc_client *client =
        rpc_fixture_connect(fx.endpoint, &(struct ft_rpc_client_opts){.send_queue_max = 10000});
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, client, "/test.Echo/Sink", NULL);
    char bytes[20000] = {0};
    int n = 0;
    while (ft_rpc_stream_send(talk.stream, (struct ft_str){bytes, 1000}) == FT_OK)
        n++;
    ck_assert_int_eq(n, 10);
    ck_assert(rpc_wait_int(&fx.echo.messages, n, 10000));
    /* A message larger than the queue goes alone. */
    ck_assert(rpc_wait_int(&talk.writable, 1, 10000));
    ck_assert_int_eq(ft_rpc_stream_send(talk.stream, (struct ft_str){bytes, 20000}), FT_OK);
    ft_rpc_stream_half_close(talk.stream);
    ck_assert(rpc_wait_int(&talk.done, 1, 10000));
    ck_assert_str_eq(talk.last, "11");
    ft_rpc_client_close(&client);
}
END_TEST

START_TEST(dev57_oversize_messages_end_the_stream_either_way) {
    rpc_fixture_restart(&(struct ft_rpc_server_opts){.message_max = 1000});
    char bytes[1001] = {0};
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Bidi", NULL);
    ft_rpc_stream_send(talk.stream, (struct ft_str){bytes, 1000});
    ck_assert(rpc_wait_int(&talk.messages, 1, 10000));
    ft_rpc_stream_send(talk.stream, (struct ft_str){bytes, 1001});
    ck_assert(rpc_wait_int(&talk.done, 1, 10000));
    ck_assert_int_eq(talk.status.code, RESOURCE_EXHAUSTED);
    ck_assert(rpc_wait_int(&fx.echo.gone, 1, 10000));
    ck_assert_int_eq(fx.echo.half_closed, 0);

    struct ft_rpc_client *small =
        rpc_fixture_connect(fx.endpoint, &(struct ft_rpc_client_opts){.message_max = 10});
    struct rpc_talk other = {0};
    rpc_talk_open(&other, small, "/test.Echo/Bidi", NULL);
    ft_rpc_stream_send(other.stream, (struct ft_str){bytes, 11});
    ck_assert(rpc_wait_int(&other.done, 1, 10000));
    ck_assert_int_eq(other.status.code, RESOURCE_EXHAUSTED);
    ck_assert(rpc_wait_int(&fx.echo.gone, 2, 10000));
    ft_rpc_client_close(&small);

    struct rpc_talk flood = {0};
    rpc_talk_open(&flood, fx.client, "/test.Echo/Flood", NULL);
    ft_rpc_stream_send(flood.stream, ft_str_c("1 1001"));
    ck_assert(rpc_wait_int(&flood.done, 1, 10000));
    ck_assert_int_eq(fx.echo.last_send, FT_E_REQ_TOO_LARGE);
    ck_assert_int_eq(flood.messages, 0);
}
END_TEST

START_TEST(unknown_stream_method_is_unimplemented) {
    struct rpc_talk talk = {0};
    rpc_talk_open(&talk, fx.client, "/test.Echo/Nothing", NULL);
    ck_assert(rpc_wait_int(&talk.done, 1, 10000));
    ck_assert_int_eq(talk.status.code, UNIMPLEMENTED);
}
END_TEST

START_TEST(client_close_ends_its_streams) {
    struct rpc_talk talks[5] = {{0}};
    for (int i = 0; i < 5; i++) {
        rpc_talk_open(&talks[i], fx.client, "/test.Echo/Bidi", NULL);
        ft_rpc_stream_send(talks[i].stream, ft_str_c("0"));
        ck_assert(rpc_wait_int(&talks[i].messages, 1, 10000));
    }
    ft_rpc_client_close(&fx.client);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(talks[i].status.code, CANCELLED);
    ck_assert(rpc_wait_int(&fx.echo.gone, 5, 10000));
    ck_assert_int_eq(fx.echo.cancelled, 5);
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("rpc_stream");
    TCase *t = tcase_create("stream");
    tcase_add_checked_fixture(t, rpc_fixture_setup, rpc_fixture_teardown);
    tcase_add_test(t, server_stream_of_a_thousand_ends_ok);
    tcase_add_test(t, server_stream_without_messages_ends_ok);
    tcase_add_test(t, server_stream_without_request_is_invalid);
    tcase_add_test(t, bidi_echoes_in_order_and_half_close_ends_it);
    tcase_add_test(t, bidi_ping_pong_is_writable_again_after_each_send);
    tcase_add_test(t, bidi_empty_messages_are_messages);
    tcase_add_test(t, dev23_client_cancel_is_told_to_the_handler_at_once);
    tcase_add_test(t, cancel_before_anything_was_sent_leaves_no_call);
    tcase_add_test(t, cancel_inside_on_message_is_the_last_message);
    tcase_add_test(t, handler_ends_a_bidi_call_that_the_client_keeps_open);
    tcase_add_test(t, deadline_ends_a_stream_on_both_sides);
    tcase_add_test(t, slow_reader_stops_the_writer);
    tcase_add_test(t, closing_server_lingers_for_a_slow_reader);
    tcase_add_test(t, send_past_the_queue_is_exhausted_and_what_was_taken_arrives);
    tcase_add_test(t, client_send_past_the_queue_is_exhausted_and_what_was_taken_arrives);
    tcase_add_test(t, dev57_oversize_messages_end_the_stream_either_way);
    tcase_add_test(t, unknown_stream_method_is_unimplemented);
    tcase_add_test(t, client_close_ends_its_streams);
    suite_add_tcase(s, t);
    return s;
}
