/* What rounds leave in the books of requests and of the service when something comes between: a
 * lost sequence, a worker that comes back, a parameter that is set, a number that is none. */
#include <check.h>
#include <string.h>

#include "coordinator/sampling.h"
#include "sim/model.h"
#include "sim/net.h"
#include "sim/world.h"
#include "support/suite.h"

#define MS 1000000

static struct world g_world;

static void begin(const struct sim_opts *opts) {
    net_reset(1);
    world_start(&g_world, 1, opts);
}

static void step(void) {
    ck_assert(world_step(&g_world));
}

static void until_got(const struct sim_client *c, int32_t n) {
    while (c->n_got < n)
        step();
}

/* ---- drafts ---------------------------------------------------------------------------------- */

static bool drafts_now(const struct co_request *r) {
    const struct co_round *round = &g_world.app->round;
    for (int32_t i = 0; round->phase == CO_ROUND_DRAFT && i < round->n_entries; i++)
        if (round->entries[i].request == r)
            return round->plans[i].draft_tokens > 0;
    return false;
}

/* The request is gone before the draft worker says that it has lost its sequence. */
START_TEST(lost_draft_of_a_cancelled_request_is_no_fault_of_the_worker) {
    begin(&(struct sim_opts){.max_seqs = 4});
    struct sim_worker *draft = &g_world.workers[SIM_DRAFT];
    struct sim_client *stays = world_add(&g_world, 0, 1, 30, 200),
                      *goes = world_add(&g_world, 0, 2, 30, 400);
    until_got(goes, 20);
    while (!drafts_now(world_request(&g_world, goes)))
        step();
    g_world.tampered = true;
    ft_kvseq_release(draft->worker->seqs, world_request(&g_world, goes)->seq_id);
    net_stall(draft->loop, net_now_ns() + 5 * MS);
    goes->cancelled = true;
    ft_rpc_stream_cancel(goes->stream_call);
    while (!stays->done) {
        step();
        ck_assert_msg(co_peer_up(g_world.app->draft), "%s", co_peer_trouble(g_world.app->draft));
    }
    world_run(&g_world, 10000);
    world_stop(&g_world);
}
END_TEST

/* The draft's context is shorter than the text when its turn comes. */
START_TEST(drafter_that_is_set_says_why_it_does_not_draft) {
    begin(&(struct sim_opts){.args = {"--drafter=ngram"}});
    g_world.app->pair.draft_max_len = 64;
    struct sim_client *c = world_add(&g_world, 0, 1, 60, 100);
    until_got(c, 20);
    const struct co_request *r = world_request(&g_world, c);
    ck_assert_ptr_null(r->fallback_reason);
    world_set(&g_world, "drafter", "model");
    until_got(c, 40);
    ck_assert_str_eq(r->fallback_reason, "draft context full");
    world_run(&g_world, 10000);
    world_stop(&g_world);
}
END_TEST

START_TEST(drafter_that_asks_no_model_has_no_trouble_with_its_vocabulary) {
    begin(&(struct sim_opts){.args = {"--drafter=ngram"}});
    g_world.app->pair.draft_vocab_size = 100; /* the prompt has higher ids */
    struct sim_client *c = world_add(&g_world, 0, 1, 60, 100);
    until_got(c, 20);
    ck_assert_ptr_null(world_request(&g_world, c)->fallback_reason);
    world_run(&g_world, 10000);
    world_stop(&g_world);
}
END_TEST

/* Blocks that the first of two holds of 12, until its drafts come from elsewhere or not at all; the
 * second needs more than it leaves. */
