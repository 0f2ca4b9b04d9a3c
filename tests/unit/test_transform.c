#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/spec/philox.h"
#include "common/spec/transform.h"
#include "support/suite.h"
#include "unit/naive_transform.h"

/* Random rows of values on a grid, so that ties are frequent and exact. */
#define N_MAX NAIVE_N_MAX

static struct ft_transform *transform;

static void setup(void) {
    transform = ft_transform_create(N_MAX);
    ck_assert_ptr_nonnull(transform);
}

static void teardown(void) {
    ft_transform_destroy(&transform);
}

/* ---- random cases ---------------------------------------------------------------------------- */

struct rng {
    uint64_t seed, n;
};

static double uniform(struct rng *rng) {
    return ft_philox_uniform(rng->seed, rng->n++, FT_PHILOX_PROPOSE, 99);
}

static int32_t below(struct rng *rng, int32_t n) {
    return (int32_t)(uniform(rng) * n);
}

static void random_logits(struct rng *rng, float *logits, size_t n) {
    double spread = 1 + 12 * uniform(rng);
    for (size_t i = 0; i < n; i++) {
        double x = (uniform(rng) + uniform(rng) + uniform(rng) - 1.5) * spread;
        logits[i] = (float)(floor(x * 4) / 4);
        if (uniform(rng) < 0.05)
            logits[i] = -INFINITY;
    }
    logits[0] = 1.0f;
}

struct random_case {
    struct ft_sampling sampling;
    struct ft_bias bias[6];
    struct naive_tokens history;
    int32_t drafted[4], banned[3], allowed[40], never[5];
    struct ft_row_context context;
};

static void random_case(struct rng *rng, struct random_case *c, int32_t n,
                        struct ft_counts *counts) {
    static const float temperatures[] = {0.3f, 0.5f, 1.0f, 1.5f, 100.0f};
    memset(c, 0, sizeof *c);
    struct ft_sampling *s = &c->sampling;
    *s = ft_sampling_default();
    s->temperature = temperatures[below(rng, 5)];
    if (uniform(rng) < 0.5)
        s->top_k = 1 + below(rng, n + 2);
    if (uniform(rng) < 0.5)
        s->top_p = (float)uniform(rng);
    if (uniform(rng) < 0.3)
        s->min_p = (float)(uniform(rng) * 0.5);
    if (uniform(rng) < 0.5) {
        s->repetition_penalty = (float)(0.5 + 2 * uniform(rng));
        s->presence_penalty = (float)(2 * uniform(rng) - 1);
        s->frequency_penalty = (float)(2 * uniform(rng) - 1);
    }
    if (uniform(rng) < 0.5) {
        for (int32_t id = 0; id < n + 5 && s->n_bias < 6; id += 1 + below(rng, n / 3 + 1))
            c->bias[s->n_bias++] = (struct ft_bias){id, (float)(10 * uniform(rng) - 5)};
        s->bias = c->bias;
    }
    if (uniform(rng) < 0.2) { /* id 0 is always allowed, and its logit finite */
        for (int32_t id = 0; id < n + 5 && s->n_allowed < 40; id += 1 + below(rng, n / 8 + 1))
            c->allowed[s->n_allowed++] = id;
        s->allowed = c->allowed;
    }
    if (uniform(rng) < 0.3) {
        for (int32_t id = 1; id < n + 5 && s->n_banned < 5; id += 1 + below(rng, n / 3 + 1))
            c->never[s->n_banned++] = id;
        s->banned = c->never;
    }
    ft_counts_reset(counts);
    c->history.n_prompt = (size_t)below(rng, 40);
    c->history.n_output = (size_t)below(rng, 60);
    for (size_t i = 0; i < c->history.n_prompt; i++)
        c->history.prompt[i] = below(rng, n + 3);
    for (size_t i = 0; i < c->history.n_output; i++)
        c->history.output[i] = below(rng, n / 2 + 1);
    ck_assert(ft_counts_add_prompt(counts, c->history.prompt, c->history.n_prompt));
    ck_assert(ft_counts_add_output(counts, c->history.output, c->history.n_output));
    c->context = (struct ft_row_context){.sampling = s, .counts = counts};
    c->context.drafted = c->drafted;
    c->context.n_drafted = (size_t)below(rng, 5);
    for (size_t i = 0; i < c->context.n_drafted; i++)
        c->drafted[i] = below(rng, n);
    c->context.banned = c->banned;
    c->context.n_banned = (size_t)below(rng, 4);
    for (size_t i = 0; i < c->context.n_banned; i++)
        c->banned[i] = 1 + below(rng, n + 2);
}

