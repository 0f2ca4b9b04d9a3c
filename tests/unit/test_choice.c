/* Decisions as data: what a device is told of a round, carried out on the host, gives what the rule
 * itself says. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/spec/chooser.h"
#include "support/fake_gpu.h"
#include "support/suite.h"
#include "unit/choice_cases.h"

#define CASES 6000

static struct ft_choice_batch batch;

static void setup(void) {
    ck_assert(ft_choice_batch_create(&batch, 64));
}

static void teardown(void) {
    ft_choice_batch_destroy(&batch);
}

static void check_verdict(const struct ft_verdict *got, const struct ft_verdict *want,
                          uint64_t number) {
    ck_assert_msg(got->n_tokens == want->n_tokens, "case %llu: %d tokens, not %d",
                  (unsigned long long)number, got->n_tokens, want->n_tokens);
    for (int32_t i = 0; i < want->n_tokens; i++)
        ck_assert_msg(got->tokens[i] == want->tokens[i], "case %llu: token %d is %d, not %d",
                      (unsigned long long)number, i, got->tokens[i], want->tokens[i]);
    ck_assert_int_eq(got->n_accepted, want->n_accepted);
    ck_assert_int_eq(got->residual, want->residual);
}

START_TEST(round_as_data_decides_as_its_rule) {
    struct ft_choice_result results[CASE_DRAFTS + 1];
    int32_t n_decided = 0, n_asked = 0, n_refused = 0, n_accepted = 0, n_residual = 0;
    for (uint64_t number = 1; number <= CASES; number++) {
        struct choice_case c;
        struct ft_choice_round at;
        struct ft_verdict want, got;
        struct ft_err err = {0};
        choice_case_create(&c, number, number % 10 == 0 ? 700 : 40);
        struct ft_transform *t = ft_transform_create(c.n_vocab);
        bool ok = c.rule->decide(t, &c.round, &want, &err) == FT_OK;
        ft_choice_batch_reset(&batch);
        if (!ft_choice_add_round(&batch, c.rule, &c.round, c.draft, &at)) {
            n_refused++;
            ck_assert_int_eq(batch.n_rows + batch.n_edits + batch.n_ids, 0);
        } else {
            choice_run_on_host(&batch, results);
            if (ft_choice_verdict(c.rule, &c.round, &at, results, &got)) {
                ck_assert_msg(ok, "case %llu: the rule says %s", (unsigned long long)number,
                              err.text);
                check_verdict(&got, &want, number);
                n_decided++;
                n_accepted += got.n_accepted;
                n_residual += got.residual;
            } else {
                n_asked++;
            }
        }
        ft_transform_destroy(&t);
        choice_case_destroy(&c);
    }
    ck_assert_int_gt(n_decided, CASES * 7 / 10);
    ck_assert_int_gt(n_asked, 0);
    ck_assert_int_gt(n_accepted, CASES / 5);
    ck_assert_int_gt(n_residual, CASES / 8);
    ck_assert_int_lt(n_refused, CASES / 10);
}
END_TEST

/* `block` looks at its rows one behind another. */
START_TEST(rule_without_a_twin_is_refused) {
    struct choice_case c;
    struct ft_choice_round at;
    choice_case_create(&c, 3, 40);
    c.sampling.temperature = 1;
    ck_assert(!ft_choice_add_round(&batch, ft_rule_find("block"), &c.round, c.draft, &at));
    c.sampling.temperature = 0;
    ck_assert(ft_choice_add_round(&batch, ft_rule_find("block"), &c.round, c.draft, &at));
    choice_case_destroy(&c);
}
END_TEST

/* A row of q that is broken is left to the host wherever it stands, not only where the round gets.
 */