static void require_given_up(const char *name, const char *value) {
    begin(&(struct sim_opts){.draft_blocks = 12});
    struct sim_client *first = world_add(&g_world, 0, 1, 100, 400);
    until_got(first, 20);
    world_set(&g_world, "drafter", "chain"); /* may ask the model as well */
    until_got(first, 40);
    ck_assert_int_gt(world_request(&g_world, first)->draft_blocks, 6);
    world_set(&g_world, name, value);
    struct sim_client *second = world_add(&g_world, 0, 2, 100, 60);
    second->drafter = "model";
    second->has_k = true;
    second->k = 4;
    until_got(second, 1);
    ck_assert_int_eq(world_request(&g_world, first)->draft_blocks, 0);
    world_run(&g_world, 10000);
    ck_assert_uint_gt(second->spec.num_accepted_tokens, 20);
    world_stop(&g_world);
}

START_TEST(blocks_of_the_draft_go_with_what_needed_them) {
    require_given_up("drafter", "ngram");
    require_given_up("num_speculative_tokens", "0");
}
END_TEST

/* Who sleeps keeps no draft from others, and has its own again when it reads on. */
START_TEST(reader_that_stops_keeps_nobody_from_drafting) {
    begin(&(struct sim_opts){.draft_blocks = 12, .args = {"--stream_buffer_tokens=8"}});
    struct sim_client *sleeper = world_add(&g_world, 0, 1, 100, 80);
    until_got(sleeper, 10);
    net_stream_read(sleeper->stream_call, false);
    while (!co_request_paused(world_request(&g_world, sleeper)))
        step();
    ck_assert_int_gt(world_request(&g_world, sleeper)->draft_blocks, 6);
    struct sim_client *others[3];
    for (uint32_t i = 0; i < 3; i++) {
        others[i] = world_add(&g_world, 0, 2 + i, 5 + 50 * (int32_t)i, 40);
        while (!others[i]->done)
            step();
        ck_assert_uint_gt(others[i]->spec.num_accepted_tokens, 10);
        if (i == 0) /* both had room */
            ck_assert_int_gt(world_request(&g_world, sleeper)->draft_blocks, 0);
    }
    ck_assert(world_request(&g_world, sleeper)->state == CO_REQUEST_RUNNING);
    ck_assert_int_eq(world_request(&g_world, sleeper)->draft_blocks, 0);
    net_stream_read(sleeper->stream_call, true);
    int32_t n_before = sleeper->n_got;
    until_got(sleeper, n_before + 30);
    ck_assert_int_gt(world_request(&g_world, sleeper)->draft_blocks, 0);
    world_run(&g_world, 10000);
    world_stop(&g_world);
}
END_TEST

static void require_rate(const struct co_request *r, double length, int32_t k) {
    ck_assert_int_eq(r->k, k);
    ck_assert(r->synthetic_rates[0] == (float)co_sampling_synthetic_rate(length, k));
}

/* The mean that it asked for is of rounds as long as they are now. */
START_TEST(acceptance_length_of_a_request_outlives_another_k) {
    begin(&(struct sim_opts){.args = {"--num_speculative_tokens=4", "--allow_lossy=true",
                                      "--synthetic_acceptance_length=2"}});
    struct sim_client *c[3];
    for (uint32_t i = 0; i < 3; i++) {
        c[i] = world_add(&g_world, 0, i, 20, 200);
        c[i]->params.temperature = 20.0f;
        c[i]->rule = "synthetic";
    }
    c[0]->acceptance_length = 3;
    c[2]->has_k = true; /* and keeps its own */
    c[2]->k = 4;
    for (int i = 0; i < 3; i++)
        until_got(c[i], 5);
    world_set(&g_world, "num_speculative_tokens", "8");
    for (int i = 0; i < 3; i++)
        until_got(c[i], 30);
    require_rate(world_request(&g_world, c[0]), 3, 8);
    require_rate(world_request(&g_world, c[1]), 2, 8);
    require_rate(world_request(&g_world, c[2]), 2, 4);
    world_run(&g_world, 10000);
    world_stop(&g_world);
}
END_TEST

static struct sim_client *add_by(const char *rule, uint32_t family) {
    struct sim_client *c = world_add(&g_world, 0, family, 20, 200);
    c->params.temperature = 20.0f;
    c->rule = rule;
    return c;
}

