#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/history_model.h"
#include "support/suite.h"
#include "target_worker/verify.h"
#include "unit/worker_rig.h"

static struct rig g_rig;

static void open_rig(int32_t n_blocks) {
    rig_init(&g_rig, n_blocks);
    rig_open(&g_rig, &tw_verify_role);
}

static void expect_row(const struct ft_wire_seq_result *result, int32_t i, const int32_t *tokens,
                       int32_t n) {
    float want[HISTORY_VOCAB];
    history_row(tokens, n, want);
    ck_assert_msg(memcmp(rig_row(&g_rig, result, i), want, sizeof want) == 0,
                  "row %d behind %d tokens differs", i, n);
}

static void fill_ids(int32_t *ids, int32_t n, int32_t first) {
    for (int32_t i = 0; i < n; i++)
        ids[i] = (first + i * 7) % 200;
}

START_TEST(step_prefills_decodes_and_rolls_back_with_keep_alone) {
    open_rig(0);
    int32_t ids[60];
    fill_ids(ids, 60, 3);
    struct ft_wire_seq_step s = {.seq_id = 9, .tokens = ids, .n_tokens = 30};
    const struct ft_wire_seq_result *r = rig_step(&g_rig, &s, 1);
    ck_assert_int_eq(r->status, FT_WIRE_SEQ_OK); /* a chunk: no rows */
    ck_assert_uint_eq(r->cached, 30);
    ck_assert_uint_eq(r->n_rows, 0);

    s = (struct ft_wire_seq_step){9, 30, ids + 30, 5, .n_logits = 5};
    r = rig_step(&g_rig, &s, 1);
    ck_assert_uint_eq(r->cached, 35);
    for (int32_t i = 0; i < 5; i++)
        expect_row(r, i, ids, 31 + i);
    r = rig_step(&g_rig, &s, 1); /* again: the same */
    ck_assert_int_eq(r->status, FT_WIRE_SEQ_OK);
    ck_assert_uint_eq(r->cached, 35);
    for (int32_t i = 0; i < 5; i++)
        expect_row(r, i, ids, 31 + i);

    /* Two of the four drafts were accepted, then another token. */
    ids[33] = 201;
    s = (struct ft_wire_seq_step){9, 33, ids + 33, 3, .n_logits = 3};
    r = rig_step(&g_rig, &s, 1);
    ck_assert_uint_eq(r->cached, 36);
    for (int32_t i = 0; i < 3; i++)
        expect_row(r, i, ids, 34 + i);

    s = (struct ft_wire_seq_step){9, 12, NULL, 0, .n_logits = 0}; /* truncate alone */
    r = rig_step(&g_rig, &s, 1);
    ck_assert_int_eq(r->status, FT_WIRE_SEQ_OK);
    ck_assert_uint_eq(r->cached, 12);
    rig_close(&g_rig);
}
END_TEST

START_TEST(step_with_keep_past_what_is_held_says_lost) {
    open_rig(0);
    int32_t ids[20];
    fill_ids(ids, 20, 1);
    struct ft_wire_seq_step s = {.seq_id = 1, .keep = 5, .tokens = ids, .n_tokens = 3};
    const struct ft_wire_seq_result *r = rig_step(&g_rig, &s, 1);
    ck_assert_int_eq(r->status, FT_WIRE_SEQ_LOST);
    ck_assert_uint_eq(r->cached, 0);
    ck_assert_int_eq(ft_kvseq_count(g_rig.worker->seqs), 0);
    s = (struct ft_wire_seq_step){.seq_id = 1, .keep = 0, .tokens = ids, .n_tokens = 10};
    rig_step(&g_rig, &s, 1);
    s = (struct ft_wire_seq_step){
        .seq_id = 1, .keep = 11, .tokens = ids, .n_tokens = 3, .n_logits = 1};
    r = rig_step(&g_rig, &s, 1);
    ck_assert_int_eq(r->status, FT_WIRE_SEQ_LOST);
    ck_assert_uint_eq(r->cached, 10);
    ck_assert_uint_eq(r->n_rows, 0);
    ck_assert_ptr_nonnull(strstr(r->detail.ptr, "keep is 11: 10 positions are held"));
    s = (struct ft_wire_seq_step){1, 10, ids + 10, 10, .n_logits = 1}; /* resent from there */
    r = rig_step(&g_rig, &s, 1);
    ck_assert_int_eq(r->status, FT_WIRE_SEQ_OK);
    expect_row(r, 0, ids, 20);
    rig_close(&g_rig);
}
END_TEST

