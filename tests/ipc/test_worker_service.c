/* The service of a worker in this process, over a Unix socket, with the history model behind it. */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/worker/service.h"
#include "draft_worker/draft.h"
#include "ipc/history_model.h"
#include "ipc/worker_client.h"
#include "support/fixtures.h"
#include "support/suite.h"
#include "target_worker/verify.h"
#include "unit/worker_rig.h"

enum {
    OK = 0,
    INVALID_ARGUMENT = 3,
    RESOURCE_EXHAUSTED = 8,
    FAILED_PRECONDITION = 9,
    ABORTED = 10
};

static struct rig g_rig;
static struct ft_rpc_loop *g_loop;
static struct ft_service *g_service;
static const char *g_dir;
static char g_endpoint[FT_PARAM_STR_MAX];
static struct worker_client g_client;

static void open_service(const struct ft_worker_role *role) {
    struct ft_err err = {0};
    g_dir = ft_fixture_temp_dir();
    snprintf(g_endpoint, sizeof g_endpoint, "unix:%s/w.sock", g_dir);
    rig_init(&g_rig, 40);
    strcpy(g_rig.params.listen, g_endpoint);
    ck_assert_msg(ft_worker_open(&g_rig.worker, role, &g_rig.params, &err) == FT_OK, "%s",
                  err.text);
    ck_assert_msg(ft_rpc_loop_create(&g_loop, 0, &err) == FT_OK, "%s", err.text);
    ck_assert_msg(ft_service_open(&g_service, g_loop, g_rig.worker, &err) == FT_OK, "%s", err.text);
    worker_client_open(&g_client, g_loop, g_endpoint, role->name);
}

static void setup(void) {
    open_service(&tw_verify_role);
}

static void setup_draft(void) {
    open_service(&dw_draft_role);
}

static void teardown(void) {
    worker_client_close(&g_client);
    ft_service_close(&g_service);
    rig_close(&g_rig);
    ft_rpc_loop_destroy(&g_loop);
    ft_fixture_remove_dir(g_dir);
}

static void expect_status(struct ft_rpc_status status, int code, const char *text) {
    ck_assert_msg(status.code == code && strstr(status.text, text) != NULL, "%d %s", status.code,
                  status.text);
}

START_TEST(describe_says_what_a_coordinator_needs) {
    worker_client_describe(&g_client);
    const struct ft_wire_describe *d = &g_client.describe;
    ck_assert_uint_ne(d->epoch, 0);
    ck_assert_uint_eq(d->epoch, g_rig.worker->epoch);
    ck_assert(ft_str_eq(d->role, ft_str_c("target")));
    ck_assert(ft_str_eq(d->model_dir, ft_str_c(g_rig.params.model)));
    ck_assert(ft_str_eq(d->architecture, ft_str_c("HistoryForTests")));
    ck_assert_uint_eq(d->vocab_size, HISTORY_VOCAB);
    ck_assert_uint_eq(d->max_model_len, HISTORY_LEN_MAX);
    ck_assert_uint_eq(d->kv_block_tokens, 16);
    ck_assert_uint_eq(d->kv_blocks_total, 40);
    ck_assert_uint_eq(d->max_step_tokens, 200);
    ck_assert_uint_eq(d->max_step_sequences, 8);
    ck_assert_uint_eq(d->max_step_rows, 8 * 17);
    ck_assert_uint_eq(d->max_draft_len, 0);
    ck_assert(ft_str_eq(d->backend, ft_str_c("history")));
    ck_assert(ft_str_eq(d->dtype, ft_str_c("float32")));
    ck_assert_uint_gt(d->version.len, 0);
    struct ft_tokenizer *tokenizer = NULL;
    ck_assert_int_eq(ft_tokenizer_open(&tokenizer, g_rig.params.model, NULL), FT_OK);
    ck_assert_int_eq(memcmp(d->tokenizer_fingerprint.ptr, ft_tokenizer_fingerprint(tokenizer), 32),
                     0);
    ft_tokenizer_close(&tokenizer);
}
END_TEST

