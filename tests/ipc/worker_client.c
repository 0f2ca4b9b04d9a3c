#include "ipc/worker_client.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "support/awake.h"

#define MS INT64_C(1000000)
#define PATIENCE_MS 20000

static const struct ft_rpc_client_opts k_opts = {.message_max = 16 << 20,
                                                 .reconnect_backoff_ms = 50};

void worker_client_open(struct worker_client *c, struct ft_rpc_loop *loop, const char *endpoint,
                        const char *role) {
    bool is_target = strcmp(role, "target") == 0;
    memset(c, 0, sizeof *c);
    c->loop = loop;
    c->service = is_target ? FT_WIRE_TARGET_SERVICE : FT_WIRE_DRAFT_SERVICE;
    c->step_method = is_target ? "Verify" : "DraftStep";
    c->coordinator_epoch = ft_clock_random_u64();
    c->arena = ft_arena_create(1 << 16, 0);
    struct ft_err err = {0};
    if (loop == NULL) {
        ck_assert_msg(ft_rpc_loop_create(&c->loop, 0, &err) == FT_OK, "%s", err.text);
        c->owns_loop = true;
    }
    ck_assert_msg(ft_rpc_client_open(&c->client, c->loop, endpoint, &k_opts, &err) == FT_OK, "%s",
                  err.text);
}

void worker_client_close(struct worker_client *c) {
    if (c->stream != NULL)
        ft_rpc_stream_cancel(c->stream);
    ft_rpc_client_close(&c->client);
    ft_region_close(&c->region);
    ft_arena_destroy(&c->arena);
    if (c->owns_loop)
        ft_rpc_loop_destroy(&c->loop);
}

struct ft_rpc_status worker_client_call(struct worker_client *c, const char *method,
                                        struct ft_str request, struct ft_buf *reply) {
    char path[128];
    snprintf(path, sizeof path, "%s%s", c->service, method);
    struct ft_rpc_call_opts opts = {.deadline_ns = ft_clock_now_ns() + PATIENCE_MS * MS,
                                    .wait_for_ready = true};
    return ft_rpc_client_unary_sync(c->client, path, request, &opts, reply);
}

void worker_client_describe(struct worker_client *c) {
    struct ft_buf reply;
    struct ft_err err;
    ft_buf_init(&reply, 0);
    struct ft_rpc_status status = worker_client_call(c, "Describe", ft_str_c(""), &reply);
    ck_assert_msg(status.code == 0, "Describe: %d %s", status.code, status.text);
    ck_assert_msg(ft_wire_decode_describe(ft_buf_str(&reply), c->arena, &c->describe, &err) ==
                      FT_OK,
                  "%s", err.text);
    ft_buf_fini(&reply);
}

struct ft_rpc_status worker_client_attach(struct worker_client *c, bool mapped) {
    struct ft_buf request, reply;
    ft_buf_init(&request, 0);
    ft_buf_init(&reply, 0);
    struct ft_wire_attach attach = {c->describe.epoch, c->coordinator_epoch, mapped, false};
    ft_wire_encode_attach(&attach, &request);
    struct ft_rpc_status status = worker_client_call(c, "Attach", ft_buf_str(&request), &reply);
    struct ft_wire_attached attached;
    struct ft_err err;
    if (status.code == 0) {
        ck_assert_int_eq(ft_wire_decode_attached(ft_buf_str(&reply), c->arena, &attached, &err),
                         FT_OK);
        snprintf(c->region_name, sizeof c->region_name, "%.*s", (int)attached.shm_name.len,
                 attached.shm_name.ptr);
    }
    ft_buf_fini(&request);
    ft_buf_fini(&reply);
    return status;
}

static void on_message(void *user, struct ft_str message) {
    struct worker_client *c = user;
    struct ft_err err;
    ck_assert_int_lt(c->n_replies, WORKER_REPLIES_MAX);
    ck_assert_msg(ft_wire_decode_step_reply(message, c->arena, &c->replies[c->n_replies], &err) ==
                      FT_OK,
                  "%s", err.text);
    c->n_replies++;
}

static void on_done(void *user, const struct ft_rpc_status *status) {
    struct worker_client *c = user;
    c->stream = NULL;
    c->stream_status = *status;
}

void worker_client_stream(struct worker_client *c) {
    static const struct ft_rpc_stream_handlers handlers = {.on_message = on_message,
                                                           .on_done = on_done};
    char path[128];
    struct ft_err err;
    struct ft_rpc_call_opts opts = {0};
    snprintf(path, sizeof path, "%s%s", c->service, c->step_method);
    ck_assert_msg(ft_rpc_stream_open(&c->stream, c->client, path, &opts, &handlers, c, &err) ==
                      FT_OK,
                  "%s", err.text);
}