START_TEST(row_of_random_logits_equals_naive_reference) {
    static struct naive_row ref;
    struct rng rng = {.seed = 20240601};
    struct ft_counts *counts = ft_counts_create();
    int n_ambiguous = 0;
    const int n_rounds = 3000;
    for (int round = 0; round < n_rounds; round++) {
        float logits[N_MAX], probs[N_MAX];
        struct random_case c;
        int32_t n = round < 100 ? 2 + round % 20 : 2 + below(&rng, N_MAX - 2);
        random_logits(&rng, logits, (size_t)n);
        random_case(&rng, &c, n, counts);
        struct ft_err err = {0};
        ck_assert_msg(ft_transform_row(transform, logits, n, &c.context, probs, &err) == FT_OK,
                      "%s", err.text);
        naive_transform(&ref, logits, (size_t)n, &c.context, &c.history);
        if (ref.ambiguous) {
            n_ambiguous++;
            continue;
        }
        double sum = 0;
        for (int32_t i = 0; i < n; i++) {
            sum += (double)probs[i];
            if (!(fabs((double)probs[i] - ref.prob[i]) <= 2e-6 + 2e-5 * ref.prob[i]))
                ck_abort_msg("round %d id %d: %g, want %g", round, i, (double)probs[i],
                             ref.prob[i]);
            if ((probs[i] > 0) != (ref.prob[i] > 1e-36) && ref.prob[i] > 1e-30)
                ck_abort_msg("round %d id %d: support differs", round, i);
        }
        ck_assert_double_eq_tol(sum, 1.0, 1e-5);
        /* In place gives the same bits. */
        ck_assert_int_eq(ft_transform_row(transform, logits, n, &c.context, logits, &err), FT_OK);
        ck_assert_int_eq(memcmp(logits, probs, (size_t)n * sizeof *probs), 0);
    }
    ck_assert_int_lt(n_ambiguous, n_rounds / 4);
    ft_counts_destroy(&counts);
}
END_TEST

/* The greedy choice is the lowest id among the largest of the reference's logits. */
START_TEST(argmax_of_random_logits_equals_naive_reference) {
    static struct naive_row ref;
    struct rng rng = {.seed = 20240602};
    struct ft_counts *counts = ft_counts_create();
    int n_ambiguous = 0;
    const int n_rounds = 3000;
    for (int round = 0; round < n_rounds; round++) {
        float logits[N_MAX];
        struct random_case c;
        int32_t n = 2 + below(&rng, N_MAX - 2), best = -1, got = -1;
        random_logits(&rng, logits, (size_t)n);
        random_case(&rng, &c, n, counts);
        c.sampling.temperature = 1;
        c.sampling.top_p = 1;
        c.sampling.top_k = 0;
        c.sampling.min_p = 0;
        naive_transform(&ref, logits, (size_t)n, &c.context, &c.history);
        bool near_tie = false;
        for (int32_t i = 0; i < n; i++)
            if (best < 0 || ref.logit[i] > ref.logit[best])
                best = i;
        for (int32_t i = 0; i < n; i++)
            near_tie |=
                i != best && ref.logit[i] > ref.logit[best] - 1e-5 && logits[i] != logits[best];
        c.sampling.temperature = 0;
        ck_assert_int_eq(ft_transform_argmax(transform, logits, n, &c.context, &got, NULL), FT_OK);
        n_ambiguous += near_tie;
        if (!near_tie)
            ck_assert_int_eq(got, best);
        float probs[N_MAX];
        ck_assert_int_eq(ft_transform_row(transform, logits, n, &c.context, probs, NULL), FT_OK);
        for (int32_t i = 0; i < n; i++)
            if (probs[i] != (i == got ? 1.0f : 0.0f))
                ck_abort_msg("round %d id %d: %g", round, i, (double)probs[i]);
    }
    ck_assert_int_lt(n_ambiguous, n_rounds / 10);
    ft_counts_destroy(&counts);
}
END_TEST

