/* The fixtures are what tests/fixtures/README.md says, computed by the model itself. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/model.h"
#include "support/fixtures.h"
#include "support/suite.h"

#define N_BLOCKS 8
#define POSITIONS (N_BLOCKS * FT_KV_BLOCK_TOKENS)

/* One sequence on one model, from position 0. */
struct run {
    struct ft_model *model;
    int32_t blocks[N_BLOCKS];
    int32_t len;
    int32_t vocab;
    int64_t stride;
    float *row;
};

static struct run run_open(const char *spec) {
    struct run r = {0};
    struct ft_model_opts opts = {.dir = ft_fixture_model(spec),
                                 .device = "cpu",
                                 .n_threads = 1,
                                 .kv_bytes = 4 << 20,
                                 .max_step_tokens = POSITIONS,
                                 .max_step_rows = 1};
    struct ft_err err = {0};
    ck_assert_msg(ft_model_open(&r.model, &opts, &err) == FT_OK, "%s: %s", spec, err.text);
    ck_assert_int_ge(ft_model_kv_blocks(r.model), N_BLOCKS);
    for (int32_t i = 0; i < N_BLOCKS; i++)
        r.blocks[i] = i;
    r.vocab = ft_model_config(r.model)->vocab_size;
    r.stride = (r.vocab + 15) / 16 * 16;
    r.row = aligned_alloc(64, (size_t)r.stride * sizeof(float));
    ck_assert_ptr_nonnull(r.row);
    return r;
}

static void run_close(struct run *r) {
    ft_model_close(&r->model);
    free(r->row);
}

/* Append tokens; the logits behind the last one are in row, the best id is returned. */
static int32_t feed(struct run *r, const int32_t *tokens, int32_t n) {
    struct ft_batch_seq seq = {
        .blocks = r->blocks, .start = r->len, .tokens = tokens, .n_tokens = n, .n_logits = 1};
    struct ft_err err = {0};
    ck_assert_msg(ft_model_forward(r->model, &seq, 1, r->row, r->stride, &err) == FT_OK, "%s",
                  err.text);
    r->len += n;
    int32_t best = 0;
    for (int32_t i = 1; i < r->vocab; i++)
        if (r->row[i] > r->row[best])
            best = i;
    return best;
}

START_TEST(r7_greedy_ids_are_the_reference) {
    static const int32_t prompt[] = {97, 98, 99};
    static const int32_t expected[] = {133, 73,  241, 192, 242, 211, 118, 66,  241, 206, 21,
                                       214, 4,   28,  113, 154, 243, 206, 236, 177, 3,   89,
                                       6,   242, 183, 11,  21,  72,  152, 257, 107, 64};
    static const char *const specs[] = {"r7", "r7+shards=3", "r7+tie=none"};
    for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
        struct run r = run_open(specs[s]);
        int32_t id = feed(&r, prompt, 3);
        for (int32_t i = 0; i < 32; i++) {
            ck_assert_msg(id == expected[i], "%s: token %d is %d, not %d", specs[s], i, id,
                          expected[i]);
            id = feed(&r, &id, 1);
        }
        run_close(&r);
    }
}
END_TEST

START_TEST(table_logits_are_exact_in_every_format) {
    static const char *const specs[] = {"iid", "iid+dtype=bf16", "iid+dtype=f16", "iid+vocab=264"};
    for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
        struct run r = run_open(specs[s]);
        feed(&r, (const int32_t[]){'x', 'y', 'a'}, 3);
        for (int32_t i = 0; i < r.vocab; i++) {
            float expected = i == 'b' ? 2 : i == 'c' ? 1 : i == 'd' ? 0 : -40;
            ck_assert_msg(fabsf(r.row[i] - expected) < 1e-5f, "%s: logit %d is %g", specs[s], i,
                          (double)r.row[i]);
        }
        run_close(&r);
    }
}
END_TEST

START_TEST(tables_walk_as_written) {
    static const struct {
        const char *spec;
        int32_t n, walk[8];
    } rows[] = {
        {"cyc", 7, {'a', 'b', 'c', 'd', 'e', 'a', 'b'}},
        {"cyc-draft", 6, {'a', 'b', 'c', 'x', 'a', 'b'}},
        {"eosmid", 6, {'a', 'b', 257, 'c', 'd', 'c'}},
        {"eot", 6, {'a', 'b', 258, 'c', 'd', 'a'}},
        {"utf8", 7, {'a', 0xF0, 0x9F, 0x98, 0x80, 0xF0, 0x9F}},
        {"nul", 5, {'a', 0, 'b', 0, 'b'}},
        {"space", 8, {'s', ' ', 'a', '.', '\n', ',', ' ', 'a'}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct run r = run_open(rows[i].spec);
        for (int32_t k = 0; k + 1 < rows[i].n; k++)
            ck_assert_msg(feed(&r, &rows[i].walk[k], 1) == rows[i].walk[k + 1], "%s, step %d",
                          rows[i].spec, k);
        run_close(&r);
    }
    struct run r = run_open("nant");
    feed(&r, (const int32_t[]){'z'}, 1);
    ck_assert(isnan(r.row[0]) && isnan(r.row[r.vocab - 1]));
    run_close(&r);
}
END_TEST

/* Largest difference of the logits behind n tokens of one text. */
static float difference(const char *spec_a, const char *spec_b, int32_t n) {
    int32_t tokens[POSITIONS];
    for (int32_t i = 0; i < n; i++)
        tokens[i] = 'a' + i * 7 % 26;
    struct run a = run_open(spec_a), b = run_open(spec_b);
    feed(&a, tokens, n);
    feed(&b, tokens, n);
    float most = 0;
    for (int32_t i = 0; i < a.vocab; i++)
        most = fmaxf(most, fabsf(a.row[i] - b.row[i]));
    run_close(&a);
    run_close(&b);
    return most;
}

START_TEST(dev33_scaling_changes_the_logits) {
    ck_assert_float_gt(difference("r7", "r7+rope=llama3:8:64", 24), 0.01f);
    ck_assert_float_gt(difference("r7", "r7+rope=linear:4", 24), 0.01f);
    ck_assert_float_eq(difference("r7", "r7+rope=default", 24), 0.0f);
}
END_TEST

START_TEST(dev34_tied_and_copied_heads_agree) {
    ck_assert_float_eq(difference("r7+head=embed+tie=false", "r7+head=drop+tie=true", 24), 0.0f);
    ck_assert_float_eq(difference("r7+head=embed+tie=false", "r7+head=drop+tie=none", 24), 0.0f);
    ck_assert_float_eq(difference("r7+head=embed+tie=false", "r7+head=embed+tie=true", 24), 0.0f);
    ck_assert_float_gt(difference("r7", "r7+head=drop+tie=true", 24), 0.01f);
}
END_TEST

START_TEST(window_hides_positions_past_it_alone) {
    ck_assert_float_eq(difference("r7", "r7+window=24", 24), 0.0f);
    ck_assert_float_gt(difference("r7", "r7+window=23", 24), 0.0f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fixture_models");
    TCase *tcase = tcase_create("fixture_models");
    tcase_add_test(tcase, r7_greedy_ids_are_the_reference);
    tcase_add_test(tcase, table_logits_are_exact_in_every_format);
    tcase_add_test(tcase, tables_walk_as_written);
    tcase_add_test(tcase, dev33_scaling_changes_the_logits);
    tcase_add_test(tcase, dev34_tied_and_copied_heads_agree);
    tcase_add_test(tcase, window_hides_positions_past_it_alone);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
