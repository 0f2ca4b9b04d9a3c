#include <check.h>
#include <string.h>

#include "coordinator/stats.h"
#include "support/suite.h"

START_TEST(dev65_counts_are_of_verified_and_committed_tokens) {
    struct co_spec_stats s = {0};
    for (int i = 0; i < 20; i++)
        co_stats_verified(&s, 4, 4, 0);
    ck_assert_uint_eq(s.drafts, 20);
    ck_assert_uint_eq(s.drafted, 80);
    ck_assert_uint_eq(s.accepted, 80);
    co_stats_verified(&s, 2, 0, 1);
    co_stats_verified(&s, 0, 0, 0);
    ck_assert_uint_eq(s.drafts, 21);
    ck_assert_uint_eq(s.drafted, 82);
    ck_assert_uint_eq(s.accepted, 80);
    ck_assert_uint_eq(s.target_steps, 22);
    ck_assert_uint_eq(s.plain_steps, 1);
    ck_assert_uint_eq(s.residual_draws, 1);
    ck_assert_uint_eq(s.drafted_per_pos[0], 21);
    ck_assert_uint_eq(s.drafted_per_pos[3], 20);
    ck_assert_uint_eq(s.accepted_per_pos[0], 20);
}
END_TEST

START_TEST(dev66_medians_before_the_first_round_are_zero) {
    static struct co_stats s;
    struct co_round_times t = co_stats_medians(&s);
    ck_assert(t.round == 0.0f && t.host == 0.0f);
    for (int i = 1; i <= 2000; i++) {
        struct co_round_times row = {(float)i, 1, 2, 3, 4};
        co_stats_round(&s, &row);
    }
    t = co_stats_medians(&s); /* of rounds 977 .. 2000 */
    ck_assert_msg(t.round > 1480 && t.round < 1500, "median %f", (double)t.round);
    ck_assert_uint_eq(s.rounds, 2000);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("stats");
    TCase *tc = tcase_create("stats");
    tcase_add_test(tc, dev65_counts_are_of_verified_and_committed_tokens);
    tcase_add_test(tc, dev66_medians_before_the_first_round_are_zero);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
