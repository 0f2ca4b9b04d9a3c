/* Every option of a request together with every other, with what an operator sets meanwhile and
 * with workers that fail: the text that is known beforehand comes out, and books stay right.
 * FORETOKEN_SIM_SEED=N runs one seed, with the coordinator's log. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/round.h"
#include "coordinator/tune.h"
#include "sim/model.h"
#include "sim/net.h"
#include "sim/options.h"
#include "support/fixtures.h"
#include "support/suite.h"

#define MS ((int64_t)1000000)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 60 };
#else
enum { SEEDS = 600 };
#endif
enum { CALLS_MAX = 12, LIMIT_MS = 120000 };

static struct world g_world;
static struct options_call g_calls[CALLS_MAX];
static int g_n_calls;

#define PICK(list) ((list)[net_below(sizeof(list) / sizeof(list)[0])])

/* ---- calls ----------------------------------------------------------------------------------- */

static void random_prompt(struct options_call *c) {
    int32_t lengths[] = {1 + (int32_t)net_below(10), 1 + (int32_t)net_below(60),
                         100 + (int32_t)net_below(200)};
    int32_t n = lengths[net_below(10) < 8 ? net_below(2) : 2];
    uint32_t h = net_below(4) * 2654435761u;
    uint32_t shift = 24 + net_below(2) * 4; /* few different ids: n-grams find something */
    for (int32_t i = 0; i < n; i++) {
        h = h * 1664525u + 1013904223u;
        c->prompt[i] = (int32_t)(h >> shift);
    }
    if (net_chance(3))
        c->prompt[net_below((uint32_t)n)] = SIM_POISON;
    c->in.input.n_ids = (size_t)n;
    c->long_text = net_chance(8);
    c->in.return_prompt_token_ids = net_chance(10);
}

static void random_lengths(struct ft_wire_params *p) {
    p->max_tokens = net_chance(10) ? 1 : 1 + net_below(net_chance(20) ? 150 : 40);
    if (net_chance(25))
        p->min_tokens = net_below(p->max_tokens + 1);
    p->has_n = net_chance(25);
    p->n = 1 + net_below(OPTIONS_N_MAX);
    p->has_time_limit_millis = net_chance(4);
    p->time_limit_millis = 1 + net_below(30);
    p->has_logprobs = net_chance(30);
    p->logprobs = (int32_t)net_below(6);
    p->has_prompt_logprobs = net_chance(20);
    p->prompt_logprobs = (int32_t)net_below(4);
}

static void random_sampling(struct ft_wire_params *p) {
    static const float temperatures[] = {0, 0, 0.7f, 1, 20, 40};
    p->temperature = PICK(temperatures);
    p->seed = net_below(100000);
    p->has_repetition_penalty = net_chance(30);
    p->repetition_penalty = net_chance(50) ? 3.0f : 30.0f;
    p->presence_penalty = net_chance(20) ? 2 : 0;
    p->frequency_penalty = net_chance(80) ? 0 : net_chance(50) ? 2 : -2;
    p->top_k = net_chance(20) ? 1 + (int32_t)net_below(50) : 0;
    p->has_top_p = net_chance(20);
    p->top_p = 0.1f * (float)net_below(11);
    p->min_p = net_chance(10) ? 0.1f : 0;
}

static void random_masks(struct options_call *c) {
    struct ft_wire_params *p = &c->in.params;
    p->logit_bias = c->bias;
    p->n_logit_bias = net_chance(20) ? 4 : 0;
    for (uint32_t i = 0; i < p->n_logit_bias; i++)
        c->bias[i] =
            (struct ft_bias){(int32_t)(net_below(60) + 60 * i), (float)net_below(140) - 70.0f};
    p->allowed_token_ids = c->allowed;
    p->n_allowed_token_ids = net_chance(15) ? 1 + net_below(6) : 0; /* much is repeated then */
    for (uint32_t i = 0; i < p->n_allowed_token_ids; i++)
        c->allowed[i] = (int32_t)(40 * i + net_below(40));
    p->banned_token_ids = c->banned;
    p->n_banned_token_ids = net_chance(15) ? 1 + net_below(120) : 0;
    for (uint32_t i = 0; i < p->n_banned_token_ids; i++)
        c->banned[i] = (int32_t)(2 * i + net_below(2));
}

static void random_stops(struct options_call *c) {
    struct ft_wire_params *p = &c->in.params;
    p->ignore_eos = net_chance(20);
    p->include_stop_str_in_output = net_chance(30);
    p->stop_token_ids = c->stop_ids;
    p->n_stop_token_ids = net_chance(25) ? 1 + net_below(2) : 0;
    p->stop = c->stops;
    p->n_stop = net_chance(25) ? 1 + net_below(2) : 0;
    for (int i = 0; i < 2; i++) {
        c->stop_ids[i] = (int32_t)net_below(256);
        for (int j = 0; j < 2; j++)
            c->stop_bytes[i][j] = (char)(' ' + net_below(90));
        c->stops[i] = (struct ft_str){c->stop_bytes[i], 1 + net_below(2)};
    }
}

