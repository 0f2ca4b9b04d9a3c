#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/spec/counts.h"
#include "common/spec/philox.h"
#include "common/spec/rowmath.h"
#include "common/spec/select.h"
#include "support/suite.h"

#define N_MAX 1100
#define GUARD 12345.0f

static double uniform(void) {
    static uint64_t n;
    return ft_philox_uniform(11, n++, FT_PHILOX_PROPOSE, 0);
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* x starts at every alignment, and nothing past n may be read as a value or written. */
static float *misaligned(float *memory, size_t n) {
    float *x = memory + (size_t)(uniform() * 16);
    x[n] = GUARD;
    return x;
}

START_TEST(maxima_find_the_lowest_of_the_largest) {
    static float memory[N_MAX + 32], maxima[N_MAX];
    for (size_t n = 1; n < N_MAX; n += n < 300 ? 1 : 37) {
        float *x = misaligned(memory, n), want = -INFINITY, top = 0;
        int32_t want_at = 0;
        for (size_t i = 0; i < n; i++) {
            x[i] = uniform() < 0.1 ? -INFINITY : (float)floor(uniform() * 20 - 30);
            if (x[i] > want) {
                want = x[i];
                want_at = (int32_t)i;
            }
        }
        ck_assert(ft_rowmath_maxima(x, n, maxima, &top));
        ck_assert_uint_eq(bits_of(top), bits_of(want));
        ck_assert_int_eq(ft_rowmath_find(x, n, maxima, top), want_at);
        size_t n_maxima = ft_rowmath_n_maxima(n);
        for (size_t m = 0; m < n_maxima; m++) {
            float largest = -INFINITY;
            size_t first = m / FT_ROWMATH_LANES * FT_ROWMATH_BLOCK + m % FT_ROWMATH_LANES;
            for (size_t j = 0; j < FT_ROWMATH_BLOCK && first + j < n; j += FT_ROWMATH_LANES)
                largest = fmaxf(largest, x[first + j]);
            ck_assert_uint_eq(bits_of(maxima[m]), bits_of(largest));
        }
        x[(size_t)(uniform() * (double)n)] = uniform() < 0.5 ? NAN : INFINITY;
        ck_assert(!ft_rowmath_maxima(x, n, maxima, &top));
    }
}
END_TEST

START_TEST(exp_is_within_two_ulp_and_exact_at_zero) {
    enum { N = 200000 };
    static float x[N], out[N];
    for (size_t i = 0; i < N; i++)
        x[i] = -87.0f * (float)i / (N - 1);
    struct ft_rowmath_exp how = {.max = 0, .scale = 1, .threshold = -INFINITY};
    double sum = ft_rowmath_exp(x, N, &how, out), want_sum = 0;
    ck_assert_float_eq(out[0], 1.0f);
    for (size_t i = 0; i < N; i++) {
        double want = exp((double)x[i]);
        if (!(fabs((double)out[i] - want) <= 2.4e-7 * want))
            ck_abort_msg("exp(%g) = %g", (double)x[i], (double)out[i]);
        want_sum += want;
    }
    ck_assert_double_eq_tol(sum / want_sum, 1.0, 2e-7);
}
END_TEST

START_TEST(exp_of_what_is_far_below_or_cut_is_zero) {
    const float x[] = {5, 5 - 86.9f, 5 - 87.2f, -3e38f, -INFINITY, 4.5f, 4};
    float out[7];
    struct ft_rowmath_exp how = {.max = 5, .scale = 1, .threshold = -INFINITY};
    ft_rowmath_exp(x, 7, &how, out);
    ck_assert_float_gt(out[1], 0);
    ck_assert_float_eq(out[2], 0);
    ck_assert_float_eq(out[3], 0);
    ck_assert_float_eq(out[4], 0);
    how.threshold = 4.5f;
    double sum = ft_rowmath_exp(x, 7, &how, out);
    ck_assert_float_gt(out[5], 0);
    ck_assert_float_eq(out[6], 0);
    ck_assert_double_eq_tol(sum, 1 + exp(-0.5), 1e-7);
}
END_TEST

/* The documented order of a sum, written down plainly: the product must give these very bits. */
static double plain_sum(const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i += 256) {
        double tree[16];
        for (size_t lane = 0; lane < 16; lane++) {
            float lane_sum = 0;
            for (size_t j = i + lane; j < i + 256 && j < n; j += 16)
                lane_sum += x[j];
            tree[lane] = (double)lane_sum;
        }
        for (size_t width = 8; width > 0; width /= 2)
            for (size_t lane = 0; lane < width; lane++)
                tree[lane] += tree[lane + width];
        sum += tree[0];
    }
    return sum;
}

