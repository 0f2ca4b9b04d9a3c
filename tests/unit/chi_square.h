/* chi_square: goodness of fit for the distribution tests. Seeds are fixed, so a test gives the
 * same p-value for ever; it fails below FT_SIGNIFICANCE, which a right sampler does once in a
 * thousand choices of seeds. */
#ifndef FT_TEST_CHI_SQUARE_H
#define FT_TEST_CHI_SQUARE_H

#include <check.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define FT_SIGNIFICANCE 1e-3

/* P(chi-square with df degrees of freedom > x): the upper incomplete gamma function Q(df/2, x/2),
 * by its series below a + 1 and by Lentz's continued fraction above. */
static inline double chi_square_tail(double x, double df) {
    double a = df / 2, half = x / 2;
    if (half <= 0)
        return 1;
    double front = exp(a * log(half) - half - lgamma(a));
    if (half < a + 1) {
        double term = 1 / a, sum = term;
        for (double n = a + 1; term > sum * 1e-15; n++)
            sum += term *= half / n;
        return 1 - front * sum;
    }
    double b = half + 1 - a, c = 1e300, d = 1 / b, f = d;
    for (int i = 1; i < 10000; i++) {
        double an = -i * (i - a);
        b += 2;
        d = 1 / (an * d + b);
        c = b + an / c;
        f *= d * c;
        if (fabs(d * c - 1) < 1e-14)
            break;
    }
    return front * f;
}

/* Do counts [n] come from prob [n]? An id with probability below 1e-12 must not occur; cells that
 * expect fewer than 5 are pooled. */
static inline void check_distribution(const uint32_t *counts, const double *prob, size_t n,
                                      const char *what) {
    double total = 0, statistic = 0, pool_seen = 0, pool_expected = 0;
    int cells = 0;
    for (size_t i = 0; i < n; i++)
        total += counts[i];
    ck_assert_msg(total > 0, "%s: nothing was drawn", what);
    for (size_t i = 0; i < n; i++) {
        if (prob[i] < 1e-12) {
            ck_assert_msg(counts[i] == 0, "%s: id %zu has probability 0 and came %u times", what, i,
                          counts[i]);
            continue;
        }
        double expected = total * prob[i];
        if (expected < 5) {
            pool_seen += counts[i];
            pool_expected += expected;
            continue;
        }
        statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
        cells++;
    }
    if (pool_expected > 0) {
        double expected = fmax(pool_expected, 1);
        statistic += (pool_seen - pool_expected) * (pool_seen - pool_expected) / expected;
        cells++;
    }
    if (cells < 2)
        return;
    double p_value = chi_square_tail(statistic, cells - 1);
    ck_assert_msg(p_value > FT_SIGNIFICANCE, "%s: chi-square %.2f with %d degrees, p = %.2e", what,
                  statistic, cells - 1, p_value);
}

#endif
