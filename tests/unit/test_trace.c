/* The rings of rounds: bounded, the latest kept, and never a moment that cannot be. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/trace.h"
#include "support/suite.h"

static struct co_trace g_trace;
static struct ft_arena *g_arena;
static struct ft_buf g_wire;

static void setup(void) {
    struct ft_err err = {0};
    ck_assert_int_eq(co_trace_init(&g_trace, &err), FT_OK);
    g_arena = ft_arena_create(1 << 16, 0);
    ft_buf_init(&g_wire, 0);
}

static void teardown(void) {
    co_trace_fini(&g_trace);
    ft_arena_destroy(&g_arena);
    ft_buf_fini(&g_wire);
}

/* Round i of n_seqs requests: a thousand ns, from i * 1000 on. */
static void add_round(uint64_t i, uint32_t n_seqs) {
    int64_t begin = (int64_t)(i + 1) * 1000;
    co_trace_begin(&g_trace, begin);
    co_trace_mark(&g_trace, FT_TRACE_VERIFY_SENT, begin + 10);
    co_trace_reply(&g_trace, FT_TRACE_VERIFY_SENT, begin + 900, (uint64_t)begin + 100, 700);
    for (uint32_t s = 0; s < n_seqs; s++)
        co_trace_request(&g_trace,
                         &(struct ft_wire_trace_seq){
                             .seq_id = s, .tokens = 1, .drafted = 2, .accepted = 1, .committed = 2},
                         "request");
    co_trace_end(&g_trace, begin + 990);
    co_trace_written(&g_trace, begin + 1000, begin + 1005);
}

static struct ft_wire_trace read_back(uint32_t max_rounds) {
    struct ft_wire_trace trace;
    struct ft_err err = {0};
    ft_buf_reset(&g_wire);
    ft_arena_reset(g_arena);
    co_trace_encode(&g_trace, max_rounds, &g_wire);
    ck_assert(!g_wire.failed);
    ck_assert_int_eq(ft_wire_decode_trace(ft_buf_str(&g_wire), g_arena, &trace, &err), FT_OK);
    return trace;
}

START_TEST(encode_of_none_is_empty) {
    struct ft_wire_trace trace = read_back(0);
    ck_assert(trace.n_rounds == 0 && trace.rounds_total == 0);
    co_trace_written(&g_trace, 1, 2); /* before the first round: nothing to note */
    ck_assert_uint_eq(read_back(0).n_rounds, 0);
}
END_TEST

START_TEST(encode_reads_every_field_back) {
    add_round(0, 2);
    struct ft_wire_trace trace = read_back(0);
    ck_assert(trace.n_rounds == 1 && trace.rounds_total == 1);
    const struct ft_wire_trace_round *round = trace.rounds;
    static const uint64_t at[FT_TRACE_MOMENTS] = {1000, 0,    0,    0,    0,    1010,
                                                  1100, 1800, 1900, 1990, 2000, 2005};
    ck_assert_mem_eq(round->at, at, sizeof at);
    ck_assert(round->round == 0 && round->n_seqs == 2);
    const struct ft_wire_trace_seq *seq = &round->seqs[1];
    ck_assert(seq->seq_id == 1 && seq->tokens == 1 && seq->drafted == 2 && seq->accepted == 1);
    ck_assert(seq->committed == 2 && ft_str_eq(seq->request_id, ft_str_c("request")));
}
END_TEST

START_TEST(rings_keep_the_latest_rounds) {
    for (uint64_t i = 0; i < 3 * CO_TRACE_ROUNDS + 7; i++)
        add_round(i, 1);
    struct ft_wire_trace trace = read_back(0);
    ck_assert_uint_eq(trace.rounds_total, 3 * CO_TRACE_ROUNDS + 7);
    ck_assert_uint_eq(trace.n_rounds, CO_TRACE_ROUNDS - 1);
    for (size_t i = 0; i < trace.n_rounds; i++) {
        ck_assert_uint_eq(trace.rounds[i].round, trace.rounds_total - trace.n_rounds + i);
        ck_assert_uint_eq(trace.rounds[i].at[FT_TRACE_BEGIN], (trace.rounds[i].round + 1) * 1000);
    }
    ck_assert_uint_eq(read_back(5).n_rounds, 5);
    ck_assert_uint_eq(read_back(5).rounds[4].round, 3 * CO_TRACE_ROUNDS + 6);
}
END_TEST

