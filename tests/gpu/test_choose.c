/* Rows decided on a GPU: the tokens, and the bits of q, that the functions of spec give. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/twin.h"
#include "unit/choice_cases.h"

#define ROWS_MAX 1024

/* A batch of rounds, with rows on the GPU. */
struct scene {
    struct twin twin;
    struct ft_choice_batch batch;
    struct ft_choice_result results[ROWS_MAX], host_results[ROWS_MAX];
    int32_t n_asked, n_decided;
};

static struct scene scene;

static void setup(void) {
    twin_open(&scene.twin);
    ck_assert(ft_choice_batch_create(&scene.batch, ROWS_MAX));
}

static void teardown(void) {
    ft_choice_batch_destroy(&scene.batch);
    twin_close(&scene.twin);
}

static void run(struct scene *s) {
    struct ft_choice_batch *b = &s->batch;
    struct ft_op_choose op = {.n_rows = b->n_rows, .n_vocab_max = b->n_vocab_max, .stamp = 17};
    op.rows = twin_put(&s->twin, b->rows, (size_t)b->n_rows * sizeof *b->rows);
    op.edits = twin_put(&s->twin, b->edits, (size_t)(b->n_edits + 1) * sizeof *b->edits);
    op.ids = twin_put(&s->twin, b->ids, (size_t)(b->n_ids + 1) * sizeof *b->ids);
    memset(s->results, 0xFF, sizeof s->results);
    op.results = twin_put(&s->twin, s->results, (size_t)b->n_rows * sizeof *s->results);
    s->twin.gpu->kind->ops->choose(s->twin.gpu, &op);
    twin_get(&s->twin, s->results, op.results, (size_t)b->n_rows * sizeof *s->results);
    for (int32_t i = 0; i < b->n_rows; i++)
        ck_assert_int_eq(s->results[i].stamp, 17);
}

/* One case: its rows on the GPU, then the kernel beside the rule. */
static void check_case(struct scene *s, uint64_t number, int32_t n_vocab_max) {
    struct choice_case c;
    struct ft_choice_round at;
    struct ft_verdict want, got;
    struct ft_err err = {0};
    choice_case_create(&c, number, n_vocab_max);
    struct ft_transform *t = ft_transform_create(c.n_vocab);
    bool ok = c.rule->decide(t, &c.round, &want, &err) == FT_OK;
    size_t bytes = (size_t)((2 * CASE_DRAFTS + 1) * c.stride) * sizeof(float);
    const float *there = twin_put(&s->twin, c.rows, bytes);
    const int32_t *drafted = twin_put(&s->twin, c.draft, sizeof c.draft);
    struct ft_round round = c.round;
    const float *p_rows[CASE_DRAFTS + 1], *q_rows[CASE_DRAFTS];
    for (int32_t k = 0; k <= round.n_draft; k++)
        p_rows[k] = there + (c.p_rows[k] - c.rows);
    for (int32_t k = 0; k < round.n_draft && round.q_rows != NULL; k++)
        q_rows[k] = there + (c.q_rows[k] - c.rows);
    round.p_rows = p_rows;
    round.q_rows = round.q_rows == NULL ? NULL : q_rows;
    ft_choice_batch_reset(&s->batch);
    if (ft_choice_add_round(&s->batch, c.rule, &round, drafted, &at)) {
        run(s);
        if (ft_choice_verdict(c.rule, &round, &at, s->results, &got)) {
            ck_assert_msg(ok, "case %llu: the rule says %s", (unsigned long long)number, err.text);
            ck_assert_msg(got.n_tokens == want.n_tokens &&
                              memcmp(got.tokens, want.tokens,
                                     (size_t)want.n_tokens * sizeof *want.tokens) == 0,
                          "case %llu (%s, V %d, T %g, top_k %d, top_p %g): %d tokens, last %d, not "
                          "%d, last %d",
                          (unsigned long long)number, c.rule->name, c.n_vocab,
                          (double)c.sampling.temperature, c.sampling.top_k,
                          (double)c.sampling.top_p, got.n_tokens, got.tokens[got.n_tokens - 1],
                          want.n_tokens, want.tokens[want.n_tokens - 1]);
            s->n_decided++;
        } else {
            s->n_asked++;
        }
    }
    twin_release(&s->twin);
    ft_transform_destroy(&t);
    choice_case_destroy(&c);
}

static const struct {
    int32_t n_vocab_max, n_cases;
} loads[] = {{40, 3000}, {700, 1500}, {9000, 400}, {128256, 60}, {152000, 12}, {262144, 6}};
#define N_LOADS ((int)(sizeof loads / sizeof loads[0]))

START_TEST(rounds_are_decided_as_on_the_host) {
    scene.n_asked = scene.n_decided = 0;
    for (int32_t i = 0; i < loads[_i].n_cases; i++)
        check_case(&scene, (uint64_t)(i + 1 + 100000 * _i), loads[_i].n_vocab_max);
    ck_assert_int_gt(scene.n_decided, loads[_i].n_cases / 2);
    ck_assert_int_lt(scene.n_asked, loads[_i].n_cases / 3);
}
END_TEST

