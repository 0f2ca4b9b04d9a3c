/* What each rule promises beside the contract of all: `coupled` texts do not depend on speculation,
 * `block` never accepts less than `standard`, `lenient` keeps its bound, `synthetic` its rate. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/spec/rule.h"
#include "support/suite.h"
#include "unit/chi_square.h"
#include "unit/table_model.h"

static struct table_run run;

static void setup(void) {
    table_run_init(&run);
}

static void teardown(void) {
    table_run_fini(&run);
}

/* ---- coupled --------------------------------------------------------------------------------- */

START_TEST(coupled_text_of_a_seed_is_that_of_plain_decoding) {
    static const float temperatures[] = {1, 0.4f, 2};
    struct table_model target = table_random(3, 26, 9), near = target, far = table_random(4, 26, 9);
    struct table_model narrow = table_random(5, 7, 6);
    const struct table_model *drafts[] = {&target, &near, &far, &narrow};
    for (int i = 0; i < 26; i++)
        near.row[i][(i * 7) % 26] += 1.5f;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct ft_sampling sampling = ft_sampling_default(), own = ft_sampling_default();
        sampling.seed = seed;
        sampling.temperature = temperatures[seed % 3];
        sampling.top_k = seed % 2 == 0 ? 0 : 9;
        sampling.top_p = seed % 5 == 0 ? 0.9f : 1;
        sampling.frequency_penalty = seed % 4 == 0 ? 0.5f : 0;
        own.temperature = (float)(seed % 4) * 0.7f;
        struct table_pair pair = {.rule = ft_rule_find("coupled"), .target = &target};
        char want[121];
        pair.draft = &far;
        strcpy(want, table_text(&run, &pair, &sampling, "abc", 120));
        for (size_t d = 0; d < 4; d++)
            for (int drafter = 0; drafter < 3; drafter++)
                for (int32_t k = 1; k <= FT_DRAFT_LEN_MAX; k++) {
                    pair.draft = drafts[d];
                    pair.drafter = (enum table_drafter)drafter;
                    pair.n_draft = k;
                    pair.draft_sampling = k % 3 == 0 ? &own : NULL;
                    ck_assert_str_eq(table_text(&run, &pair, &sampling, "abc", 120), want);
                }
    }
}
END_TEST

/* P(equal) of two coupled draws is at least (1 - tv) / (1 + tv) (Daliri et al., theorem 1), and 1
 * when q = p: the noise is the same. An independent draw would agree with probability sum p q. */
START_TEST(coupled_drafts_are_accepted_as_the_bound_says) {
    const double p[] = {0.66524, 0.24473, 0.09003}, q[] = {0.09003, 0.66524, 0.24473};
    double tv = 0;
    for (int i = 0; i < 3; i++)
        tv += fabs(p[i] - q[i]) / 2;
    struct table_model target = table_model(26, "*>b=2 c=1 d=0");
    struct table_model draft = table_model(26, "*>b=0 c=2 d=1");
    struct table_pair pair = {
        .rule = ft_rule_find("coupled"), .target = &target, .draft = &draft, .n_draft = 1};
    struct ft_sampling sampling = ft_sampling_default();
    for (sampling.seed = 0; sampling.seed < 20000; sampling.seed++)
        table_round(&run, &pair, &sampling, (struct table_place){.position = 1}, 1);
    double rate = (double)run.stats.accepted / (double)run.stats.drafted;
    ck_assert_double_gt(rate, (1 - tv) / (1 + tv) - 0.01);
    ck_assert_double_lt(rate, 1 - tv + 0.01);
    struct table_model model = table_random(9, 26, 5);
    pair.target = pair.draft = &model;
    pair.n_draft = 4;
    memset(&run.stats, 0, sizeof run.stats);
    for (sampling.seed = 0; sampling.seed < 300; sampling.seed++)
        table_text(&run, &pair, &sampling, "a", 64);
    ck_assert_int_eq(run.stats.accepted, run.stats.drafted);
}
END_TEST

/* ---- block ----------------------------------------------------------------------------------- */

static double mean_accepted(const char *rule, const struct table_model *target,
                            const struct table_model *draft, int32_t k, uint64_t n,
                            enum table_drafter drafter) {
    struct table_pair pair = {.rule = ft_rule_find(rule),
                              .target = target,
                              .draft = draft,
                              .drafter = drafter,
                              .n_draft = k};
    struct ft_sampling sampling = ft_sampling_default();
    memset(&run.stats, 0, sizeof run.stats);
    for (sampling.seed = 0; sampling.seed < n; sampling.seed++)
        table_round(&run, &pair, &sampling, (struct table_place){.position = 1}, k);
    return (double)run.stats.accepted / (double)n;
}

