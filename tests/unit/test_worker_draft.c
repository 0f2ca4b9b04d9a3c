#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/spec/rule.h"
#include "draft_worker/draft.h"
#include "ipc/history_model.h"
#include "support/suite.h"
#include "unit/worker_rig.h"

enum { LEN = HISTORY_LEN_MAX, K_MAX = FT_DRAFT_LEN_MAX };

static struct rig g_rig;

static void open_rig(int32_t n_blocks) {
    rig_init(&g_rig, n_blocks);
    rig_open(&g_rig, &dw_draft_role);
}

static void fill_ids(int32_t *ids, int32_t n, int32_t first) {
    for (int32_t i = 0; i < n; i++)
        ids[i] = (first + i * 7) % 200;
}

static struct ft_wire_seq_step sampled(uint64_t seq_id, const int32_t *ids, int32_t n,
                                       uint32_t draft_len) {
    struct ft_wire_seq_step s = {seq_id, 0, ids, (size_t)n, .draft_len = draft_len};
    s.has_sampling = true;
    s.sampling = ft_sampling_default();
    s.sampling.seed = 42;
    return s;
}

/* Draw the drafts of s from the history itself, and compare ids, q rows and length. */
static void expect_drafts(const struct ft_wire_seq_step *s, const int32_t *all,
                          const struct ft_wire_seq_result *r) {
    int32_t tokens[LEN + K_MAX];
    int32_t len = (int32_t)(s->keep + s->n_tokens);
    memcpy(tokens, all, (size_t)len * sizeof *tokens);
    struct ft_transform *transform = ft_transform_create(HISTORY_VOCAB);
    struct ft_counts *counts = ft_counts_create();
    struct ft_sampling sampling = s->sampling;
    bool greedy = !s->has_sampling || sampling.temperature == 0.0f;
    if (!s->has_sampling)
        sampling = ft_sampling_default();
    if (greedy)
        sampling.temperature = 0.0f;
    int32_t n_prompt = (int32_t)s->n_prompt < len ? (int32_t)s->n_prompt : len;
    ft_counts_add_prompt(counts, tokens, (size_t)n_prompt);
    ft_counts_add_output(counts, tokens + n_prompt, (size_t)(len - n_prompt));

    ck_assert_int_eq(r->status, FT_WIRE_SEQ_OK);
    ck_assert_uint_eq(r->n_draft_ids, s->draft_len);
    bool rows = !greedy && !sampling.coupled;
    ck_assert_uint_eq(r->n_rows, rows ? s->draft_len : 0);
    for (int32_t i = 0; i < (int32_t)s->draft_len; i++) {
        float logits[HISTORY_VOCAB], q[HISTORY_VOCAB];
        history_row(tokens, len + i, logits);
        struct ft_row_context context = {&sampling, counts, tokens + len, (size_t)i, NULL, 0};
        ck_assert_int_eq(ft_transform_row(transform, logits, HISTORY_VOCAB, &context, q, NULL),
                         FT_OK);
        int32_t id = ft_rule_propose(&sampling, q, HISTORY_VOCAB, (uint64_t)(len + i), i);
        ck_assert_int_eq(r->draft_ids[i], id);
        if (rows)
            ck_assert(memcmp(rig_row(&g_rig, r, i), q, sizeof q) == 0);
        tokens[len + i] = id;
    }
    int32_t fed = s->draft_len > 0 ? (int32_t)s->draft_len - 1 : 0;
    ck_assert_int_eq((int32_t)r->cached, len + fed);
    ft_counts_destroy(&counts);
    ft_transform_destroy(&transform);
}