START_TEST(sums_have_the_bits_of_the_documented_order) {
    static float memory[N_MAX + 32], memory_q[N_MAX + 32], out[N_MAX + 1], smaller[N_MAX];
    for (size_t n = 1; n < N_MAX; n += n < 300 ? 1 : 37) {
        float *x = misaligned(memory, n), *y = misaligned(memory_q, n);
        for (size_t i = 0; i < n; i++) {
            x[i] = (float)uniform();
            y[i] = uniform() < 0.3 ? 0 : (float)uniform();
        }
        ck_assert_double_eq(ft_rowmath_sum(x, n), plain_sum(x, n));
        for (size_t i = 0; i < n; i++)
            smaller[i] = fminf(x[i], y[i]);
        ck_assert_double_eq(ft_rowmath_sum_min(x, y, n), plain_sum(smaller, n));
        out[n] = GUARD;
        double sum = ft_rowmath_residual(x, 1, y, 1, n, out);
        ck_assert_float_eq(out[n], GUARD);
        for (size_t i = 0; i < n; i++)
            ck_assert_uint_eq(bits_of(out[i]), bits_of(x[i] > y[i] ? x[i] - y[i] : 0.0f));
        ft_rowmath_residual(x, 0.75f, y, 0.3f, n, smaller);
        for (size_t i = 0; i < n; i++)
            ck_assert_uint_eq(bits_of(smaller[i]),
                              bits_of(fmaxf(x[i] * 0.75f - y[i] * 0.3f, 0.0f)));
        ck_assert_double_eq(sum, plain_sum(out, n));
        ck_assert_double_eq(ft_rowmath_mass(y, n), plain_sum(y, n));
        double kept = ft_rowmath_keep(x, n, 0.5f);
        for (size_t i = 0; i < n; i++)
            ck_assert(x[i] == 0 || x[i] >= 0.5f);
        ck_assert_double_eq(kept, plain_sum(x, n));
        ft_rowmath_scale(x, n, 2.0f);
        ck_assert_double_eq(ft_rowmath_sum(x, n), 2 * kept);
        ck_assert_float_eq(x[n], GUARD);
    }
}
END_TEST

START_TEST(mass_of_a_bad_q_is_no_number) {
    static const float bad[] = {NAN, INFINITY, -INFINITY, -1e-30f};
    for (size_t n = 1; n < 600; n += 23)
        for (size_t k = 0; k < 4; k++) {
            float q[600];
            for (size_t i = 0; i < n; i++)
                q[i] = 0.25f;
            q[(size_t)(uniform() * (double)n)] = bad[k];
            ck_assert(isnan(ft_rowmath_mass(q, n)));
        }
}
END_TEST

static int descending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return x > y ? -1 : x < y;
}

static float naive_cut(const float *values, size_t n, double want, enum ft_select_by by) {
    static float sorted[N_MAX];
    memcpy(sorted, values, n * sizeof *values);
    qsort(sorted, n, sizeof *sorted, descending);
    double weight = 0;
    for (size_t i = 0; i < n; i++) {
        weight += by == FT_SELECT_COUNT ? 1 : (double)sorted[i];
        if (weight >= want)
            return sorted[i];
    }
    return sorted[n - 1];
}

START_TEST(cut_by_count_equals_sorting) {
    static struct ft_select scratch;
    static float values[N_MAX], copy[N_MAX];
    for (int round = 0; round < 4000; round++) {
        size_t n = 1 + (size_t)(uniform() * (N_MAX - 1));
        double grid = round % 3 == 0 ? 1 : 1e4;
        for (size_t i = 0; i < n; i++) {
            values[i] = (float)(floor((uniform() * 8 - 4) * grid) / grid);
            if (uniform() < 0.02)
                values[i] = uniform() < 0.5 ? -INFINITY : -0.0f;
            copy[i] = values[i];
        }
        double k = 1 + floor(uniform() * (double)(n + 2));
        float want = naive_cut(values, n, k, FT_SELECT_COUNT);
        ck_assert_float_eq(ft_select_cut(&scratch, copy, n, k, FT_SELECT_COUNT), want);
    }
}
END_TEST

