/* What every drafter owes, over each row of the registry, with the best token and with tokens drawn
 * from counts, under every lossless rule: greedy text as plain decoding has it, sampled text with
 * the target's distribution, bounded memory, and nothing proposed where there is nothing to
 * propose. A table model is the draft worker of those that ask for one. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite.h"
#include "unit/chi_square.h"
#include "unit/drafter_rig.h"
#include "unit/table_model.h"

enum { N_VOCAB = 5, N_TOKENS = 3, N_TEXTS = N_VOCAB * N_VOCAB * N_VOCAB, LONG = 200 };

static struct table_run g_run;
static struct drafter_rig g_rig;
static struct table_model g_target, g_draft;
static int32_t g_text[4096];

static const struct co_drafter *nth_drafter(int i) {
    return co_drafter_at((size_t)i);
}

#define N_DRAFTERS 7

static struct co_drafter_opts rig_opts(void) {
    struct co_drafter_opts opts = drafter_rig_opts(N_VOCAB);
    for (int i = 0; i < 4096; i++)
        g_text[i] = (int32_t)(ft_philox_uniform(9, (uint64_t)i, FT_PHILOX_PROPOSE, 0) * N_VOCAB);
    opts.text = g_text;
    opts.n_text = 4096;
    opts.lookup_min = 1;
    opts.chain_min_match = 2;
    return opts;
}

static void setup(void) {
    table_run_init(&g_run);
    g_target = table_random(1, N_VOCAB, 4);
    g_draft = table_random(2, N_VOCAB, 4);
}

static void teardown(void) {
    table_run_fini(&g_run);
}

struct way { /* to generate */
    const struct ft_rule *rule;
    const struct ft_sampling *sampling;
    int32_t n_prompt, k;
    bool probabilistic;
};

/* One round after tokens [n]; how many were committed to its end. */
static int32_t one_round(const struct way *way, int32_t *tokens, int32_t n, int32_t k) {
    const struct ft_sampling *sampling = way->sampling;
    static float q[FT_DRAFT_LEN_MAX][TABLE_VOCAB_MAX];
    const float *p_rows[FT_DRAFT_LEN_MAX + 1], *q_rows[FT_DRAFT_LEN_MAX];
    struct co_proposal *proposal = &g_rig.proposal;
    struct co_draft_context context = {.tokens = tokens,
                                       .n = n,
                                       .n_prompt = way->n_prompt,
                                       .n_vocab = N_VOCAB,
                                       .k_max = k,
                                       .model = true,
                                       .probabilistic = way->probabilistic,
                                       .seed = sampling->seed};
    drafter_rig_propose(&g_rig, &context);
    bool sampled = !ft_sampling_is_greedy(sampling);
    memset(q, 0, sizeof q);
    if (proposal->ask_model) {
        struct table_pair pair = {.target = &g_target, .draft = &g_draft, .drafter = TABLE_SAMPLES};
        table_require(proposal->n == 0);
        proposal->n = proposal->n_model = k > 1 ? k / 2 : k;
        table_draft(&g_run, &pair, sampling, (uint64_t)n, tokens[n - 1], proposal->n,
                    proposal->tokens, q);
        g_rig.drafter->extend(g_rig.shared, g_rig.state, &context, proposal);
    }
    table_require(proposal->n <= k);
    table_require(proposal->n_model <= proposal->n);
    bool has_q = sampled && proposal->n_model > 0;
    for (int32_t i = 0; i < proposal->n; i++) {
        table_require(proposal->tokens[i] >= 0 && proposal->tokens[i] < N_VOCAB);
        has_q = has_q || proposal->q[i].n_ids > 0;
        if (i >= proposal->n_model)
            co_proposal_row(proposal, i, q[i]);
        q_rows[i] = q[i];
    }
    for (int32_t i = 0; i <= proposal->n; i++)
        p_rows[i] = g_target.row[i == 0 ? tokens[n - 1] : proposal->tokens[i - 1]];
    struct ft_round round = {.sampling = sampling,
                             .counts = g_run.counts,
                             .position = (uint64_t)n,
                             .draft = proposal->tokens,
                             .n_draft = proposal->n,
                             .p_rows = p_rows,
                             .n_vocab = N_VOCAB,
                             .q_rows = has_q ? q_rows : NULL,
                             .n_vocab_draft = N_VOCAB};
    struct ft_verdict verdict;
    struct ft_err err = {0};
    if (way->rule->decide(g_run.transform, &round, &verdict, &err) != FT_OK)
        ck_abort_msg("%s: %s", g_rig.drafter->name, err.text);
    memcpy(tokens + n, verdict.tokens, (size_t)verdict.n_tokens * sizeof *tokens);
    for (int32_t i = proposal->n_model; i < proposal->n; i++) {
        co_proposal_row_clear(proposal, i, q[i]);
        for (int32_t id = 0; id < N_VOCAB; id++)
            table_require(q[i][id] == 0.0f);
    }
    return verdict.n_tokens;
}