void worker_client_connect(struct worker_client *c) {
    struct ft_err err;
    worker_client_describe(c);
    struct ft_rpc_status status = worker_client_attach(c, false);
    ck_assert_msg(status.code == 0, "Attach: %d %s", status.code, status.text);
    ft_region_close(&c->region);
    ck_assert_msg(ft_region_map(&c->region, c->region_name, c->describe.epoch, &err) == FT_OK, "%s",
                  err.text);
    status = worker_client_attach(c, true);
    ck_assert_msg(status.code == 0, "Attach: %d %s", status.code, status.text);
    worker_client_stream(c);
}

void worker_client_send_raw(struct worker_client *c, struct ft_str message) {
    ck_assert_ptr_nonnull(c->stream);
    ck_assert_int_eq(ft_rpc_stream_send(c->stream, message), FT_OK);
}

void worker_client_send(struct worker_client *c, const struct ft_wire_seq_step *seqs, size_t n) {
    struct ft_buf out;
    ft_buf_init(&out, 0);
    c->step_id++;
    c->generation = (uint32_t)(c->step_id % FT_REGION_GENERATIONS);
    struct ft_wire_step step = {
        .step_id = c->step_id,
        .epoch = c->describe.epoch,
        .generation = c->generation,
        .seqs = seqs,
        .n_seqs = n,
        .coordinator_epoch = c->coordinator_epoch,
    };
    ft_wire_encode_step(&step, &out);
    worker_client_send_raw(c, ft_buf_str(&out));
    ft_buf_fini(&out);
}

void worker_client_wait_replies(struct worker_client *c, int n) {
    int64_t until_ns = ft_clock_now_ns() + PATIENCE_MS * MS;
    while (c->n_replies < n) {
        ck_assert_msg(c->stream != NULL, "the stream ended: %d %s", c->stream_status.code,
                      c->stream_status.text);
        ck_assert_msg(ft_clock_now_ns() < until_ns, "no reply");
        ft_rpc_loop_step(c->loop, ft_clock_now_ns() + 100 * MS);
    }
}

void worker_client_wait_stream_end(struct worker_client *c) {
    int64_t until_ns = ft_clock_now_ns() + PATIENCE_MS * MS;
    while (c->stream != NULL) {
        ck_assert_msg(ft_clock_now_ns() < until_ns, "the stream does not end");
        ft_rpc_loop_step(c->loop, ft_clock_now_ns() + 100 * MS);
    }
}

const struct ft_wire_seq_result *worker_client_step(struct worker_client *c,
                                                    const struct ft_wire_seq_step *seqs, size_t n) {
    if (c->n_replies > WORKER_REPLIES_MAX / 2)
        c->n_replies = 0; /* everything sent was answered: see below */
    int before = c->n_replies;
    worker_client_send(c, seqs, n);
    worker_client_wait_replies(c, before + 1);
    const struct ft_wire_step_reply *reply = &c->replies[c->n_replies - 1];
    ck_assert_uint_eq(reply->step_id, c->step_id);
    ck_assert_uint_eq(reply->epoch, c->describe.epoch);
    ck_assert_uint_eq(reply->n_results, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_uint_eq(reply->results[i].seq_id, seqs[i].seq_id);
    return reply->results;
}

const float *worker_client_row(const struct worker_client *c, const struct ft_wire_seq_result *r,
                               int32_t i) {
    ck_assert_int_lt(i, (int32_t)r->n_rows);
    const float *row = ft_region_row(c->region, c->generation, (int64_t)r->first_row + i);
    ck_assert_ptr_nonnull(row);
    return row;
}

struct ft_rpc_status worker_client_release(struct worker_client *c, const uint64_t *ids, size_t n) {
    struct ft_buf request;
    ft_buf_init(&request, 0);
    struct ft_wire_release release = {c->describe.epoch, ids, n};
    ft_wire_encode_release(&release, &request);
    struct ft_rpc_status status = worker_client_call(c, "Release", ft_buf_str(&request), NULL);
    ft_buf_fini(&request);
    return status;
}

struct ft_wire_worker_stats worker_client_stats(struct worker_client *c) {
    struct ft_buf reply;
    struct ft_wire_worker_stats stats;
    ft_buf_init(&reply, 0);
    struct ft_rpc_status status = worker_client_call(c, "GetStats", ft_str_c(""), &reply);
    ck_assert_msg(status.code == 0, "GetStats: %d %s", status.code, status.text);
    ck_assert_int_eq(ft_wire_decode_worker_stats(ft_buf_str(&reply), c->arena, &stats, NULL),
                     FT_OK);
    ft_buf_fini(&reply);
    return stats;
}

void worker_client_run_ms(struct worker_client *c, int ms) {
    int64_t left_ns = ms * MS, until_ns = ft_awake_ns() + left_ns;
    for (; left_ns > 0; left_ns = until_ns - ft_awake_ns())
        ft_rpc_loop_step(c->loop, ft_clock_now_ns() + left_ns);
}
