#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/spec/rule.h"
#include "support/suite.h"
#include "unit/table_model.h"

static struct table_run run;
static const struct ft_rule *standard;

static void setup(void) {
    table_run_init(&run);
    standard = ft_rule_find("standard");
    ck_assert_ptr_nonnull(standard);
}

static void teardown(void) {
    table_run_fini(&run);
}

START_TEST(find_of_unknown_name_returns_null) {
    ck_assert_ptr_null(ft_rule_find("standards"));
    ck_assert_ptr_null(ft_rule_find(""));
    ck_assert_ptr_eq(ft_rule_at(0), standard);
    ck_assert(!standard->lossy);
}
END_TEST

/* ---- an oracle: the algorithm of the paper, written naively in double -------------------------
 */

#define ORACLE_VOCAB 24
#define ORACLE_DRAFTS 8
#define CLOSE 1e-5

struct oracle_round {
    float p[ORACLE_DRAFTS + 1][ORACLE_VOCAB], q[ORACLE_DRAFTS][ORACLE_VOCAB];
    const float *p_rows[ORACLE_DRAFTS + 1], *q_rows[ORACLE_DRAFTS];
    int32_t draft[ORACLE_DRAFTS];
    struct ft_sampling sampling;
    struct ft_round round;
};

static double uniform(uint64_t *n) {
    return ft_philox_uniform(3, (*n)++, FT_PHILOX_PROPOSE, 5);
}

static void random_round(struct oracle_round *o, uint64_t *n, uint64_t seed) {
    memset(o, 0, sizeof *o);
    int32_t n_p = 2 + (int32_t)(uniform(n) * (ORACLE_VOCAB - 2));
    int32_t n_q = uniform(n) < 0.5 ? n_p : 2 + (int32_t)(uniform(n) * (ORACLE_VOCAB - 2));
    int32_t n_draft = (int32_t)(uniform(n) * (ORACLE_DRAFTS + 1));
    bool one_hot = uniform(n) < 0.3;
    o->sampling = ft_sampling_default();
    o->sampling.temperature = (float)(0.3 + uniform(n));
    o->sampling.seed = seed;
    for (int32_t k = 0; k <= n_draft; k++) {
        o->p_rows[k] = o->p[k];
        for (int32_t i = 0; i < n_p; i++)
            o->p[k][i] = (float)(4 * uniform(n));
        if (k == n_draft)
            break;
        o->q_rows[k] = o->q[k];
        double sum = 0, aim = uniform(n), before = 0;
        for (int32_t i = 0; i < n_q; i++)
            sum += o->q[k][i] = uniform(n) < 0.2 ? 0 : (float)(0.02 + uniform(n));
        if (sum == 0)
            sum = o->q[k][0] = 1;
        o->draft[k] = -1;
        for (int32_t i = 0; i < n_q; i++) {
            o->q[k][i] = (float)((double)o->q[k][i] / sum);
            before += (double)o->q[k][i];
            if (o->q[k][i] > 0 && (o->draft[k] < 0 || before - (double)o->q[k][i] <= aim))
                o->draft[k] = i;
        }
    }
    o->round = (struct ft_round){.sampling = &o->sampling,
                                 .position = (uint64_t)(uniform(n) * 1000),
                                 .draft = o->draft,
                                 .n_draft = n_draft,
                                 .p_rows = o->p_rows,
                                 .n_vocab = n_p,
                                 .q_rows = one_hot ? NULL : o->q_rows,
                                 .n_vocab_draft = n_q};
}

static int32_t oracle_draw(const double *weights, int32_t n, double u, bool *close) {
    double sum = 0, total = 0;
    int32_t found = -1;
    for (int32_t i = 0; i < n; i++)
        total += weights[i];
    for (int32_t i = 0; i < n; i++) {
        sum += weights[i] / total;
        *close |= fabs(sum - u) < CLOSE;
        if (found < 0 && sum > u)
            found = i;
    }
    return found;
}