START_TEST(greedy_draft_is_the_argmax_chain_and_writes_no_rows) {
    open_rig(0);
    int32_t ids[LEN];
    fill_ids(ids, 40, 3);
    struct ft_wire_seq_step s = {5, 0, ids, 40, .draft_len = K_MAX};
    const struct ft_wire_seq_result *r = rig_step(&g_rig, &s, 1);
    ck_assert_uint_eq(r->n_draft_ids, K_MAX);
    ck_assert_uint_eq(r->n_rows, 0);
    for (int32_t i = 0; i < K_MAX; i++) {
        ck_assert_int_eq(r->draft_ids[i], history_argmax(ids, 40 + i));
        ids[40 + i] = r->draft_ids[i];
    }
    ck_assert_uint_eq(r->cached, 40 + K_MAX - 1);
    int before = history_n_forward();
    struct ft_wire_seq_step again = {5, 40, ids, 0, .n_logits = 0};
    rig_step(&g_rig, &again, 1);
    ck_assert_int_eq(history_n_forward(), before);
    /* Temperature 0 and a temperature too small to divide by are greedy too. */
    static const float temperatures[] = {0.0f, 1e-6f};
    for (size_t i = 0; i < 2; i++) {
        s = sampled(6 + i, ids, 40, 3);
        s.sampling.temperature = temperatures[i];
        r = rig_step(&g_rig, &s, 1);
        ck_assert_uint_eq(r->n_rows, 0);
        for (int32_t k = 0; k < 3; k++)
            ck_assert_int_eq(r->draft_ids[k], ids[40 + k]);
    }
    rig_close(&g_rig);
}
END_TEST

START_TEST(dev02_sampled_draft_is_drawn_from_the_q_it_leaves) {
    open_rig(0);
    int32_t ids[LEN];
    fill_ids(ids, 60, 9);
    for (int32_t n = 1; n <= 60; n += 7) {
        for (uint32_t k = 1; k <= K_MAX; k += 5) {
            struct ft_wire_seq_step s = sampled((uint64_t)n, ids, n, k);
            s.sampling.seed = (uint64_t)n * 1000 + k;
            s.sampling.temperature = 0.5f + 0.1f * (float)k;
            s.sampling.top_k = n % 3 == 0 ? 20 : 0;
            s.sampling.top_p = n % 2 == 0 ? 0.8f : 1.0f;
            s.sampling.min_p = n % 5 == 0 ? 0.05f : 0.0f;
            expect_drafts(&s, ids, rig_step(&g_rig, &s, 1));
        }
    }
    rig_close(&g_rig);
}
END_TEST

START_TEST(dev19_penalties_and_bias_act_on_the_draft) {
    open_rig(0);
    int32_t ids[LEN];
    for (int32_t i = 0; i < 30; i++)
        ids[i] = i % 5;
    static const struct ft_bias bias[] = {{3, 4.0f}, {17, 6.0f}, {90000, 50.0f}};
    static const uint32_t prompts[] = {0, 10, 30, 1000};
    for (size_t i = 0; i < 4; i++) {
        struct ft_wire_seq_step s = sampled(i, ids, 30, 12);
        s.n_prompt = prompts[i];
        s.sampling.bias = bias;
        s.sampling.n_bias = 3;
        s.sampling.repetition_penalty = 1.7f;
        s.sampling.frequency_penalty = 0.6f;
        s.sampling.presence_penalty = 0.4f;
        expect_drafts(&s, ids, rig_step(&g_rig, &s, 1));
        s.sampling.temperature = 0.0f; /* greedy with penalties is still greedy */
        expect_drafts(&s, ids, rig_step(&g_rig, &s, 1));
    }
    rig_close(&g_rig);
}
END_TEST