START_TEST(dev29_bad_fields_are_refused_by_name_and_neighbours_go_on) {
    open_rig(0);
    int32_t good[4] = {1, 2, 3, 4}, negative[2] = {1, -1}, past[3] = {1, 2, HISTORY_VOCAB},
            extreme[1] = {INT32_MIN}, many[300] = {0};
    const struct {
        struct ft_wire_seq_step step;
        const char *detail;
    } rows[] = {
        {{2, 0, negative, 2, .n_logits = 0}, "tokens[1] is -1: must be 0 to 263"},
        {{2, 0, past, 3, .n_logits = 0}, "tokens[2] is 264: must be 0 to 263"},
        {{2, 0, extreme, 1, .n_logits = 0}, "tokens[0] is -2147483648"},
        {{2, 0, good, 4, .n_logits = 5}, "n_logits is 5: must be 0 to the 4 tokens"},
        {{2, 0, NULL, 0, .n_logits = 1}, "n_logits is 1"},
        {{2, 0, good, 4, .draft_len = 1}, "draft_len is 1"},
        {{2, 0, many, 161, .n_logits = 0},
         "keep 0 + 161 tokens + 0 drafted is 161 positions: max_model_len is "
         "160"},
        {{2, UINT32_MAX, good, 4, .n_logits = 0}, "keep 4294967295 + 4 tokens"},
        {{2, 159, good, 2, .n_logits = 0}, "is 161 positions"},
        {{1, 0, good, 4, .n_logits = 0}, "seq_id 1 is twice in the step"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ft_wire_seq_step steps[3] = {
            {1, 0, good, 4, .n_logits = 1}, rows[i].step, {3, 0, good, 3, .n_logits = 1}};
        const struct ft_wire_seq_result *r = rig_step(&g_rig, steps, 3);
        ck_assert_int_eq(r[1].status, FT_WIRE_SEQ_INVALID);
        ck_assert_msg(strstr(r[1].detail.ptr, rows[i].detail) != NULL, "%s", r[1].detail.ptr);
        expect_row(&r[0], 0, good, 4);
        expect_row(&r[2], 0, good, 3);
        ck_assert_int_eq(ft_kvseq_count(g_rig.worker->seqs), 2);
    }
    rig_close(&g_rig);
}
END_TEST

START_TEST(dev31_step_limits_refuse_what_is_past_them) {
    rig_init(&g_rig, 0);
    g_rig.params.max_num_batched_tokens = 20;
    g_rig.params.max_step_rows = 10;
    g_rig.params.max_num_seqs = 3;
    rig_open(&g_rig, &tw_verify_role);
    int32_t ids[30];
    fill_ids(ids, 30, 5);
    struct ft_wire_seq_step tokens[2] = {{1, 0, ids, 15, .n_logits = 0},
                                         {2, 0, ids, 6, .n_logits = 0}};
    const struct ft_wire_seq_result *r = rig_step(&g_rig, tokens, 2);
    ck_assert_int_eq(r[0].status, FT_WIRE_SEQ_OK);
    ck_assert_int_eq(r[1].status, FT_WIRE_SEQ_INVALID);
    ck_assert_ptr_nonnull(strstr(r[1].detail.ptr, "21 tokens up to this sequence: "
                                                  "max_num_batched_tokens is 20"));
    struct ft_wire_seq_step rows[2] = {{1, 0, ids, 9, .n_logits = 9},
                                       {2, 0, ids, 2, .n_logits = 2}};
    r = rig_step(&g_rig, rows, 2);
    ck_assert_int_eq(r[0].status, FT_WIRE_SEQ_OK);
    ck_assert_int_eq(r[1].status, FT_WIRE_SEQ_INVALID);
    ck_assert_ptr_nonnull(strstr(r[1].detail.ptr, "11 rows up to this sequence: max_step_rows is "
                                                  "10"));
    struct ft_wire_seq_step seqs[4] = {{1, 0, ids, 1, .n_logits = 0},
                                       {2, 0, ids, 1, .n_logits = 0},
                                       {3, 0, ids, 1, .n_logits = 0},
                                       {4, 0, ids, 1, .n_logits = 0}};
    r = rig_step(&g_rig, seqs, 4);
    ck_assert_int_eq(r[2].status, FT_WIRE_SEQ_OK);
    ck_assert_int_eq(r[3].status, FT_WIRE_SEQ_INVALID);
    ck_assert_ptr_nonnull(strstr(r[3].detail.ptr, "max_num_seqs 3"));
    rig_close(&g_rig);
}
END_TEST

START_TEST(no_blocks_leaves_the_pool_as_it_was_and_others_go_on) {
    open_rig(4); /* 64 positions */
    int32_t ids[80];
    fill_ids(ids, 80, 2);
    struct ft_wire_seq_step steps[3] = {{1, 0, ids, 30, .n_logits = 1},
                                        {2, 0, ids + 1, 40, .n_logits = 1},
                                        {3, 0, ids + 2, 32, .n_logits = 1}};
    const struct ft_wire_seq_result *r = rig_step(&g_rig, steps, 3);
    ck_assert_int_eq(r[0].status, FT_WIRE_SEQ_OK);
    ck_assert_int_eq(r[1].status, FT_WIRE_SEQ_NO_BLOCKS);
    ck_assert_ptr_nonnull(strstr(r[1].detail.ptr, "3 KV blocks are needed, 2 of 4 are free"));
    ck_assert_uint_eq(r[1].cached, 0);
    ck_assert_int_eq(r[2].status, FT_WIRE_SEQ_OK);
    expect_row(&r[0], 0, ids, 30);
    expect_row(&r[2], 0, ids + 2, 32);
    ck_assert_int_eq(ft_kvseq_count(g_rig.worker->seqs), 2);

    /* A held sequence that cannot grow keeps what it has. */
    struct ft_wire_seq_step grow = {1, 30, ids + 30, 5, .n_logits = 1};
    r = rig_step(&g_rig, &grow, 1);
    ck_assert_int_eq(r->status, FT_WIRE_SEQ_NO_BLOCKS);
    ck_assert_uint_eq(r->cached, 30);
    ft_kvseq_release(g_rig.worker->seqs, 3);
    r = rig_step(&g_rig, &grow, 1);
    ck_assert_int_eq(r->status, FT_WIRE_SEQ_OK);
    expect_row(r, 0, ids, 35);
    rig_close(&g_rig);
}
END_TEST

START_TEST(dev17_non_finite_rows_fail_their_own_sequence) {
    open_rig(0);
    int32_t good[5] = {1, 2, 3, 4, 5}, bad[5] = {1, 2, HISTORY_POISON, 4, 5};
    struct ft_wire_seq_step steps[3] = {{1, 0, good, 5, .n_logits = 2},
                                        {2, 0, bad, 5, .n_logits = 3},
                                        {3, 0, good, 5, .n_logits = 1}};
    const struct ft_wire_seq_result *r = rig_step(&g_rig, steps, 3);
    ck_assert_int_eq(r[1].status, FT_WIRE_SEQ_NUMERIC);
    ck_assert_ptr_nonnull(strstr(r[1].detail.ptr, "non-finite logits: position 2"));
    ck_assert_uint_eq(r[1].cached, 0);
    ck_assert_uint_eq(r[1].n_rows, 0);
    expect_row(&r[0], 0, good, 4);
    expect_row(&r[0], 1, good, 5);
    expect_row(&r[2], 0, good, 5);
    /* Behind the first row: a draft that may be rejected. */
    steps[1].n_logits = 4;
    r = rig_step(&g_rig, &steps[1], 1);
    ck_assert_int_eq(r->status, FT_WIRE_SEQ_OK);
    ck_assert_uint_eq(r->n_rows, 4);
    expect_row(r, 0, bad, 2);
    rig_close(&g_rig);
}
END_TEST

/* A forward pass that failed half-way: its KV must be found by nobody. */
START_TEST(dev59_failed_forward_is_an_error_and_leaves_nothing_behind) {
    open_rig(0);
    int32_t ids[40];
    fill_ids(ids, 40, 8);
    struct ft_wire_seq_step s = {1, 0, ids, 40, .n_logits = 1};
    struct ft_wire_step step = {
        .step_id = 1, .epoch = g_rig.worker->epoch, .seqs = &s, .n_seqs = 1};
    struct ft_wire_step_reply reply = {.step_id = 77};
    struct ft_err err;
    history_fail_next();
    ck_assert_int_eq(ft_step_execute(g_rig.worker, &step, &reply, &err), FT_E_PROC_INTERNAL);
    ck_assert_uint_eq(reply.step_id, 77);
    ft_kvseq_release(g_rig.worker->seqs, 1); /* what a release leaves in the cache is found */
    s.seq_id = 2;
    const struct ft_wire_seq_result *r = rig_step(&g_rig, &s, 1);
    ck_assert_uint_eq(r->prefix_hit, 0);
    expect_row(r, 0, ids, 40);
    rig_close(&g_rig);
}
END_TEST

START_TEST(dev06_dev24_prefix_hit_equals_miss_at_every_length) {
    open_rig(0);
    int32_t ids[80];
    for (int32_t len = 1; len <= 70; len++) {
        fill_ids(ids, 80, len); /* a prompt of its own for each length */
        const struct {
            int32_t n, n_logits, hit;
        } runs[] = {{len, 1, 0},                   /* cold */
                    {len, 1, (len - 1) / 16 * 16}, /* the same again */
                    {len + 1, 1, len / 16 * 16},   /* one token more */
                    {len - 1, 1, len < 2 ? 0 : (len - 2) / 16 * 16},
                    {len, len < 3 ? len : 3, len < 3 ? 0 : (len - 3) / 16 * 16}};
        for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
            if (runs[i].n == 0)
                continue;
            struct ft_wire_seq_step s = {100 + i, 0, ids, (size_t)runs[i].n,
                                         .n_logits = (uint32_t)runs[i].n_logits};
            const struct ft_wire_seq_result *r = rig_step(&g_rig, &s, 1);
            ck_assert_int_eq(r->status, FT_WIRE_SEQ_OK);
            ck_assert_int_eq((int)r->prefix_hit, runs[i].hit);
            ck_assert_int_eq((int)r->cached, runs[i].n);
            for (int32_t k = 0; k < runs[i].n_logits; k++)
                expect_row(r, k, ids, runs[i].n - runs[i].n_logits + 1 + k);
            ft_kvseq_release(g_rig.worker->seqs, s.seq_id);
        }
    }
    rig_close(&g_rig);
}
END_TEST