START_TEST(broken_q_row_counts_behind_a_rejection) {
    static const float p[] = {0, 0, 0}, q[] = {0.2f, 0.3f, 0.5f};
    const float *p_rows[] = {p, p, p}, *q_rows[] = {q, q};
    static const int32_t draft[] = {1, 2};
    static const struct ft_choice_result sound[] = {
        {.status = FT_CHOICE_OK, .token = 0}, {.status = FT_CHOICE_OK}, {.status = FT_CHOICE_OK}};
    struct ft_sampling sampling = ft_sampling_default();
    const struct ft_rule *rule = ft_rule_find("standard");
    struct ft_round round = {.sampling = &sampling,
                             .draft = draft,
                             .n_draft = 2,
                             .p_rows = p_rows,
                             .n_vocab = 3,
                             .q_rows = q_rows,
                             .n_vocab_draft = 3};
    struct ft_choice_round at = {.n_rows = 3};
    struct ft_choice_result results[3];
    struct ft_verdict verdict;
    memcpy(results, sound, sizeof results);
    ck_assert(ft_choice_verdict(rule, &round, &at, results, &verdict));
    ck_assert_int_eq(verdict.n_tokens, 1);
    results[1].status = FT_CHOICE_BAD_Q;
    ck_assert(!ft_choice_verdict(rule, &round, &at, results, &verdict));
}
END_TEST

/* A batch that is full refuses whole rounds, and keeps what it has. */
START_TEST(full_batch_refuses_and_stays_as_it_is) {
    struct choice_case c;
    struct ft_choice_round at;
    choice_case_create(&c, 5, 40);
    c.rule = ft_rule_find("standard");
    int32_t n_rounds = 0;
    while (ft_choice_add_round(&batch, c.rule, &c.round, c.draft, &at)) {
        ck_assert_int_eq(at.first_row, n_rounds * (c.round.n_draft + 1));
        n_rounds++;
    }
    ck_assert_int_eq(n_rounds, 64 / (c.round.n_draft + 1));
    ck_assert_int_eq(batch.n_rows, n_rounds * (c.round.n_draft + 1));
    choice_case_destroy(&c);
    ft_choice_batch_reset(&batch);
    choice_case_create(&c, 7, 40);
    c.round.n_vocab = FT_CHOICE_VOCAB_MAX + 1;
    ck_assert(!ft_choice_add_round(&batch, ft_rule_find("standard"), &c.round, c.draft, &at));
    choice_case_destroy(&c);
}
END_TEST

/* A drafted token and its q are those of the transform and the propose of spec. */
START_TEST(draft_as_data_is_the_proposal) {
    for (uint64_t number = 1; number <= 1000; number++) {
        struct choice_case c;
        struct ft_choice_result result;
        choice_case_create(&c, number, 60);
        struct ft_transform *t = ft_transform_create(c.n_vocab);
        float *want = ft_transform_scratch(t, 1), *got = calloc((size_t)c.n_vocab, sizeof *got);
        int32_t index = c.round.n_draft, id = -1;
        struct ft_row_context context = {.sampling = &c.sampling,
                                         .counts = c.counts,
                                         .drafted = c.draft,
                                         .n_drafted = (size_t)index};
        bool is_greedy = ft_sampling_is_greedy(&c.sampling);
        bool ok = ft_transform_row(t, c.p_rows[0], c.n_vocab, &context, want, NULL) == FT_OK;
        if (ok && is_greedy)
            ok = ft_transform_argmax(t, c.p_rows[0], c.n_vocab, &context, &id, NULL) == FT_OK;
        else if (ok)
            id = ft_rule_propose(&c.sampling, want, c.n_vocab, 900 + number, index);
        struct ft_choice_draft draft = {.sampling = &c.sampling,
                                        .counts = c.counts,
                                        .logits = c.p_rows[0],
                                        .probs = got,
                                        .drafted = c.draft,
                                        .n_vocab = c.n_vocab,
                                        .index = index,
                                        .position = 900 + number};
        ft_choice_batch_reset(&batch);
        ck_assert(ft_choice_add_draft(&batch, &draft));
        choice_run_on_host(&batch, &result);
        ck_assert_int_eq(result.status == FT_CHOICE_OK, ok);
        ck_assert_int_eq(result.token, id);
        if (ok)
            ck_assert_mem_eq(got, want, (size_t)c.n_vocab * sizeof *got);
        free(got);
        ft_transform_destroy(&t);
        choice_case_destroy(&c);
    }
}
END_TEST