/* Tokens after prompt [n_prompt], at least n_out of them, by a new request. */
static void generate(const struct way *way, int32_t *tokens, int32_t n_out) {
    struct ft_err err = {0};
    int32_t n_prompt = way->n_prompt, n = n_prompt;
    if (g_rig.drafter->begin(&g_rig.state, g_rig.shared, n_prompt + n_out, &err) != FT_OK)
        ck_abort_msg("%s", err.text);
    while (n < n_prompt + n_out) {
        int32_t room = n_prompt + n_out - n - 1;
        n += one_round(way, tokens, n, room < way->k ? room : way->k);
    }
    g_rig.drafter->end(&g_rig.state);
}

static void open_rig(const struct co_drafter *drafter) {
    struct co_drafter_opts opts = rig_opts();
    drafter_rig_open(&g_rig, drafter->name, &opts, 64);
    g_rig.drafter->end(&g_rig.state);
}

START_TEST(registry_rows_are_whole) {
    const struct co_drafter *drafter;
    size_t n = 0;
    for (; (drafter = co_drafter_at(n)) != NULL; n++) {
        ck_assert(drafter->name && drafter->open && drafter->close && drafter->begin);
        ck_assert(drafter->end && drafter->propose && drafter->extend && drafter->usage);
        ck_assert_ptr_eq(co_drafter_find(drafter->name), drafter);
        ck_assert_uint_eq(co_drafter_index(drafter), n);
    }
    ck_assert_uint_eq(n, N_DRAFTERS);
}
END_TEST

START_TEST(greedy_text_is_that_of_plain_decoding) {
    const struct ft_rule *rule;
    open_rig(nth_drafter(_i));
    for (size_t r = 0; (rule = ft_rule_at(r)) != NULL; r++) {
        if (rule->lossy)
            continue;
        for (uint64_t model = 1; model < 20; model++) {
            int32_t plain[8 + LONG + 32], got[8 + LONG + 32];
            struct ft_sampling sampling = ft_sampling_default();
            sampling.temperature = 0;
            g_target = table_random(model, N_VOCAB, 4);
            for (int32_t i = 0; i < 8; i++)
                plain[i] = got[i] = (int32_t)((model * 3 + (uint64_t)(i * i)) % N_VOCAB);
            struct way way = {.rule = rule, .sampling = &sampling, .n_prompt = 8};
            generate(&way, plain, LONG);
            way.k = 1 + (int32_t)model % FT_DRAFT_LEN_MAX;
            way.probabilistic = model % 2 == 0;
            generate(&way, got, LONG);
            ck_assert_mem_eq(plain, got, (8 + LONG) * sizeof plain[0]);
        }
    }
    drafter_rig_close(&g_rig);
}
END_TEST

/* The target's own probability of every text of three tokens after the prompt. */
static void joint(int32_t last, double prob[N_TEXTS]) {
    double row[N_VOCAB][N_VOCAB];
    for (int32_t i = 0; i < N_VOCAB; i++) {
        double sum = 0;
        for (int32_t j = 0; j < N_VOCAB; j++)
            sum += row[i][j] = exp((double)g_target.row[i][j]);
        for (int32_t j = 0; j < N_VOCAB; j++)
            row[i][j] /= sum;
    }
    for (int32_t text = 0; text < N_TEXTS; text++) {
        int32_t a = text / (N_VOCAB * N_VOCAB), b = text / N_VOCAB % N_VOCAB, c = text % N_VOCAB;
        prob[text] = row[last][a] * row[a][b] * row[b][c];
    }
}