START_TEST(dev24_two_identical_prompts_in_one_step) {
    open_rig(0);
    int32_t ids[48];
    fill_ids(ids, 48, 4);
    struct ft_wire_seq_step steps[2] = {{1, 0, ids, 48, .n_logits = 1},
                                        {2, 0, ids, 48, .n_logits = 1}};
    const struct ft_wire_seq_result *r = rig_step(&g_rig, steps, 2);
    expect_row(&r[0], 0, ids, 48);
    expect_row(&r[1], 0, ids, 48);
    int32_t next = 7;
    struct ft_wire_seq_step more[2] = {{1, 48, &next, 1, .n_logits = 1},
                                       {2, 48, &next, 1, .n_logits = 1}};
    int32_t free_before = ft_kvpool_free(g_rig.worker->pool);
    r = rig_step(&g_rig, more, 2); /* their full blocks are found to be the same */
    ck_assert_int_eq(ft_kvpool_free(g_rig.worker->pool), free_before + 3 - 2);
    int32_t all[49];
    memcpy(all, ids, sizeof ids);
    all[48] = next;
    expect_row(&r[0], 0, all, 49);
    expect_row(&r[1], 0, all, 49);
    rig_close(&g_rig);
}
END_TEST

/* Random steps over several sequences in a pool that is too small for all: every row must be what
 * the history says, whatever company, chunk, rollback or cache it came by. */
