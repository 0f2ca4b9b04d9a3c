/* A step as one kernel: its bits against those of single kernels, on a card or in the simulation.
 */
#include "gpu/whole_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/whole_model.h"

static void check_equal(struct whole_model *m, const char *what) {
    int64_t n, n_again;
    whole_model_reset(m);
    ck_assert_int_eq(whole_model_single(m), cudaSuccess);
    float *want = whole_model_results(m, &n);
    whole_model_reset(m);
    ck_assert_int_eq(whole_model_whole(m), cudaSuccess);
    float *got = whole_model_results(m, &n_again);
    ck_assert_int_eq(n, n_again);
    const struct ft_op_whole *op = whole_model_op(m);
    for (int32_t row = 0; row < op->n_picks; row++)
        for (int32_t i = 0; i < op->vocab; i++)
            if (!isfinite(got[row * op->row_stride + i]))
                ck_abort_msg("%s: logit %d of row %d is not finite", what, i, row);
    for (int64_t i = 0; i < n; i++)
        if (memcmp(want + i, got + i, sizeof *got) != 0)
            ck_abort_msg("%s: %d rows, number %lld of %lld is %.9g, not %.9g", what, op->n_rows,
                         (long long)i, (long long)n, (double)got[i], (double)want[i]);
    struct ft_whole_state state = whole_model_state(m), clean = {0};
    ck_assert_mem_eq(&state, &clean, sizeof state);
    free(want);
    free(got);
}

static const struct whole_shape small = {.hidden = 512,
                                         .intermediate = 512,
                                         .n_heads = 8,
                                         .n_kv_heads = 2,
                                         .head_dim = 64,
                                         .vocab = 72, /* its last tile is cut */
                                         .n_layers = 2,
                                         .len_max = 160};

static const struct whole_shape one_layer = {.hidden = 512,
                                             .intermediate = 512,
                                             .n_heads = 8,
                                             .n_kv_heads = 2,
                                             .head_dim = 64,
                                             .vocab = 72,
                                             .n_layers = 1,
                                             .len_max = 160};

START_TEST(step_of_one_sequence_has_the_bits_of_single_kernels) {
    struct whole_model *m = whole_model_create(&small, 1, 1);
    for (int32_t n = 1; n <= FT_WHOLE_ROWS_MAX; n += n < 9 ? 1 : n == 15 ? 1 : 3) {
        whole_cases_seed((uint64_t)n);
        struct whole_seq seq = {90 + n, n}; /* rows on both sides of a segment's end */
        whole_model_place(m, &seq, 1, n);
        check_equal(m, "one sequence");
    }
    whole_model_destroy(m);
}
END_TEST

START_TEST(step_of_a_first_token_has_the_bits_of_single_kernels) {
    struct whole_model *m = whole_model_create(&one_layer, 1, 2);
    static const struct whole_seq seqs[] = {{0, 1},   {0, 8}, {15, 2},  {31, 2},
                                            {152, 8}, {0, 9}, {144, 16}};
    for (size_t i = 0; i < sizeof seqs / sizeof seqs[0]; i++) {
        whole_model_place(m, &seqs[i], 1, 1);
        check_equal(m, "edges");
    }
    for (size_t i = 1; i < sizeof seqs / sizeof seqs[0]; i += 5) {
        whole_model_place(m, &seqs[i], 1, 0); /* a chunk of a prompt: no logits */
        check_equal(m, "no logits");
    }
    whole_model_destroy(m);
}
END_TEST