START_TEST(dev21_ragged_draft_lengths_in_one_step_equal_solo_ones) {
    open_rig(0);
    int32_t ids[6][LEN];
    static const uint32_t lengths[6] = {0, 1, 3, 8, 16, 2};
    struct ft_wire_seq_step steps[6];
    for (int32_t i = 0; i < 6; i++) {
        fill_ids(ids[i], 10 + 9 * i, i);
        steps[i] = sampled((uint64_t)i, ids[i], 10 + 9 * i, lengths[i]);
        steps[i].sampling.seed = 7 + (uint64_t)i;
        if (i % 2 == 1)
            steps[i].has_sampling = false;
        if (i == 3)
            steps[i] = sampled(3, ids[i], 10 + 9 * i, 8);
        if (i == 4)
            steps[i].sampling.presence_penalty = 1.0f;
    }
    int before = history_n_forward();
    const struct ft_wire_seq_result *r = rig_step(&g_rig, steps, 6);
    ck_assert_int_eq(history_n_forward(), before + 16); /* as many as the longest draft */
    for (int32_t i = 0; i < 6; i++)
        expect_drafts(&steps[i], ids[i], &r[i]);
    ck_assert_uint_eq(r[3].first_row, 3); /* behind the rows of sequence 2 */
    ck_assert_uint_eq(r[4].first_row, 11);
    rig_close(&g_rig);
}
END_TEST

/* Under the rule `coupled` nobody reads q: the tokens are the Gumbel draws, and no row is written.
 */
START_TEST(coupled_draft_draws_with_gumbel_noise_and_writes_no_rows) {
    static const int32_t allowed[] = {3, 4, 5, 6, 50, 51, 52, 53}, banned[] = {5, 51};
    open_rig(0);
    int32_t ids[LEN];
    fill_ids(ids, 50, 11);
    struct ft_wire_seq_step s = sampled(7, ids, 50, 8);
    s.sampling.coupled = true;
    expect_drafts(&s, ids, rig_step(&g_rig, &s, 1));
    s.seq_id = 8;
    s.sampling.allowed = allowed;
    s.sampling.n_allowed = 8;
    s.sampling.banned = banned;
    s.sampling.n_banned = 2;
    const struct ft_wire_seq_result *r = rig_step(&g_rig, &s, 1);
    for (size_t i = 0; i < r->n_draft_ids; i++)
        ck_assert(r->draft_ids[i] != 5 && r->draft_ids[i] != 51 && r->draft_ids[i] <= 53);
    expect_drafts(&s, ids, r);
    rig_close(&g_rig);
}
END_TEST

/* Rounds as a coordinator runs them against the same model: every draft is accepted, and the KV of
 * the last drafted token, which was never fed, comes with the next step. */
START_TEST(dev18_full_acceptance_feeds_the_missing_token) {
    static const int32_t prompts[] = {1, 15, 16, 17, 60};
    for (uint32_t k = 1; k <= 8; k++) {
        for (size_t p = 0; p < 5; p++) {
            int32_t x[LEN];
            open_rig(0);
            int32_t n = prompts[p];
            fill_ids(x, n, 4);
            uint32_t held = 0;
            while (n + (int32_t)k + 1 < 150) {
                struct ft_wire_seq_step s = {1, held, x + held, (size_t)n - held, .draft_len = k};
                const struct ft_wire_seq_result *r = rig_step(&g_rig, &s, 1);
                ck_assert_uint_eq(r->n_draft_ids, k);
                for (uint32_t i = 0; i < k; i++) {
                    ck_assert_int_eq(r->draft_ids[i], history_argmax(x, n));
                    x[n++] = r->draft_ids[i];
                }
                held = r->cached;
                ck_assert_int_eq((int32_t)held, n - 1);
                x[n] = history_argmax(x, n); /* the bonus token */
                n++;
            }
            rig_close(&g_rig);
        }
    }
}
END_TEST

