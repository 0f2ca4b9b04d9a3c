#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "coordinator/histogram.h"
#include "support/suite.h"

static const struct co_histogram_bounds k_bounds = {4, {1, 2, 4, 8}};

START_TEST(add_counts_a_bound_in_its_own_class) {
    struct co_histogram h = {0};
    co_histogram_add(&h, &k_bounds, 1, 1);
    co_histogram_add(&h, &k_bounds, 1.5, 2);
    co_histogram_add(&h, &k_bounds, 8, 1);
    co_histogram_add(&h, &k_bounds, 8.1, 3);
    co_histogram_add(&h, &k_bounds, NAN, 1);
    co_histogram_add(&h, &k_bounds, 1, 0);
    ck_assert_uint_eq(h.counts[0], 1);
    ck_assert_uint_eq(h.counts[1], 2);
    ck_assert_uint_eq(h.counts[2], 0);
    ck_assert_uint_eq(h.counts[3], 1);
    ck_assert_uint_eq(h.counts[4], 3);
    ck_assert_uint_eq(h.count, 7);
    ck_assert_double_eq_tol(h.sum, 1 + 3 + 8 + 3 * 8.1, 1e-9);
}
END_TEST

START_TEST(quantile_is_linear_inside_a_class) {
    struct co_histogram h = {0};
    ck_assert_double_eq(co_histogram_quantile(&h, &k_bounds, 0.5), 0);
    co_histogram_add(&h, &k_bounds, 3, 10);
    ck_assert_double_eq_tol(co_histogram_quantile(&h, &k_bounds, 0.5), 3, 1e-9);
    ck_assert_double_eq_tol(co_histogram_quantile(&h, &k_bounds, 1), 4, 1e-9);
    co_histogram_add(&h, &k_bounds, 100, 90); /* past the last bound: no more can be said */
    ck_assert_double_eq_tol(co_histogram_quantile(&h, &k_bounds, 0.99), 8, 1e-9);
    ck_assert_double_eq_tol(co_histogram_quantile(&h, &k_bounds, 0.05), 3, 1e-9);
}
END_TEST

START_TEST(bounds_ascend) {
    const struct co_histogram_bounds *const all[] = {&co_histogram_seconds, &co_histogram_phases,
                                                     &co_histogram_tokens};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ck_assert_uint_le(all[i]->n, CO_HISTOGRAM_BOUNDS_MAX);
        for (size_t j = 1; j < all[i]->n; j++)
            ck_assert(all[i]->at[j] > all[i]->at[j - 1]);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("histogram");
    TCase *tc = tcase_create("histogram");
    tcase_add_test(tc, add_counts_a_bound_in_its_own_class);
    tcase_add_test(tc, quantile_is_linear_inside_a_class);
    tcase_add_test(tc, bounds_ascend);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
