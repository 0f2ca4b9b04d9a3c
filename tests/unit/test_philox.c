#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "common/spec/philox.h"
#include "support/suite.h"

/* Known answers of philox4x32-10 as published with Random123 (kat_vectors). */
START_TEST(block_of_known_counter_and_key_gives_published_answer) {
    static const struct {
        uint64_t seed, position;
        uint32_t purpose, lane, want[4];
    } rows[] = {
        {0, 0, 0, 0, {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}},
        {UINT64_MAX,
         UINT64_MAX,
         UINT32_MAX,
         UINT32_MAX,
         {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}},
        {0x299f31d0a4093822u,
         0x85a308d3243f6a88u,
         0x13198a2eu,
         0x03707344u,
         {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t out[4];
        ft_philox_block(rows[i].seed, rows[i].position, rows[i].purpose, rows[i].lane, out);
        for (int j = 0; j < 4; j++)
            ck_assert_uint_eq(out[j], rows[i].want[j]);
    }
}
END_TEST

START_TEST(uniform_is_below_one_and_evenly_spread) {
    enum { N = 100000, BINS = 20 };
    static int counts[BINS];
    for (uint64_t position = 0; position < N; position++) {
        double u = ft_philox_uniform(42, position, FT_PHILOX_ACCEPT, 0);
        ck_assert(u >= 0.0 && u < 1.0);
        counts[(int)(u * BINS)]++;
    }
    double chi_square = 0;
    for (int i = 0; i < BINS; i++) {
        double off = counts[i] - (double)N / BINS;
        chi_square += off * off / ((double)N / BINS);
    }
    ck_assert_double_lt(chi_square, 43.82); /* 19 degrees of freedom, significance 1e-3 */
}
END_TEST

START_TEST(uniform_depends_on_every_argument) {
    double u = ft_philox_uniform(1, 2, FT_PHILOX_ACCEPT, 0);
    ck_assert_double_eq(u, ft_philox_uniform(1, 2, FT_PHILOX_ACCEPT, 0));
    ck_assert_double_ne(u, ft_philox_uniform(2, 2, FT_PHILOX_ACCEPT, 0));
    ck_assert_double_ne(u, ft_philox_uniform(1 + ((uint64_t)1 << 32), 2, FT_PHILOX_ACCEPT, 0));
    ck_assert_double_ne(u, ft_philox_uniform(1, 3, FT_PHILOX_ACCEPT, 0));
    ck_assert_double_ne(u, ft_philox_uniform(1, 2 + ((uint64_t)1 << 32), FT_PHILOX_ACCEPT, 0));
    ck_assert_double_ne(u, ft_philox_uniform(1, 2, FT_PHILOX_RESIDUAL, 0));
    ck_assert_double_ne(u, ft_philox_uniform(1, 2, FT_PHILOX_ACCEPT, 1));
}
END_TEST

/* Neighbouring seeds, positions and purposes must not be correlated: the accept and the residual
 * number of one position are used together. */
START_TEST(uniform_streams_are_uncorrelated) {
    enum { N = 50000 };
    static const struct {
        uint64_t seed, shift;
        enum ft_philox_purpose purpose;
    } other[] = {{7, 0, FT_PHILOX_RESIDUAL},
                 {7, 0, FT_PHILOX_PROPOSE},
                 {7, 1, FT_PHILOX_ACCEPT},
                 {8, 0, FT_PHILOX_ACCEPT}};
    for (size_t k = 0; k < sizeof other / sizeof other[0]; k++) {
        double sum = 0;
        for (uint64_t i = 0; i < N; i++)
            sum +=
                (ft_philox_uniform(7, i, FT_PHILOX_ACCEPT, 0) - 0.5) *
                (ft_philox_uniform(other[k].seed, i + other[k].shift, other[k].purpose, 0) - 0.5);
        /* The mean of N such products has deviation 1 / (12 sqrt(N)); 3.29 of them are 1e-3. */
        ck_assert_double_lt(fabs(sum / N), 3.29 / (12 * sqrt(N)));
    }
}
END_TEST

int main(void) {
    TCase *tcase = tcase_create("philox");
    tcase_add_test(tcase, block_of_known_counter_and_key_gives_published_answer);
    tcase_add_test(tcase, uniform_is_below_one_and_evenly_spread);
    tcase_add_test(tcase, uniform_depends_on_every_argument);
    tcase_add_test(tcase, uniform_streams_are_uncorrelated);
    Suite *suite = suite_create("philox");
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