START_TEST(cut_by_value_equals_sorting) {
    static struct ft_select scratch;
    static float values[N_MAX], copy[N_MAX];
    for (int round = 0; round < 4000; round++) {
        size_t n = 1 + (size_t)(uniform() * (N_MAX - 1));
        double total = 0;
        for (size_t i = 0; i < n; i++) {
            /* Multiples of 2^-16: every sum is exact, so that the cut is the same in any order. */
            values[i] = copy[i] = (float)(1 + floor(exp(-8 * uniform()) * 65535)) / 65536.0f;
            total += (double)values[i];
        }
        double want = round % 10 == 0 ? total : round % 10 == 1 ? 0 : uniform() * total;
        ck_assert_float_eq(ft_select_cut(&scratch, copy, n, want, FT_SELECT_VALUE),
                           naive_cut(values, n, want, FT_SELECT_VALUE));
    }
}
END_TEST

START_TEST(cut_past_the_total_keeps_everything) {
    static struct ft_select scratch;
    float values[] = {0.3f, 0.1f, 0.10000001f, 0.5f};
    ck_assert_float_eq(ft_select_cut(&scratch, values, 4, 1.5, FT_SELECT_VALUE), 0.1f);
    float counted[] = {3, -7, 5};
    ck_assert_float_eq(ft_select_cut(&scratch, counted, 3, 9, FT_SELECT_COUNT), -7);
}
END_TEST

START_TEST(counts_of_many_ids_equal_a_plain_table) {
    enum { IDS = 5000 };
    static int32_t output[IDS], prompt[IDS];
    struct ft_counts *counts = ft_counts_create();
    for (int pass = 0; pass < 2; pass++) {
        memset(output, 0, sizeof output);
        memset(prompt, 0, sizeof prompt);
        for (int i = 0; i < 20000; i++) {
            int32_t slot = (int32_t)(uniform() * uniform() * IDS), id = slot * 4096 - 1000;
            bool is_prompt = uniform() < 0.3;
            ck_assert(is_prompt ? ft_counts_add_prompt(counts, &id, 1)
                                : ft_counts_add_output(counts, &id, 1));
            output[slot] += !is_prompt;
            prompt[slot] |= is_prompt;
        }
        size_t distinct = 0;
        for (int32_t slot = 0; slot < IDS; slot++) {
            int32_t id = slot * 4096 - 1000;
            ck_assert_int_eq(ft_counts_output(counts, id), output[slot]);
            ck_assert_int_eq(ft_counts_in_prompt(counts, id), prompt[slot]);
            ck_assert_int_eq(ft_counts_output(counts, id + 1), 0);
            distinct += output[slot] > 0 || prompt[slot];
        }
        ck_assert_uint_eq(ft_counts_size(counts), distinct);
        ft_counts_reset(counts);
        ck_assert_uint_eq(ft_counts_size(counts), 0);
        ck_assert_int_eq(ft_counts_output(counts, -1000), 0);
    }
    ft_counts_destroy(&counts);
    ck_assert_ptr_null(counts);
    ft_counts_destroy(&counts);
}
END_TEST

int main(void) {
    TCase *tcase = tcase_create("rowmath");
    tcase_add_test(tcase, maxima_find_the_lowest_of_the_largest);
    tcase_add_test(tcase, exp_is_within_two_ulp_and_exact_at_zero);
    tcase_add_test(tcase, exp_of_what_is_far_below_or_cut_is_zero);
    tcase_add_test(tcase, sums_have_the_bits_of_the_documented_order);
    tcase_add_test(tcase, mass_of_a_bad_q_is_no_number);
    tcase_add_test(tcase, cut_by_count_equals_sorting);
    tcase_add_test(tcase, cut_by_value_equals_sorting);
    tcase_add_test(tcase, cut_past_the_total_keeps_everything);
    tcase_add_test(tcase, counts_of_many_ids_equal_a_plain_table);
    Suite *suite = suite_create("rowmath");
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