START_TEST(attach_hands_over_a_region_and_unlinks_it_once_mapped) {
    worker_client_describe(&g_client);
    expect_status(worker_client_attach(&g_client, true), FAILED_PRECONDITION, "nothing attached");
    expect_status(worker_client_attach(&g_client, false), OK, "");
    ck_assert_int_eq(
        ft_region_map(&g_client.region, g_client.region_name, g_client.describe.epoch, NULL),
        FT_OK);
    ck_assert_int_eq(ft_region_layout(g_client.region)->n_rows, 8 * 17);
    ck_assert_int_eq(ft_region_layout(g_client.region)->n_cols, HISTORY_VOCAB);
    expect_status(worker_client_attach(&g_client, true), OK, "");
    ck_assert_int_lt(shm_open(g_client.region_name, O_RDONLY, 0), 0);
    g_client.describe.epoch++;
    expect_status(worker_client_attach(&g_client, false), FAILED_PRECONDITION, "this worker's is");
    expect_status(worker_client_release(&g_client, NULL, 0), FAILED_PRECONDITION,
                  "this worker's is");
}
END_TEST

START_TEST(stream_without_attach_is_refused) {
    worker_client_describe(&g_client);
    worker_client_stream(&g_client);
    worker_client_wait_stream_end(&g_client);
    expect_status(g_client.stream_status, FAILED_PRECONDITION, "call Attach first");
}
END_TEST

START_TEST(many_steps_in_flight_are_answered_in_order) {
    worker_client_connect(&g_client);
    int32_t ids[100];
    for (int32_t i = 0; i < 100; i++)
        ids[i] = i;
    for (uint32_t i = 0; i < 100; i++) {
        struct ft_wire_seq_step s = {7, i, ids + i, 1, .n_logits = 1};
        worker_client_send(&g_client, &s, 1);
    }
    worker_client_wait_replies(&g_client, 100);
    for (int i = 0; i < 100; i++) {
        ck_assert_uint_eq(g_client.replies[i].step_id, (uint64_t)i + 1);
        ck_assert_int_eq(g_client.replies[i].results[0].status, FT_WIRE_SEQ_OK);
        ck_assert_uint_eq(g_client.replies[i].results[0].cached, (uint32_t)i + 1);
    }
    float want[HISTORY_VOCAB];
    for (int32_t n = 99; n <= 100; n++) { /* the last two: one in each generation */
        history_row(ids, n, want);
        const float *row = ft_region_row(g_client.region, (uint32_t)n % 2, 0);
        ck_assert(memcmp(row, want, sizeof want) == 0);
    }
    struct ft_wire_worker_stats stats = worker_client_stats(&g_client);
    ck_assert_uint_eq(stats.epoch, g_client.describe.epoch);
    ck_assert_uint_eq(stats.steps, 100);
    ck_assert_uint_eq(stats.step_tokens, 100);
    ck_assert_uint_gt(stats.step_nanos, 0);
    ck_assert_uint_eq(stats.sequences, 1);
    ck_assert_uint_eq(stats.kv_blocks_free, 40 - 7);
}
END_TEST

START_TEST(second_stream_and_second_coordinator_are_refused) {
    worker_client_connect(&g_client);
    int32_t ids[3] = {1, 2, 3};
    struct ft_wire_seq_step s = {7, 0, ids, 3, .n_logits = 1};
    worker_client_step(&g_client, &s, 1);

    struct worker_client other;
    worker_client_open(&other, g_loop, g_endpoint, "target");
    worker_client_describe(&other);
    expect_status(worker_client_attach(&other, false), RESOURCE_EXHAUSTED,
                  "another coordinator's step stream is open");
    worker_client_stream(&other);
    worker_client_wait_stream_end(&other);
    expect_status(other.stream_status, RESOURCE_EXHAUSTED, "one at a time");
    ck_assert_int_eq(ft_kvseq_count(g_rig.worker->seqs), 1);

    struct ft_wire_seq_step more = {7, 3, ids, 3, .n_logits = 1};
    ck_assert_int_eq(worker_client_step(&g_client, &more, 1)->status, FT_WIRE_SEQ_OK);

    /* Once the first is gone the other gets the worker, with nothing of the first in it. */
    ft_rpc_stream_cancel(g_client.stream);
    worker_client_wait_stream_end(&g_client);
    worker_client_run_ms(&other, 50);
    worker_client_connect(&other);
    const struct ft_wire_seq_result *r = worker_client_step(&other, &more, 1);
    ck_assert_int_eq(r->status, FT_WIRE_SEQ_LOST);
    ck_assert_uint_eq(r->cached, 0);
    worker_client_close(&other);
}
END_TEST

