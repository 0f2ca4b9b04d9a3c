/* The theory gives the numbers that its paper prints: table 1, the expected column of table 4, and
 * points of figures 2, 3 and 4 by sums that do not use the closed forms. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "common/spec/philox.h"
#include "common/spec/theory.h"
#include "support/suite.h"

static void require_near(double got, double expected, double slack, const char *what) {
    ck_assert_msg(fabs(got - expected) <= slack, "%s: %.6f, expected %.6f", what, got, expected);
}

START_TEST(table_1_operations_and_speed) {
    static const struct {
        double alpha;
        int32_t k;
        double operations, speed;
    } rows[] = {
        {0.6, 2, 1.53, 1.96}, {0.7, 3, 1.58, 2.53}, {0.8, 2, 1.23, 2.44},
        {0.8, 5, 1.63, 3.69}, {0.9, 2, 1.11, 2.71}, {0.9, 10, 1.60, 6.86},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        require_near(ft_theory_operations(rows[i].alpha, rows[i].k, 0), rows[i].operations, 0.005,
                     "operations");
        require_near(ft_theory_speedup(rows[i].alpha, rows[i].k, 0), rows[i].speed, 0.005, "speed");
    }
}
END_TEST

/* The paper prints alpha and c with two digits and the factor with one: the printed factor must be
 * one that values within that rounding give. */
START_TEST(table_4_expected_factors) {
    static const struct {
        int32_t k;
        double alpha, c, factor;
    } rows[] = {
        {7, 0.75, 0.02, 3.2}, {7, 0.80, 0.04, 3.3}, {7, 0.82, 0.11, 2.5}, {7, 0.62, 0.02, 2.3},
        {5, 0.68, 0.04, 2.4}, {3, 0.71, 0.11, 2.0}, {5, 0.65, 0.02, 2.4}, {5, 0.73, 0.04, 2.6},
        {3, 0.74, 0.11, 2.0}, {5, 0.53, 0.02, 1.9}, {3, 0.55, 0.04, 1.8}, {3, 0.56, 0.11, 1.6},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double low = ft_theory_speedup(rows[i].alpha - 0.005, rows[i].k, rows[i].c + 0.005);
        double high = ft_theory_speedup(rows[i].alpha + 0.005, rows[i].k, rows[i].c - 0.005);
        ck_assert_msg(low < rows[i].factor + 0.05 && high > rows[i].factor - 0.05,
                      "row %zu: %.3f .. %.3f, printed %.1f", i, low, high, rows[i].factor);
        require_near(ft_theory_speedup(rows[i].alpha, rows[i].k, rows[i].c), rows[i].factor, 0.1,
                     "factor");
    }
}
END_TEST

/* 1 + alpha + alpha^2 + ...: what equation 1 sums. */
static double tokens_by_sum(double alpha, int32_t k) {
    double sum = 1, power = 1;
    for (int32_t i = 0; i < k; i++)
        sum += power *= alpha;
    return sum;
}

START_TEST(figure_2_expected_tokens) {
    static const int32_t ks[] = {1, 3, 5, 7, 10};
    for (size_t i = 0; i < 5; i++)
        for (int step = 0; step <= 20; step++) {
            double alpha = step / 20.0;
            require_near(ft_theory_tokens(alpha, ks[i]), tokens_by_sum(alpha, ks[i]), 1e-9, "sum");
        }
    require_near(ft_theory_tokens(0.8, 10000), 5, 1e-9, "the limit 1 / (1 - alpha)");
    require_near(ft_theory_tokens(1, 16), 17, 0, "alpha 1");
    require_near(ft_theory_tokens(0, 16), 1, 0, "alpha 0");
    require_near(ft_theory_tokens(0.3, 0), 1, 0, "k 0");
}
END_TEST

/* By search over the sums, and the known shape: more to draft with a larger alpha and a smaller c;
 * none where alpha <= c (corollary 3.9). */
START_TEST(figure_3_best_k) {
    static const double cs[] = {0.01, 0.02, 0.05, 0.1, 0.2};
    for (int step = 1; step < 19; step++) {
        double alpha = step / 20.0;
        int32_t before = INT32_MAX;
        for (size_t i = 0; i < 5; i++) {
            int32_t best = 0;
            for (int32_t k = 0; k <= 200; k++)
                if (tokens_by_sum(alpha, k) / (k * cs[i] + 1) >
                    tokens_by_sum(alpha, best) / (best * cs[i] + 1) + 1e-12)
                    best = k;
            ck_assert_int_eq(ft_theory_best_k(alpha, cs[i], 200), best);
            ck_assert_int_le(best, before);
            ck_assert(alpha > cs[i] + 1e-9 ? best >= 1 : best == 0);
            before = best;
        }
        for (size_t i = 0; i < 5; i++)
            ck_assert_int_le(ft_theory_best_k(alpha, cs[i], 200),
                             ft_theory_best_k(alpha + 0.05, cs[i], 200));
    }
    ck_assert_int_eq(ft_theory_best_k(0.8, 0.385, 16), 2);
    ck_assert_int_eq(ft_theory_best_k(0.99, 0, 16), 16);
    /* With the best k the factor is at least (1 + alpha) / (1 + c). */
    int32_t k = ft_theory_best_k(0.7, 0.1, 16);
    ck_assert(ft_theory_speedup(0.7, k, 0.1) >= 1.7 / 1.1);
}
END_TEST