/* The example of Sun et al. 2024: p = (1/3, 2/3), q = (2/3, 1/3), K = 2: token by token accepts
 * 10/9 on average, the block 11/9. */
START_TEST(block_accepts_eleven_ninths_where_standard_accepts_ten) {
    const uint64_t n = 4 * TABLE_N_SEEDS;
    double sigma = 1 / sqrt((double)n); /* of a value in 0 .. 2 */
    struct table_model target = {.n_vocab = 2}, draft = {.n_vocab = 2};
    for (int i = 0; i < 2; i++) {
        target.row[i][1] = draft.row[i][0] = logf(2);
        target.row[i][0] = draft.row[i][1] = 0;
    }
    ck_assert_double_eq_tol(mean_accepted("standard", &target, &draft, 2, n, TABLE_SAMPLES),
                            10.0 / 9, 4 * sigma);
    ck_assert_double_eq_tol(mean_accepted("block", &target, &draft, 2, n, TABLE_SAMPLES), 11.0 / 9,
                            4 * sigma);
}
END_TEST

START_TEST(block_never_accepts_less_than_standard) {
    const uint64_t n = TABLE_N_SEEDS;
    double gain = 0;
    for (uint64_t pair = 0; pair < 12; pair++) {
        struct table_model target = table_random(20 + pair, 8, 3);
        struct table_model draft = table_random(50 + pair, 8, 3);
        for (int32_t k = 1; k <= 8; k = k == 1 ? 3 : k + 5) {
            enum table_drafter drafter = pair % 3 == 0 ? TABLE_ARGMAX : TABLE_SAMPLES;
            double standard = mean_accepted("standard", &target, &draft, k, n, drafter);
            double block = mean_accepted("block", &target, &draft, k, n, drafter);
            double sigma = sqrt(2.0 * k / (double)n); /* of the difference, at the most */
            ck_assert_msg(block > standard - 3 * sigma, "pair %d, K %d: %.4f and %.4f", (int)pair,
                          k, block, standard);
            if (k == 1)
                ck_assert_double_eq_tol(block, standard, 4 * sigma);
            else
                gain += block - standard;
        }
    }
    ck_assert_double_gt(gain, 0.2); /* it is worth having */
}
END_TEST

/* ---- lenient --------------------------------------------------------------------------------- */

START_TEST(lenient_at_one_is_standard) {
    struct table_model target = table_random(1, 8, 4), draft = table_random(2, 8, 4);
    struct table_pair pair = {.target = &target, .draft = &draft, .n_draft = 4, .lenience = 1};
    struct ft_sampling sampling = ft_sampling_default();
    for (int drafter = 0; drafter < 3; drafter++)
        for (sampling.seed = 0; sampling.seed < 500; sampling.seed++) {
            char want[41];
            pair.drafter = (enum table_drafter)drafter;
            pair.rule = ft_rule_find("standard");
            strcpy(want, table_text(&run, &pair, &sampling, "a", 40));
            pair.rule = ft_rule_find("lenient");
            ck_assert_str_eq(table_text(&run, &pair, &sampling, "a", 40), want);
        }
}
END_TEST

/* The first token's distribution is known: min(q, p / l) accepted, and the rest from
 * norm(max(0, p - l q)); nowhere above p / l. */
