/* What every acceptance rule owes. A lossless rule commits texts with the target's own
 * distribution, whatever the drafter, its own sampling, K and sampling; every rule that is not
 * blind is greedy at temperature 0; all depend on nothing but their arguments, and keep the masks.
 */
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

/* ---- distributions --------------------------------------------------------------------------- */

/* DEV-02: at every position of a text of independent tokens the counts follow p. */
static void check_iid(const struct table_pair *pair, const struct ft_sampling *like, double b,
                      double c, double d) {
    static uint32_t counts[8][26];
    const double prob[26] = {0, b, c, d};
    struct ft_sampling sampling = *like;
    const int32_t n_tokens = pair->n_draft < 4 ? 4 : pair->n_draft + 1;
    memset(counts, 0, sizeof counts);
    for (uint64_t seed = 0; seed < TABLE_N_SEEDS; seed++) {
        int32_t out[8], prompt = 0;
        sampling.seed = seed;
        table_generate(&run, pair, &sampling, &prompt, 1, n_tokens, out);
        for (int32_t i = 0; i < n_tokens; i++)
            counts[i][out[i]]++;
    }
    for (int32_t i = 0; i < n_tokens; i++) {
        char what[80];
        snprintf(what, sizeof what, "K %d, drafter %d, T %g, position %d", pair->n_draft,
                 (int)pair->drafter, (double)like->temperature, i);
        check_distribution(counts[i], prob, 26, what);
    }
}

START_TEST(dev02_every_position_follows_the_target) {
    const struct ft_rule *rule = ft_rule_at((size_t)_i);
    if (rule->lossy)
        return;
    struct table_model target = table_model(26, "*>b=2 c=1 d=0");
    struct table_model draft = table_model(26, "*>b=0 c=2 d=1");
    for (size_t way = 0; way < TABLE_N_WAYS; way++) {
        struct table_pair pair = {.rule = rule,
                                  .target = &target,
                                  .draft = &draft,
                                  .drafter = table_ways[way].drafter,
                                  .n_draft = table_ways[way].n_draft};
        struct ft_sampling s = ft_sampling_default();
        check_iid(&pair, &s, 0.66524, 0.24473, 0.09003);
        s.temperature = 0.5f;
        check_iid(&pair, &s, 0.86681, 0.11731, 0.01588);
        s.temperature = 1.5f;
        check_iid(&pair, &s, 0.56299, 0.28905, 0.14840);
        s.temperature = 1;
        s.top_p = 0.7f;
        check_iid(&pair, &s, 0.73106, 0.26894, 0);
    }
}
END_TEST

/* The drafter may sample as it likes: hotter, colder, cut otherwise, or not at all. */
START_TEST(drafts_own_sampling_changes_no_distribution) {
    static const struct {
        float temperature, top_p;
        int32_t top_k;
    } rows[] = {{0, 1, 0}, {0.4f, 1, 0}, {2, 1, 0}, {1, 1, 2}, {1, 0.7f, 0}, {1, 1, 1}};
    const struct ft_rule *rule = ft_rule_at((size_t)_i);
    if (rule->lossy)
        return;
    struct table_model target = table_model(26, "*>b=2 c=1 d=0");
    struct table_model draft = table_model(26, "*>b=0 c=2 d=1");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ft_sampling own = ft_sampling_default(), s = ft_sampling_default();
        own.temperature = rows[i].temperature;
        own.top_p = rows[i].top_p;
        own.top_k = rows[i].top_k;
        struct table_pair pair = {
            .rule = rule, .target = &target, .draft = &draft, .n_draft = 3, .draft_sampling = &own};
        check_iid(&pair, &s, 0.66524, 0.24473, 0.09003);
        s.temperature = 0.5f;
        check_iid(&pair, &s, 0.86681, 0.11731, 0.01588);
    }
}
END_TEST

/* ---- what holds for every rule --------------------------------------------------------------- */

