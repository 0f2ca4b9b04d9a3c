/* Requests before they run: what counts for those whose prompts are still tokenized, and how many
 * may come, and what those are told that may not. */
#include <check.h>
#include <stdio.h>

#include "common/wire/admin.h"
#include "common/wire/operate.h"
#include "sim/net.h"
#include "sim/world.h"
#include "support/suite.h"

#define MS 1000000

static struct world g_world;

static void begin(const struct sim_opts *opts) {
    net_reset(1);
    world_start(&g_world, 1, opts);
}

/* A client whose prompt a helper thread has got. */
static struct sim_client *add_tokenizing(void) {
    struct sim_client *c = world_add(&g_world, 0, 1, 20, 40);
    c->long_text = true;
    while (g_world.app->encoding.first == NULL)
        ck_assert(world_step(&g_world));
    return c;
}

/* ---- while a prompt is tokenized ------------------------------------------------------------- */

START_TEST(parameters_set_while_a_prompt_is_tokenized_count_for_it) {
    begin(&(struct sim_opts){.args = {"--num_speculative_tokens=5", "--tokenizer_threads=1"}});
    struct sim_client *running = world_add(&g_world, 0, 2, 20, 400); /* rounds go on meanwhile */
    while (running->n_got < 10)
        ck_assert(world_step(&g_world));
    struct sim_client *c = add_tokenizing();
    world_set(&g_world, "rejection_sample_method", "coupled");
    world_set(&g_world, "drafter", "ngram");
    world_set(&g_world, "num_speculative_tokens", "2");
    while (world_request(&g_world, c) == NULL)
        ck_assert(world_step(&g_world));
    const struct co_request *r = world_request(&g_world, c);
    ck_assert_str_eq(r->rule->name, "coupled");
    ck_assert(r->sampling.coupled && r->draft_sampling.coupled);
    ck_assert_str_eq(r->drafter->name, "ngram");
    ck_assert_int_eq(r->k, 2);
    ck_assert(!running->done);
    world_run(&g_world, 10000);
    world_set(&g_world, "num_speculative_tokens", "0");
    c = add_tokenizing();
    world_set(&g_world, "num_speculative_tokens", "4");
    while (world_request(&g_world, c) == NULL)
        ck_assert(world_step(&g_world));
    ck_assert(world_request(&g_world, c)->speculate);
    world_run(&g_world, 10000);
    world_stop(&g_world);
}
END_TEST

struct answer {
    bool done;
    int status;
    struct ft_buf message;
};

static void on_answer(void *user, const struct ft_rpc_status *status, struct ft_str message) {
    struct answer *answer = user;
    answer->done = true;
    answer->status = status->code;
    ft_buf_add_str(&answer->message, message);
}

/* Empties request. The caller ends the answer's message. */
static struct answer admin(const char *path, struct ft_buf *request) {
    struct answer answer = {.done = false};
    struct ft_rpc_call_opts opts = {.deadline_ns = 0};
    ft_buf_init(&answer.message, 0);
    ft_rpc_client_unary(g_world.client, path, ft_buf_str(request), &opts, on_answer, &answer, NULL);
    ft_buf_reset(request);
    while (!answer.done)
        ck_assert(world_step(&g_world));
    return answer;
}