/* Sets *close when a decision lies within rounding of falling the other way. */
static struct ft_verdict oracle(const struct ft_round *r, bool *close) {
    struct ft_verdict v = {0};
    *close = false;
    for (int32_t k = 0;; k++) {
        double p[ORACLE_VOCAB] = {0}, q[ORACLE_VOCAB] = {0}, sum = 0;
        uint64_t seed = r->sampling->seed, position = r->position + (uint64_t)k;
        for (int32_t i = 0; i < r->n_vocab; i++)
            sum += p[i] = exp((double)r->p_rows[k][i] / (double)r->sampling->temperature);
        for (int32_t i = 0; i < r->n_vocab; i++)
            p[i] /= sum;
        double u = ft_philox_uniform(seed, position, FT_PHILOX_RESIDUAL, 0);
        if (k == r->n_draft) {
            v.tokens[v.n_tokens++] = oracle_draw(p, r->n_vocab, u, close);
            break;
        }
        for (int32_t i = 0; i < r->n_vocab_draft; i++)
            q[i] = r->q_rows == NULL ? i == r->draft[k] : (double)r->q_rows[k][i];
        int32_t t = r->draft[k];
        double ratio = t < r->n_vocab ? p[t] / q[t] : 0;
        double chance = ft_philox_uniform(seed, position, FT_PHILOX_ACCEPT, 0);
        *close |= fabs(chance - ratio) < CLOSE;
        if (chance < ratio) {
            v.tokens[v.n_tokens++] = t;
            continue;
        }
        for (int32_t i = 0; i < r->n_vocab; i++)
            p[i] = fmax(0, p[i] - q[i]);
        v.tokens[v.n_tokens++] = oracle_draw(p, r->n_vocab, u, close);
        v.residual = true;
        break;
    }
    v.n_accepted = v.n_tokens - 1;
    return v;
}

START_TEST(decide_of_random_rounds_equals_naive_oracle) {
    static struct oracle_round o;
    uint64_t n = 0;
    int n_close = 0, n_accepted = 0, n_residual = 0;
    const int n_rounds = 50000;
    for (int i = 0; i < n_rounds; i++) {
        random_round(&o, &n, (uint64_t)i * 0x9E3779B97F4A7C15u);
        struct ft_verdict got;
        struct ft_err err = {0};
        bool close;
        struct ft_verdict want = oracle(&o.round, &close);
        if (standard->decide(run.transform, &o.round, &got, &err) != FT_OK)
            ck_abort_msg("%s", err.text);
        if (close) {
            n_close++;
            continue;
        }
        table_require(got.n_tokens == want.n_tokens);
        table_require(got.n_accepted == want.n_accepted);
        table_require(got.residual == want.residual);
        for (int32_t k = 0; k < want.n_tokens; k++)
            table_require(got.tokens[k] == want.tokens[k]);
        n_accepted += want.n_accepted;
        n_residual += want.residual;
    }
    ck_assert_int_lt(n_close, n_rounds / 50);
    ck_assert_int_gt(n_accepted, n_rounds / 3);
    ck_assert_int_gt(n_residual, n_rounds / 3);
}
END_TEST

/* ---- known texts ----------------------------------------------------------------------------- */

#define CYC "a>b=20|b>c=20|c>d=20|d>e=20|e>a=20"
#define PEN "*>b=4 c=3 d=2.5 e=1"
#define VOCAB 26

static const int32_t lengths[] = {0, 1, 2, 3, 4, 8, 16};
#define N_LENGTHS (sizeof lengths / sizeof lengths[0])