static void random_drafts(struct options_call *c) {
    static const char *const drafters[] = {"model",   "ngram",  "lookup", "bigram",
                                           "unigram", "random", "chain"};
    struct ft_wire_generate *in = &c->in;
    c->rule = ft_rule_at(net_below(5));
    in->spec.rejection_sample_method = ft_str_c(c->rule->name);
    if (net_chance(60))
        in->drafter = ft_str_c(PICK(drafters));
    in->has_num_speculative_tokens = net_chance(50);
    in->num_speculative_tokens = net_below(FT_DRAFT_LEN_MAX + 1);
    in->has_spec_enabled = net_chance(10);
    in->spec_enabled = net_chance(50);
    in->spec.has_draft_temperature = net_chance(15);
    in->spec.draft_temperature = net_chance(50) ? 0.0f : 2.0f;
    in->spec.has_lenience = strcmp(c->rule->name, "lenient") == 0 && net_chance(50);
    in->spec.lenience = 0.3f;
    in->spec.has_synthetic_acceptance_length = c->rule->blind;
    in->spec.synthetic_acceptance_length =
        in->has_num_speculative_tokens ? 1.0f + 0.6f * (float)in->num_speculative_tokens : 1.0f;
}

static void random_call(void) {
    struct options_call *c = &g_calls[g_n_calls];
    options_begin(c, &g_world, g_n_calls++);
    random_prompt(c);
    random_lengths(&c->in.params);
    random_sampling(&c->in.params);
    random_masks(c);
    random_stops(c);
    random_drafts(c);
    c->in.stream = net_chance(80);
    c->slow = c->in.stream && net_chance(20);
    c->in.priority = net_chance(20) ? (int32_t)net_below(5) - 2 : 0;
    if (net_chance(8))
        c->cancel_after = (int32_t)net_below(20);
    ft_rpc_timer_set(g_world.outside, &c->start_timer,
                     net_now_ns() + (int64_t)net_below(40000) * 1000, options_start, c);
}

/* ---- meanwhile ------------------------------------------------------------------------------- */

static void random_set(void) {
    static const char *const rows[][2] = {
        {"speculation", "false"},
        {"speculation", "true"},
        {"speculation", "true"},
        {"num_speculative_tokens", "0"},
        {"num_speculative_tokens", "3"},
        {"num_speculative_tokens", "16"},
        {"num_speculative_tokens", "auto"},
        {"num_speculative_tokens", "1:6,3:2,5:0"},
        {"drafter", "model"},
        {"drafter", "ngram"},
        {"drafter", "chain"},
        {"drafter", "bigram"},
        {"rejection_sample_method", "block"},
        {"rejection_sample_method", "coupled"},
        {"lenience", "0.5"},
    };
    const char *const *row = PICK(rows);
    struct ft_wire_parameter parameter = {ft_str_c(row[0]), ft_str_c(row[1])};
    struct ft_err err = {0};
    if (co_tune_set(g_world.app, &parameter, 1, &err) != FT_OK)
        world_fail(&g_world, "set %s to %s: %s", row[0], row[1], err.text);
}

/* An operator ends one of those that run and wait. */
static void random_abort(void) {
    uint32_t n = 0;
    for (const struct co_request *r = g_world.app->first; r != NULL; r = r->next)
        n += r->state != CO_REQUEST_ENDED;
    if (n == 0)
        return;
    n = net_below(n);
    struct co_request *r = g_world.app->first;
    while (r->state == CO_REQUEST_ENDED || n-- > 0)
        r = r->next;
    g_calls[atoi(r->id + 1)].aborted = true;
    co_request_event(r, CO_EVENT_ABORT);
    co_round_kick(g_world.app);
}

/* The next draft worker to start has another context. */
static void random_context(void) {
    static const int32_t lengths[] = {0, 64, 100, 200};
    g_world.workers[SIM_DRAFT].params.max_model_len = PICK(lengths);
}

/* ---- seeds ----------------------------------------------------------------------------------- */

