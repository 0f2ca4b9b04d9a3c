/* Scheduling, one property at a time, over the simulated pair: who waits for whom, and who gives up
 * KV to whom. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/request.h"
#include "sim/model.h"
#include "sim/net.h"
#include "sim/world.h"

#define MS 1000000

static struct world g_world;

static struct sim_client *add(int64_t in_ms, uint32_t family, int32_t n_prompt,
                              uint32_t max_tokens) {
    struct sim_client *c = world_client(&g_world, in_ms * MS);
    sim_client_prompt(c, family, n_prompt);
    c->params.max_tokens = max_tokens;
    c->params.ignore_eos = true;
    return c;
}

static void begin(uint64_t seed, const struct sim_opts *opts) {
    net_reset(seed);
    world_start(&g_world, seed, opts);
}

/* Six requests of up to 13 blocks in a pool of 20, greedy and sampled. */
START_TEST(dev09_dev70_pool_of_one_and_a_half_requests_completes_everything) {
    for (uint64_t seed = 1; seed <= 20; seed++) {
        begin(seed, &(struct sim_opts){.target_blocks = 20, .draft_blocks = 20});
        for (uint32_t i = 0; i < 6; i++) {
            struct sim_client *c = add(i, i, 100, 100);
            if (i % 2 == 1) { /* its text is known without drafts */
                c->params.temperature = 20.0f;
                c->params.seed = seed * 100 + i;
                c->has_k = true;
            }
        }
        world_run(&g_world, 10000);
        ck_assert_uint_gt(g_world.app->stats.preemptions, 0);
        /* What was computed again is neither a new prompt nor a hit of the prefix cache. */
        ck_assert_uint_eq(g_world.app->stats.prompt_tokens, 600);
        for (int i = 0; i < 6; i++)
            ck_assert_uint_eq(g_world.clients[i].usage.cached_tokens, 0);
        world_stop(&g_world);
    }
}
END_TEST

/* Share of the prompts of eight conversations of five turns that the prefix cache had, in percent;
 * at the end they fill the pool to four fifths. */
static double hit_rate(uint32_t k) {
    enum { CONVERSATIONS = 8, TURNS = 5 };
    struct sim_client *last[CONVERSATIONS] = {NULL};
    uint64_t n_prompt = 0, n_cached = 0;
    begin(1, &(struct sim_opts){.target_blocks = 160, .draft_blocks = 160});
    for (uint32_t turn = 0; turn < TURNS; turn++)
        for (uint32_t i = 0; i < CONVERSATIONS; i++) {
            struct sim_client *c = add(0, i, 64, 20);
            if (last[i] != NULL) {
                memcpy(c->prompt, last[i]->prompt, (size_t)last[i]->n_prompt * sizeof(int32_t));
                c->n_prompt = last[i]->n_prompt;
                for (int32_t j = 0; j < last[i]->n_got; j++)
                    c->prompt[c->n_prompt++] = last[i]->got[j];
                for (int32_t j = 0; j < 20; j++)
                    c->prompt[c->n_prompt++] = (int32_t)(turn + i);
            }
            c->has_k = true;
            c->k = k;
            last[i] = c;
            world_run(&g_world, 10000);
            n_prompt += c->usage.prompt_tokens;
            n_cached += c->usage.cached_tokens;
        }
    world_stop(&g_world);
    return 100.0 * (double)n_cached / (double)n_prompt;
}

START_TEST(dev67_speculation_does_not_evict_the_prefix_cache) {
    double plain = hit_rate(0), drafting = hit_rate(8);
    ck_assert_msg(plain > 40.0, "%g %% without speculation", plain);
    ck_assert_msg(drafting > plain - 5.0, "%g %%, without speculation %g %%", drafting, plain);
}
END_TEST

START_TEST(full_target_pool_shrinks_k_before_anyone_is_preempted) {
    /* Two requests of 64 + 17 positions less one that is never fed: 5 blocks each, exactly. */
    begin(1, &(struct sim_opts){.target_blocks = 10, .args = {"--num_speculative_tokens=16"}});
    for (uint32_t i = 0; i < 2; i++)
        add(0, i, 60, 21);
    world_run(&g_world, 10000);
    ck_assert_uint_eq(g_world.app->stats.preemptions, 0);
    world_stop(&g_world);
}
END_TEST

START_TEST(dev40_request_that_fits_exactly_is_served_and_one_token_more_is_refused) {
    begin(1, &(struct sim_opts){.target_blocks = 10});
    struct sim_client *fits = add(0, 1, 100, 61); /* 160 positions are fed */
    struct sim_client *too_long = add(0, 1, 100, 62);
    struct sim_client *open_end = add(0, 2, 100, 61);
    open_end->params.has_max_tokens = false; /* until the pool is full */
    too_long->may_be_refused = true;
    world_run(&g_world, 10000);
    ck_assert_int_eq(fits->status.code, 0);
    ck_assert_int_eq(too_long->status.code, 8);
    ck_assert_str_eq(too_long->retry_after, ""); /* trying again does not help */
    ck_assert_int_eq(open_end->n_got, 61);
    world_stop(&g_world);
}
END_TEST