/* Bits of q, and tokens, of drafts. Large: each thread has a block of its own, and 2. */
static void check_drafts(struct scene *s, int32_t n_vocab_max, uint64_t first, uint64_t n) {
    for (uint64_t number = first; number < first + n; number++) {
        struct choice_case c;
        choice_case_create(&c, number, n_vocab_max);
        size_t row_bytes = (size_t)c.stride * sizeof(float);
        float *want = calloc(1, row_bytes), *got = malloc(row_bytes);
        struct ft_choice_draft draft = {.sampling = &c.sampling,
                                        .counts = c.counts,
                                        .logits = c.p_rows[0],
                                        .probs = want,
                                        .drafted = c.draft,
                                        .n_vocab = c.n_vocab,
                                        .index = c.round.n_draft,
                                        .position = 31};
        ft_choice_batch_reset(&s->batch);
        ck_assert(ft_choice_add_draft(&s->batch, &draft));
        choice_run_on_host(&s->batch, s->host_results);
        memset(got, 0, row_bytes);
        draft.logits = twin_put(&s->twin, c.p_rows[0], row_bytes);
        float *q = draft.probs = twin_put(&s->twin, got, row_bytes);
        draft.drafted = twin_put(&s->twin, c.draft, sizeof c.draft);
        ft_choice_batch_reset(&s->batch);
        ck_assert(ft_choice_add_draft(&s->batch, &draft));
        run(s);
        ck_assert_msg(s->results[0].status == s->host_results[0].status &&
                          s->results[0].token == s->host_results[0].token,
                      "case %llu: status %d token %d, not %d and %d", (unsigned long long)number,
                      s->results[0].status, s->results[0].token, s->host_results[0].status,
                      s->host_results[0].token);
        twin_get(&s->twin, got, q, row_bytes);
        if (s->results[0].status == FT_CHOICE_OK && s->batch.rows[0].kind != FT_CHOICE_GREEDY)
            ck_assert_mem_eq(got, want, (size_t)c.n_vocab * sizeof *got);
        twin_release(&s->twin);
        free(want);
        free(got);
        choice_case_destroy(&c);
    }
}

START_TEST(drafts_have_the_bits_of_the_host) {
    check_drafts(&scene, loads[_i].n_vocab_max, 7000, (uint64_t)loads[_i].n_cases / 4);
}
END_TEST

/* Many equal values at a cut: the selection has to go on to the last bit. */
START_TEST(flat_rows_are_cut_as_on_the_host) {
    struct ft_sampling sampling = ft_sampling_default();
    enum { N = 128256 };
    float *row = calloc(N, sizeof *row), *want = calloc(N, sizeof *row);
    for (int way = 0; way < 4; way++) {
        for (int32_t i = 0; i < N; i++)
            row[i] = way == 0 ? 1.0f : way == 1 ? (float)(i % 3) : (float)i * 1e-7f;
        sampling.top_k = way < 3 ? 70000 : 0;
        sampling.top_p = way == 2 ? 1.0f : 0.7f;
        struct ft_choice_draft draft = {
            .sampling = &sampling, .logits = row, .probs = want, .n_vocab = N, .position = 5};
        ft_choice_batch_reset(&scene.batch);
        ck_assert(ft_choice_add_draft(&scene.batch, &draft));
        choice_run_on_host(&scene.batch, scene.host_results);
        draft.logits = twin_put(&scene.twin, row, N * sizeof *row);
        float *q = draft.probs = twin_put(&scene.twin, row, N * sizeof *row);
        ft_choice_batch_reset(&scene.batch);
        ck_assert(ft_choice_add_draft(&scene.batch, &draft));
        run(&scene);
        ck_assert_int_eq(scene.results[0].token, scene.host_results[0].token);
        twin_get(&scene.twin, row, q, N * sizeof *row);
        ck_assert_mem_eq(row, want, N * sizeof *row);
        twin_release(&scene.twin);
    }
    free(row);
    free(want);
}
END_TEST

START_TEST(every_kind_once) {
    for (uint64_t number = 1; number <= 6; number++)
        check_case(&scene, number, 300);
    check_drafts(&scene, 2000, 3, 1);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("choose");
    TCase *tcase = tcase_create("gpu");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, rounds_are_decided_as_on_the_host, 0, N_LOADS);
    tcase_add_loop_test(tcase, drafts_have_the_bits_of_the_host, 0, N_LOADS);
    tcase_add_test(tcase, flat_rows_are_cut_as_on_the_host);
    suite_add_tcase(suite, tcase);
    TCase *small = tcase_create("small"); /* for tools that slow the GPU down a thousandfold */
    tcase_add_checked_fixture(small, setup, teardown);
    tcase_add_test(small, every_kind_once);
    suite_add_tcase(suite, small);
    return twin_main(suite);
}