/* Two that attach before either opens its stream: the second has the region, and the steps of the
 * first are refused. */
START_TEST(step_of_a_coordinator_that_another_replaced_is_refused) {
    int32_t ids[3] = {1, 2, 3};
    struct ft_wire_seq_step s = {7, 0, ids, 3, .n_logits = 1};
    struct worker_client other;
    worker_client_open(&other, g_loop, g_endpoint, "target");
    worker_client_describe(&g_client);
    worker_client_describe(&other);
    expect_status(worker_client_attach(&g_client, false), OK, "");
    expect_status(worker_client_attach(&other, false), OK, "");
    worker_client_stream(&g_client);
    worker_client_send(&g_client, &s, 1);
    worker_client_wait_stream_end(&g_client);
    expect_status(g_client.stream_status, FAILED_PRECONDITION, "another coordinator");
    ck_assert_int_eq(ft_kvseq_count(g_rig.worker->seqs), 0);
    worker_client_run_ms(&other, 50);
    worker_client_connect(&other);
    ck_assert_int_eq(worker_client_step(&other, &s, 1)->status, FT_WIRE_SEQ_OK);
    worker_client_close(&other);
}
END_TEST

START_TEST(the_same_coordinator_may_attach_anew_at_once) {
    worker_client_connect(&g_client);
    int32_t ids[3] = {1, 2, 3};
    struct ft_wire_seq_step s = {7, 0, ids, 3, .n_logits = 1};
    worker_client_step(&g_client, &s, 1);
    struct worker_client again;
    worker_client_open(&again, g_loop, g_endpoint, "target");
    again.coordinator_epoch = g_client.coordinator_epoch;
    worker_client_connect(&again);
    worker_client_wait_stream_end(&g_client);
    expect_status(g_client.stream_status, ABORTED, "attached anew");
    ck_assert_int_eq(ft_kvseq_count(g_rig.worker->seqs), 0);
    ck_assert_int_eq(worker_client_step(&again, &s, 1)->status, FT_WIRE_SEQ_OK);
    worker_client_close(&again);
}
END_TEST

START_TEST(stream_end_drops_every_sequence_and_keeps_the_cache) {
    worker_client_connect(&g_client);
    int32_t ids[40] = {9, 8, 7};
    struct ft_wire_seq_step s[2] = {{1, 0, ids, 40, .n_logits = 1}, {2, 0, ids, 5, .n_logits = 1}};
    worker_client_step(&g_client, s, 2);
    ck_assert_uint_eq(worker_client_stats(&g_client).sequences, 2);
    ft_rpc_stream_half_close(g_client.stream);
    worker_client_wait_stream_end(&g_client);
    expect_status(g_client.stream_status, OK, "");
    worker_client_run_ms(&g_client, 20);
    struct ft_wire_worker_stats stats = worker_client_stats(&g_client);
    ck_assert_uint_eq(stats.sequences, 0);
    ck_assert_uint_eq(stats.kv_blocks_cached, 2);
    ck_assert_uint_eq(stats.kv_blocks_free + stats.kv_blocks_cached, stats.kv_blocks_total);
    ck_assert_ptr_null(g_rig.worker->region);

    worker_client_connect(&g_client);
    const struct ft_wire_seq_result *r = worker_client_step(&g_client, s, 1);
    ck_assert_uint_eq(r->prefix_hit, 32);
    float want[HISTORY_VOCAB];
    history_row(ids, 40, want);
    ck_assert(memcmp(worker_client_row(&g_client, r, 0), want, sizeof want) == 0);
}
END_TEST