START_TEST(full_draft_pool_is_plain_steps_and_drafts_come_back) {
    begin(1, &(struct sim_opts){.draft_blocks = 12});
    struct sim_client *first = add(0, 1, 100, 60);
    struct sim_client *second = add(1, 2, 100, 300);
    world_run(&g_world, 20000);
    ck_assert_uint_eq(g_world.app->stats.preemptions, 0);
    ck_assert_uint_gt(first->spec.num_accepted_tokens, 0);
    ck_assert_uint_gt(second->spec.num_plain_steps, 10); /* while the first drafted */
    ck_assert_uint_gt(second->spec.num_accepted_tokens, 10);
    world_stop(&g_world);
}
END_TEST

/* Target steps from the start of a request of 20 tokens to its first token, beside a prompt of
 * 900 that began `after_us` before, or alone (after_us < 0). */
static int64_t steps_to_first_token(int32_t step_tokens, int64_t after_us) {
    char batched[48];
    snprintf(batched, sizeof batched, "--max_num_batched_tokens=%d", step_tokens);
    begin(1, &(struct sim_opts){.step_tokens = step_tokens, .args = {batched, "--max_num_seqs=8"}});
    if (after_us >= 0)
        add(0, 1, 900, 5);
    struct sim_client *c = add(0, 2, 20, 5);
    ft_rpc_timer_set(g_world.outside, &c->start_timer,
                     net_now_ns() + (after_us < 0 ? 0 : after_us * 1000), sim_client_start, c);
    world_run(&g_world, 10000);
    int64_t steps = (int64_t)(c->first_token_step - c->started_step);
    world_stop(&g_world);
    return steps;
}

START_TEST(short_request_beside_a_long_prefill_waits_at_most_two_steps) {
    static const int32_t budgets[] = {48, 64, 128, 512};
    for (size_t b = 0; b < sizeof budgets / sizeof budgets[0]; b++) {
        int64_t alone = steps_to_first_token(budgets[b], -1);
        for (int64_t after_us = 0; after_us < 4000; after_us += 130) {
            int64_t beside = steps_to_first_token(budgets[b], after_us);
            ck_assert_msg(beside <= alone + 2, "%d tokens a step, after %lld us: %lld, alone %lld",
                          budgets[b], (long long)after_us, (long long)beside, (long long)alone);
        }
    }
}
END_TEST

static bool holds(int role, uint64_t seq_id) {
    return ft_kvseq_find(g_world.workers[role].worker->seqs, seq_id) != NULL;
}

START_TEST(dev23_dev41_cancelled_request_is_freed_in_both_workers_within_a_round) {
    begin(1, &(struct sim_opts){.max_seqs = 4});
    add(0, 1, 30, 400);
    struct sim_client *c = add(0, 2, 30, 400);
    c->cancel_after = 40;
    while (c->n_got < 39)
        world_step(&g_world);
    uint64_t seq_id = 0;
    for (struct co_request *r = g_world.app->first; r != NULL; r = r->next)
        if (strcmp(r->id, c->id) == 0)
            seq_id = r->seq_id;
    ck_assert(holds(SIM_TARGET, seq_id) && holds(SIM_DRAFT, seq_id));
    while (g_world.app->n_running == 2)
        world_step(&g_world);
    uint64_t rounds = g_world.app->stats.rounds;
    while (holds(SIM_TARGET, seq_id) || holds(SIM_DRAFT, seq_id))
        world_step(&g_world);
    ck_assert_uint_le(g_world.app->stats.rounds, rounds + 1);
    world_run(&g_world, 10000);
    world_stop(&g_world);
}
END_TEST

START_TEST(reader_that_stops_keeps_nobody_waiting) {
    begin(1, &(struct sim_opts){
                 .target_blocks = 12,
                 .args = {"--max_num_seqs=1", "--stream_buffer_tokens=8"},
             });
    struct sim_client *sleeper = add(0, 1, 100, 80);
    while (sleeper->n_got < 10)
        world_step(&g_world);
    net_stream_read(sleeper->stream_call, false);
    struct sim_client *others[3];
    for (uint32_t i = 0; i < 3; i++)
        others[i] = add(20, 2 + i, 100, 80);
    for (int i = 0; i < 3; i++)
        while (!others[i]->done)
            ck_assert(world_step(&g_world));
    ck_assert(!sleeper->done);
    net_stream_read(sleeper->stream_call, true);
    world_run(&g_world, 10000);
    ck_assert_int_eq(sleeper->n_got, 80);
    world_stop(&g_world);
}
END_TEST