START_TEST(step_of_many_sequences_has_the_bits_of_single_kernels) {
    static const struct whole_seq one_each[] = {
        {3, 1},  {40, 1}, {63, 1}, {64, 1}, {159, 1}, {0, 1},   {31, 1}, {100, 1},
        {15, 1}, {16, 1}, {32, 1}, {33, 1}, {127, 1}, {128, 1}, {1, 1},  {95, 1}};
    static const struct whole_seq mixed[] = {{77, 5}, {12, 1}, {0, 2}, {30, 6}};
    struct whole_model *m = whole_model_create(&one_layer, 16, 3);
    for (int32_t n = 2; n <= FT_WHOLE_ROWS_MAX; n += n < 8 ? 3 : 4) {
        whole_cases_seed((uint64_t)n);
        whole_model_place(m, one_each, n, n);
        check_equal(m, "a row each");
    }
    for (int32_t n = 3; n <= 4; n++) {
        whole_model_place(m, mixed, n, 6);
        check_equal(m, "mixed");
    }
    whole_model_destroy(m);
}
END_TEST

/* Heads of other sizes and groups, a window, biases, inputs of which some warps have no columns or
 * fewer, and rows that leave the ring two slots. */
START_TEST(step_of_other_shapes_has_the_bits_of_single_kernels) {
    static const struct whole_shape shapes[] = {
        {512, 512, 4, 4, 128, 96, 1, 0, true, 160},   {896, 576, 14, 2, 64, 96, 1, 0, true, 160},
        {512, 512, 32, 4, 16, 96, 1, 40, false, 160}, {512, 512, 16, 2, 32, 96, 1, 5, false, 160},
        {512, 2048, 8, 8, 64, 16, 1, 0, true, 160},   {1024, 512, 12, 4, 128, 40, 1, 33, false, 96},
        {2048, 512, 8, 2, 80, 40, 1, 0, false, 96},   {4096, 512, 8, 2, 64, 40, 1, 0, true, 96},
        {256, 704, 4, 2, 64, 96, 1, 0, false, 160},
    };
    static const int32_t heights[][4] = {{1, 8, 11, 16}, {1, 5, 9, 12}}; /* wide ones: that fit */
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct whole_model *m = whole_model_create(&shapes[i], 1, 4 + i);
        for (int32_t j = i < 2 ? 0 : 1; j < 4; j++) {
            int32_t n = heights[shapes[i].hidden > 3072][j];
            if (j >= 2 && j % 2 != (int32_t)i % 2) /* by turns, of those in pairs */
                continue;
            struct whole_seq seq = {60, n};
            whole_model_place(m, &seq, 1, n);
            check_equal(m, "shapes");
        }
        whole_model_destroy(m);
    }
}
END_TEST

/* Segments that are merged eight and thirty-two at a time, with ends of both in and between the
 * rows of a step, and more units than processors. */
START_TEST(step_far_into_a_context_has_the_bits_of_single_kernels) {
    static const struct whole_seq seqs[] = {{255, 2}, {300, 5}, {1022, 5}, {1024, 1}, {1151, 3}};
    for (int32_t window = 0; window <= 520; window += 520) {
        struct whole_shape shape = one_layer;
        shape.len_max = 1200;
        shape.window = window;
        struct whole_model *m = whole_model_create(&shape, 1, 8);
        for (size_t i = 0; i < sizeof seqs / sizeof seqs[0]; i++) {
            whole_cases_seed(i);
            whole_model_place(m, &seqs[i], 1, 1);
            check_equal(m, "far");
        }
        whole_model_destroy(m);
    }
}
END_TEST

START_TEST(row_has_the_same_bits_in_any_company) {
    struct whole_model *m = whole_model_create(&one_layer, 1, 5);
    float alone[72];
    for (int32_t n = 1; n <= FT_WHOLE_ROWS_MAX; n += n < 9 ? 1 : 7) {
        struct whole_seq seq = {90, n};
        int64_t n_results;
        whole_model_place(m, &seq, 1, n);
        whole_model_reset(m);
        ck_assert_int_eq(whole_model_whole(m), cudaSuccess);
        float *got = whole_model_results(m, &n_results);
        if (n == 1)
            memcpy(alone, got, sizeof alone);
        ck_assert_mem_eq(alone, got, sizeof alone);
        free(got);
    }
    whole_model_destroy(m);
}
END_TEST