/* Rejections at every place: what the draft holds past the accepted ones must not matter. */
START_TEST(dev03_partial_acceptance_rolls_the_draft_back) {
    open_rig(0);
    unsigned seed = 5;
    int32_t x[LEN], n = 5;
    fill_ids(x, n, 4);
    uint32_t held = 0;
    while (n < 130) {
        uint32_t k = 1 + (uint32_t)rand_r(&seed) % 8;
        struct ft_wire_seq_step s = {1, held, x + held, (size_t)n - held, .draft_len = k};
        const struct ft_wire_seq_result *r = rig_step(&g_rig, &s, 1);
        int32_t y[LEN + K_MAX];
        memcpy(y, x, (size_t)n * sizeof *x);
        for (uint32_t i = 0; i < k; i++) {
            ck_assert_int_eq(r->draft_ids[i], history_argmax(y, n + (int32_t)i));
            y[n + (int32_t)i] = r->draft_ids[i];
        }
        int32_t n_accepted = (int32_t)((uint32_t)rand_r(&seed) % (k + 1));
        memcpy(x + n, y + n, (size_t)n_accepted * sizeof *x);
        n += n_accepted;
        x[n] = 5 + (int32_t)((unsigned)rand_r(&seed) % 100); /* the target's own choice */
        held = r->cached < (uint32_t)n ? r->cached : (uint32_t)n;
        n++;
    }
    rig_close(&g_rig);
}
END_TEST

START_TEST(dev20_drafts_past_the_context_are_refused_with_both_numbers) {
    open_rig(0);
    int32_t ids[LEN];
    fill_ids(ids, LEN, 1);
    struct ft_wire_seq_step s = sampled(1, ids, 157, 4);
    const struct ft_wire_seq_result *r = rig_step(&g_rig, &s, 1);
    ck_assert_int_eq(r->status, FT_WIRE_SEQ_INVALID);
    ck_assert_ptr_nonnull(strstr(r->detail.ptr, "keep 0 + 157 tokens + 4 drafted is 161 "
                                                "positions: max_model_len is 160"));
    s.draft_len = 3;
    expect_drafts(&s, ids, rig_step(&g_rig, &s, 1));
    s = (struct ft_wire_seq_step){1, 0, ids, 160, .n_logits = 0}; /* catching up to the very end */
    ck_assert_int_eq(rig_step(&g_rig, &s, 1)->status, FT_WIRE_SEQ_OK);
    rig_close(&g_rig);
}
END_TEST

