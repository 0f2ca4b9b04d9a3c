/* A step as one kernel, run on the host; and grids that find too few processors, or share them:
 * what a card cannot be made to do at will. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/whole_cases.h"
#include "gpu/whole_model.h"
#include "sim.h"

static const struct whole_shape tiny = {.hidden = 512,
                                        .intermediate = 512,
                                        .n_heads = 8,
                                        .n_kv_heads = 2,
                                        .head_dim = 64,
                                        .vocab = 32,
                                        .n_layers = 1,
                                        .len_max = 80};

static const struct whole_shape narrow = {.hidden = 64,
                                          .intermediate = 64,
                                          .n_heads = 2,
                                          .n_kv_heads = 1,
                                          .head_dim = 32,
                                          .vocab = 32,
                                          .n_layers = 3,
                                          .len_max = 80};

void whole_cases_seed(uint64_t seed) {
    sim_seed(seed);
}

#define ALONE 2 /* rows: each block for itself */
#define IN_PAIRS 10

/* One of those that do not multiply: of a block for itself 8 to 11, of one of a pair 8, 9 and 12 to
 * 15. */
static uint32_t late_warp(int is_pair, uint64_t seed) {
    uint32_t which = (uint32_t)seed % 4;
    return is_pair == 0 || which < 2 ? 8 + which : 10 + which;
}

static struct whole_model *make(uint64_t seed, uint64_t patience_ns, int32_t n_rows) {
    struct whole_model *m = whole_model_create(&tiny, 1, seed);
    struct whole_seq seq = {70, n_rows};
    whole_model_place(m, &seq, 1, 1);
    whole_model_op(m)->patience_ns = patience_ns;
    whole_model_reset(m);
    return m;
}

static float *expected(struct whole_model *m, int64_t *n) {
    whole_model_reset(m);
    ck_assert_int_eq(whole_model_single(m), cudaSuccess);
    float *want = whole_model_results(m, n);
    whole_model_reset(m);
    return want;
}

static bool is_all(const struct whole_model *m, const float *want, int64_t n) {
    int64_t n_got;
    float *got = whole_model_results((struct whole_model *)(uintptr_t)m, &n_got);
    bool is_equal = n == n_got && memcmp(want, got, (size_t)n * sizeof *got) == 0;
    free(got);
    return is_equal;
}

START_TEST(grid_without_room_gives_up_and_writes_nothing) {
    struct whole_model *m = make(1, 20000, _i == 0 ? ALONE : IN_PAIRS);
    int64_t n;
    float *want = expected(m, &n), *before = whole_model_results(m, &n);
    for (int32_t n_places = 1; n_places <= 2; n_places++) {
        sim_hold();
        ck_assert_int_eq(whole_model_whole(m), cudaSuccess);
        struct sim_result result = sim_run(n_places);
        ck_assert_int_eq(result.is_stuck, 0);
        ck_assert(is_all(m, before, n));
        struct ft_whole_state state = whole_model_state(m), gave_up = {.is_abandoned = 1};
        ck_assert_mem_eq(&state, &gave_up, sizeof state);
        /* until the host has seen it, nothing runs, room or not */
        ck_assert_int_eq(whole_model_whole(m), cudaSuccess);
        ck_assert(is_all(m, before, n));
        whole_model_clear(m);
        ck_assert_int_eq(whole_model_whole(m), cudaSuccess);
        ck_assert(is_all(m, want, n));
        whole_model_reset(m);
    }
    free(want);
    free(before);
    whole_model_destroy(m);
}
END_TEST

/* Two processes' grids on one card, dealt out to processors in any order: each is all there, or
 * gives up; neither waits for ever. */