static void start_world(uint64_t seed) {
    static const char *const lengths[] = {"0", "1", "4", "8", "16", "auto", "1:6,3:2,6:0"};
    static const char *const chains[] = {"ngram,model", "model,ngram", "lookup,model,bigram",
                                         "model,unigram", "ngram,lookup,model,bigram"};
    static char seqs[32], batched[48], buffer[48], k[48], overtakes[32], counts[48], chain[64],
        text[600];
    struct sim_opts opts = {
        .target_blocks = net_chance(50) ? 0 : 40 + (int32_t)net_below(60),
        .draft_blocks = net_chance(50) ? 0 : 10 + (int32_t)net_below(80),
        .max_seqs = 2 + (int32_t)net_below(7),
        .step_tokens = 16 + (int32_t)net_below(120),
        .draft_step_tokens = net_chance(50) ? 0 : 8 + (int32_t)net_below(60),
        .target_rows = net_chance(50) ? 0 : 8 + (int32_t)net_below(40),
        .draft_rows = net_chance(50) ? 0 : 1 + (int32_t)net_below(40),
        .no_draft = net_chance(10),
        .args = {seqs, batched, buffer, k, overtakes, counts, chain, text,
                 "--draft_step_timeout_ms=20", "--target_step_timeout_ms=200",
                 "--allow_lossy=true"},
    };
    snprintf(seqs, sizeof seqs, "--max_num_seqs=%d", 1 + (int)net_below(8));
    snprintf(batched, sizeof batched, "--max_num_batched_tokens=%d", 8 + (int)net_below(120));
    snprintf(buffer, sizeof buffer, "--stream_buffer_tokens=%d", 1 + (int)net_below(30));
    snprintf(k, sizeof k, "--num_speculative_tokens=%s", PICK(lengths));
    snprintf(overtakes, sizeof overtakes, "--max_overtakes=%d", (int)net_below(5));
    snprintf(counts, sizeof counts, "--drafter_counts_as_q=%s", net_chance(50) ? "true" : "false");
    snprintf(chain, sizeof chain, "--drafter_chain=%s", PICK(chains));
    snprintf(text, sizeof text, "--drafter_text=%s", ft_fixture_source("LICENSE"));
    world_start(&g_world, seed, &opts);
}

static bool all_done(void) {
    for (int i = 0; i < g_n_calls; i++)
        if (!g_calls[i].done)
            return false;
    return true;
}

static void run_calls(void) {
    uint32_t sets = net_chance(50) ? 0 : 1 + net_below(30),
             aborts = net_chance(70) ? 0 : 1 + net_below(5);
    int64_t limit_ns = net_now_ns() + LIMIT_MS * MS;
    while (!all_done()) {
        if (!world_step(&g_world) || net_now_ns() > limit_ns)
            for (int i = 0; i < g_n_calls; i++)
                if (!g_calls[i].done)
                    world_fail(&g_world, "call %s does not end (%d tokens)", g_calls[i].id,
                               g_calls[i].n_got);
        if (net_below(2000) == 0)
            random_context();
        if (net_below(10000) < sets)
            random_set();
        if (net_below(10000) < aborts)
            random_abort();
    }
}

/* What the service counted is what its requests were told, when all of them heard it. */
static void check_totals(void) {
    const struct co_stats *s = &g_world.app->stats;
    struct co_spec_stats sum = {0};
    uint64_t n_requests = 0, n_got = 0;
    for (int i = 0; i < g_n_calls; i++) {
        n_requests += options_n(&g_calls[i]);
        if (g_calls[i].status.code != 0 || g_calls[i].cancelled)
            return;
        for (uint32_t j = 0; j < options_n(&g_calls[i]); j++) {
            const struct options_lane *lane = &g_calls[i].lanes[j];
            n_got += (uint64_t)lane->n_got;
            sum.drafted += lane->spec.num_draft_tokens;
            sum.accepted += lane->spec.num_accepted_tokens;
            sum.target_steps += lane->spec.num_target_steps;
            sum.plain_steps += lane->spec.num_plain_steps;
        }
    }
    if (s->finished != n_requests || s->generation_tokens != n_got ||
        s->spec.drafted != sum.drafted || s->spec.accepted != sum.accepted ||
        s->spec.target_steps != sum.target_steps || s->spec.plain_steps != sum.plain_steps)
        world_fail(&g_world, "%llu finished of %llu, with other numbers than they were told",
                   (unsigned long long)s->finished, (unsigned long long)n_requests);
}

static void run_seed(uint64_t seed) {
    net_reset(seed);
    start_world(seed);
    g_n_calls = 0;
    for (uint32_t n = 1 + net_below(CALLS_MAX); n > 0; n--)
        random_call();
    for (uint32_t n = net_chance(40) ? 0 : net_below(5); n > 0; n--)
        world_random_fault(&g_world, g_world.app->draft != NULL);
    if (net_chance(30))
        net_set_duplicates(1 + net_below(30));
    run_calls();
    check_totals();
    world_stop(&g_world);
    for (int i = 0; i < g_n_calls; i++)
        options_end(&g_calls[i]);
}

START_TEST(any_options_of_any_seed_go_together) {
    world_run_seeds(SEEDS, run_seed);
}
END_TEST

int main(void) {
    ft_log_init("sim", FT_LOG_ERROR);
    Suite *suite = suite_create("options");
    TCase *tc = tcase_create("options");
    tcase_add_test(tc, any_options_of_any_seed_go_together);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
