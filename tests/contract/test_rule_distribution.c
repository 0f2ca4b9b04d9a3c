/* Whole texts of three tokens over Markov pairs have the target's own joint distribution: a row
 * mixed up with its neighbour, a penalty counted twice or a residual of another row shows there.
 * For every lossless rule. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/spec/rule.h"
#include "support/suite.h"
#include "unit/chi_square.h"
#include "unit/naive_transform.h"
#include "unit/table_model.h"

static struct table_run run;

static void setup(void) {
    table_run_init(&run);
}

static void teardown(void) {
    table_run_fini(&run);
}

#define MARKOV 5
#define MARKOV_TEXTS (MARKOV * MARKOV * MARKOV)

/* The target's own probability of every text after token 0, by the naive reference. */
static void joint(const struct table_pair *pair, const struct ft_sampling *sampling,
                  double prob[MARKOV_TEXTS]) {
    static struct naive_row row;
    for (int32_t text = 0; text < MARKOV_TEXTS; text++) {
        const int32_t ids[] = {text / (MARKOV * MARKOV), text / MARKOV % MARKOV, text % MARKOV};
        struct naive_tokens history = {.prompt = {0}, .n_prompt = 1};
        prob[text] = 1;
        for (int32_t i = 0; i < 3; i++) {
            struct ft_row_context context = {
                .sampling = sampling,
                .banned = pair->banned,
                .n_banned = i < pair->min_tokens ? pair->n_banned : 0,
            };
            int32_t last = i == 0 ? 0 : ids[i - 1];
            naive_transform(&row, pair->target->row[last], (size_t)pair->target->n_vocab, &context,
                            &history);
            ck_assert_msg(!row.ambiguous || prob[text] == 0, "the case hangs on rounding");
            prob[text] *= ids[i] < pair->target->n_vocab ? row.prob[ids[i]] : 0;
            history.output[history.n_output++] = ids[i];
        }
    }
}

static void check_joint(struct table_pair *pair, struct ft_sampling sampling, const char *what) {
    static double prob[MARKOV_TEXTS];
    joint(pair, &sampling, prob);
    for (size_t way = 0; way < TABLE_N_WAYS; way++) {
        uint32_t counts[MARKOV_TEXTS] = {0};
        char name[120];
        pair->drafter = table_ways[way].drafter;
        pair->n_draft = table_ways[way].n_draft;
        for (uint64_t seed = 0; seed < TABLE_N_SEEDS; seed++) {
            int32_t out[5], prompt = 0; /* of five, so that four can be drafted */
            sampling.seed = seed;
            table_generate(&run, pair, &sampling, &prompt, 1, pair->n_draft > 2 ? 5 : 3, out);
            counts[(out[0] * MARKOV + out[1]) * MARKOV + out[2]]++;
        }
        snprintf(name, sizeof name, "%s, drafter %d, K %d", what, (int)pair->drafter,
                 pair->n_draft);
        check_distribution(counts, prob, MARKOV_TEXTS, name);
    }
}

static const struct {
    const char *name;
    float temperature, top_p, min_p, frequency, presence, repetition;
    int32_t top_k, min_tokens;
} joint_cases[] = {
    {.name = "plain", .temperature = 1},
    {.name = "cold", .temperature = 0.5f},
    {.name = "hot", .temperature = 1.5f},
    {.name = "top_k 2", .temperature = 1, .top_k = 2},
    {.name = "top_p 0.8", .temperature = 1, .top_p = 0.8f},
    {.name = "min_p 0.2", .temperature = 1.5f, .min_p = 0.2f},
    {.name = "penalties",
     .temperature = 1,
     .frequency = 0.7f,
     .presence = 0.4f,
     .repetition = 1.3f},
    {.name = "negative penalties", .temperature = 1, .frequency = -0.7f, .repetition = 0.8f},
    {.name = "min_tokens 2", .temperature = 1, .min_tokens = 2},
    {.name = "all",
     .temperature = 0.8f,
     .top_p = 0.9f,
     .min_p = 0.05f,
     .frequency = 0.5f,
     .repetition = 1.2f,
     .top_k = 4,
     .min_tokens = 1},
};
#define N_JOINT_CASES (int)(sizeof joint_cases / sizeof joint_cases[0])

static struct ft_sampling joint_sampling(int i) {
    struct ft_sampling s = ft_sampling_default();
    s.temperature = joint_cases[i].temperature;
    s.top_p = joint_cases[i].top_p == 0 ? 1 : joint_cases[i].top_p;
    s.top_k = joint_cases[i].top_k;
    s.min_p = joint_cases[i].min_p;
    s.frequency_penalty = joint_cases[i].frequency;
    s.presence_penalty = joint_cases[i].presence;
    s.repetition_penalty = joint_cases[i].repetition == 0 ? 1 : joint_cases[i].repetition;
    return s;
}

START_TEST(texts_follow_the_target_under_every_sampling) {
    static const int32_t banned[] = {1};
    struct table_model target = table_random(1, MARKOV, 4), draft = table_random(2, MARKOV, 4);
    const struct ft_rule *rule;
    for (size_t r = 0; (rule = ft_rule_at(r)) != NULL; r++) {
        if (rule->lossy)
            continue;
        struct table_pair pair = {.rule = rule,
                                  .target = &target,
                                  .draft = &draft,
                                  .banned = banned,
                                  .n_banned = 1,
                                  .min_tokens = joint_cases[_i].min_tokens};
        check_joint(&pair, joint_sampling(_i), joint_cases[_i].name);
    }
}
END_TEST

START_TEST(texts_follow_the_target_when_vocabularies_differ) {
    struct table_model narrow = table_random(1, 3, 4), wide = table_random(2, MARKOV, 4);
    const struct ft_rule *rule;
    for (size_t r = 0; (rule = ft_rule_at(r)) != NULL; r++) {
        if (rule->lossy)
            continue;
        struct table_pair pair = {.rule = rule, .target = &wide, .draft = &narrow};
        check_joint(&pair, ft_sampling_default(), "the draft lacks ids");
        pair.target = &narrow;
        pair.draft = &wide;
        check_joint(&pair, ft_sampling_default(), "the target lacks ids");
    }
}
END_TEST

START_TEST(texts_follow_the_target_when_the_draft_is_the_target) {
    struct table_model target = table_random(1, MARKOV, 4);
    const struct ft_rule *rule;
    for (size_t r = 0; (rule = ft_rule_at(r)) != NULL; r++) {
        if (rule->lossy)
            continue;
        struct table_pair pair = {.rule = rule, .target = &target, .draft = &target};
        check_joint(&pair, ft_sampling_default(), "q = p");
    }
}
END_TEST

int main(void) {
    TCase *tcase = tcase_create("rule distribution");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, texts_follow_the_target_under_every_sampling, 0, N_JOINT_CASES);
    tcase_add_test(tcase, texts_follow_the_target_when_vocabularies_differ);
    tcase_add_test(tcase, texts_follow_the_target_when_the_draft_is_the_target);
    Suite *suite = suite_create("rule distribution");
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