static void run_random(const char *layout, bool caching, unsigned seed) {
    enum { N = 6, LEN = 120 };
    const bool slotted = strcmp(layout, "slotted") == 0;
    static int32_t tokens[N][LEN];
    int32_t len[N] = {0};
    rig_init(&g_rig, slotted ? 34 : 26); /* four slots of 120 positions, and two pages over */
    g_rig.params.enable_prefix_caching = caching;
    g_rig.params.max_model_len = slotted ? LEN : 0;
    strcpy(g_rig.params.kv_layout, layout);
    rig_open(&g_rig, &tw_verify_role);
    int n_lost = 0, n_empty = 0, n_ok = 0, n_hit = 0;
    for (int round = 0; round < 1500; round++) {
        struct ft_wire_seq_step steps[N];
        int32_t ids[N][LEN];
        size_t n = 0;
        for (int i = 0; i < N; i++) {
            unsigned dice = (unsigned)rand_r(&seed) % 20;
            if (dice < 8)
                continue;
            if (dice == 8) {
                ft_kvseq_release(g_rig.worker->seqs, (uint64_t)i);
                len[i] = 0;
            }
            int32_t keep =
                dice < 12 ? (int32_t)((unsigned)rand_r(&seed) % (unsigned)(len[i] + 1)) : len[i];
            int32_t n_new = 1 + (int32_t)((unsigned)rand_r(&seed) % 30);
            if (keep + n_new > LEN)
                keep = n_new = 1 + (int32_t)((unsigned)rand_r(&seed) % 16);
            if (keep > len[i])
                keep = 0;
            int32_t odd = (int32_t)((unsigned)rand_r(&seed) % 100);
            for (int32_t k = 0; k < n_new; k++)
                ids[n][k] = k == odd ? 1 : 0;
            steps[n] = (struct ft_wire_seq_step){(uint64_t)i, (uint32_t)keep, ids[n], (size_t)n_new,
                                                 .n_logits = (uint32_t)rand_r(&seed) %
                                                             ((unsigned)n_new + 1)};
            n++;
        }
        const struct ft_wire_seq_result *r = rig_step(&g_rig, steps, n);
        for (size_t j = 0; j < n; j++) {
            int i = (int)steps[j].seq_id;
            if (r[j].status == FT_WIRE_SEQ_OK) {
                memcpy(&tokens[i][steps[j].keep], steps[j].tokens, steps[j].n_tokens * 4);
                len[i] = (int32_t)(steps[j].keep + steps[j].n_tokens);
                for (int32_t k = 0; k < (int32_t)r[j].n_rows; k++)
                    expect_row(&r[j], k, tokens[i], len[i] - (int32_t)r[j].n_rows + 1 + k);
                n_ok++;
                n_hit += (int)r[j].prefix_hit;
            } else if (r[j].status == FT_WIRE_SEQ_NO_BLOCKS) {
                len[i] = (int32_t)r[j].cached;
                n_empty++;
            } else {
                ck_assert_int_eq(r[j].status, FT_WIRE_SEQ_LOST);
                len[i] = (int32_t)r[j].cached;
                ck_assert_int_eq(len[i] % 16, 0); /* a shared block was dropped */
                n_lost++;
            }
            ck_assert_int_eq((int)r[j].cached, len[i]);
        }
    }
    ck_assert_int_gt(n_ok, 2000);
    ck_assert_int_gt(n_empty, 10);
    ck_assert((n_hit > 0) == caching);
    ck_assert(caching || n_lost == 0);
    rig_close(&g_rig);
}