START_TEST(greedy_text_is_that_of_plain_decoding) {
    struct table_model target = table_random(3, 26, 9), draft = table_random(4, 26, 9);
    const struct ft_rule *rule;
    for (size_t r = 0; (rule = ft_rule_at(r)) != NULL; r++) {
        struct ft_sampling sampling = ft_sampling_default();
        if (rule->blind)
            continue;
        sampling.temperature = 0;
        sampling.repetition_penalty = 1.3f;
        sampling.frequency_penalty = 0.2f;
        struct table_pair pair = {.rule = rule, .target = &target, .draft = &draft};
        char want[201];
        strcpy(want, table_text(&run, &pair, &sampling, "abc", 200));
        for (int drafter = 0; drafter < 3; drafter++)
            for (int32_t k = 1; k <= FT_DRAFT_LEN_MAX; k++) {
                pair.drafter = (enum table_drafter)drafter;
                pair.n_draft = k;
                ck_assert_str_eq(table_text(&run, &pair, &sampling, "abc", 200), want);
            }
    }
}
END_TEST

START_TEST(dev49_text_depends_on_the_seed_and_not_on_company) {
    static const uint64_t seeds[] = {42, 43, 0, UINT64_MAX};
    struct table_model target = table_random(3, 26, 9), draft = table_random(4, 26, 9);
    const struct ft_rule *rule;
    for (size_t r = 0; (rule = ft_rule_at(r)) != NULL; r++) {
        char first[4][65];
        struct table_pair pair = {.rule = rule, .target = &target, .draft = &draft, .n_draft = 4};
        struct ft_sampling sampling = ft_sampling_default();
        for (size_t i = 0; i < 4; i++) {
            sampling.seed = seeds[i];
            strcpy(first[i], table_text(&run, &pair, &sampling, "a", 64));
            for (size_t j = 0; j < i; j++)
                ck_assert_str_ne(first[i], first[j]);
        }
        struct table_run other; /* another process, with other requests in between */
        table_run_init(&other);
        for (size_t i = 4; i-- > 0;) {
            sampling.seed = 1000 + i;
            table_text(&other, &pair, &sampling, "b", 33);
            sampling.seed = seeds[i];
            ck_assert_str_eq(table_text(&other, &pair, &sampling, "a", 64), first[i]);
        }
        table_run_fini(&other);
    }
}
END_TEST

/* min_tokens, allowed and banned ids: nothing that they exclude is ever committed, though the
 * drafter wants it. */
START_TEST(masks_hold_under_every_rule) {
    static const int32_t eos[] = {1}, allowed[] = {0, 1, 2, 3, 5}, banned[] = {3, 7};
    struct table_model target = table_model(26, "*>b=3 c=2 d=4 f=1 a=0 h=3");
    struct table_model draft = table_model(26, "*>b=4 c=0 d=4 f=0 e=3 h=2");
    const struct ft_rule *rule;
    for (size_t r = 0; (rule = ft_rule_at(r)) != NULL; r++)
        for (size_t way = 0; way < TABLE_N_WAYS; way++)
            for (uint64_t seed = 0; seed < 200; seed++) {
                struct ft_sampling sampling = ft_sampling_default();
                sampling.seed = seed;
                sampling.temperature = seed % 4 == 0 ? 0.0f : 1.0f;
                sampling.allowed = allowed;
                sampling.n_allowed = 5;
                sampling.banned = banned;
                sampling.n_banned = 2;
                struct ft_sampling own = ft_sampling_default(); /* knows of no mask */
                struct table_pair pair = {.rule = rule,
                                          .target = &target,
                                          .draft = &draft,
                                          .draft_sampling = &own,
                                          .drafter = table_ways[way].drafter,
                                          .n_draft = table_ways[way].n_draft,
                                          .banned = eos,
                                          .n_banned = 1,
                                          .min_tokens = 6};
                const char *text = table_text(&run, &pair, &sampling, "a", 12);
                ck_assert_msg(strspn(text, "abcf") == 12, "%s: %s", rule->name, text);
                ck_assert_msg(strcspn(text, "b") >= 6, "%s: %s", rule->name, text);
            }
}
END_TEST