/* Rounds of several requests in one step, through the chooser's copies and back. */
START_TEST(chooser_decides_all_rounds_of_a_step) {
    enum { ROUNDS = 7 };
    struct fake_gpu gpu;
    struct ft_chooser *chooser = NULL;
    struct ft_err err = {0};
    fake_gpu_init(&gpu, "GPU-1");
    ck_assert_int_eq(ft_chooser_create(&chooser, &gpu.device, ROUNDS * (CASE_DRAFTS + 1), &err),
                     FT_OK);
    int32_t n_decided = 0;
    for (uint64_t step = 0; step < 100; step++) {
        static struct choice_case cases[ROUNDS];
        struct ft_choice_round at[ROUNDS];
        bool is_added[ROUNDS];
        ft_chooser_reset(chooser);
        for (uint64_t i = 0; i < ROUNDS; i++) {
            choice_case_create(&cases[i], 20000 + step * ROUNDS + i, 50);
            is_added[i] = ft_chooser_add(chooser, cases[i].rule, &cases[i].round, &at[i]);
        }
        ck_assert_int_eq(ft_chooser_run(chooser, &err), FT_OK);
        for (uint64_t i = 0; i < ROUNDS; i++) {
            struct choice_case *c = &cases[i];
            struct ft_verdict got, want;
            struct ft_transform *t = ft_transform_create(c->n_vocab);
            if (is_added[i] && ft_chooser_verdict(chooser, c->rule, &c->round, &at[i], &got)) {
                ck_assert_int_eq(c->rule->decide(t, &c->round, &want, &err), FT_OK);
                check_verdict(&got, &want, 20000 + step * ROUNDS + i);
                n_decided++;
            }
            ft_transform_destroy(&t);
            choice_case_destroy(c);
        }
    }
    ck_assert_int_gt(n_decided, 100 * ROUNDS / 2);
    ft_chooser_destroy(&chooser);
}
END_TEST

/* DEV-37: a device that fails once does not answer any more, and says so. */
START_TEST(dev37_chooser_of_a_broken_device_fails_and_does_not_wait) {
    struct fake_gpu gpu;
    struct ft_chooser *chooser = NULL;
    struct choice_case c;
    struct ft_choice_round at;
    struct ft_err err = {0};
    fake_gpu_init(&gpu, "GPU-1");
    ck_assert_int_eq(ft_chooser_create(&chooser, &gpu.device, 64, &err), FT_OK);
    choice_case_create(&c, 5, 40);
    ck_assert(ft_chooser_add(chooser, ft_rule_find("standard"), &c.round, &at));
    gpu.is_broken = true;
    ck_assert_int_eq(ft_chooser_run(chooser, &err), FT_E_PROC_INTERNAL);
    ck_assert_ptr_nonnull(strstr(err.text, "broken"));
    ft_chooser_destroy(&chooser);
    choice_case_destroy(&c);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("choice");
    TCase *tcase = tcase_create("choice");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, round_as_data_decides_as_its_rule);
    tcase_add_test(tcase, rule_without_a_twin_is_refused);
    tcase_add_test(tcase, broken_q_row_counts_behind_a_rejection);
    tcase_add_test(tcase, full_batch_refuses_and_stays_as_it_is);
    tcase_add_test(tcase, draft_as_data_is_the_proposal);
    tcase_add_test(tcase, chooser_decides_all_rounds_of_a_step);
    tcase_add_test(tcase, dev37_chooser_of_a_broken_device_fails_and_does_not_wait);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