START_TEST(dev05_dev41_random_steps_match_the_history_and_leak_nothing) {
    run_random("paged", true, 11);
    run_random("paged", false, 12);
    run_random("paged", true, 13);
    run_random("slotted", false, 14);
}
END_TEST

static void require_no_worker(const char *says) {
    struct ft_err err = {0};
    struct ft_worker *worker = NULL;
    ck_assert_int_eq(ft_worker_open(&worker, &tw_verify_role, &g_rig.params, &err),
                     FT_E_PROC_CONFIG);
    ck_assert_str_eq(err.text, says);
    ck_assert_ptr_null(worker);
}

START_TEST(layout_that_cannot_do_what_is_asked_is_refused_by_name) {
    rig_init(&g_rig, 30);
    strcpy(g_rig.params.kv_layout, "ragged");
    require_no_worker("kv_layout is 'ragged': must be paged or slotted");
    strcpy(g_rig.params.kv_layout, "slotted");
    require_no_worker(
        "kv_layout is slotted, which has no prefix cache: set enable_prefix_caching to "
        "false");
    g_rig.params.enable_prefix_caching = false;
    g_rig.params.max_model_len = 481;
    char says[200];
    snprintf(says, sizeof says,
             "kv_cache_bytes is %lld: it holds 480 positions, and kv_layout slotted needs 496 for "
             "one sequence of max_model_len",
             (long long)g_rig.params.kv_cache_bytes);
    require_no_worker(says);
    g_rig.params.max_model_len = 480;
    rig_open(&g_rig, &tw_verify_role);
    struct ft_wire_describe describe;
    ft_worker_describe(g_rig.worker, &describe);
    ck_assert_uint_eq(describe.kv_block_tokens, 480);
    ck_assert_uint_eq(describe.kv_blocks_total, 1);
    rig_close(&g_rig);
}
END_TEST

