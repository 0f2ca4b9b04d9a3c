/* The figures of the benchmark from samples that were made up, and the shape of its outputs. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/spec/theory.h"
#include "support/suite.h"
#include "unit/bench_samples.h"

static void require_near(double got, double expected, const char *what) {
    ck_assert_msg(got > expected * 0.999 && got < expected * 1.001, "%s: %g, not %g", what, got,
                  expected);
}

START_TEST(figures_follow_from_samples) {
    struct bench_summary off = bench_summarize(&g_bench, &g_bench.rows[0]);
    struct bench_summary two = bench_summarize(&g_bench, &g_bench.rows[1]);
    require_near(off.speedup, 1, "plain against itself");
    require_near(off.low, 1, "without an interval");
    require_near(off.round_ms, 2.5, "round");
    require_near(off.host_ms, 0.5, "host");
    require_near(off.gap_p50, 0.0025, "between tokens");
    require_near(off.gap_p99, 0.0025, "p99 of 100 leaves out the worst");
    require_near(two.alpha, 0.5, "alpha");
    require_near(two.c, 0.1, "c");
    require_near(two.length, 1.75, "length");
    require_near(two.theorem, ft_theory_speedup(0.5, 2, 0.1), "theorem 3.8");
    require_near(two.predicted, 1.75 * 2.5 / (0.4 + 2.5), "predicted");
    ck_assert(two.low < 1.59 && two.speedup > 1.59 && two.speedup < 1.61 && two.high > 1.6);
    require_near(two.speedup * two.speedup, 1.5 * 1.7, "the mean is geometric");
}
END_TEST

/* Of rounds with prompts, of those before it and of the pause behind it a row knows nothing. */
START_TEST(times_are_of_rounds_that_decode_alone) {
    static const struct ft_wire_trace_seq decodes[2] = {
        {.tokens = 1, .model_drafted = 2, .committed = 2},
        {.tokens = 1, .model_drafted = 4, .committed = 1}};
    static const struct ft_wire_trace_seq prompt[2] = {{.tokens = 1, .committed = 1},
                                                       {.tokens = 500}};
    static const struct {
        const struct ft_wire_trace_seq *seqs;
        uint64_t begin_ms, draft_ms, verify_ms;
    } rows[] = {{decodes, 0, 3, 5},     {prompt, 100, 300, 500}, {decodes, 1000, 4, 6},
                {decodes, 1012, 8, 10}, {decodes, 1032, 9, 90},  {prompt, 9000, 0, 7},
                {decodes, 9500, 1, 1}};
    enum { N = sizeof rows / sizeof rows[0] };
    struct ft_wire_trace_round rounds[N] = {{0}};
    for (size_t i = 0; i < N; i++) {
        rounds[i] = (struct ft_wire_trace_round){.round = 7 + i, .seqs = rows[i].seqs, .n_seqs = 2};
        uint64_t *at = rounds[i].at, begin = rows[i].begin_ms * 1000000;
        at[FT_TRACE_BEGIN] = at[FT_TRACE_DRAFT_BEGIN] = begin;
        at[FT_TRACE_DRAFT_END] = at[FT_TRACE_VERIFY_BEGIN] = begin + rows[i].draft_ms * 1000000;
        at[FT_TRACE_VERIFY_END] = at[FT_TRACE_VERIFY_BEGIN] + rows[i].verify_ms * 1000000;
    }
    const struct ft_wire_trace trace = {.rounds = rounds, .n_rounds = N};
    struct bench_row *row = add("K = 4", 4);
    bench_take_rounds(row, &trace, 8);
    ck_assert_uint_eq(row->rounds.len, 2 * sizeof(double));
    struct bench_summary s = bench_summarize(&g_bench, row);
    require_near(s.round_ms, 20, "round");
    require_near(s.draft_ms, 8, "draft");
    require_near(s.target_ms, 10, "target");
    require_near(s.host_ms, 2, "host");
    bench_take_rounds(row, &(struct ft_wire_trace){0}, 0);
    ck_assert_uint_eq(row->rounds.len, 2 * sizeof(double));
}
END_TEST

START_TEST(rows_without_samples_are_zeros) {
    struct bench_row *empty = add("service", -1);
    struct bench_summary s = bench_summarize(&g_bench, empty);
    ck_assert(s.speed == 0 && s.speedup == 0 && s.alpha == 0 && s.predicted == 0);
}
END_TEST

START_TEST(outputs_are_whole) {
    struct ft_buf out;
    ft_buf_init(&out, 0);
    bench_table(&g_bench, &out);
    ck_assert_ptr_nonnull(strstr(out.ptr, "K = 2"));
    ck_assert_ptr_nonnull(strstr(out.ptr, "0.500"));
    ft_buf_reset(&out);
    bench_json(&g_bench, &out);
    ck_assert_ptr_nonnull(strstr(out.ptr, "\"alpha\":0.5000"));
    ck_assert_ptr_nonnull(strstr(out.ptr, "\"requests\":["));
    ck_assert_ptr_null(strstr(out.ptr, "nan"));
    ft_buf_reset(&out);
    bench_page(&g_bench, &out);
    ck_assert(!out.failed);
    ck_assert_ptr_nonnull(strstr(out.ptr, "</html>"));
    ck_assert_ptr_null(strstr(out.ptr, "nan"));
    ck_assert_ptr_null(strstr(out.ptr, "http")); /* it loads nothing */
    ck_assert_ptr_null(strstr(out.ptr, "src="));
    int opened = 0, closed = 0;
    for (const char *at = out.ptr; (at = strstr(at, "<svg")) != NULL; at++)
        opened++;
    for (const char *at = out.ptr; (at = strstr(at, "</svg>")) != NULL; at++)
        closed++;
    ck_assert_int_eq(opened, 3);
    ck_assert_int_eq(closed, 3);
    ft_buf_fini(&out);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ctl_bench");
    TCase *tc = tcase_create("ctl_bench");
    tcase_add_checked_fixture(tc, bench_samples_setup, teardown);
    tcase_add_test(tc, figures_follow_from_samples);
    tcase_add_test(tc, times_are_of_rounds_that_decode_alone);
    tcase_add_test(tc, rows_without_samples_are_zeros);
    tcase_add_test(tc, outputs_are_whole);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
