/* Rounds as a trace: whatever the moments, a file that a viewer accepts. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/spec/philox.h"
#include "foretokenctl/trace.h"
#include "support/suite.h"
#include "support/trace_events.h"

enum { ROUNDS = 200, SEQS = 5 };

static struct ft_wire_trace_round g_rounds[ROUNDS];
static struct ft_wire_trace_seq g_seqs[ROUNDS][SEQS];
static struct ft_wire_trace g_trace = {.rounds = g_rounds};
static uint64_t g_draws;

static uint64_t below(uint64_t n) {
    return (uint64_t)(ft_philox_uniform(5, g_draws++, FT_PHILOX_PROPOSE, 0) * (double)n);
}

static json_t *load(void) {
    struct ft_buf out;
    ft_buf_init(&out, 0);
    ctl_trace_json(&g_trace, &out);
    ck_assert(!out.failed);
    json_t *trace = trace_events_load(ft_buf_str(&out));
    ft_buf_fini(&out);
    return trace;
}

/* Rounds as a service has them: one in four without a draft, one in fifty whose draft was lost. */
static void fill(size_t n) {
    uint64_t now = 123456789000;
    g_trace.n_rounds = g_trace.rounds_total = n;
    for (size_t i = 0; i < n; i++) {
        struct ft_wire_trace_round *round = &g_rounds[i];
        memset(round, 0, sizeof *round);
        round->round = i;
        bool drafts = below(4) > 0, lost = below(50) == 0;
        for (int at = 0; at < FT_TRACE_MOMENTS; at++) {
            bool of_draft = at >= FT_TRACE_DRAFT_SENT && at <= FT_TRACE_DRAFT_REPLY;
            if (of_draft && (!drafts || (lost && at > FT_TRACE_DRAFT_SENT)))
                continue;
            round->at[at] = now + (at >= FT_TRACE_WRITE_BEGIN ? 50 : 0);
            now += at >= FT_TRACE_END ? 30 : 100 + below(3000000);
        }
        round->n_seqs = 1 + below(SEQS);
        round->seqs = g_seqs[i];
        uint64_t accept = round->at[FT_TRACE_VERIFY_REPLY];
        for (size_t s = 0; s < round->n_seqs; s++) {
            bool prefill = below(5) == 0;
            uint32_t drafted = prefill ? 0 : (uint32_t)below(5);
            g_seqs[i][s] = (struct ft_wire_trace_seq){
                .seq_id = s + i / 20,
                .request_id = ft_str_c("a \"name\" \\ \n"),
                .tokens = prefill ? 40 : 1,
                .model_drafted = drafts && !lost ? drafted : 0,
                .drafted = drafted,
                .accepted = (uint32_t)below(drafted + 1),
                .committed = prefill ? 0 : 1,
                .accept_begin = accept,
                .accept_end = accept + 10,
            };
            accept += 10;
        }
    }
}

START_TEST(trace_of_nothing_is_a_whole_file) {
    g_trace.n_rounds = 0;
    json_t *trace = load();
    ck_assert_int_eq(trace_events_count(trace, ""), 0);
    json_decref(trace);
}
END_TEST

START_TEST(rounds_become_nested_spans) {
    fill(ROUNDS);
    json_t *trace = load();
    int n_seqs = 0, n_drafts = 0;
    for (int i = 0; i < ROUNDS; i++) {
        n_seqs += (int)g_rounds[i].n_seqs;
        n_drafts += g_rounds[i].at[FT_TRACE_DRAFT_REPLY] != 0;
    }
    ck_assert_int_eq(trace_events_count(trace, "round"), ROUNDS);
    ck_assert_int_eq(trace_events_count(trace, "propose"), ROUNDS);
    ck_assert_int_eq(trace_events_count(trace, "plan"), n_drafts);
    ck_assert_int_eq(trace_events_count(trace, "hand-over"), 2 * (ROUNDS + n_drafts));
    ck_assert_int_eq(trace_events_count(trace, "compute"), ROUNDS + n_drafts);
    ck_assert_int_eq(trace_events_count(trace, "accept"), ROUNDS + n_seqs);
    ck_assert_int_eq(trace_events_count(trace, "write"), ROUNDS);
    ck_assert_int_gt(trace_events_count(trace, "draft lost"), 0);
    ck_assert_int_gt(trace_events_count(trace, "prefill 40"), 0);
    ck_assert_int_gt(trace_events_count(trace, "plain step"), 0);
    ck_assert_int_eq((int)trace_events_sum(trace, "round", "requests"), n_seqs);
    json_decref(trace);
}
END_TEST

/* What a broken service could send: times in any order. The file is still one that opens. */
START_TEST(nonsense_times_give_a_file_that_opens) {
    for (int turn = 0; turn < 50; turn++) {
        fill(30);
        for (int i = 0; i < 30; i++)
            for (int at = 0; at < FT_TRACE_MOMENTS; at++)
                if (below(6) == 0)
                    g_rounds[i].at[at] =
                        below(2) == 0 ? below(1000) : 123456789000 + below(90000000);
        g_rounds[29].at[FT_TRACE_END] = turn % 2 == 0 ? UINT64_MAX : 1;
        json_decref(load());
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ctl_trace");
    TCase *tc = tcase_create("ctl_trace");
    tcase_add_test(tc, trace_of_nothing_is_a_whole_file);
    tcase_add_test(tc, rounds_become_nested_spans);
    tcase_add_test(tc, nonsense_times_give_a_file_that_opens);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