/* Who names a rule names no parameter of it. */
START_TEST(parameters_of_a_named_rule_follow_the_service) {
    begin(&(struct sim_opts){.args = {"--num_speculative_tokens=4", "--allow_lossy=true",
                                      "--lenience=0.5", "--synthetic_acceptance_length=2"}});
    struct sim_client *lenient = add_by("lenient", 1), *synthetic = add_by("synthetic", 2);
    struct sim_client *own = add_by("synthetic", 3);
    own->acceptance_length = 2;
    until_got(lenient, 5);
    until_got(synthetic, 5);
    until_got(own, 5);
    world_set(&g_world, "lenience", "0.75");
    world_set(&g_world, "synthetic_acceptance_length", "3");
    until_got(lenient, 30);
    until_got(synthetic, 30);
    until_got(own, 30);
    ck_assert_str_eq(world_request(&g_world, lenient)->rule->name, "lenient");
    ck_assert(world_request(&g_world, lenient)->lenience == 0.75f);
    require_rate(world_request(&g_world, synthetic), 3, 4);
    require_rate(world_request(&g_world, own), 2, 4);
    world_run(&g_world, 10000);
    world_stop(&g_world);
}
END_TEST

/* ---- the target ------------------------------------------------------------------------------ */

/* Of a prompt whose text the prefix cache has but for its end. The target hangs, if at all, when
 * some of it was found already; it finds it again then. */
static uint32_t cached_tokens(bool hangs) {
    begin(&(struct sim_opts){.step_tokens = 64, .args = {"--target_step_timeout_ms=100"}});
    world_add(&g_world, 0, 1, 200, 5);
    world_run(&g_world, 10000);
    struct sim_client *c = world_add(&g_world, 0, 1, 300, 5);
    while (world_request(&g_world, c) == NULL || world_request(&g_world, c)->cached_tokens == 0)
        step();
    ck_assert_int_eq(world_request(&g_world, c)->n, 300);
    if (hangs)
        net_stall(g_world.workers[SIM_TARGET].loop, net_now_ns() + 200 * MS);
    world_run(&g_world, 10000);
    world_stop(&g_world);
    return c->usage.cached_tokens;
}

START_TEST(prompt_that_is_computed_again_counts_its_cached_tokens_once) {
    uint32_t undisturbed = cached_tokens(false);
    ck_assert_uint_gt(undisturbed, 100);
    ck_assert_uint_eq(cached_tokens(true), undisturbed);
}
END_TEST

/* Blocks that the coordinator counts on are not there for so long that the request is given up. */
START_TEST(request_without_blocks_in_the_worker_is_told_so) {
    begin(&(struct sim_opts){.target_blocks = 20, .no_draft = true});
    world_fault(&g_world, SIM_STEAL, SIM_TARGET, 0, (int64_t)20000 * MS);
    struct sim_client *c = world_add(&g_world, 1, 1, 20, 5);
    c->expected_status = 8;
    world_run(&g_world, 10000);
    ck_assert_str_eq(c->status.text, "the target worker had no KV blocks for it again and again");
    world_stop(&g_world);
}
END_TEST

START_TEST(non_finite_row_of_a_prompt_is_counted) {
    begin(&(struct sim_opts){.no_draft = true});
    struct sim_client *c = world_add(&g_world, 0, 1, 20, 5);
    c->prompt[5] = SIM_POISON;
    c->params.has_prompt_logprobs = true;
    world_run(&g_world, 10000);
    ck_assert_int_eq(c->status.code, 13);
    ck_assert_uint_eq(g_world.app->stats.nan_rows, 1);
    c = world_add(&g_world, 0, 1, 20, 5);
    c->prompt[19] = SIM_POISON;
    world_run(&g_world, 10000);
    ck_assert_uint_eq(g_world.app->stats.nan_rows, 2);
    world_stop(&g_world);
}
END_TEST