START_TEST(figure_4_speed_and_operations) {
    static const int32_t ks[] = {1, 2, 3, 5, 7, 10};
    for (size_t i = 0; i < 6; i++)
        for (int step = 0; step <= 20; step++) {
            double alpha = step / 20.0;
            require_near(ft_theory_speedup(alpha, ks[i], 0), tokens_by_sum(alpha, ks[i]), 1e-9,
                         "speed at c = 0");
            require_near(ft_theory_operations(alpha, ks[i], 0),
                         (ks[i] + 1) / tokens_by_sum(alpha, ks[i]), 1e-9, "operations at c = 0");
            require_near(ft_theory_operations(alpha, ks[i], 0.1),
                         (1.1 * ks[i] + 1) / tokens_by_sum(alpha, ks[i]), 1e-9, "operations");
        }
}
END_TEST

START_TEST(a_simulated_round_commits_what_equation_1_says) {
    double sum = 0;
    for (uint64_t round = 0; round < 200000; round++) {
        int32_t n = 0;
        while (n < 5 && ft_philox_uniform(3, round, FT_PHILOX_ACCEPT, (uint32_t)n) < 0.7)
            n++;
        sum += n + 1;
    }
    require_near(sum / 200000, ft_theory_tokens(0.7, 5), 0.02, "tokens a round");
}
END_TEST

START_TEST(falling_rates_and_measured_times) {
    const double rates[] = {0.9, 0.5, 0.2}, same[] = {0.6, 0.6, 0.6, 0.6};
    require_near(ft_theory_tokens_by_position(rates, 3), 1 + 0.9 + 0.45 + 0.09, 1e-12, "falling");
    require_near(ft_theory_tokens_by_position(rates, 0), 1, 0, "k 0");
    require_near(ft_theory_tokens_by_position(same, 4), ft_theory_tokens(0.6, 4), 1e-12, "same");
    const struct ft_theory_times free_verify = {.plain = 2, .draft = 4 * 0.2, .verify = 2};
    require_near(ft_theory_speedup_measured(ft_theory_tokens(0.8, 4), &free_verify),
                 ft_theory_speedup(0.8, 4, 0.1), 1e-12, "theorem 3.8 is the case of free rows");
    const struct ft_theory_times nothing = {.plain = 2};
    require_near(ft_theory_speedup_measured(3, &nothing), 0, 0, "no time");
}
END_TEST

START_TEST(alpha_of_rows_is_their_overlap) {
    /* The tables `iid` and `iid-draft`: softmax of (2, 1, 0) against that of (0, 2, 1). */
    const float p[] = {0.66524f, 0.24473f, 0.09003f, 0}, q[] = {0.09003f, 0.66524f, 0.24473f};
    const float far[] = {0, 0, 1};
    struct ft_theory_alpha alpha = {0};
    require_near(ft_theory_alpha_mean(&alpha), 0, 0, "none");
    ft_theory_alpha_add(&alpha, p, 4, q, 3);
    require_near(ft_theory_alpha_mean(&alpha), 0.42479, 1e-5, "one row");
    require_near(ft_theory_alpha_error(&alpha), 0, 0, "one row has no spread");
    ft_theory_alpha_add(&alpha, p, 4, far, 3);
    require_near(ft_theory_alpha_mean(&alpha), (0.42479 + 0.09003) / 2, 1e-5, "two rows");
    require_near(ft_theory_alpha_error(&alpha), (0.42479 - 0.09003) / 2, 1e-5, "half the distance");
}
END_TEST

START_TEST(alpha_of_counts_leaves_out_what_was_not_decided) {
    const uint64_t drafted[] = {100, 100, 100}, accepted[] = {80, 60, 50};
    require_near(ft_theory_alpha_counted(drafted, accepted, 3), 190.0 / 240.0, 1e-12, "decided");
    require_near(ft_theory_alpha_counted(drafted, accepted, 0), 0, 0, "nothing");
    const uint64_t none[] = {0, 0, 0};
    require_near(ft_theory_alpha_counted(none, none, 3), 0, 0, "nothing drafted");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("theory");
    TCase *tc = tcase_create("theory");
    tcase_add_test(tc, table_1_operations_and_speed);
    tcase_add_test(tc, table_4_expected_factors);
    tcase_add_test(tc, figure_2_expected_tokens);
    tcase_add_test(tc, figure_3_best_k);
    tcase_add_test(tc, figure_4_speed_and_operations);
    tcase_add_test(tc, a_simulated_round_commits_what_equation_1_says);
    tcase_add_test(tc, falling_rates_and_measured_times);
    tcase_add_test(tc, alpha_of_rows_is_their_overlap);
    tcase_add_test(tc, alpha_of_counts_leaves_out_what_was_not_decided);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
