/* Rows decided on a GPU: the tokens, and the bits of q, that the functions of spec give. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/twin.h"
#include "unit/choice_cases.h"

#define ROWS_MAX 1024
#define TIMES_MAX 8

/* A batch of rounds, with rows on the GPU. */
struct scene {
    struct twin twin;
    struct ft_choice_batch batch;
    struct ft_choice_result results[ROWS_MAX], host_results[ROWS_MAX];
    int32_t n_asked, n_decided, n_brought;
    int32_t drafted[CASE_DRAFTS]; /* of the batch's rounds, when they lie behind its lists */
    bool has_drafted;
    char *lists;
};

static struct scene scene;

static void setup(void) {
    twin_open(&scene.twin);
    ck_assert(ft_choice_batch_create(&scene.batch, ROWS_MAX));
}

static void teardown(void) {
    ft_choice_batch_destroy(&scene.batch);
    free(scene.lists);
    scene.lists = NULL;
    twin_close(&scene.twin);
}

/* The batch's lists one after the other, as the chooser has them; copied, or brought by the launch
 * where they are short enough and the drafted ids are among them. */
static void put_lists(struct scene *s, struct ft_op_choose *op) {
    struct ft_choice_batch *b = &s->batch;
    size_t row_bytes = (size_t)b->n_rows * sizeof *b->rows;
    size_t edit_bytes = (size_t)b->n_edits * sizeof *b->edits;
    size_t id_bytes = ((size_t)b->n_ids * sizeof *b->ids + 15) / 16 * 16;
    size_t bytes = row_bytes + edit_bytes + id_bytes + sizeof s->drafted;
    char *all = s->lists = realloc(s->lists, bytes);
    bool is_brought = s->has_drafted && bytes <= FT_CHOICE_BROUGHT_MAX;
    /* What is brought has an address of the device's, at which there is something else. */
    memset(all, 0xFF, bytes);
    char *there = twin_put(&s->twin, all, bytes);
    for (int32_t i = 0; s->has_drafted && i < b->n_rows; i++)
        b->rows[i].drafted = (const int32_t *)(void *)(there + bytes - sizeof s->drafted);
    memcpy(all, b->rows, row_bytes);
    memcpy(all + row_bytes, b->edits, edit_bytes);
    memcpy(all + row_bytes + edit_bytes, b->ids, (size_t)b->n_ids * sizeof *b->ids);
    memcpy(all + bytes - sizeof s->drafted, s->drafted, sizeof s->drafted);
    op->rows = (const void *)there;
    op->edits = (const void *)(there + row_bytes);
    op->ids = (const void *)(there + row_bytes + edit_bytes);
    if (is_brought) {
        op->lists = all;
        op->lists_at = there;
        op->lists_bytes = (uint32_t)bytes;
        s->n_brought++;
    } else {
        s->twin.gpu->kind->copy(s->twin.gpu, there, all, bytes);
    }
}

static void run(struct scene *s) {
    struct ft_choice_batch *b = &s->batch;
    struct ft_op_choose op = {.n_rows = b->n_rows, .n_vocab_max = b->n_vocab_max, .stamp = 17};
    put_lists(s, &op);
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
    struct ft_choice_round at[TIMES_MAX];
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
    s->has_drafted = number % 2 == 0;
    memcpy(s->drafted, c.draft, sizeof s->drafted);
    /* More rows than can be spread over the whole card, now and then. */
    int32_t n_times = number % 3 == 0 ? TIMES_MAX : 1, n_added = 0;
    while (n_added < n_times &&
           ft_choice_add_round(&s->batch, c.rule, &round, drafted, &at[n_added]))
        n_added++;
    if (n_added > 0)
        run(s);
    for (int32_t i = 0; i < n_added; i++) {
        if (!ft_choice_verdict(c.rule, &round, &at[i], s->results, &got)) {
            s->n_asked += i == 0;
            continue;
        }
        ck_assert_msg(ok, "case %llu: the rule says %s", (unsigned long long)number, err.text);
        ck_assert_msg(
            got.n_tokens == want.n_tokens &&
                memcmp(got.tokens, want.tokens, (size_t)want.n_tokens * sizeof *want.tokens) == 0,
            "case %llu (%s, V %d, T %g, top_k %d, top_p %g): %d tokens, last %d, not "
            "%d, last %d",
            (unsigned long long)number, c.rule->name, c.n_vocab, (double)c.sampling.temperature,
            c.sampling.top_k, (double)c.sampling.top_p, got.n_tokens, got.tokens[got.n_tokens - 1],
            want.n_tokens, want.tokens[want.n_tokens - 1]);
        s->n_decided += i == 0;
    }
    twin_release(&s->twin);
    ft_transform_destroy(&t);
    choice_case_destroy(&c);
}

static const struct {
    int32_t n_vocab_max, n_cases;
} loads[] = {{40, 3000}, {700, 1500}, {9000, 400}, {128256, 60}, {152000, 12}, {262144, 6}};
#define N_LOADS ((int)(sizeof loads / sizeof loads[0]))