/* ---- single rules ---------------------------------------------------------------------------- */

static enum ft_code row(const float *logits, int32_t n, const struct ft_sampling *sampling,
                        float *probs) {
    struct ft_row_context context = {.sampling = sampling};
    return ft_transform_row(transform, logits, n, &context, probs, NULL);
}

static int support(const float *logits, int32_t n, const struct ft_sampling *sampling) {
    float probs[N_MAX];
    ck_assert_int_eq(row(logits, n, sampling, probs), FT_OK);
    int count = 0;
    for (int32_t i = 0; i < n; i++)
        count += probs[i] > 0;
    return count;
}

START_TEST(dev46_top_k_past_the_vocabulary_is_off) {
    static const struct {
        int32_t top_k;
        int want;
    } rows[] = {{0, 5}, {-1, 5}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 5}, {INT32_MAX, 5}};
    const float logits[] = {0, 4, 3, 2, 1};
    struct ft_sampling s = ft_sampling_default();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        s.top_k = rows[i].top_k;
        ck_assert_int_eq(support(logits, 5, &s), rows[i].want);
        s.temperature = 0;
        ck_assert_int_eq(support(logits, 5, &s), 1);
        s.temperature = 1;
    }
}
END_TEST

START_TEST(cut_through_a_tie_keeps_all_of_it) {
    const float logits[] = {1, 3, 1, 2, 1, -4};
    struct ft_sampling s = ft_sampling_default();
    s.top_k = 3;
    ck_assert_int_eq(support(logits, 6, &s), 5);
    s.top_k = 2;
    ck_assert_int_eq(support(logits, 6, &s), 2);
    s.top_k = 0;
    s.top_p = 0.80f; /* 0.5598 0.2059 and three of 0.0758 */
    ck_assert_int_eq(support(logits, 6, &s), 5);
    s.top_p = 0.75f;
    ck_assert_int_eq(support(logits, 6, &s), 2);
}
END_TEST

START_TEST(dev47_tiny_temperature_or_top_p_keeps_the_best_token) {
    const float temperatures[] = {0, 1e-45f, 1e-38f, 1e-6f, 1e-4f, 1e-2f};
    const float top_ps[] = {0, 1e-9f, 1};
    const float logits[] = {-40, 1, 2, 0, -3.0e38f, -INFINITY, 3.0e-39f};
    float probs[7];
    struct ft_sampling s = ft_sampling_default();
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 3; j++) {
            s.temperature = temperatures[i];
            s.top_p = top_ps[j];
            ck_assert_int_eq(row(logits, 7, &s, probs), FT_OK);
            ck_assert_float_eq(probs[2], 1.0f);
            ck_assert_int_eq(support(logits, 7, &s), 1);
        }
    s = ft_sampling_default();
    s.temperature = 100;
    ck_assert_int_eq(row(logits, 7, &s, probs), FT_OK);
    double sum = 0;
    for (int i = 0; i < 7; i++) {
        ck_assert(isfinite(probs[i]));
        sum += (double)probs[i];
    }
    ck_assert_double_eq_tol(sum, 1.0, 1e-6);
    ck_assert_float_gt(probs[0], 0.1f);
}
END_TEST

START_TEST(top_p_zero_with_tied_best_keeps_each_of_them) {
    const float logits[] = {0, 5, 1, 5};
    float probs[4];
    struct ft_sampling s = ft_sampling_default();
    s.top_p = 0;
    ck_assert_int_eq(row(logits, 4, &s, probs), FT_OK);
    ck_assert_float_eq(probs[1], 0.5f);
    ck_assert_float_eq(probs[3], 0.5f);
}
END_TEST