START_TEST(lenient_distribution_is_the_papers_and_keeps_its_bound) {
    static const float leniences[] = {0.9f, 0.5f, 0.2f, 0.01f};
    const double p[26] = {0, 0.66524, 0.24473, 0.09003}, q[26] = {0, 0.09003, 0.66524, 0.24473};
    struct table_model target = table_model(26, "*>b=2 c=1 d=0");
    struct table_model draft = table_model(26, "*>b=0 c=2 d=1");
    for (int way = 0; way < 2; way++)
        for (size_t i = 0; i < 4; i++) {
            const double l = (double)leniences[i], one_hot[26] = {0, 0, 1};
            const double *given = way == 0 ? q : one_hot;
            double want[26] = {0}, accepted = 0, left = 0;
            for (int t = 0; t < 26; t++) {
                accepted += fmin(given[t], p[t] / l);
                left += fmax(0, p[t] - l * given[t]);
            }
            for (int t = 0; t < 26; t++) {
                want[t] = fmin(given[t], p[t] / l);
                if (accepted < 1)
                    want[t] += (1 - accepted) * fmax(0, p[t] - l * given[t]) / left;
                ck_assert_double_le(want[t], p[t] / l + 1e-9); /* the theory itself */
            }
            struct table_pair pair = {.rule = ft_rule_find("lenient"),
                                      .target = &target,
                                      .draft = &draft,
                                      .drafter = way == 0 ? TABLE_SAMPLES : TABLE_ARGMAX,
                                      .lenience = leniences[i]};
            struct ft_sampling sampling = ft_sampling_default();
            uint32_t counts[26] = {0};
            char what[60];
            memset(&run.stats, 0, sizeof run.stats);
            for (sampling.seed = 0; sampling.seed < TABLE_N_SEEDS; sampling.seed++)
                counts[table_round(&run, &pair, &sampling, (struct table_place){.position = 1}, 2)
                           .tokens[0]]++;
            snprintf(what, sizeof what, "lenience %g, drafter %d", l, (int)pair.drafter);
            check_distribution(counts, want, 26, what);
            double rate = (double)run.stats.first_accepted / (double)run.stats.rounds;
            ck_assert_double_eq_tol(rate, accepted, 4 * 0.5 / sqrt(TABLE_N_SEEDS));
        }
}
END_TEST

/* ---- synthetic ------------------------------------------------------------------------------- */

START_TEST(synthetic_accepts_at_the_given_rates) {
    static const float rates[] = {0.9f, 0.5f, 1.0f, 0.25f, 0.0f, 1.0f};
    const uint64_t n = TABLE_N_SEEDS;
    struct table_model target = table_model(26, "*>b=2 c=1 d=0");
    struct table_model draft = table_model(26, "*>x=3 y=1"); /* nothing of it is likely */
    struct table_pair pair = {.rule = ft_rule_find("synthetic"),
                              .target = &target,
                              .draft = &draft,
                              .n_draft = 6,
                              .rates = rates};
    for (int greedy = 0; greedy < 2; greedy++) {
        struct ft_sampling sampling = ft_sampling_default();
        uint64_t reached[7] = {0};
        sampling.temperature = greedy ? 0.0f : 1.0f;
        for (sampling.seed = 0; sampling.seed < n; sampling.seed++) {
            struct ft_verdict verdict =
                table_round(&run, &pair, &sampling, (struct table_place){.position = 1}, 6);
            for (int32_t i = 0; i < verdict.n_accepted; i++)
                reached[i]++;
            int32_t last = verdict.tokens[verdict.n_tokens - 1];
            ck_assert(greedy ? last == 1 : last >= 1 && last <= 3);
        }
        double want = 1;
        for (int i = 0; i < 6; i++) {
            want *= (double)rates[i];
            ck_assert_double_eq_tol((double)reached[i] / (double)n, want, 2 / sqrt((double)n));
        }
    }
    ck_assert(ft_rule_find("synthetic")->lossy && ft_rule_find("lenient")->lossy);
}
END_TEST

/* Ids that the target lacks stay rejected drafts at any rate. */
START_TEST(synthetic_never_commits_an_id_outside_the_target) {
    static const float rates[] = {1, 1, 1, 1};
    struct table_model target = table_random(1, 3, 4), draft = table_random(2, 9, 4);
    struct table_pair pair = {.rule = ft_rule_find("synthetic"),
                              .target = &target,
                              .draft = &draft,
                              .n_draft = 4,
                              .rates = rates};
    struct ft_sampling sampling = ft_sampling_default();
    for (sampling.seed = 0; sampling.seed < 500; sampling.seed++)
        ck_assert_uint_eq(strspn(table_text(&run, &pair, &sampling, "a", 20), "abc"), 20);
}
END_TEST

int main(void) {
    TCase *tcase = tcase_create("rule promises");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, coupled_text_of_a_seed_is_that_of_plain_decoding);
    tcase_add_test(tcase, coupled_drafts_are_accepted_as_the_bound_says);
    tcase_add_test(tcase, block_accepts_eleven_ninths_where_standard_accepts_ten);
    tcase_add_test(tcase, block_never_accepts_less_than_standard);
    tcase_add_test(tcase, lenient_at_one_is_standard);
    tcase_add_test(tcase, lenient_distribution_is_the_papers_and_keeps_its_bound);
    tcase_add_test(tcase, synthetic_accepts_at_the_given_rates);
    tcase_add_test(tcase, synthetic_never_commits_an_id_outside_the_target);
    Suite *suite = suite_create("rule promises");
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
