#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "common/spec/gumbel.h"
#include "common/spec/philox.h"
#include "support/suite.h"
#include "unit/chi_square.h"

enum { N = 100 };

START_TEST(uniforms_are_those_of_single_blocks) {
    double many[FT_PHILOX_UNIFORMS];
    for (uint32_t first = 0; first < 5000; first += 977) {
        ft_philox_uniforms(12345678901234ull, 1ull << 40 | 7, FT_PHILOX_GUMBEL, first, many);
        for (uint32_t j = 0; j < FT_PHILOX_UNIFORMS / 2; j++) {
            uint32_t block[4];
            ck_assert_double_eq(many[2 * j], ft_philox_uniform(12345678901234ull, 1ull << 40 | 7,
                                                               FT_PHILOX_GUMBEL, first + j));
            ft_philox_block(12345678901234ull, 1ull << 40 | 7, FT_PHILOX_GUMBEL, first + j, block);
            uint64_t bits = ((uint64_t)block[3] << 32 | block[2]) >> 11;
            ck_assert_double_eq(many[2 * j + 1], (double)bits * 0x1p-53);
        }
    }
}
END_TEST

START_TEST(exponential_is_the_logarithm) {
    static const double edges[] = {0,   0x1p-53, 0x1p-30,     0.29289321881345, 0.2928932188134525,
                                   0.5, 0.75,    1 - 0x1p-53, 1 - 0x1p-52};
    for (size_t i = 0; i < 200000 + sizeof edges / sizeof edges[0]; i++) {
        double u = i < 200000 ? ft_philox_uniform(5, i, FT_PHILOX_ACCEPT, 0) : edges[i - 200000];
        double want = -log1p(-u);
        if (!(fabs(ft_gumbel_exponential(u) - want) <= 5e-16 * want))
            ck_abort_msg("u %a: %.17g, not %.17g", u, ft_gumbel_exponential(u), want);
    }
}
END_TEST

/* The race as it is defined, without its shortcuts. */
static int32_t plain_race(const float *probs, int32_t n, uint64_t seed, uint64_t position) {
    double best = INFINITY;
    int32_t winner = -1;
    for (int32_t id = 0; id < n; id++) {
        uint32_t block[4];
        ft_philox_block(seed, position, FT_PHILOX_GUMBEL, (uint32_t)id / 2, block);
        uint64_t bits = (uint64_t)block[id % 2 * 2 + 1] << 32 | block[id % 2 * 2];
        double u = (double)(bits >> 11) * 0x1p-53;
        if (probs[id] > 0 && ft_gumbel_exponential(u) / (double)probs[id] < best) {
            best = ft_gumbel_exponential(u) / (double)probs[id];
            winner = id;
        }
    }
    return winner;
}

START_TEST(draw_is_the_race_and_follows_the_weights) {
    float probs[N];
    double want[N], sum = 0;
    uint32_t counts[N] = {0};
    for (int32_t i = 0; i < N; i++) {
        double u = ft_philox_uniform(8, (uint64_t)i, FT_PHILOX_ACCEPT, 0);
        probs[i] = i % 7 == 3 || (i > 31 && i < 64) ? 0.0f : (float)(u * u * u);
        sum += (double)probs[i];
    }
    for (int32_t i = 0; i < N; i++)
        want[i] = (double)probs[i] / sum;
    for (uint64_t seed = 0; seed < 50000; seed++) {
        int32_t id = ft_gumbel_draw(probs, N, seed, 17);
        if (seed < 2000)
            ck_assert_int_eq(id, plain_race(probs, N, seed, 17));
        counts[id]++;
    }
    check_distribution(counts, want, N, "seeds");
    for (int32_t i = 0; i < N; i++)
        counts[i] = 0;
    for (uint64_t position = 0; position < 50000; position++)
        counts[ft_gumbel_draw(probs, N, 17, position)]++;
    check_distribution(counts, want, N, "positions");
}
END_TEST

START_TEST(draw_without_weight_is_none) {
    float probs[N] = {0};
    ck_assert_int_eq(ft_gumbel_draw(probs, N, 1, 2), -1);
    probs[N - 1] = 1e-38f;
    ck_assert_int_eq(ft_gumbel_draw(probs, N, 1, 2), N - 1);
}
END_TEST

int main(void) {
    TCase *tcase = tcase_create("gumbel");
    tcase_add_test(tcase, uniforms_are_those_of_single_blocks);
    tcase_add_test(tcase, exponential_is_the_logarithm);
    tcase_add_test(tcase, draw_is_the_race_and_follows_the_weights);
    tcase_add_test(tcase, draw_without_weight_is_none);
    Suite *suite = suite_create("gumbel");
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