START_TEST(non_finite_row_is_an_error_and_leaves_the_verdict) {
    const struct ft_rule *rule;
    for (size_t r = 0; (rule = ft_rule_at(r)) != NULL; r++)
        for (int greedy = 0; greedy < 2; greedy++) {
            const float row[] = {0, NAN, 1}, *rows[] = {row};
            struct ft_sampling sampling = ft_sampling_default();
            sampling.temperature = greedy ? 0.0f : 1.0f;
            struct ft_round round = {
                .sampling = &sampling, .p_rows = rows, .n_vocab = 3, .lenience = 0.5f};
            struct ft_verdict verdict = {.n_tokens = 77};
            struct ft_err err = {0};
            ck_assert_int_eq(rule->decide(run.transform, &round, &verdict, &err), FT_E_REQ_NUMERIC);
            ck_assert_int_eq(verdict.n_tokens, 77);
            ck_assert_ptr_nonnull(strstr(err.text, "row 0"));
        }
}
END_TEST

/* What a round comes to whose draft broke at its second token; decided as the caller does. */
static int32_t first_of_broken(const struct ft_rule *rule, uint64_t seed, const float *q_second) {
    static const float p[3] = {2, 1, 0}, q[3] = {0.09003057f, 0.66524096f, 0.24472847f};
    const float *p_rows[] = {p, p, p}, *q_rows[] = {q, q_second};
    struct ft_sampling sampling = ft_sampling_default();
    sampling.seed = seed;
    int32_t draft[2] = {ft_rule_propose(&sampling, q, 3, 5, 0), 1};
    struct ft_round round = {.sampling = &sampling,
                             .position = 5,
                             .draft = draft,
                             .n_draft = 2,
                             .p_rows = p_rows,
                             .n_vocab = 3,
                             .q_rows = q_rows,
                             .n_vocab_draft = 3};
    struct ft_verdict verdict;
    enum ft_code code = rule->decide(run.transform, &round, &verdict, NULL);
    if (code == FT_E_PEER_PROTOCOL) {
        round.n_draft = 0;
        code = rule->decide(run.transform, &round, &verdict, NULL);
    }
    ck_assert_int_eq(code, FT_OK);
    return verdict.tokens[0];
}

/* Whether a round is decided again without drafts must not depend on how its first draft fared. */
START_TEST(a_break_behind_the_first_draft_leaves_the_distribution) {
    static const double prob[3] = {0.66524096, 0.24472847, 0.09003057};
    static const float broken[][3] = {{0.5f, 0, 0.5f}, {0.5f, 0.3f, 0.5f}, {0.9f, 0.2f, -0.1f}};
    const struct ft_rule *rule = ft_rule_at((size_t)_i);
    for (size_t b = 0; !rule->lossy && b < 3; b++) {
        uint32_t counts[3] = {0};
        for (uint64_t seed = 0; seed < 20000; seed++)
            counts[first_of_broken(rule, seed, broken[b])]++;
        check_distribution(counts, prob, 3, rule->name);
    }
}
END_TEST

static int n_rules(void) {
    int n = 0;
    while (ft_rule_at((size_t)n) != NULL)
        n++;
    return n;
}

int main(void) {
    TCase *tcase = tcase_create("rule contract");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, dev02_every_position_follows_the_target, 0, n_rules());
    tcase_add_loop_test(tcase, a_break_behind_the_first_draft_leaves_the_distribution, 0,
                        n_rules());
    tcase_add_loop_test(tcase, drafts_own_sampling_changes_no_distribution, 0, n_rules());
    tcase_add_test(tcase, masks_hold_under_every_rule);
    tcase_add_test(tcase, greedy_text_is_that_of_plain_decoding);
    tcase_add_test(tcase, dev49_text_depends_on_the_seed_and_not_on_company);
    tcase_add_test(tcase, non_finite_row_is_an_error_and_leaves_the_verdict);
    Suite *suite = suite_create("rule contract");
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
