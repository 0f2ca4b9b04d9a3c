#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/spec/logprob.h"
#include "common/spec/philox.h"
#include "support/suite.h"

enum { N = 1000 };

static struct ft_transform *g_transform;

static void setup(void) {
    g_transform = ft_transform_create(N);
}

static void teardown(void) {
    ft_transform_destroy(&g_transform);
}

static int by_value(const void *a, const void *b) {
    const double *x = a, *y = b; /* {logit, id} */
    return x[0] != y[0] ? (x[0] < y[0] ? 1 : -1) : (x[1] > y[1]) - (x[1] < y[1]);
}

START_TEST(row_is_the_log_softmax_with_its_largest_in_order) {
    static float logits[N];
    static double sorted[N][2];
    for (int32_t n = 1; n <= N; n += n < 40 ? 1 : 191)
        for (int32_t n_top = 0; n_top <= FT_LOGPROBS_MAX; n_top += 5) {
            double sum = 0;
            for (int32_t i = 0; i < n; i++) { /* on a grid: ties happen */
                double u = ft_philox_uniform(4, (uint64_t)(i + n), FT_PHILOX_ACCEPT, 1);
                logits[i] = (float)(floor(u * 40) / 2 - 30);
                sum += exp((double)logits[i]);
                sorted[i][0] = (double)logits[i];
                sorted[i][1] = i;
            }
            qsort(sorted, (size_t)n, sizeof sorted[0], by_value);
            struct ft_logprobs out;
            int32_t token = (n * 7) % n;
            ck_assert_int_eq(ft_logprob_row(g_transform, logits, n, token, n_top, &out, NULL),
                             FT_OK);
            ck_assert_double_eq_tol((double)out.token_logprob, (double)logits[token] - log(sum),
                                    1e-5);
            ck_assert_int_eq(out.n_top, n_top < n ? n_top : n);
            for (int32_t i = 0; i < out.n_top; i++) {
                ck_assert_int_eq(out.ids[i], (int32_t)sorted[i][1]);
                ck_assert_double_eq_tol((double)out.values[i], sorted[i][0] - log(sum), 1e-5);
            }
        }
}
END_TEST

START_TEST(dev69_impossible_tokens_have_a_finite_value) {
    float logits[] = {-INFINITY, 3, -INFINITY, 3, -3e38f};
    struct ft_logprobs out;
    ck_assert_int_eq(ft_logprob_row(g_transform, logits, 5, 0, 5, &out, NULL), FT_OK);
    ck_assert_float_eq(out.token_logprob, FT_LOGPROB_MIN);
    ck_assert_int_eq(out.n_top, 3); /* those with -inf are left out */
    ck_assert_int_eq(out.ids[0], 1);
    ck_assert_int_eq(out.ids[1], 3);
    ck_assert_int_eq(out.ids[2], 4);
    ck_assert_double_eq_tol((double)out.values[1], -log(2), 1e-6);
    ck_assert_float_eq(out.values[2], FT_LOGPROB_MIN);
}
END_TEST

START_TEST(non_finite_row_is_an_error) {
    static const float bad[] = {NAN, INFINITY};
    static float logits[N];
    struct ft_logprobs out;
    for (size_t i = 0; i < 2; i++) {
        memset(logits, 0, sizeof logits);
        logits[700] = bad[i];
        ck_assert_int_eq(ft_logprob_row(g_transform, logits, N, 0, 3, &out, NULL),
                         FT_E_REQ_NUMERIC);
    }
    for (int32_t i = 0; i < N; i++)
        logits[i] = -INFINITY;
    ck_assert_int_eq(ft_logprob_row(g_transform, logits, N, 0, 3, &out, NULL), FT_E_REQ_NUMERIC);
}
END_TEST

int main(void) {
    TCase *tcase = tcase_create("logprob");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, row_is_the_log_softmax_with_its_largest_in_order);
    tcase_add_test(tcase, dev69_impossible_tokens_have_a_finite_value);
    tcase_add_test(tcase, non_finite_row_is_an_error);
    Suite *suite = suite_create("logprob");
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