START_TEST(dev01_correction_comes_from_the_row_of_the_rejection) {
    struct table_model target = table_model(VOCAB, CYC);
    struct table_model draft = table_model(VOCAB, "a>b=20|b>c=20|c>x=20|x>a=20|d>e=20|e>a=20");
    char want[61];
    for (int i = 0; i < 60; i++)
        want[i] = "bcdea"[i % 5];
    want[60] = 0;
    for (size_t k = 0; k < N_LENGTHS; k++)
        for (uint64_t seed = 0; seed < 200; seed++) {
            struct table_pair pair = {.rule = standard,
                                      .target = &target,
                                      .draft = &draft,
                                      .drafter = (enum table_drafter)(seed % 3),
                                      .n_draft = lengths[k]};
            struct ft_sampling sampling = ft_sampling_default();
            sampling.seed = seed;
            ck_assert_str_eq(table_text(&run, &pair, &sampling, "a", 60), want);
            sampling.temperature = 0;
            ck_assert_str_eq(table_text(&run, &pair, &sampling, "a", 60), want);
        }
    ck_assert_int_gt(run.stats.accepted, 0);
    ck_assert_int_lt(run.stats.accepted, run.stats.drafted);
}
END_TEST

START_TEST(dev10_penalties_inside_a_block_see_each_token_once) {
    static const char *const drafts[] = {PEN, "*>b=3 c=4", "*>b=20"};
    struct table_model target = table_model(VOCAB, PEN);
    for (int kind = 0; kind < 3; kind++) {
        struct ft_sampling sampling = ft_sampling_default();
        sampling.temperature = 0;
        if (kind == 0)
            sampling.repetition_penalty = 2;
        if (kind == 1)
            sampling.frequency_penalty = 0.3f;
        if (kind == 2)
            sampling.presence_penalty = 1.25f;
        struct table_pair off = {.rule = standard, .target = &target, .draft = &target};
        char want[201];
        strcpy(want, table_text(&run, &off, &sampling, "a", 200));
        if (kind == 0)
            ck_assert_int_eq(strncmp(want, "bcdbbbbbbbbb", 12), 0);
        for (size_t d = 0; d < 3; d++) {
            struct table_model draft = table_model(VOCAB, drafts[d]);
            for (int32_t k = 1; k <= 8; k++) {
                struct table_pair pair = {
                    .rule = standard, .target = &target, .draft = &draft, .n_draft = k};
                ck_assert_str_eq(table_text(&run, &pair, &sampling, "a", 200), want);
                int32_t recount[VOCAB] = {0};
                for (int i = 0; i < 200; i++)
                    recount[want[i] - 'a']++;
                for (int32_t id = 0; id < VOCAB; id++)
                    ck_assert_int_eq(ft_counts_output(run.counts, id), recount[id]);
            }
        }
    }
}
END_TEST

START_TEST(dev19_penalties_work_under_speculation) {
    struct table_model model = table_model(VOCAB, PEN);
    struct ft_sampling sampling = ft_sampling_default();
    sampling.temperature = 0;
    sampling.repetition_penalty = 2;
    for (int drafter = 0; drafter < 3; drafter++)
        for (size_t k = 0; k < N_LENGTHS; k++) {
            struct table_pair pair = {.rule = standard,
                                      .target = &model,
                                      .draft = &model,
                                      .drafter = (enum table_drafter)drafter,
                                      .n_draft = lengths[k]};
            ck_assert_str_eq(table_text(&run, &pair, &sampling, "a", 12), "bcdbbbbbbbbb");
        }
}
END_TEST

START_TEST(dev45_repetition_penalty_of_negative_logits_and_of_the_prompt) {
    struct table_model neg = table_model(VOCAB, "*>b=-1 c=-1.5"), pen = table_model(VOCAB, PEN);
    struct ft_sampling sampling = ft_sampling_default();
    sampling.temperature = 0;
    sampling.repetition_penalty = 2;
    for (size_t k = 0; k < N_LENGTHS; k++) {
        struct table_pair pair = {
            .rule = standard, .target = &neg, .draft = &neg, .n_draft = lengths[k]};
        ck_assert_str_eq(table_text(&run, &pair, &sampling, "a", 12), "bcbbbbbbbbbb");
        pair.target = pair.draft = &pen;
        ck_assert_int_eq(table_text(&run, &pair, &sampling, "bbb", 4)[0], 'c');
    }
}
END_TEST