START_TEST(request_whose_prompt_is_tokenized_is_listed_and_cancelled) {
    begin(&(struct sim_opts){.args = {"--tokenizer_threads=1"}});
    struct ft_arena *arena = ft_arena_create(4096, 0);
    struct ft_buf request;
    ft_buf_init(&request, 0);
    /* One thread, which takes them one after the other: the last waits for long. */
    struct sim_client *c[6];
    for (uint32_t i = 0; i < 6; i++) {
        c[i] = world_add(&g_world, i < 5 ? 0 : 1, i, 20, 5);
        c[i]->long_text = true;
    }
    c[5]->expected_status = 1;
    c[5]->priority = 3;
    while (g_world.app->encoding.n_requests < 6)
        ck_assert(world_step(&g_world));
    struct answer answer = admin(FT_WIRE_ADMIN_SERVICE "ListRequests", &request);
    struct ft_wire_request_info *list;
    const struct ft_wire_request_info *last = NULL;
    size_t n, n_tokenizing = 0;
    ck_assert_int_eq(ft_wire_decode_requests(ft_buf_str(&answer.message), arena, &list, &n, NULL),
                     FT_OK);
    ck_assert_uint_eq(n, 6);
    for (size_t i = 0; i < n; i++) {
        n_tokenizing += ft_str_eq(list[i].state, ft_str_c("tokenizing"));
        if (ft_str_eq(list[i].request_id, ft_str_c(c[5]->id)))
            last = &list[i];
    }
    ck_assert_uint_ge(n_tokenizing, 4);
    ck_assert(last != NULL && ft_str_eq(last->state, ft_str_c("tokenizing")));
    ck_assert_int_eq(last->priority, 3);
    ck_assert_uint_gt(last->client.len, 0);
    ft_buf_fini(&answer.message);
    ft_wire_encode_cancel(ft_str_c(c[5]->id), &request);
    answer = admin(FT_WIRE_ADMIN_SERVICE "CancelRequest", &request);
    ck_assert_int_eq(answer.status, 0);
    ft_buf_fini(&answer.message);
    while (!c[5]->done)
        ck_assert(world_step(&g_world));
    ck_assert_int_gt(g_world.app->encoding.n_requests, 0); /* at once, not in its turn */
    ft_wire_encode_cancel(ft_str_c(c[5]->id), &request);
    answer = admin(FT_WIRE_ADMIN_SERVICE "CancelRequest", &request);
    ck_assert_int_eq(answer.status, 5);
    ft_buf_fini(&answer.message);
    world_run(&g_world, 10000);
    ft_buf_fini(&request);
    ft_arena_destroy(&arena);
    world_stop(&g_world);
}
END_TEST

/* ---- how many may come ----------------------------------------------------------------------- */

/* They all come within a round of the first. */
START_TEST(free_places_take_requests_whatever_the_queue_holds) {
    for (uint32_t n = 0; n < 2; n++) {
        begin(&(struct sim_opts){.args = {"--max_queue=0", "--max_num_seqs=8"}});
        for (uint32_t i = 0; i < 8; i++) {
            struct sim_client *c = world_add(&g_world, 0, i, 200, 10);
            c->long_text = n == 1 && i % 2 == 1;
        }
        world_run(&g_world, 10000);
        world_stop(&g_world);
    }
    begin(&(struct sim_opts){.args = {"--max_queue=1", "--max_num_seqs=4"}});
    int n_refused = 0;
    for (uint32_t i = 0; i < 8; i++)
        world_add(&g_world, 0, i, 200, 10)->may_be_refused = true;
    world_run(&g_world, 10000);
    for (int i = 0; i < 8; i++)
        n_refused += g_world.clients[i].status.code == 8;
    ck_assert_int_eq(n_refused, 3);
    world_stop(&g_world);
}
END_TEST

/* A pool of 20 blocks, of which each holds 12: places are free, and no use to the second. */
START_TEST(places_without_kv_do_not_make_the_queue_longer) {
    begin(&(struct sim_opts){.target_blocks = 20, .args = {"--max_queue=1", "--max_num_seqs=8"}});
    world_add(&g_world, 0, 1, 180, 60);
    while (g_world.app->n_running == 0)
        ck_assert(world_step(&g_world));
    world_add(&g_world, 0, 2, 180, 4);
    while (g_world.app->n_queued == 0 || !g_world.app->kv_short)
        ck_assert(world_step(&g_world));
    struct sim_client *third = world_add(&g_world, 0, 3, 180, 4);
    third->may_be_refused = true;
    world_run(&g_world, 10000);
    ck_assert_int_eq(third->status.code, 8);
    struct sim_client *later = world_add(&g_world, 0, 3, 180, 4);
    world_run(&g_world, 10000);
    ck_assert_int_eq(later->status.code, 0);
    world_stop(&g_world);
}
END_TEST

/* ---- what clients of the facade are told ----------------------------------------------------- */

