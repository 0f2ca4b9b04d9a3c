/* The real coordinator and the real worker services, under whatever a seed brings: loads, small
 * pools, workers that die, hang, forget and answer twice, clients that leave or do not read.
 * FORETOKEN_SIM_SEED=N runs one seed, with the coordinator's log. */
#include <check.h>
#include <stdio.h>

#include "sim/net.h"
#include "sim/world.h"
#include "support/suite.h"

#define MS 1000000

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 120 };
#else
enum { SEEDS = 2000 };
#endif

static struct world g_world;

static struct sim_client *random_client(struct world *world) {
    struct sim_client *c = world_client(world, (int64_t)net_below(40000) * 1000);
    int32_t lengths[] = {1 + (int32_t)net_below(10), 1 + (int32_t)net_below(60),
                         100 + (int32_t)net_below(250)};
    sim_client_prompt(c, net_below(6), lengths[net_below(10) < 8 ? net_below(2) : 2]);
    c->long_text = net_chance(8);
    if (!c->long_text && net_chance(3))
        c->prompt[net_below((uint32_t)c->n_prompt)] = 263; /* the model's poison */
    c->params.max_tokens = 1 + net_below(net_chance(20) ? 150 : 40);
    static const float temperatures[] = {0.0f, 0.0f, 0.7f, 1.0f, 20.0f};
    c->params.temperature = temperatures[net_below(5)];
    c->params.seed = net_below(1000000);
    c->params.ignore_eos = net_chance(30);
    c->params.has_repetition_penalty = net_chance(10);
    c->params.repetition_penalty = 1.0f;
    if (net_chance(20))
        c->stop_id = (int32_t)net_below(256);
    c->has_k = c->params.temperature > 5.0f || net_chance(50);
    c->k = net_below(c->params.temperature > 5.0f ? 2 : 17);
    c->stream = net_chance(85);
    c->slow = c->stream && net_chance(15);
    c->priority = net_chance(20) ? (int32_t)net_below(5) - 2 : 0;
    if (net_chance(8))
        c->cancel_after = (int32_t)net_below(20);
    if (net_chance(6))
        c->cancel_at_ns = 1 + (int64_t)net_below(30000) * 1000;
    if (net_chance(5))
        c->deadline_in_ns = (int64_t)(1 + net_below(20)) * MS;
    c->params.has_time_limit_millis = net_chance(5);
    c->params.time_limit_millis = 1 + net_below(20);
    return c;
}

static void run_seed(uint64_t seed) {
    net_reset(seed);
    char seqs[32], batched[48], buffer[48], k[48], queue[32], overtakes[32], threads[32];
    bool short_queue = net_chance(15), slotted = net_chance(10);
    struct sim_opts opts = {
        .target_blocks = net_chance(50) ? 0 : 40 + (int32_t)net_below(60),
        .draft_blocks = net_chance(50) ? 0 : 10 + (int32_t)net_below(80),
        .max_seqs = 2 + (int32_t)net_below(7),
        .step_tokens = 16 + (int32_t)net_below(120),
        .no_draft = net_chance(10),
        .slotted = slotted,
        .args = {seqs, batched, buffer, k, queue, overtakes, threads, "--draft_step_timeout_ms=20",
                 "--target_step_timeout_ms=200"},
    };
    snprintf(seqs, sizeof seqs, "--max_num_seqs=%d", 1 + (int)net_below(8));
    snprintf(batched, sizeof batched, "--max_num_batched_tokens=%d", 8 + (int)net_below(120));
    snprintf(buffer, sizeof buffer, "--stream_buffer_tokens=%d", 1 + (int)net_below(30));
    snprintf(k, sizeof k, "--num_speculative_tokens=%d", (int)net_below(9));
    snprintf(queue, sizeof queue, "--max_queue=%d", short_queue ? (int)net_below(4) : 1024);
    snprintf(overtakes, sizeof overtakes, "--max_overtakes=%d", (int)net_below(5));
    snprintf(threads, sizeof threads, "--tokenizer_threads=%d", 1 + (int)net_below(3));
    if (slotted) { /* 64 blocks each */
        opts.target_blocks = 64 * (1 + (int32_t)net_below(5));
        opts.draft_blocks = 64 * (1 + (int32_t)net_below(5));
    }
    world_start(&g_world, seed, &opts);
    int n_clients = 1 + (int)net_below(14);
    for (int i = 0; i < n_clients; i++)
        random_client(&g_world)->may_be_refused = short_queue;
    int n_faults = net_chance(40) ? 0 : (int)net_below(5);
    for (int i = 0; i < n_faults; i++)
        world_random_fault(&g_world, !opts.no_draft);
    if (net_chance(30))
        net_set_duplicates(1 + net_below(30));
    world_run(&g_world, 60000);
    world_stop(&g_world);
}

START_TEST(any_seed_loses_nothing_and_repeats_nothing) {
    world_run_seeds(SEEDS, run_seed);
}
END_TEST

/* The same seed is the same simulation, to the nanosecond. */
START_TEST(a_seed_is_replayed_exactly) {
    for (uint64_t seed = 1; seed <= 10; seed++) {
        run_seed(seed);
        int64_t end_ns = net_now_ns();
        run_seed(seed);
        ck_assert_int_eq(net_now_ns(), end_ns);
    }
}
END_TEST

int main(void) {
    ft_log_init("sim", FT_LOG_ERROR);
    Suite *suite = suite_create("sim");
    TCase *tc = tcase_create("sim");
    tcase_add_test(tc, any_seed_loses_nothing_and_repeats_nothing);
    tcase_add_test(tc, a_seed_is_replayed_exactly);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