START_TEST(dev46_top_k_of_any_size_beside_greedy) {
    static const struct {
        int32_t top_k;
        const char *support;
    } rows[] = {{1, "b"},    {2, "bc"},   {3, "bcd"},  {0, "bcd"},        {-1, "bcd"},
                {25, "bcd"}, {26, "bcd"}, {27, "bcd"}, {INT32_MAX, "bcd"}};
    struct table_model target = table_model(VOCAB, "*>b=2 c=1 d=0");
    struct table_model draft = table_model(VOCAB, "*>b=0 c=2 d=1");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct table_pair pair = {
            .rule = standard, .target = &target, .draft = &draft, .n_draft = 4};
        struct ft_sampling sampling = ft_sampling_default();
        sampling.top_k = rows[i].top_k;
        char seen[VOCAB + 1] = {0};
        for (uint64_t seed = 0; seed < 100; seed++) {
            sampling.seed = seed;
            const char *text = table_text(&run, &pair, &sampling, "a", 8);
            for (; *text != 0; text++) {
                table_require(strchr(rows[i].support, *text) != NULL);
                seen[*text - 'a'] = 1;
            }
            struct ft_sampling greedy = sampling;
            greedy.temperature = 0;
            ck_assert_str_eq(table_text(&run, &pair, &greedy, "a", 8), "bbbbbbbb");
        }
        for (const char *c = rows[i].support; *c != 0; c++)
            ck_assert_int_eq(seen[*c - 'a'], 1);
    }
}
END_TEST

START_TEST(dev47_tiny_temperature_or_top_p_is_the_best_token) {
    static const float temperatures[] = {0, 1e-45f, 1e-38f, 1e-6f, 1e-4f, 1e-2f};
    static const float top_ps[] = {0, 1e-9f, 1};
    struct table_model target = table_model(VOCAB, "*>b=2 c=1 d=0");
    struct table_model draft = table_model(VOCAB, "*>b=0 c=2 d=1");
    struct table_pair pair = {.rule = standard, .target = &target, .draft = &draft, .n_draft = 4};
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 3; j++)
            for (uint64_t seed = 0; seed < 20; seed++) {
                struct ft_sampling sampling = ft_sampling_default();
                sampling.temperature = temperatures[i];
                sampling.top_p = top_ps[j];
                sampling.seed = seed;
                ck_assert_str_eq(table_text(&run, &pair, &sampling, "a", 12), "bbbbbbbbbbbb");
            }
    struct ft_sampling hot = ft_sampling_default();
    hot.temperature = 100;
    bool others = false;
    for (uint64_t seed = 0; seed < 50; seed++) {
        hot.seed = seed;
        others |= strpbrk(table_text(&run, &pair, &hot, "a", 12), "efghijklmnopqrstuvwxyz") != NULL;
    }
    ck_assert(others);
}
END_TEST

/* ---- numbers --------------------------------------------------------------------------------- */

START_TEST(dev16_draft_equal_to_target_is_always_accepted) {
    static const float temperatures[] = {0.7f, 0.05f, 1e-4f};
    struct table_model model = {.n_vocab = VOCAB};
    uint64_t n = 0;
    for (int i = 0; i < VOCAB; i++)
        for (int j = 0; j < VOCAB; j++)
            model.row[i][j] = (float)(6 * uniform(&n));
    struct table_pair pair = {.rule = standard, .target = &model, .draft = &model, .n_draft = 4};
    for (size_t t = 0; t < 3; t++)
        for (uint64_t seed = 0; seed < 500; seed++) {
            struct ft_sampling sampling = ft_sampling_default();
            sampling.temperature = temperatures[t];
            sampling.seed = seed;
            table_text(&run, &pair, &sampling, "a", 64);
        }
    ck_assert_int_gt(run.stats.drafted, 0);
    ck_assert_int_eq(run.stats.accepted, run.stats.drafted);
}
END_TEST