START_TEST(grids_that_share_a_card_end) {
    struct whole_model *m[2] = {make(1, 3000, ALONE), make(2, 4000, _i == 0 ? ALONE : IN_PAIRS)};
    int64_t n;
    float *want[2], *before[2];
    int32_t n_done = 0, n_given_up = 0;
    for (int i = 0; i < 2; i++) {
        want[i] = expected(m[i], &n);
        before[i] = whole_model_results(m[i], &n);
    }
    for (uint64_t seed = 0; seed < 16; seed++) {
        sim_seed(seed);
        sim_hold();
        for (int i = 0; i < 2; i++)
            ck_assert_int_eq(whole_model_whole(m[i]), cudaSuccess);
        struct sim_result result = sim_run(2 + (int32_t)(seed % 5));
        ck_assert_int_eq(result.is_stuck, 0);
        for (int i = 0; i < 2; i++) {
            bool is_given_up = whole_model_state(m[i]).is_abandoned != 0;
            if (!is_all(m[i], is_given_up ? before[i] : want[i], n))
                ck_abort_msg("seed %d: grid %d left something else", (int)seed, i);
            n_done += !is_given_up;
            n_given_up += is_given_up;
            whole_model_clear(m[i]);
            whole_model_reset(m[i]);
        }
    }
    ck_assert_int_gt(n_done, 5);
    ck_assert_int_gt(n_given_up, 5);
    for (int i = 0; i < 2; i++) {
        free(want[i]);
        free(before[i]);
        whole_model_destroy(m[i]);
    }
}
END_TEST

/* The last block comes at the moment at which another has waited for long enough. */
START_TEST(grid_that_is_late_is_whole_or_gives_up) {
    struct whole_model *m = make(4, 0, _i == 0 ? ALONE : IN_PAIRS);
    int64_t n;
    float *want = expected(m, &n), *before = whole_model_results(m, &n);
    int32_t n_done = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        sim_seed(seed);
        whole_model_op(m)->patience_ns = seed % 20 * (_i == 0 ? 3 : 12);
        ck_assert_int_eq(whole_model_whole(m), cudaSuccess);
        bool is_given_up = whole_model_state(m).is_abandoned != 0;
        ck_assert(is_all(m, is_given_up ? before : want, n));
        n_done += !is_given_up;
        whole_model_clear(m);
        whole_model_reset(m);
    }
    ck_assert_int_gt(n_done, 5);
    ck_assert_int_lt(n_done, 55);
    free(want);
    free(before);
    whole_model_destroy(m);
}
END_TEST

START_TEST(bits_do_not_depend_on_the_order_of_threads) {
    struct whole_model *m = make(3, 100000000, _i == 0 ? ALONE : IN_PAIRS);
    int64_t n;
    float *want = expected(m, &n);
    for (uint64_t seed = 0; seed < 12; seed++) {
        sim_seed(seed);
        if (seed >= 8) /* those that fetch, and those that end tiles, late in turn */
            sim_starve(late_warp(_i, seed), _i == 0 ? 100 : 30);
        ck_assert_int_eq(whole_model_whole(m), cudaSuccess);
        ck_assert_int_eq(sim_last().is_stuck, 0);
        ck_assert(is_all(m, want, n));
        whole_model_reset(m);
    }
    sim_starve(0, 0);
    free(want);
    whole_model_destroy(m);
}
END_TEST

/* Blocks that have no tile of some matrices: their threads that fetch are nowhere held up by
 * others, nor waited for. */
START_TEST(blocks_without_tiles_miss_no_turn) {
    struct whole_model *m = whole_model_create(&narrow, 1, 5);
    struct whole_seq seq = {30, _i == 0 ? 3 : IN_PAIRS};
    int64_t n;
    whole_model_place(m, &seq, 1, 1);
    whole_model_op(m)->patience_ns = 100000000;
    float *want = expected(m, &n);
    whole_model_target(m)->n_processors = 10; /* tiles: q, k, v 8, o 4, gate and up 8, down 4 */
    whole_model_target(m)->n_pairs = 5;
    for (uint64_t seed = _i == 0 ? 0 : 4; seed < (_i == 0 ? 16 : 12); seed++) {
        sim_seed(seed);
        if (seed >= 8) /* and one of them, or of those that end tiles, late by whole stages */
            sim_starve(late_warp(_i, seed), _i == 0 ? 300 : 60);
        sim_hold();
        ck_assert_int_eq(whole_model_whole(m), cudaSuccess);
        struct sim_result result = sim_run(10);
        ck_assert_int_eq(result.is_stuck, 0);
        ck_assert(is_all(m, want, n));
        whole_model_reset(m);
    }
    sim_starve(0, 0);
    free(want);
    whole_model_destroy(m);
}
END_TEST