START_TEST(garbage_ends_the_stream_with_its_reason_and_nothing_else) {
    static const char *const messages[] = {"\xFF\xFF\xFF\xFF\xFF", "\x08", "not a step", "\x1A"};
    for (size_t i = 0; i < 4; i++) {
        worker_client_connect(&g_client);
        worker_client_send_raw(&g_client, ft_str_c(messages[i]));
        worker_client_wait_stream_end(&g_client);
        ck_assert_int_eq(g_client.stream_status.code, INVALID_ARGUMENT);
        worker_client_run_ms(&g_client, 20);
    }
    expect_status(worker_client_call(&g_client, "Attach", ft_str_c("\xFF\xFF"), NULL),
                  INVALID_ARGUMENT, "");
    expect_status(worker_client_call(&g_client, "Release", ft_str_c("\xFF\xFF"), NULL),
                  INVALID_ARGUMENT, "");
    worker_client_connect(&g_client);
    g_client.describe.epoch ^= 1;
    struct ft_wire_seq_step s = {.seq_id = 1};
    worker_client_send(&g_client, &s, 1);
    worker_client_wait_stream_end(&g_client);
    expect_status(g_client.stream_status, FAILED_PRECONDITION, "this worker's is");
}
END_TEST

/* Looks before the service does: how often the region was there once the channel was broken. */
static bool count_region(void *user) {
    int *n = user;
    *n += g_rig.worker->region != NULL;
    return false;
}

static void ignore_doze(void *user, bool asleep) {
    (void)user;
    (void)asleep;
}

START_TEST(broken_channel_is_looked_at_once_and_ends_the_stream) {
    int n_looks = 0;
    int32_t ids[3] = {1, 2, 3};
    struct ft_wire_seq_step s = {7, 0, ids, 3, .n_logits = 1};
    worker_client_connect(&g_client);
    worker_client_step(&g_client, &s, 1); /* the stream is open */
    struct ft_rpc_watch watch = {.look = count_region, .doze = ignore_doze, .user = &n_looks};
    ft_rpc_loop_watch(g_loop, &watch);
    /* The count that a slot begins with: of a message that nobody can have put next. */
    uint32_t n_put = 7;
    memcpy((void *)ft_region_channel(g_client.region)->out, &n_put, sizeof n_put);
    worker_client_wait_stream_end(&g_client);
    ft_rpc_loop_unwatch(g_loop, &watch);
    ck_assert_ptr_nonnull(strstr(g_client.stream_status.text, "expected message 1"));
    ck_assert_int_eq(n_looks, 1);
    worker_client_run_ms(&g_client, 20);
    worker_client_connect(&g_client); /* the worker takes another one */
}
END_TEST

START_TEST(release_forgets_sequences_and_ignores_unknown_ones) {
    worker_client_connect(&g_client);
    int32_t ids[20] = {1};
    struct ft_wire_seq_step s[3] = {{1, 0, ids, 20, .n_logits = 0},
                                    {2, 0, ids, 20, .n_logits = 0},
                                    {UINT64_MAX, 0, ids, 20, .n_logits = 0}};
    worker_client_step(&g_client, s, 3);
    uint64_t gone[3] = {1, 12345, UINT64_MAX};
    expect_status(worker_client_release(&g_client, gone, 3), OK, "");
    ck_assert_uint_eq(worker_client_stats(&g_client).sequences, 1);
    struct ft_wire_seq_step more[2] = {{1, 20, ids, 1, .n_logits = 1},
                                       {2, 20, ids, 1, .n_logits = 1}};
    const struct ft_wire_seq_result *r = worker_client_step(&g_client, more, 2);
    ck_assert_int_eq(r[0].status, FT_WIRE_SEQ_LOST);
    ck_assert_int_eq(r[1].status, FT_WIRE_SEQ_OK);
}
END_TEST

START_TEST(dev59_failed_forward_ends_stream_and_service) {
    worker_client_connect(&g_client);
    int32_t ids[3] = {1, 2, 3};
    struct ft_wire_seq_step s = {7, 0, ids, 3, .n_logits = 1};
    worker_client_step(&g_client, &s, 1);
    ck_assert_int_eq(ft_service_failure(g_service)->code, FT_OK);
    history_fail_next();
    worker_client_send(&g_client, &s, 1);
    worker_client_wait_stream_end(&g_client);
    expect_status(g_client.stream_status, 13, "failed as told");
    ck_assert_int_eq(ft_service_failure(g_service)->code, FT_E_PROC_INTERNAL);
}
END_TEST