/* q exceeds p everywhere, as by rounding: some drafts are rejected and the residual is all zero. */
START_TEST(dev16_rejection_with_an_empty_residual_draws_from_p) {
    const float logits[] = {1, 0, 2, -INFINITY}, *p_rows[] = {logits, logits};
    float q[4];
    struct ft_sampling sampling = ft_sampling_default();
    struct ft_row_context context = {.sampling = &sampling};
    ck_assert_int_eq(ft_transform_row(run.transform, logits, 4, &context, q, NULL), FT_OK);
    for (int i = 0; i < 4; i++)
        q[i] *= 1.0009f;
    const float *q_rows[] = {q};
    int32_t draft = 2, n_rejected = 0;
    for (uint64_t seed = 0; seed < 50000; seed++) {
        sampling.seed = seed;
        struct ft_round round = {.sampling = &sampling,
                                 .draft = &draft,
                                 .n_draft = 1,
                                 .p_rows = p_rows,
                                 .n_vocab = 4,
                                 .q_rows = q_rows,
                                 .n_vocab_draft = 4};
        struct ft_verdict verdict;
        table_require(standard->decide(run.transform, &round, &verdict, NULL) == FT_OK);
        n_rejected += verdict.residual;
        for (int32_t i = 0; i < verdict.n_tokens; i++)
            table_require(verdict.tokens[i] >= 0 && verdict.tokens[i] < 3);
    }
    ck_assert_int_gt(n_rejected, 10);
}
END_TEST

/* The rate at which a pair accepts is known: per round, the sum of alpha^i for i = 1 .. K. */
START_TEST(dev65_acceptance_of_a_known_pair) {
    static const struct {
        int32_t k;
        double per_round;
    } rows[] = {{1, 0.4248}, {2, 0.6052}, {4, 0.7145}, {8, 0.7377}};
    struct table_model target = table_model(VOCAB, "*>b=2 c=1 d=0");
    struct table_model draft = table_model(VOCAB, "*>b=0 c=2 d=1");
    struct ft_sampling sampling = ft_sampling_default();
    struct ft_row_context context = {.sampling = &sampling};
    float p[VOCAB], q[VOCAB];
    ck_assert_int_eq(ft_transform_row(run.transform, target.row[0], VOCAB, &context, p, NULL),
                     FT_OK);
    ck_assert_int_eq(ft_transform_row(run.transform, draft.row[0], VOCAB, &context, q, NULL),
                     FT_OK);
    ck_assert_double_eq_tol(ft_spec_alpha(p, VOCAB, q, VOCAB), 0.42479, 1e-5);
    ck_assert_double_eq_tol(ft_spec_alpha(p, VOCAB, q, 2), 0.09003, 1e-5); /* b alone */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const uint64_t n_rounds = 2 * TABLE_N_SEEDS;
        double slack = TABLE_N_SEEDS < 20000 ? 4 : 1;
        struct table_pair pair = {.rule = standard, .target = &target, .draft = &draft};
        memset(&run.stats, 0, sizeof run.stats);
        for (sampling.seed = 0; sampling.seed < n_rounds; sampling.seed++)
            table_round(&run, &pair, &sampling, (struct table_place){.position = 1}, rows[i].k);
        ck_assert_double_eq_tol((double)run.stats.accepted / (double)n_rounds, rows[i].per_round,
                                0.015 * slack);
        ck_assert_double_eq_tol((double)run.stats.first_accepted / (double)n_rounds, 0.4248,
                                0.01 * slack);
    }
}
END_TEST

/* ---- vocabularies ---------------------------------------------------------------------------- */