START_TEST(sequences_of_a_step_go_through_one_forward_pass) {
    open_rig(0);
    int32_t ids[10];
    fill_ids(ids, 10, 0);
    struct ft_wire_seq_step steps[4] = {{1, 0, ids, 10, .n_logits = 0},
                                        {2, 0, ids, 3, .n_logits = 1},
                                        {3, 7, ids, 1, .n_logits = 0},
                                        {4, 0, ids, 5, .n_logits = 5}};
    int before = history_n_forward();
    const struct ft_wire_seq_result *r = rig_step(&g_rig, steps, 4);
    ck_assert_int_eq(history_n_forward(), before + 1);
    ck_assert_int_eq(history_last_n_seqs(), 3);
    ck_assert_int_eq(r[2].status, FT_WIRE_SEQ_LOST);
    ck_assert_uint_eq(r[3].first_row, 1);
    struct ft_wire_worker_stats stats;
    ft_worker_stats(g_rig.worker, &stats);
    ck_assert_uint_eq(stats.steps, 1);
    ck_assert_uint_eq(stats.step_tokens, 18);
    ck_assert_uint_eq(stats.sequences, 3);
    ck_assert_uint_gt(stats.resident_bytes, 1 << 20);
    ck_assert_uint_gt(g_rig.reply.compute_nanos, 0);
    rig_step(&g_rig, NULL, 0); /* an empty step is answered */
    ck_assert_int_eq(history_n_forward(), before + 1);
    rig_close(&g_rig);
}
END_TEST