/* A window hides a broken position from some rows of a step, and not from others. */
START_TEST(row_has_the_same_bits_whatever_it_does_not_see) {
    struct whole_shape shape = one_layer;
    struct whole_seq seq = {60, 8};
    shape.window = 5;
    struct whole_model *m = whole_model_create(&shape, 1, 9);
    int64_t n, stride = whole_model_op(m)->row_stride;
    cudaError_t (*const ways[])(struct whole_model *) = {whole_model_single, whole_model_whole};
    whole_model_place(m, &seq, 1, seq.n_rows);
    for (int i = 0; i < 2; i++) {
        whole_model_reset(m);
        ck_assert_int_eq(ways[i](m), cudaSuccess);
        float *want = whole_model_results(m, &n);
        whole_model_reset(m);
        whole_model_spoil(m, 57);
        ck_assert_int_eq(ways[i](m), cudaSuccess);
        float *got = whole_model_results(m, &n);
        for (int32_t row = 0; row < seq.n_rows; row++)
            if (row < 2) /* at 60 and 61 */
                ck_assert(!isfinite(got[row * stride]));
            else
                ck_assert_mem_eq(want + row * stride, got + row * stride,
                                 sizeof *got * (size_t)shape.vocab);
        free(want);
        free(got);
    }
    whole_model_destroy(m);
}
END_TEST

START_TEST(step_that_is_refused_says_why) {
    struct whole_model *m = whole_model_create(&one_layer, 1, 6);
    struct whole_seq seq = {0, 8};
    whole_model_place(m, &seq, 1, 8);
    struct ft_op_whole *op = whole_model_op(m), good = *op;
    struct k_target *on = whole_model_target(m);
    ck_assert_ptr_null(k_whole_refuses(on, op));
    op->n_rows = 17;
    ck_assert_str_eq(k_whole_refuses(on, op), "more rows than sixteen");
    int32_t n_pairs = on->n_pairs;
    on->n_pairs = 0;
    op->n_rows = 9;
    ck_assert_ptr_nonnull(strstr(k_whole_refuses(on, op), "no clusters"));
    on->n_pairs = n_pairs;
    *op = good;
    op->hidden = 520;
    ck_assert_ptr_nonnull(strstr(k_whole_refuses(on, op), "multiples of 64"));
    *op = good;
    op->n_heads = 64;
    op->head_dim = 8;
    ck_assert_ptr_nonnull(strstr(k_whole_refuses(on, op), "heads"));
    *op = good;
    op->head_dim = 256;
    ck_assert_ptr_nonnull(strstr(k_whole_refuses(on, op), "heads"));
    *op = good;
    op->hidden = 8192;
    ck_assert_ptr_nonnull(strstr(k_whole_refuses(on, op), "shared memory"));
    *op = good;
    op->len_max = 1 << 30;
    ck_assert_ptr_nonnull(strstr(k_whole_refuses(on, op), "context"));
    whole_model_destroy(m);
}
END_TEST

void whole_cases_add(Suite *suite) {
    TCase *few = tcase_create("small"), *tcase = tcase_create("gpu");
    tcase_add_test(few, step_of_one_sequence_has_the_bits_of_single_kernels);
    tcase_add_test(few, step_of_a_first_token_has_the_bits_of_single_kernels);
    tcase_add_test(few, step_of_many_sequences_has_the_bits_of_single_kernels);
    tcase_add_test(few, row_has_the_same_bits_whatever_it_does_not_see);
    tcase_add_test(few, step_that_is_refused_says_why);
    tcase_add_test(tcase, step_of_other_shapes_has_the_bits_of_single_kernels);
    tcase_add_test(tcase, step_far_into_a_context_has_the_bits_of_single_kernels);
    tcase_add_test(tcase, row_has_the_same_bits_in_any_company);
    suite_add_tcase(suite, few);
    suite_add_tcase(suite, tcase);
}