START_TEST(dev07_drafted_id_outside_the_target_is_a_rejected_draft) {
    struct table_model target = table_model(4, "*>b=2 c=1 d=0");
    struct table_model draft = table_model(9, "*>b=0 c=1 h=3"); /* h is outside */
    for (int drafter = 0; drafter < 2; drafter++)
        for (int greedy = 0; greedy < 2; greedy++) {
            struct table_pair pair = {.rule = standard,
                                      .target = &target,
                                      .draft = &draft,
                                      .drafter = (enum table_drafter)drafter,
                                      .n_draft = 4};
            struct ft_sampling sampling = ft_sampling_default();
            sampling.temperature = greedy ? 0.0f : 1.0f;
            for (sampling.seed = 0; sampling.seed < 300; sampling.seed++) {
                const char *text = table_text(&run, &pair, &sampling, "a", 10);
                ck_assert_uint_eq(strspn(text, greedy ? "b" : "bcd"), 10);
            }
        }
    int32_t negative[] = {-1};
    const float *p_rows[] = {target.row[0], NULL};
    struct ft_sampling sampling = ft_sampling_default();
    struct ft_round round = {.sampling = &sampling,
                             .draft = negative,
                             .n_draft = 1,
                             .p_rows = p_rows,
                             .n_vocab = 4,
                             .n_vocab_draft = 4};
    struct ft_verdict verdict;
    ck_assert_int_eq(standard->decide(run.transform, &round, &verdict, NULL), FT_OK);
    ck_assert(verdict.residual && verdict.n_tokens == 1);
}
END_TEST

/* ---- what a broken worker writes ------------------------------------------------------------- */

struct broken {
    float p[3][6], q[2][6];
    const float *p_rows[3], *q_rows[2];
    int32_t draft[2];
    struct ft_sampling sampling;
    struct ft_round round;
};

static void broken_init(struct broken *b) {
    *b = (struct broken){.draft = {4, 2}, .sampling = ft_sampling_default()};
    for (int k = 0; k < 3; k++) {
        b->p_rows[k] = b->p[k];
        for (int i = 0; i < 6; i++) {
            b->p[k][i] = k == 0 && i == 4 ? -20 : 0; /* the first draft is always rejected */
            if (k < 2)
                b->q[k][i] = 1.0f / 6;
        }
        if (k < 2)
            b->q_rows[k] = b->q[k];
    }
    b->round = (struct ft_round){.sampling = &b->sampling,
                                 .draft = b->draft,
                                 .n_draft = 2,
                                 .p_rows = b->p_rows,
                                 .n_vocab = 6,
                                 .q_rows = b->q_rows,
                                 .n_vocab_draft = 6};
}

static enum ft_code decide_untouched(const struct broken *b, struct ft_err *err) {
    struct ft_verdict verdict, before;
    memset(&verdict, 0x5A, sizeof verdict);
    memcpy(&before, &verdict, sizeof verdict);
    enum ft_code code = standard->decide(run.transform, &b->round, &verdict, err);
    if (code != FT_OK)
        ck_assert_int_eq(memcmp(&verdict, &before, sizeof verdict), 0);
    return code;
}

START_TEST(decide_with_a_broken_q_row_blames_the_draft_worker) {
    static const struct {
        int32_t id;
        float q;
    } rows[] = {{4, 0},   {4, -0.1f}, {4, NAN},      {4, INFINITY}, {4, 1.5f},
                {1, NAN}, {1, -0.1f}, {1, INFINITY}, {1, 0.9f},     {5, 0.0f}};
    struct broken b;
    struct ft_err err = {0};
    broken_init(&b);
    ck_assert_int_eq(decide_untouched(&b, &err), FT_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        broken_init(&b);
        b.q[0][rows[i].id] = rows[i].q;
        ck_assert_int_eq(decide_untouched(&b, &err), FT_E_PEER_PROTOCOL);
        ck_assert_ptr_nonnull(strstr(err.text, "draft 0"));
        b.round.n_draft = 0; /* the documented way out */
        ck_assert_int_eq(decide_untouched(&b, &err), FT_OK);
    }
    static const int32_t outside[] = {-1, 6, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 4; i++) {
        broken_init(&b);
        b.draft[0] = outside[i];
        ck_assert_int_eq(decide_untouched(&b, &err), FT_E_PEER_PROTOCOL);
        ck_assert_ptr_nonnull(strstr(err.text, "vocabulary"));
    }
    broken_init(&b); /* a mass that only the draft's own ids hold is checked as well */
    b.round.n_vocab = 5;
    b.q[0][5] = NAN;
    ck_assert_int_eq(decide_untouched(&b, &err), FT_E_PEER_PROTOCOL);
}
END_TEST