/* The head has fewer rows than its layers: of two warps with the same columns one has none, and is
 * not left behind by the turns of the other. */
START_TEST(warps_without_rows_miss_no_turn) {
    struct whole_shape long_head = narrow;
    long_head.vocab = 800;
    struct whole_model *m = whole_model_create(&long_head, 1, 7);
    struct whole_seq seq = {30, IN_PAIRS};
    int64_t n;
    whole_model_place(m, &seq, 1, 2);
    whole_model_op(m)->patience_ns = 100000000;
    float *want = expected(m, &n);
    for (uint64_t seed = 0; seed < 4; seed++) {
        sim_seed(seed);
        sim_starve(4 + (uint32_t)seed, 60);
        ck_assert_int_eq(whole_model_whole(m), cudaSuccess);
        ck_assert(is_all(m, want, n));
        whole_model_reset(m);
    }
    sim_starve(0, 0);
    free(want);
    whole_model_destroy(m);
}
END_TEST

/* Weights of what a row does not see are 0, and 0 times NaN is not. */
START_TEST(row_that_is_not_a_number_leaves_those_before_it_alone) {
    static const struct whole_shape eight = {.hidden = 512,
                                             .intermediate = 512,
                                             .n_heads = 8,
                                             .n_kv_heads = 2,
                                             .head_dim = 64,
                                             .vocab = 32,
                                             .n_layers = 1,
                                             .len_max = 80};
    struct whole_model *m = whole_model_create(&eight, 1, 6);
    struct whole_seq seq = {24, 8}; /* row 7 ends a block of KV, beside row 6 in a tile */
    int64_t n, bad = 7;
    whole_model_place(m, &seq, 1, 8);
    const struct ft_op_whole *op = whole_model_op(m);
    ck_assert_int_eq(op->embed_elem, FT_ELEM_BF16);
    for (int32_t row = 0; row < 8; row++) /* all different */
        ((int32_t *)(uintptr_t)op->tokens)[row] = row;
    whole_model_op(m)->patience_ns = 100000000;
    float *want = expected(m, &n);
    for (int32_t i = 0; i < eight.hidden; i++)
        ((uint16_t *)(uintptr_t)op->embed)[bad * eight.hidden + i] = 0x7FC0;
    ck_assert_int_eq(whole_model_whole(m), cudaSuccess);
    float *got = whole_model_results(m, &n);
    for (int64_t i = 0; i < bad * op->row_stride; i++) /* the head is the embedding: so it is too */
        if (i % op->row_stride != bad && memcmp(got + i, want + i, sizeof *got) != 0)
            ck_abort_msg("row %d, logit %d", (int)(i / op->row_stride), (int)(i % op->row_stride));
    ck_assert_float_nan(got[bad * op->row_stride]);
    free(got);
    free(want);
    whole_model_destroy(m);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("whole");
    whole_cases_add(suite);
    TCase *tcase = tcase_create("grids");
    tcase_add_loop_test(tcase, grid_without_room_gives_up_and_writes_nothing, 0, 2);
    tcase_add_loop_test(tcase, grids_that_share_a_card_end, 0, 2);
    tcase_add_loop_test(tcase, grid_that_is_late_is_whole_or_gives_up, 0, 2);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("turns");
    tcase_add_loop_test(tcase, bits_do_not_depend_on_the_order_of_threads, 0, 2);
    tcase_add_loop_test(tcase, blocks_without_tiles_miss_no_turn, 0, 2);
    tcase_add_test(tcase, warps_without_rows_miss_no_turn);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("company");
    tcase_add_test(tcase, row_that_is_not_a_number_leaves_those_before_it_alone);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