START_TEST(step_takes_what_it_gives_back_whatever_the_order) {
    open_rig(4); /* blocks of 16 */
    int32_t ids[64], other[32];
    fill_ids(ids, 64, 1);
    fill_ids(other, 32, 150);
    struct ft_wire_seq_step all = {1, 0, ids, 64, .n_logits = 1};
    ck_assert_int_eq(rig_step(&g_rig, &all, 1)->status, FT_WIRE_SEQ_OK);
    struct ft_wire_seq_step both[2] = {{2, 0, other, 32, .n_logits = 1},
                                       {1, 16, ids + 16, 1, .n_logits = 1}};
    const struct ft_wire_seq_result *r = rig_step(&g_rig, both, 2);
    ck_assert_int_eq(r[0].status, FT_WIRE_SEQ_OK);
    ck_assert_int_eq(r[1].status, FT_WIRE_SEQ_OK);
    expect_row(&r[0], 0, other, 32);
    expect_row(&r[1], 0, ids, 17);

    const uint64_t gone[3] = {1, 2, 99};
    all.seq_id = 3;
    struct ft_wire_step step = {
        .step_id = 50,
        .epoch = g_rig.worker->epoch,
        .seqs = &all,
        .n_seqs = 1,
        .release = gone,
        .n_release = 3,
    };
    struct ft_wire_step_reply reply;
    ck_assert_int_eq(ft_step_execute(g_rig.worker, &step, &reply, NULL), FT_OK);
    ck_assert_int_eq(reply.results[0].status, FT_WIRE_SEQ_OK);
    ck_assert_int_eq(ft_kvseq_count(g_rig.worker->seqs), 1);

    uint64_t n_steps = g_rig.worker->stats.steps; /* a step may only release; it computes nothing */
    step = (struct ft_wire_step){.step_id = 51, .release = &all.seq_id, .n_release = 1};
    ck_assert_int_eq(ft_step_execute(g_rig.worker, &step, &reply, NULL), FT_OK);
    ck_assert_uint_eq(reply.n_results, 0);
    ck_assert_uint_eq(g_rig.worker->stats.steps, n_steps);
    ck_assert_int_eq(ft_kvseq_count(g_rig.worker->seqs), 0);
    rig_close(&g_rig);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("worker_verify");
    TCase *tc = tcase_create("worker_verify");
    tcase_add_test(tc, step_prefills_decodes_and_rolls_back_with_keep_alone);
    tcase_add_test(tc, step_with_keep_past_what_is_held_says_lost);
    tcase_add_test(tc, dev29_bad_fields_are_refused_by_name_and_neighbours_go_on);
    tcase_add_test(tc, dev31_step_limits_refuse_what_is_past_them);
    tcase_add_test(tc, no_blocks_leaves_the_pool_as_it_was_and_others_go_on);
    tcase_add_test(tc, dev17_non_finite_rows_fail_their_own_sequence);
    tcase_add_test(tc, dev59_failed_forward_is_an_error_and_leaves_nothing_behind);
    tcase_add_test(tc, dev06_dev24_prefix_hit_equals_miss_at_every_length);
    tcase_add_test(tc, dev24_two_identical_prompts_in_one_step);
    tcase_add_test(tc, dev05_dev41_random_steps_match_the_history_and_leak_nothing);
    tcase_add_test(tc, layout_that_cannot_do_what_is_asked_is_refused_by_name);
    tcase_add_test(tc, step_takes_what_it_gives_back_whatever_the_order);
    tcase_add_test(tc, sequences_of_a_step_go_through_one_forward_pass);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