static void add_varint(struct ft_buf *out, uint64_t value) {
    for (; value > 127; value >>= 7)
        ft_buf_add(out, &(unsigned char){(unsigned char)(value | 128)}, 1);
    ft_buf_add(out, &(unsigned char){(unsigned char)value}, 1);
}

static void add_field(struct ft_buf *out, uint64_t field, const struct ft_buf *bytes) {
    add_varint(out, field << 3 | 2);
    add_varint(out, bytes->len);
    ft_buf_add(out, bytes->ptr, bytes->len);
}

static void on_vllm_message(void *user, struct ft_str message) {
    (void)user;
    (void)message;
}

static void on_vllm_done(void *user, const struct ft_rpc_status *status) {
    struct ft_rpc_status *out = user;
    *out = *status;
}

/* VllmEngine.Generate of n input ids, of which the last is last_id, and of one stop id. */
static struct ft_rpc_status vllm(size_t n, uint32_t last_id, uint32_t stop_id) {
    static const struct ft_rpc_stream_handlers handlers = {on_vllm_message, NULL, on_vllm_done};
    struct ft_buf parts[4]; /* ids, TokenizedInput, SamplingParams, GenerateRequest */
    for (int i = 0; i < 4; i++)
        ft_buf_init(&parts[i], 0);
    for (size_t i = 0; i < n; i++)
        add_varint(&parts[0], i + 1 < n ? 7 : last_id);
    add_field(&parts[1], 2, &parts[0]);
    add_varint(&parts[2], 11 << 3);
    add_varint(&parts[2], stop_id);
    add_field(&parts[3], 2, &parts[1]);
    add_field(&parts[3], 4, &parts[2]);
    struct ft_rpc_status status = {.code = -1};
    struct ft_rpc_call_opts opts = {.deadline_ns = 0};
    struct ft_rpc_stream *call;
    ft_rpc_stream_open(&call, g_world.client, "/vllm.grpc.engine.VllmEngine/Generate", &opts,
                       &handlers, &status, NULL);
    ft_rpc_stream_send(call, ft_buf_str(&parts[3]));
    while (status.code < 0)
        ck_assert(world_step(&g_world));
    for (int i = 0; i < 4; i++)
        ft_buf_fini(&parts[i]);
    return status;
}

START_TEST(facade_names_its_own_fields_and_unsigned_ids) {
    begin(&(struct sim_opts){.no_draft = true});
    char expected[128];
    int32_t n_ids = g_world.app->pair.tokenizer_size, len_max = g_world.app->pair.max_model_len;
    struct ft_rpc_status status = vllm(2, UINT32_MAX, 7);
    ck_assert_int_eq(status.code, 3);
    snprintf(expected, sizeof expected, "tokenized.input_ids[1] is 4294967295: must be 0 to %d",
             n_ids - 1);
    ck_assert_str_eq(status.text, expected);
    status = vllm(2, 7, UINT32_MAX - 1);
    snprintf(expected, sizeof expected, "stop_token_ids[0] is 4294967294: must be 0 to %d",
             n_ids - 1);
    ck_assert_str_eq(status.text, expected);
    status = vllm((size_t)len_max, 7, 7);
    snprintf(expected, sizeof expected,
             "tokenized.input_ids has %d tokens: at most %d (max_model_len %d less one)", len_max,
             len_max - 1, len_max);
    ck_assert_str_eq(status.text, expected);
    world_stop(&g_world);
}
END_TEST

int main(void) {
    ft_log_init("sim", FT_LOG_ERROR);
    Suite *suite = suite_create("admission");
    TCase *tc = tcase_create("admission");
    tcase_add_test(tc, parameters_set_while_a_prompt_is_tokenized_count_for_it);
    tcase_add_test(tc, request_whose_prompt_is_tokenized_is_listed_and_cancelled);
    tcase_add_test(tc, free_places_take_requests_whatever_the_queue_holds);
    tcase_add_test(tc, places_without_kv_do_not_make_the_queue_longer);
    tcase_add_test(tc, facade_names_its_own_fields_and_unsigned_ids);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