/* -inf is a legal logit; a NaN or +inf anywhere, on every path, is not, nor is a row of -inf. */
START_TEST(dev17_non_finite_logits_are_an_error_on_every_path) {
    static const float bad[] = {NAN, -NAN, INFINITY};
    struct ft_bias bias = {3, -100};
    int32_t banned[] = {300, 5}, allowed[] = {1, 4}, never[] = {2, 5};
    for (int kind = 0; kind < 12; kind++)
        for (size_t k = 0; k < 3; k++)
            for (int32_t n = 301; n < 306; n++)
                for (int32_t at = 0; at < n; at += at == 3 ? 2 : at < 20 ? 1 : 35) {
                    float logits[N_MAX], probs[N_MAX];
                    for (int32_t i = 0; i < n; i++)
                        logits[i] = i % 3 == 0 ? -INFINITY : (float)(i % 11);
                    struct ft_sampling s = ft_sampling_default();
                    struct ft_row_context ctx = {.sampling = &s};
                    s.temperature = kind % 2 == 0 ? 0.0f : 0.7f;
                    s.top_k = kind == 3 ? 5 : 0;
                    s.top_p = kind == 5 ? 0.5f : 1;
                    if (kind >= 8) { /* a mask must not hide it */
                        s.allowed = allowed;
                        s.n_allowed = kind < 10 ? 2 : 0;
                        s.banned = never;
                        s.n_banned = 2;
                    } else if (kind >= 6) {
                        s.bias = &bias;
                        s.n_bias = 1;
                        ctx.banned = banned;
                        ctx.n_banned = 2;
                    }
                    logits[at] = bad[k];
                    struct ft_err err = {0};
                    int32_t id = -7;
                    probs[0] = -7;
                    ck_assert_int_eq(ft_transform_row(transform, logits, n, &ctx, probs, &err),
                                     FT_E_REQ_NUMERIC);
                    ck_assert_float_eq(probs[0], -7);
                    char want[32];
                    snprintf(want, sizeof want, "token %d ", at);
                    ck_assert_msg(strstr(err.text, want) != NULL, "%s", err.text);
                    ck_assert_ptr_nonnull(strstr(err.text, "non-finite logits"));
                    ck_assert_int_eq(ft_transform_argmax(transform, logits, n, &ctx, &id, &err),
                                     FT_E_REQ_NUMERIC);
                    ck_assert_int_eq(id, -7);
                }
    float none[] = {-INFINITY, -INFINITY}, probs[2];
    struct ft_sampling s = ft_sampling_default();
    ck_assert_int_eq(row(none, 2, &s, probs), FT_E_REQ_NUMERIC);
}
END_TEST

START_TEST(ban_of_every_token_is_an_invalid_request) {
    const float logits[] = {1, 2, -INFINITY};
    const int32_t banned[] = {1, 0, 7, -1};
    float probs[3];
    struct ft_sampling s = ft_sampling_default();
    struct ft_row_context context = {.sampling = &s, .banned = banned, .n_banned = 4};
    struct ft_err err = {0};
    ck_assert_int_eq(ft_transform_row(transform, logits, 3, &context, probs, &err),
                     FT_E_REQ_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "banned"));
    context.n_banned = 1;
    ck_assert_int_eq(ft_transform_row(transform, logits, 3, &context, probs, &err), FT_OK);
    ck_assert_float_eq(probs[0], 1.0f);
}
END_TEST

START_TEST(allows_says_what_the_masks_leave) {
    static const int32_t allowed[] = {0, 3, 4, 9}, never[] = {3, 7}, early[] = {9};
    struct ft_sampling s = ft_sampling_default();
    struct ft_row_context context = {.sampling = &s};
    for (int32_t id = 0; id < 12; id++)
        ck_assert(ft_row_allows(&context, id));
    s.banned = never;
    s.n_banned = 2;
    for (int32_t id = 0; id < 12; id++)
        ck_assert_int_eq(ft_row_allows(&context, id), id != 3 && id != 7);
    s.allowed = allowed;
    s.n_allowed = 4;
    context.banned = early;
    context.n_banned = 1;
    for (int32_t id = 0; id < 12; id++)
        ck_assert_int_eq(ft_row_allows(&context, id), id == 0 || id == 4);
}
END_TEST