/* ---- several continuations ------------------------------------------------------------------- */

static void on_part(void *user, struct ft_str message) {
    (void)user;
    (void)message;
}

static void on_end(void *user, const struct ft_rpc_status *status) {
    *(int *)user = status->code;
}

/* Three of a prompt of three tokens; status is below 0 until their call has ended. */
static void ask_for_three(const int32_t *prompt, int *status) {
    static const struct ft_rpc_stream_handlers handlers = {on_part, NULL, on_end};
    struct ft_wire_generate request = {
        .input = {.kind = FT_WIRE_INPUT_IDS, .ids = prompt, .n_ids = 3},
        .params = {.has_n = true, .n = 3, .has_max_tokens = true, .max_tokens = 50},
    };
    struct ft_rpc_call_opts opts = {.deadline_ns = 0};
    struct ft_rpc_stream *call;
    struct ft_buf out;
    *status = -1;
    ft_buf_init(&out, 0);
    ft_wire_encode_generate(&request, &out);
    ft_rpc_stream_open(&call, g_world.client, FT_WIRE_INFERENCE_SERVICE "Generate", &opts,
                       &handlers, status, NULL);
    ft_rpc_stream_send(call, ft_buf_str(&out));
    ft_buf_fini(&out);
}

/* A call is one request to who cancels it, whether the client named it or not. */
START_TEST(continuations_share_the_id_that_was_made_for_their_call) {
    static const int32_t prompt[] = {1, 2, 3};
    int status;
    begin(&(struct sim_opts){.max_seqs = 4});
    ask_for_three(prompt, &status);
    while (g_world.app->first == NULL)
        step();
    const struct co_request *first = g_world.app->first, *r = first;
    ck_assert_int_eq(strncmp(first->id, "req-", 4), 0);
    for (int i = 0; i < 3; i++, r = r->next)
        ck_assert_str_eq(r->id, first->id);
    while (status < 0)
        step();
    ck_assert_int_eq(status, 0);
    world_stop(&g_world);
}
END_TEST

/* One continuation fails and the call with it; that is not a client that went away. */
START_TEST(continuations_of_a_call_that_failed_count_as_failed) {
    static const int32_t prompt[] = {1, 2, SIM_POISON};
    int status;
    begin(&(struct sim_opts){.max_seqs = 4, .no_draft = true});
    ask_for_three(prompt, &status);
    while (status < 0 || g_world.app->first != NULL)
        step();
    ck_assert_int_eq(status, 13);
    ck_assert_uint_eq(g_world.app->stats.failed, 3);
    ck_assert_uint_eq(g_world.app->stats.cancelled, 0);
    world_stop(&g_world);
}
END_TEST

int main(void) {
    ft_log_init("sim", FT_LOG_ERROR);
    Suite *suite = suite_create("accounts");
    TCase *tc = tcase_create("accounts");
    tcase_add_test(tc, lost_draft_of_a_cancelled_request_is_no_fault_of_the_worker);
    tcase_add_test(tc, drafter_that_is_set_says_why_it_does_not_draft);
    tcase_add_test(tc, drafter_that_asks_no_model_has_no_trouble_with_its_vocabulary);
    tcase_add_test(tc, blocks_of_the_draft_go_with_what_needed_them);
    tcase_add_test(tc, reader_that_stops_keeps_nobody_from_drafting);
    tcase_add_test(tc, acceptance_length_of_a_request_outlives_another_k);
    tcase_add_test(tc, parameters_of_a_named_rule_follow_the_service);
    tcase_add_test(tc, prompt_that_is_computed_again_counts_its_cached_tokens_once);
    tcase_add_test(tc, request_without_blocks_in_the_worker_is_told_so);
    tcase_add_test(tc, non_finite_row_of_a_prompt_is_counted);
    tcase_add_test(tc, continuations_share_the_id_that_was_made_for_their_call);
    tcase_add_test(tc, continuations_of_a_call_that_failed_count_as_failed);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
