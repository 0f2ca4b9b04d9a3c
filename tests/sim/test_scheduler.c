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
#include "support/suite.h"

#define MS 1000000

static struct world g_world;

static void begin(uint64_t seed, const struct sim_opts *opts) {
    net_reset(seed);
    world_start(&g_world, seed, opts);
}

/* Six requests of up to 13 blocks in a pool of 20, greedy and sampled. */
START_TEST(dev09_dev70_pool_of_one_and_a_half_requests_completes_everything) {
    for (uint64_t seed = 1; seed <= 20; seed++) {
        begin(seed, &(struct sim_opts){.target_blocks = 20, .draft_blocks = 20});
        for (uint32_t i = 0; i < 6; i++) {
            struct sim_client *c = world_add(&g_world, i, i, 100, 100);
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

/* One slot and a half: one request after the other, and no preemption, for a slot holds all of it.
 */
START_TEST(dev09_slots_for_one_and_a_half_requests_complete_everything) {
    begin(1, &(struct sim_opts){.target_blocks = 96, .draft_blocks = 64, .slotted = true});
    ck_assert_int_eq(g_world.app->pair.target_blocks, 1);
    for (uint32_t i = 0; i < 6; i++)
        world_add(&g_world, i, i, 100, 100);
    world_run(&g_world, 10000);
    ck_assert_uint_eq(g_world.app->stats.preemptions, 0);
    for (int i = 1; i < 6; i++)
        ck_assert(g_world.clients[i - 1].done_ns <= g_world.clients[i].done_ns);
    world_stop(&g_world);
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
            struct sim_client *c = world_add(&g_world, 0, i, 64, 20);
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
        world_add(&g_world, 0, i, 60, 21);
    world_run(&g_world, 10000);
    ck_assert_uint_eq(g_world.app->stats.preemptions, 0);
    world_stop(&g_world);
}
END_TEST

START_TEST(dev40_request_that_fits_exactly_is_served_and_one_token_more_is_refused) {
    begin(1, &(struct sim_opts){.target_blocks = 10});
    struct sim_client *fits = world_add(&g_world, 0, 1, 100, 61); /* 160 positions are fed */
    struct sim_client *too_long = world_add(&g_world, 0, 1, 100, 62);
    struct sim_client *open_end = world_add(&g_world, 0, 2, 100, 61);
    open_end->params.has_max_tokens = false; /* until the pool is full */
    too_long->expected_status = 3;
    world_run(&g_world, 10000);
    ck_assert_int_eq(fits->status.code, 0);
    ck_assert_int_eq(too_long->status.code, 3);
    ck_assert_str_eq(
        too_long->status.text,
        "max_tokens is 62: behind 100 prompt tokens at most 61 fit the target's KV pool "
        "(10 blocks of 16 positions)");
    ck_assert_str_eq(too_long->retry_after, ""); /* trying again does not help */
    ck_assert_int_eq(open_end->n_got, 61);
    world_stop(&g_world);
}
END_TEST

START_TEST(full_draft_pool_is_plain_steps_and_drafts_come_back) {
    begin(1, &(struct sim_opts){.draft_blocks = 12});
    struct sim_client *first = world_add(&g_world, 0, 1, 100, 60);
    struct sim_client *second = world_add(&g_world, 1, 2, 100, 300);
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
        world_add(&g_world, 0, 1, 900, 5);
    struct sim_client *c = world_add(&g_world, 0, 2, 20, 5);
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

/* One stream drafts as much as a whole step takes. The prompt of 40 has a quarter of each step, and
 * the stream goes on. */
START_TEST(prompt_beside_streams_that_draft_whole_steps_moves) {
    static const char *const drafters[] = {"--drafter=model", "--drafter=random"};
    for (size_t d = 0; d < 2; d++) {
        begin(1, &(struct sim_opts){.step_tokens = 17,
                                    .args = {"--max_num_batched_tokens=17", "--max_num_seqs=2",
                                             "--num_speculative_tokens=16", drafters[d]}});
        struct sim_client *stream = world_add(&g_world, 0, 1, 8, 400);
        while (stream->n_got < 20)
            ck_assert(world_step(&g_world));
        struct sim_client *c = world_add(&g_world, 0, 2, 40, 4);
        while (c->n_got == 0)
            ck_assert(world_step(&g_world));
        ck_assert(!stream->done);
        ck_assert_uint_le(c->first_token_step, c->started_step + 14);
        world_run(&g_world, 10000);
        world_stop(&g_world);
    }
}
END_TEST

static bool holds(int role, uint64_t seq_id) {
    return ft_kvseq_find(g_world.workers[role].worker->seqs, seq_id) != NULL;
}

START_TEST(dev23_dev41_cancelled_request_is_freed_in_both_workers_within_a_round) {
    begin(1, &(struct sim_opts){.max_seqs = 4});
    world_add(&g_world, 0, 1, 30, 400);
    struct sim_client *c = world_add(&g_world, 0, 2, 30, 400);
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
    struct sim_client *sleeper = world_add(&g_world, 0, 1, 100, 80);
    while (sleeper->n_got < 10)
        world_step(&g_world);
    net_stream_read(sleeper->stream_call, false);
    struct sim_client *others[3];
    for (uint32_t i = 0; i < 3; i++)
        others[i] = world_add(&g_world, 20, 2 + i, 100, 80);
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
    world_add(&g_world, 0, 1, 5, 100);
    world_run(&g_world, 10000);
    world_stop(&g_world);
}
END_TEST

START_TEST(lower_priority_value_goes_first_and_keeps_its_kv) {
    begin(1, &(struct sim_opts){.args = {"--max_num_seqs=1"}});
    struct sim_client *c[4];
    for (uint32_t i = 0; i < 4; i++)
        c[i] = world_add(&g_world, i, i, 20, 60);
    c[1]->priority = 5;
    c[3]->priority = -5;
    world_run(&g_world, 10000);
    ck_assert(c[3]->done_ns < c[2]->done_ns && c[2]->done_ns < c[1]->done_ns);
    world_stop(&g_world);

    begin(1, &(struct sim_opts){.target_blocks = 20});
    for (uint32_t i = 0; i < 2; i++)
        c[i] = world_add(&g_world, i, i, 100, 150);
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
        c[i] = world_add(&g_world, 0, i, 20, 60);
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
    struct sim_client *later = world_add(&g_world, 0, 9, 20, 5);
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
        c[i] = world_add(&g_world, 0, i, 20, 60);
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

/* ---- who waits for whom ---------------------------------------------------------------------- */

/* c had a place at before_ns. */
static bool had_place(const struct sim_client *c, int64_t before_ns) {
    const struct co_request *r = world_request(&g_world, c);
    return r == NULL ? c->done : r->started_ns != 0 && r->started_ns < before_ns;
}

/* A pool of 20 blocks: `first` holds 12 of them and more, `wide` needs 9, and the narrow ones need
 * 2 at most. Returns how many of the narrow ones had a place before `wide` had. */
static int narrow_before_wide(const char *overtakes, int32_t wide_priority,
                              int32_t narrow_priority) {
    enum { NARROW = 12 };
    struct sim_client *narrow[NARROW];
    begin(1, &(struct sim_opts){.target_blocks = 20, .args = {overtakes, "--max_num_seqs=4"}});
    struct sim_client *first = world_add(&g_world, 0, 1, 180, 60);
    first->has_k = true; /* one token a round */
    struct sim_client *wide = world_add(&g_world, 1, 2, 140, 4);
    wide->priority = wide_priority;
    for (uint32_t i = 0; i < NARROW; i++) {
        narrow[i] = world_add(&g_world, 2, 10 + i, 8, 10);
        narrow[i]->priority = narrow_priority;
    }
    const struct co_request *r = NULL;
    while (r == NULL || r->started_ns == 0) {
        ck_assert(world_step(&g_world));
        r = world_request(&g_world, wide);
    }
    const struct co_request *r_first = world_request(&g_world, first);
    ck_assert(r_first == NULL || r_first->state == CO_REQUEST_ENDED);
    int n = 0;
    for (int i = 0; i < NARROW; i++)
        n += had_place(narrow[i], r->started_ns);
    world_run(&g_world, 10000);
    world_stop(&g_world);
    return n;
}

START_TEST(request_without_room_is_passed_so_often_and_no_more) {
    ck_assert_int_eq(narrow_before_wide("--max_overtakes=0", 0, 0), 0);
    ck_assert_int_eq(narrow_before_wide("--max_overtakes=1", 0, 0), 1);
    ck_assert_int_eq(narrow_before_wide("--max_overtakes=5", 0, 0), 5);
    ck_assert_int_gt(narrow_before_wide("--max_overtakes=1000", 0, 0), 5);
}
END_TEST

START_TEST(request_without_room_is_not_passed_by_a_lower_priority) {
    ck_assert_int_eq(narrow_before_wide("--max_overtakes=1000", 0, 1), 0);
    /* A higher one stands before it: it passes nobody. */
    ck_assert_int_gt(narrow_before_wide("--max_overtakes=0", 0, -1), 0);
}
END_TEST

/* ---- when to come again --------------------------------------------------------------------- */

/* Milliseconds that a client is told when the queue is full of requests of max_tokens each. */
static int retry_hint(uint32_t max_tokens) {
    begin(1, &(struct sim_opts){.args = {"--max_num_seqs=1", "--max_queue=1"}});
    for (uint32_t i = 0; i < 4; i++) { /* something to measure */
        world_add(&g_world, 0, i, 20, max_tokens);
        world_run(&g_world, 100000);
    }
    struct sim_client *late = NULL;
    for (uint32_t i = 0; i < 3; i++) {
        late = world_add(&g_world, 1 + i, 8 + i, 20, max_tokens);
        late->may_be_refused = i == 2;
    }
    world_run(&g_world, 100000);
    ck_assert_int_eq(late->status.code, 8);
    int ms = atoi(late->retry_after);
    world_stop(&g_world);
    return ms;
}

START_TEST(retry_hint_follows_what_requests_take) {
    int brief = retry_hint(100), lengthy = retry_hint(400);
    ck_assert_int_ge(brief, CO_RETRY_MS_MIN);
    ck_assert_msg(lengthy > 2 * brief, "%d ms, four times as long: %d ms", brief, lengthy);
    ck_assert_int_le(lengthy, CO_RETRY_MS_MAX);
}
END_TEST

/* ---- long prompts --------------------------------------------------------------------------- */

START_TEST(long_text_is_tokenized_beside_running_streams_and_keeps_its_place) {
    begin(1, &(struct sim_opts){.args = {"--max_num_seqs=1", "--tokenizer_threads=1"}});
    struct sim_client *running = world_add(&g_world, 0, 1, 20, 150);
    struct sim_client *text = world_add(&g_world, 1, 2, 20, 5),
                      *later = world_add(&g_world, 2, 3, 20, 5);
    text->long_text = true;
    while (g_world.app->encoding.first == NULL)
        ck_assert(world_step(&g_world));
    int32_t n_before = running->n_got;
    ck_assert_int_eq(g_world.app->encoding.n_requests, 1);
    while (g_world.app->encoding.first != NULL)
        ck_assert(world_step(&g_world));
    ck_assert_int_gt(running->n_got, n_before);
    world_run(&g_world, 10000);
    ck_assert(text->done_ns < later->done_ns); /* first come, though later ready */
    world_stop(&g_world);
}
END_TEST

START_TEST(call_that_ends_while_its_text_is_tokenized_leaves_nothing) {
    for (uint64_t seed = 1; seed <= 50; seed++) {
        begin(seed, &(struct sim_opts){.args = {"--max_queue=4", "--tokenizer_threads=1"}});
        for (uint32_t i = 0; i < 6; i++) {
            struct sim_client *c = world_add(&g_world, 0, i, 20, 5);
            c->long_text = true;
            c->may_be_refused = true; /* those in the threads count to the queue */
            if (i % 3 == 0)
                c->cancel_at_ns = 1 + (int64_t)net_below(4000) * 1000;
            else if (i % 3 == 1)
                c->deadline_in_ns = 1 + (int64_t)net_below(4000) * 1000;
        }
        world_run(&g_world, 10000);
        world_stop(&g_world);
    }
}
END_TEST

START_TEST(service_that_ends_while_texts_are_tokenized_answers_them) {
    begin(1, &(struct sim_opts){.args = {"--tokenizer_threads=1"}});
    for (uint32_t i = 0; i < 3; i++) {
        struct sim_client *c = world_add(&g_world, 0, i, 20, 5);
        c->long_text = true;
        c->expected_status = 14;
    }
    while (g_world.app->encoding.n_requests < 3)
        ck_assert(world_step(&g_world));
    co_app_close(g_world.app);
    for (int i = 0; i < 3; i++)
        while (!g_world.clients[i].done)
            ck_assert(net_step());
    ck_assert_int_eq(g_world.app->encoding.n_requests, 0);
    world_abandon(&g_world);
}
END_TEST

int main(void) {
    ft_log_init("sim", FT_LOG_ERROR);
    Suite *suite = suite_create("scheduler");
    TCase *tc = tcase_create("scheduler");
    tcase_add_test(tc, dev09_dev70_pool_of_one_and_a_half_requests_completes_everything);
    tcase_add_test(tc, dev09_slots_for_one_and_a_half_requests_complete_everything);
    tcase_add_test(tc, dev67_speculation_does_not_evict_the_prefix_cache);
    tcase_add_test(tc, full_target_pool_shrinks_k_before_anyone_is_preempted);
    tcase_add_test(tc, dev40_request_that_fits_exactly_is_served_and_one_token_more_is_refused);
    tcase_add_test(tc, full_draft_pool_is_plain_steps_and_drafts_come_back);
    tcase_add_test(tc, short_request_beside_a_long_prefill_waits_at_most_two_steps);
    tcase_add_test(tc, prompt_beside_streams_that_draft_whole_steps_moves);
    tcase_add_test(tc, dev23_dev41_cancelled_request_is_freed_in_both_workers_within_a_round);
    tcase_add_test(tc, reader_that_stops_keeps_nobody_waiting);
    tcase_add_test(tc, reader_at_the_brink_of_its_buffer_goes_on);
    tcase_add_test(tc, lower_priority_value_goes_first_and_keeps_its_kv);
    tcase_add_test(tc, client_past_its_share_is_told_when_to_come_again);
    tcase_add_test(tc, full_queue_is_told_when_to_come_again);
    tcase_add_test(tc, request_without_room_is_passed_so_often_and_no_more);
    tcase_add_test(tc, request_without_room_is_not_passed_by_a_lower_priority);
    tcase_add_test(tc, retry_hint_follows_what_requests_take);
    tcase_add_test(tc, long_text_is_tokenized_beside_running_streams_and_keeps_its_place);
    tcase_add_test(tc, call_that_ends_while_its_text_is_tokenized_leaves_nothing);
    tcase_add_test(tc, service_that_ends_while_texts_are_tokenized_answers_them);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