START_TEST(large_batches_leave_whole_rounds) {
    for (uint64_t i = 0; i < 200; i++)
        add_round(i, 100);
    struct ft_wire_trace trace = read_back(0);
    ck_assert_uint_eq(trace.n_rounds, CO_TRACE_SEQS / 100);
    for (size_t i = 0; i < trace.n_rounds; i++) {
        ck_assert_uint_eq(trace.rounds[i].n_seqs, 100);
        for (size_t s = 0; s < 100; s++)
            ck_assert_uint_eq(trace.rounds[i].seqs[s].seq_id, s);
    }
}
END_TEST

START_TEST(round_without_an_end_is_forgotten) {
    add_round(0, 1);
    co_trace_begin(&g_trace, 5000);
    co_trace_mark(&g_trace, FT_TRACE_DRAFT_SENT, 5001);
    co_trace_request(&g_trace, &(struct ft_wire_trace_seq){.seq_id = 77}, "lost");
    ck_assert_uint_eq(read_back(0).n_rounds, 1);
    add_round(9, 1);
    struct ft_wire_trace trace = read_back(0);
    ck_assert_uint_eq(trace.n_rounds, 2);
    ck_assert_uint_eq(trace.rounds[1].at[FT_TRACE_BEGIN], 10000);
    ck_assert_uint_eq(trace.rounds[1].at[FT_TRACE_DRAFT_SENT], 0);
    ck_assert(trace.rounds[1].n_seqs == 1 && trace.rounds[1].seqs[0].seq_id == 0);
}
END_TEST

/* A worker in a container with a clock of its own says what cannot be. */
START_TEST(reply_of_another_clock_lies_in_the_middle) {
    static const struct {
        uint64_t begin, compute, begin_kept, end_kept;
    } cases[] = {
        {1100, 700, 1100, 1800},   /* as it was said */
        {0, 700, 1110, 1810},      /* long ago */
        {99999, 700, 1110, 1810},  /* not yet */
        {1300, 700, 1110, 1810},   /* would end after its reply */
        {1100, 99999, 1010, 1910}, /* longer than it was away */
        {0, UINT64_MAX, 1010, 1910},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        co_trace_begin(&g_trace, 1000);
        co_trace_mark(&g_trace, FT_TRACE_VERIFY_SENT, 1010);
        co_trace_reply(&g_trace, FT_TRACE_VERIFY_SENT, 1910, cases[i].begin, cases[i].compute);
        co_trace_end(&g_trace, 2000);
        const uint64_t *at = read_back(1).rounds[0].at;
        ck_assert_uint_eq(at[FT_TRACE_VERIFY_BEGIN], cases[i].begin_kept);
        ck_assert_uint_eq(at[FT_TRACE_VERIFY_END], cases[i].end_kept);
        ck_assert_uint_eq(at[FT_TRACE_VERIFY_REPLY], 1910);
    }
}
END_TEST

START_TEST(request_ids_are_cut_between_characters) {
    char id[100];
    memset(id, 'a', sizeof id);
    memcpy(id + CO_TRACE_ID_MAX - 1, "\xc3\xa9", 2); /* one character astride the limit */
    id[99] = 0;
    co_trace_begin(&g_trace, 1000);
    co_trace_request(&g_trace, &(struct ft_wire_trace_seq){.seq_id = 1}, id);
    co_trace_end(&g_trace, 2000);
    struct ft_str kept = read_back(1).rounds[0].seqs[0].request_id;
    ck_assert_uint_eq(kept.len, CO_TRACE_ID_MAX - 1);
    ck_assert_mem_eq(kept.ptr, id, kept.len);
}
END_TEST

START_TEST(decode_of_too_much_or_nonsense_is_refused) {
    struct ft_wire_trace trace;
    struct ft_wire_trace_request request;
    struct ft_err err = {0};
    ck_assert_int_ne(ft_wire_decode_trace(ft_str_c("\x0a\xff"), g_arena, &trace, &err), FT_OK);
    ck_assert_int_ne(ft_wire_decode_trace_request(ft_str_c("\x08"), g_arena, &request, &err),
                     FT_OK);
    ck_assert_int_eq(ft_wire_decode_trace_request(ft_str_c("\x08\x07"), g_arena, &request, &err),
                     FT_OK);
    ck_assert_uint_eq(request.max_rounds, 7);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("trace");
    TCase *tc = tcase_create("trace");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, encode_of_none_is_empty);
    tcase_add_test(tc, encode_reads_every_field_back);
    tcase_add_test(tc, rings_keep_the_latest_rounds);
    tcase_add_test(tc, large_batches_leave_whole_rounds);
    tcase_add_test(tc, round_without_an_end_is_forgotten);
    tcase_add_test(tc, reply_of_another_clock_lies_in_the_middle);
    tcase_add_test(tc, request_ids_are_cut_between_characters);
    tcase_add_test(tc, decode_of_too_much_or_nonsense_is_refused);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