/* Fewer where each thread of the GPU is a fiber. */
static int32_t n_cases_of(int32_t load) {
    char text[FT_DEVICE_TEXT_MAX];
    scene.twin.gpu->kind->describe(scene.twin.gpu, text);
    return strstr(text, "simulated") == NULL ? loads[load].n_cases : 6;
}

START_TEST(rounds_are_decided_as_on_the_host) {
    scene.n_asked = scene.n_decided = scene.n_brought = 0;
    for (int32_t i = 0; i < n_cases_of(_i); i++)
        check_case(&scene, (uint64_t)(i + 1 + 100000 * _i), loads[_i].n_vocab_max);
    ck_assert_int_gt(scene.n_decided, n_cases_of(_i) / 2);
    ck_assert_int_lt(scene.n_asked, n_cases_of(_i) / 3);
    ck_assert_int_gt(scene.n_brought, n_cases_of(_i) / 4);
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
        s->has_drafted = number % 2 == 0;
        memcpy(s->drafted, c.draft, sizeof s->drafted);
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
    check_drafts(&scene, loads[_i].n_vocab_max, 7000, (uint64_t)n_cases_of(_i) / 4);
}
END_TEST

START_TEST(some_drafts_have_the_bits_of_the_host) {
    check_drafts(&scene, 700, 7000, 3);
    check_drafts(&scene, 9000, 7000, 2);
}
END_TEST

/* Rows whose cuts are found in different ways: among few values that have been gathered, among many
 * of them, or among all values, down to the last bit. */
static float shaped(int way, int32_t i, int32_t n) {
    uint32_t noise[4];
    switch (way) {
    case 0: /* all are at the cut */
        return 1.0f;
    case 1: /* a third is */
        return (float)(i % 3);
    case 2: /* bits alone tell them apart */
        return (float)i * 1e-7f;
    case 3: /* all that matter are in one block */
        return (float)i * -0.01f;
    case 4: /* fewer have a chance than top-k leaves */
        return i % (n / 20) == 7 ? (float)(i % 11) : -INFINITY;
    default: /* a few likely ones over noise */
        ft_philox_block(3, 5, (uint32_t)i, 0, noise);
        return -1.6f * logf(((float)noise[0] + 0.5f) * 0x1p-32f);
    }
}
#define N_SHAPES 6

static void check_cut(struct scene *s, const float *row, int32_t n, int32_t top_k, float top_p) {
    struct ft_sampling sampling = ft_sampling_default();
    float *want = calloc((size_t)n, sizeof *want), *got = malloc((size_t)n * sizeof *got);
    size_t bytes = (size_t)n * sizeof *row;
    sampling.top_k = top_k;
    sampling.top_p = top_p;
    struct ft_choice_draft draft = {
        .sampling = &sampling, .logits = row, .probs = want, .n_vocab = n, .position = 5};
    s->has_drafted = false;
    ft_choice_batch_reset(&s->batch);
    ck_assert(ft_choice_add_draft(&s->batch, &draft));
    choice_run_on_host(&s->batch, s->host_results);
    draft.logits = twin_put(&s->twin, row, bytes);
    float *q = draft.probs = twin_put(&s->twin, row, bytes);
    ft_choice_batch_reset(&s->batch);
    ck_assert(ft_choice_add_draft(&s->batch, &draft));
    run(s);
    twin_get(&s->twin, got, q, bytes);
    ck_assert_msg(s->results[0].token == s->host_results[0].token && memcmp(got, want, bytes) == 0,
                  "V %d, top_k %d, top_p %g: token %d, not %d", n, top_k, (double)top_p,
                  s->results[0].token, s->host_results[0].token);
    twin_release(&s->twin);
    free(want);
    free(got);
}

START_TEST(shaped_rows_are_cut_as_on_the_host) {
    static const struct {
        int32_t top_k;
        float top_p;
    } cuts[] = {{1, 1},     {50, 1},       {50, 0.9f}, {200, 0.9f}, {250, 1},
                {70000, 1}, {70000, 0.7f}, {0, 0.01f}, {0, 0.95f},  {0, 0.999f}};
    static const int32_t n_vocabs[] = {5000, 60000, 128256, 152000};
    for (size_t v = 0; v < sizeof n_vocabs / sizeof n_vocabs[0]; v++) {
        int32_t n = n_vocabs[v];
        float *row = calloc((size_t)(n + 15) / 16 * 16, sizeof *row);
        for (int32_t i = 0; i < n; i++)
            row[i] = shaped(_i, i, n);
        for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++)
            check_cut(&scene, row, n, cuts[c].top_k, cuts[c].top_p);
        free(row);
    }
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
    tcase_add_loop_test(tcase, shaped_rows_are_cut_as_on_the_host, 0, N_SHAPES);
    suite_add_tcase(suite, tcase);
    TCase *small = tcase_create("small"); /* for tools that slow the GPU down a thousandfold */
    tcase_add_checked_fixture(small, setup, teardown);
    tcase_add_test(small, every_kind_once);
    tcase_add_test(small, some_drafts_have_the_bits_of_the_host);
    suite_add_tcase(suite, small);
    return twin_main(suite);
}