/* ---- another model --------------------------------------------------------------------------- */

static void *end_one_load(void *unused) {
    (void)unused;
    while (!history_end_load())
        usleep(1000);
    return NULL;
}

static void on_nothing(void *user, struct ft_str message) {
    (void)user;
    (void)message;
}

static void on_reload_end(void *user, const struct ft_rpc_status *status) {
    ck_assert_int_ne(status->code, OK);
    ++*(int *)user;
}

/* A call of Reload whose request is still to be sent. */
static struct ft_rpc_stream *begin_reload(int *n_ended) {
    static const struct ft_rpc_stream_handlers handlers = {.on_message = on_nothing,
                                                           .on_done = on_reload_end};
    struct ft_rpc_call_opts opts = {.deadline_ns = ft_clock_now_ns() + 20000000000};
    struct ft_rpc_stream *call;
    struct ft_err err = {0};
    char path[128];
    snprintf(path, sizeof path, "%sReload", dw_draft_role.service);
    ck_assert_msg(
        ft_rpc_stream_open(&call, g_client.client, path, &opts, &handlers, n_ended, &err) == FT_OK,
        "%s", err.text);
    worker_client_run_ms(&g_client, 200);
    return call;
}

static void send_reload(struct ft_rpc_stream *call) {
    struct ft_buf request;
    ft_buf_init(&request, 0);
    ft_wire_encode_reload(ft_str_c(g_rig.params.model), &request);
    ck_assert_int_eq(ft_rpc_stream_send(call, ft_buf_str(&request)), FT_OK);
    ft_rpc_stream_half_close(call);
    ft_buf_fini(&request);
}

/* The second one's request is there, but not looked at, when the service begins to close and waits
 * for the load of the first. */
START_TEST(reload_that_comes_while_the_service_closes_begins_nothing) {
    int n_ended = 0;
    pthread_t helper;
    worker_client_describe(&g_client);
    history_hold_loads();
    struct ft_rpc_stream *first = begin_reload(&n_ended), *second = begin_reload(&n_ended);
    send_reload(first);
    worker_client_run_ms(&g_client, 200);
    send_reload(second);
    usleep(200000);
    ck_assert_int_eq(pthread_create(&helper, NULL, end_one_load, NULL), 0);
    ft_service_close(&g_service);
    pthread_join(helper, NULL);
    usleep(300000);
    ck_assert_msg(!history_end_load(), "a load outlives its service");
    worker_client_run_ms(&g_client, 100);
    ck_assert_int_eq(n_ended, 2);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("worker_service");
    TCase *tc = tcase_create("worker_service");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, describe_says_what_a_coordinator_needs);
    tcase_add_test(tc, attach_hands_over_a_region_and_unlinks_it_once_mapped);
    tcase_add_test(tc, stream_without_attach_is_refused);
    tcase_add_test(tc, many_steps_in_flight_are_answered_in_order);
    tcase_add_test(tc, second_stream_and_second_coordinator_are_refused);
    tcase_add_test(tc, step_of_a_coordinator_that_another_replaced_is_refused);
    tcase_add_test(tc, the_same_coordinator_may_attach_anew_at_once);
    tcase_add_test(tc, stream_end_drops_every_sequence_and_keeps_the_cache);
    tcase_add_test(tc, garbage_ends_the_stream_with_its_reason_and_nothing_else);
    tcase_add_test(tc, broken_channel_is_looked_at_once_and_ends_the_stream);
    tcase_add_test(tc, release_forgets_sequences_and_ignores_unknown_ones);
    tcase_add_test(tc, dev59_failed_forward_ends_stream_and_service);
    suite_add_tcase(suite, tc);
    tc = tcase_create("reload");
    tcase_add_checked_fixture(tc, setup_draft, teardown);
    tcase_add_test(tc, reload_that_comes_while_the_service_closes_begins_nothing);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