/* More tokens may come at once than the buffer holds, to a client that reads all the time. */
START_TEST(reader_at_the_brink_of_its_buffer_goes_on) {
    begin(1, &(struct sim_opts){.args = {"--stream_buffer_tokens=1"}});
    add(0, 1, 5, 100);
    world_run(&g_world, 10000);
    world_stop(&g_world);
}
END_TEST

START_TEST(lower_priority_value_goes_first_and_keeps_its_kv) {
    begin(1, &(struct sim_opts){.args = {"--max_num_seqs=1"}});
    struct sim_client *c[4];
    for (uint32_t i = 0; i < 4; i++)
        c[i] = add(i, i, 20, 60);
    c[1]->priority = 5;
    c[3]->priority = -5;
    world_run(&g_world, 10000);
    ck_assert(c[3]->done_ns < c[2]->done_ns && c[2]->done_ns < c[1]->done_ns);
    world_stop(&g_world);

    begin(1, &(struct sim_opts){.target_blocks = 20});
    for (uint32_t i = 0; i < 2; i++)
        c[i] = add(i, i, 100, 150);
    c[1]->priority = -1;
    world_run(&g_world, 10000);
    ck_assert_uint_gt(g_world.app->stats.preemptions, 0);
    ck_assert(c[1]->done_ns < c[0]->done_ns);
    world_stop(&g_world);
}
END_TEST

START_TEST(client_past_its_share_is_told_when_to_come_again) {
    begin(1, &(struct sim_opts){
                 .args = {"--max_requests_per_client=2", "--client_metadata_key=x-client"},
             });
    struct sim_client *c[6];
    for (uint32_t i = 0; i < 6; i++) {
        c[i] = add(0, i, 20, 60);
        c[i]->metadata_key = i < 5 ? "x-client" : NULL; /* the last is known by its address */
        c[i]->metadata_value = i < 4 ? "greedy" : "modest";
        c[i]->may_be_refused = true;
    }
    world_run(&g_world, 10000);
    int refused = 0;
    for (int i = 0; i < 4; i++) {
        refused += c[i]->status.code == 8;
        ck_assert(c[i]->status.code == 0 || atoi(c[i]->retry_after) > 0);
    }
    ck_assert_int_eq(refused, 2);
    ck_assert_int_eq(c[4]->status.code, 0);
    ck_assert_int_eq(c[5]->status.code, 0);
    struct sim_client *later = add(0, 9, 20, 5);
    later->metadata_key = "x-client";
    later->metadata_value = "greedy";
    world_run(&g_world, 10000);
    ck_assert_int_eq(later->status.code, 0);
    world_stop(&g_world);
}
END_TEST

START_TEST(full_queue_is_told_when_to_come_again) {
    begin(1, &(struct sim_opts){.args = {"--max_num_seqs=1", "--max_queue=2"}});
    int refused = 0;
    struct sim_client *c[8];
    for (uint32_t i = 0; i < 8; i++) {
        c[i] = add(0, i, 20, 60);
        c[i]->may_be_refused = true;
    }
    world_run(&g_world, 10000);
    for (int i = 0; i < 8; i++) {
        refused += c[i]->status.code == 8;
        ck_assert(c[i]->status.code == 0 || atoi(c[i]->retry_after) > 0);
    }
    ck_assert_int_eq(refused, 5);
    world_stop(&g_world);
}
END_TEST

int main(void) {
    ft_log_init("sim", FT_LOG_ERROR);
    Suite *suite = suite_create("scheduler");
    TCase *tc = tcase_create("scheduler");
    tcase_add_test(tc, dev09_dev70_pool_of_one_and_a_half_requests_completes_everything);
    tcase_add_test(tc, dev67_speculation_does_not_evict_the_prefix_cache);
    tcase_add_test(tc, full_target_pool_shrinks_k_before_anyone_is_preempted);
    tcase_add_test(tc, dev40_request_that_fits_exactly_is_served_and_one_token_more_is_refused);
    tcase_add_test(tc, full_draft_pool_is_plain_steps_and_drafts_come_back);
    tcase_add_test(tc, short_request_beside_a_long_prefill_waits_at_most_two_steps);
    tcase_add_test(tc, dev23_dev41_cancelled_request_is_freed_in_both_workers_within_a_round);
    tcase_add_test(tc, reader_that_stops_keeps_nobody_waiting);
    tcase_add_test(tc, reader_at_the_brink_of_its_buffer_goes_on);
    tcase_add_test(tc, lower_priority_value_goes_first_and_keeps_its_kv);
    tcase_add_test(tc, client_past_its_share_is_told_when_to_come_again);
    tcase_add_test(tc, full_queue_is_told_when_to_come_again);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