START_TEST(plan_refuses_what_a_draft_cannot_do) {
    open_rig(0);
    int32_t ids[4] = {1, 2, 3, 4};
    const struct {
        struct ft_wire_seq_step step;
        const char *detail;
    } rows[] = {
        {{1, 0, ids, 4, .n_logits = 1}, "n_logits is 1: a draft gives no logits"},
        {{1, 0, ids, 4, .draft_len = 17}, "draft_len is 17: must be 0 to 16"},
        {{1, 0, ids, 4, .draft_len = UINT32_MAX}, "draft_len is 4294967295"},
        {{1, 0, NULL, 0, .draft_len = 1}, "draft_len is 1 without tokens"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct ft_wire_seq_result *r = rig_step(&g_rig, &rows[i].step, 1);
        ck_assert_int_eq(r->status, FT_WIRE_SEQ_INVALID);
        ck_assert_msg(strstr(r->detail.ptr, rows[i].detail) != NULL, "%s", r->detail.ptr);
    }
    rig_close(&g_rig);
}
END_TEST

START_TEST(dev08_blocks_for_the_whole_draft_are_reserved_before_it_starts) {
    for (int32_t n = 1; n <= 33; n++) {
        for (uint32_t k = 1; k <= 16; k++) {
            int32_t ids[LEN];
            fill_ids(ids, n, 2);
            int32_t need = (n + (int32_t)k - 1 + 15) / 16;
            open_rig(need);
            struct ft_wire_seq_step s = sampled(1, ids, n, k);
            expect_drafts(&s, ids, rig_step(&g_rig, &s, 1));
            rig_close(&g_rig);
            if (need == 1)
                continue;
            open_rig(need - 1);
            const struct ft_wire_seq_result *r = rig_step(&g_rig, &s, 1);
            ck_assert_int_eq(r->status, FT_WIRE_SEQ_NO_BLOCKS);
            ck_assert_uint_eq(r->n_draft_ids, 0);
            ck_assert_int_eq(ft_kvseq_count(g_rig.worker->seqs), 0);
            rig_close(&g_rig);
        }
    }
}
END_TEST

START_TEST(dev17_non_finite_logits_fail_one_draft_only) {
    open_rig(0);
    int32_t good[6] = {1, 2, 3, 4, 5, 6}, bad[3] = {1, HISTORY_POISON, 3};
    static const struct ft_bias force[] = {{HISTORY_POISON, 100.0f}};
    struct ft_wire_seq_step steps[4] = {sampled(1, good, 6, 5), sampled(2, bad, 3, 5),
                                        sampled(3, good, 4, 5), sampled(4, good, 5, 6)};
    steps[2].sampling.bias = force; /* drafts the poison, and finds out one token later */
    steps[2].sampling.n_bias = 1;
    const struct ft_wire_seq_result *r = rig_step(&g_rig, steps, 4);
    ck_assert_int_eq(r[1].status, FT_WIRE_SEQ_NUMERIC);
    ck_assert_ptr_nonnull(strstr(r[1].detail.ptr, "position 3"));
    ck_assert_uint_eq(r[1].cached, 0);
    ck_assert_int_eq(r[2].status, FT_WIRE_SEQ_NUMERIC);
    ck_assert_ptr_nonnull(strstr(r[2].detail.ptr, "position 5"));
    ck_assert_uint_eq(r[2].cached, 0);
    ck_assert_uint_eq(r[2].n_draft_ids, 0);
    ck_assert_uint_eq(r[2].n_rows, 0);
    expect_drafts(&steps[0], good, &r[0]);
    expect_drafts(&steps[3], good, &r[3]);
    rig_close(&g_rig);
}
END_TEST

/* The draft has a prefix cache of its own, and a hit changes no draft. */
START_TEST(dev68_prefix_hit_drafts_the_same) {
    open_rig(0);
    int32_t ids[LEN];
    fill_ids(ids, 100, 6);
    for (int32_t n = 1; n <= 100; n += 3) {
        struct ft_wire_seq_step s = sampled((uint64_t)n, ids, n, 4);
        const struct ft_wire_seq_result *r = rig_step(&g_rig, &s, 1);
        expect_drafts(&s, ids, r);
        ft_kvseq_release(g_rig.worker->seqs, s.seq_id);
        s.seq_id++;
        r = rig_step(&g_rig, &s, 1);
        ck_assert_int_eq((int32_t)r->prefix_hit, (n - 1) / 16 * 16);
        expect_drafts(&s, ids, r);
        ft_kvseq_release(g_rig.worker->seqs, s.seq_id);
    }
    rig_close(&g_rig);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("worker_draft");
    TCase *tc = tcase_create("worker_draft");
    tcase_add_test(tc, greedy_draft_is_the_argmax_chain_and_writes_no_rows);
    tcase_add_test(tc, dev02_sampled_draft_is_drawn_from_the_q_it_leaves);
    tcase_add_test(tc, dev19_penalties_and_bias_act_on_the_draft);
    tcase_add_test(tc, dev21_ragged_draft_lengths_in_one_step_equal_solo_ones);
    tcase_add_test(tc, coupled_draft_draws_with_gumbel_noise_and_writes_no_rows);
    tcase_add_test(tc, dev18_full_acceptance_feeds_the_missing_token);
    tcase_add_test(tc, dev03_partial_acceptance_rolls_the_draft_back);
    tcase_add_test(tc, dev20_drafts_past_the_context_are_refused_with_both_numbers);
    tcase_add_test(tc, plan_refuses_what_a_draft_cannot_do);
    tcase_add_test(tc, dev08_blocks_for_the_whole_draft_are_reserved_before_it_starts);
    tcase_add_test(tc, dev17_non_finite_logits_fail_one_draft_only);
    tcase_add_test(tc, dev68_prefix_hit_drafts_the_same);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