START_TEST(sampled_text_has_the_targets_distribution) {
    /* What the prompt repeats is what the text-bound drafters propose. */
    static const int32_t prompt[] = {0, 1, 2, 0, 1, 3, 4, 0, 1, 2, 4, 2, 0, 1};
    enum { N_PROMPT = sizeof prompt / sizeof prompt[0] };
    const struct ft_rule *rule;
    double prob[N_TEXTS];
    open_rig(nth_drafter(_i / 2));
    bool probabilistic = _i % 2 == 1;
    joint(prompt[N_PROMPT - 1], prob);
    for (size_t r = 0; (rule = ft_rule_at(r)) != NULL; r++) {
        if (rule->lossy)
            continue;
        for (int32_t k = 1; k <= 4; k += 3) {
            uint32_t counts[N_TEXTS] = {0};
            char what[120];
            for (uint64_t seed = 0; seed < TABLE_N_SEEDS / 2; seed++) {
                int32_t tokens[N_PROMPT + 32];
                struct ft_sampling sampling = ft_sampling_default();
                sampling.seed = seed;
                memcpy(tokens, prompt, sizeof prompt);
                /* Five, so that four can be drafted. */
                struct way way = {rule, &sampling, N_PROMPT, k, probabilistic};
                generate(&way, tokens, k + 1 > N_TOKENS ? k + 1 : N_TOKENS);
                const int32_t *out = tokens + N_PROMPT;
                counts[(out[0] * N_VOCAB + out[1]) * N_VOCAB + out[2]]++;
            }
            snprintf(what, sizeof what, "%s, %s, K %d%s", g_rig.drafter->name, rule->name, k,
                     probabilistic ? ", probabilistic" : "");
            check_distribution(counts, prob, N_TEXTS, what);
        }
    }
    drafter_rig_close(&g_rig);
}
END_TEST

START_TEST(memory_is_bounded) {
    enum { N = 60000 };
    static int32_t tokens[N];
    struct co_drafter_opts opts = rig_opts();
    drafter_rig_open(&g_rig, nth_drafter(_i)->name, &opts, N);
    size_t bytes = g_rig.drafter->usage(g_rig.state).bytes;
    for (int32_t i = 0; i < N; i++)
        tokens[i] = (int32_t)(ft_philox_uniform(4, (uint64_t)i, FT_PHILOX_PROPOSE, 0) * 100000);
    for (int32_t n = N / 8; n <= N; n += N / 8) {
        struct co_draft_context context = {
            .tokens = tokens, .n = n, .n_prompt = 4, .n_vocab = 100000, .k_max = 16};
        drafter_rig_propose(&g_rig, &context);
    }
    struct co_drafter_usage usage = g_rig.drafter->usage(g_rig.state);
    ck_assert_uint_eq(usage.bytes, bytes);
    ck_assert_uint_le(usage.bytes, 1 << 20);
    ck_assert(bytes < 4096 || usage.evicted > 0);
    drafter_rig_close(&g_rig);
}
END_TEST

START_TEST(nothing_is_proposed_where_nothing_fits) {
    const int32_t one[] = {3};
    struct co_drafter_opts opts = rig_opts();
    drafter_rig_open(&g_rig, nth_drafter(_i)->name, &opts, 64);
    struct co_draft_context context = {
        .tokens = one, .n = 1, .n_prompt = 1, .n_vocab = N_VOCAB, .k_max = 0, .model = true};
    drafter_rig_propose(&g_rig, &context);
    ck_assert_int_eq(g_rig.proposal.n, 0);
    ck_assert(!g_rig.proposal.ask_model);
    /* Without a worker nobody is asked for one; ids past the vocabulary are not proposed. */
    context.k_max = 4;
    context.model = false;
    context.n_vocab = 0;
    drafter_rig_propose(&g_rig, &context);
    ck_assert_int_eq(g_rig.proposal.n, 0);
    ck_assert(!g_rig.proposal.ask_model);
    drafter_rig_close(&g_rig);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("drafter_contract");
    TCase *tc = tcase_create("drafter_contract");
    tcase_set_timeout(tc, 280);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, registry_rows_are_whole);
    tcase_add_loop_test(tc, greedy_text_is_that_of_plain_decoding, 0, N_DRAFTERS);
    tcase_add_loop_test(tc, sampled_text_has_the_targets_distribution, 0, 2 * N_DRAFTERS);
    tcase_add_loop_test(tc, memory_is_bounded, 0, N_DRAFTERS);
    tcase_add_loop_test(tc, nothing_is_proposed_where_nothing_fits, 0, N_DRAFTERS);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