/* l > 0: l / p, else l * p; once per distinct id of prompt, output and drafts. */
START_TEST(dev45_repetition_penalty_formula) {
    const float logits[] = {4, -1, 3, 0.5f};
    const int32_t prompt[] = {0, 0, 0}, output[] = {1, 1}, drafted[] = {2, 2, 0};
    struct ft_counts *counts = ft_counts_create();
    ck_assert(ft_counts_add_prompt(counts, prompt, 3) && ft_counts_add_output(counts, output, 2));
    struct ft_sampling s = ft_sampling_default();
    s.repetition_penalty = 2;
    struct ft_row_context context = {
        .sampling = &s, .counts = counts, .drafted = drafted, .n_drafted = 3};
    float probs[4];
    ck_assert_int_eq(ft_transform_row(transform, logits, 4, &context, probs, NULL), FT_OK);
    const double want[] = {2, -2, 1.5, 0.5};
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq_tol(log((double)probs[i] / (double)probs[3]), want[i] - want[3], 1e-5);
    s.repetition_penalty = 1;
    s.frequency_penalty = 0.25f;
    s.presence_penalty = 1.0f;
    ck_assert_int_eq(ft_transform_row(transform, logits, 4, &context, probs, NULL), FT_OK);
    /* id 0: prompt (free) and one draft; 1: two outputs; 2: two drafts. */
    const double flat[] = {4 - 1.25, -1 - 1.5, 3 - 1.5, 0.5};
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq_tol(log((double)probs[i] / (double)probs[3]), flat[i] - flat[3], 1e-5);
    ft_counts_destroy(&counts);
}
END_TEST

START_TEST(draw_follows_the_cumulative_sum_in_order_of_ids) {
    const float probs[] = {0, 0.25f, 0, 0.5f, 0.25f, 0};
    static const struct {
        double u;
        int32_t want;
    } rows[] = {{0, 1}, {0.2499999, 1}, {0.25, 3}, {0.7499999, 3}, {0.75, 4}, {1.0 - 0x1p-53, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ck_assert_int_eq(ft_transform_draw(probs, 6, rows[i].u), rows[i].want);
    const float zero[] = {0, 0}, nan[] = {0.5f, NAN}, inf[] = {INFINITY, 1};
    ck_assert_int_eq(ft_transform_draw(zero, 2, 0.5), -1);
    ck_assert_int_eq(ft_transform_draw(nan, 2, 0.5), -1);
    ck_assert_int_eq(ft_transform_draw(inf, 2, 0.5), -1);
}
END_TEST

/* Against a plain walk in double, over rows of several blocks with many zeros. */
START_TEST(draw_from_long_rows_equals_a_plain_walk) {
    struct rng rng = {.seed = 5};
    int n_close = 0;
    for (int round = 0; round < 2000; round++) {
        float probs[N_MAX];
        int32_t n = 1 + below(&rng, N_MAX - 1), want = -1;
        double total = 0, sum = 0;
        for (int32_t i = 0; i < n; i++) {
            probs[i] = uniform(&rng) < 0.5 ? 0 : (float)uniform(&rng);
            total += (double)probs[i];
        }
        double u = uniform(&rng), margin = 1;
        for (int32_t i = 0; i < n && total > 0; i++) {
            sum += (double)probs[i];
            margin = fmin(margin, fabs(sum - u * total));
            if (want < 0 && sum > u * total)
                want = i;
        }
        if (margin < 1e-4) {
            n_close++;
            continue;
        }
        ck_assert_int_eq(ft_transform_draw(probs, n, u), want);
    }
    ck_assert_int_lt(n_close, 200);
}
END_TEST

int main(void) {
    TCase *tcase = tcase_create("transform");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, row_of_random_logits_equals_naive_reference);
    tcase_add_test(tcase, argmax_of_random_logits_equals_naive_reference);
    tcase_add_test(tcase, dev46_top_k_past_the_vocabulary_is_off);
    tcase_add_test(tcase, cut_through_a_tie_keeps_all_of_it);
    tcase_add_test(tcase, dev47_tiny_temperature_or_top_p_keeps_the_best_token);
    tcase_add_test(tcase, top_p_zero_with_tied_best_keeps_each_of_them);
    tcase_add_test(tcase, dev17_non_finite_logits_are_an_error_on_every_path);
    tcase_add_test(tcase, ban_of_every_token_is_an_invalid_request);
    tcase_add_test(tcase, allows_says_what_the_masks_leave);
    tcase_add_test(tcase, dev45_repetition_penalty_formula);
    tcase_add_test(tcase, draw_follows_the_cumulative_sum_in_order_of_ids);
    tcase_add_test(tcase, draw_from_long_rows_equals_a_plain_walk);
    Suite *suite = suite_create("transform");
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