START_TEST(dev17_non_finite_target_row_names_it) {
    static const float bad[] = {NAN, INFINITY};
    for (int greedy = 0; greedy < 2; greedy++)
        for (int row = 0; row < 3; row++)
            for (int k = 0; k < 4; k++) {
                struct broken b;
                struct ft_err err = {0};
                broken_init(&b);
                b.p[0][4] = b.p[1][2] = 30; /* both drafts are accepted */
                b.sampling.temperature = greedy ? 0.0f : 1.0f;
                ck_assert_int_eq(decide_untouched(&b, &err), FT_OK);
                for (int i = 0; i < 6; i++)
                    if (k >= 2 || i == 5)
                        b.p[row][i] = bad[k % 2];
                ck_assert_int_eq(decide_untouched(&b, &err), FT_E_REQ_NUMERIC);
                char want[16] = "row 0: ";
                want[4] = (char)('0' + row);
                ck_assert_msg(strstr(err.text, want) == err.text, "%s", err.text);
                ck_assert_ptr_nonnull(strstr(err.text, "non-finite"));
            }
}
END_TEST

START_TEST(rows_behind_a_rejection_are_not_looked_at) {
    for (int greedy = 0; greedy < 2; greedy++) {
        struct broken b;
        struct ft_err err = {0};
        broken_init(&b);
        b.sampling.temperature = greedy ? 0.0f : 1.0f;
        b.p_rows[1] = b.p_rows[2] = NULL;
        ck_assert_int_eq(decide_untouched(&b, &err), FT_OK);
    }
}
END_TEST

START_TEST(ban_of_everything_names_the_row) {
    static const int32_t all[] = {0, 1, 2, 3, 4, 5};
    struct broken b;
    struct ft_err err = {0};
    for (int greedy = 0; greedy < 2; greedy++) {
        broken_init(&b);
        b.sampling.temperature = greedy ? 0.0f : 1.0f;
        b.round.banned = all;
        b.round.n_banned = 6;
        b.round.n_banned_rows = 1;
        ck_assert_int_eq(decide_untouched(&b, &err), FT_E_REQ_INVALID);
        ck_assert_ptr_nonnull(strstr(err.text, "row 0: "));
        b.round.n_banned_rows = 0;
        ck_assert_int_eq(decide_untouched(&b, &err), FT_OK);
    }
}
END_TEST

int main(void) {
    TCase *tcase = tcase_create("rule");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, find_of_unknown_name_returns_null);
    tcase_add_test(tcase, decide_of_random_rounds_equals_naive_oracle);
    tcase_add_test(tcase, dev01_correction_comes_from_the_row_of_the_rejection);
    tcase_add_test(tcase, dev10_penalties_inside_a_block_see_each_token_once);
    tcase_add_test(tcase, dev19_penalties_work_under_speculation);
    tcase_add_test(tcase, dev45_repetition_penalty_of_negative_logits_and_of_the_prompt);
    tcase_add_test(tcase, dev46_top_k_of_any_size_beside_greedy);
    tcase_add_test(tcase, dev47_tiny_temperature_or_top_p_is_the_best_token);
    tcase_add_test(tcase, dev16_draft_equal_to_target_is_always_accepted);
    tcase_add_test(tcase, dev16_rejection_with_an_empty_residual_draws_from_p);
    tcase_add_test(tcase, dev65_acceptance_of_a_known_pair);
    tcase_add_test(tcase, dev07_drafted_id_outside_the_target_is_a_rejected_draft);
    tcase_add_test(tcase, decide_with_a_broken_q_row_blames_the_draft_worker);
    tcase_add_test(tcase, dev17_non_finite_target_row_names_it);
    tcase_add_test(tcase, rows_behind_a_rejection_are_not_looked_at);
    tcase_add_test(tcase, ban_of_everything_names_the_row);
    Suite *suite = suite_create("rule");
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
