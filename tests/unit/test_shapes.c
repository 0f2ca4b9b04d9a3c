/* Which steps are noted before they come: limits, order, and what is done once. */
#include <check.h>

#include "common/model/shapes.h"
#include "support/suite.h"

enum { N = 20000 };
static struct ft_shape g_shapes[N];

static const struct ft_shapes_limits k_roomy = {.n_seqs_max = 64,
                                                .n_tokens_max = 512,
                                                .n_rows_max = 1024,
                                                .len_max = 4096,
                                                .len_step = 512,
                                                .block_tokens = 16,
                                                .n_blocks = 100000};

static int32_t list(const struct ft_shapes_limits *limits) {
    int32_t n = ft_shapes_list(limits, g_shapes, N);
    ck_assert_int_lt(n, N);
    return n;
}

static int32_t count(int32_t n, enum ft_shape_kind kind, int32_t n_seqs, int32_t n_each) {
    int32_t found = 0;
    for (int32_t i = 0; i < n; i++)
        found +=
            g_shapes[i].kind == kind && g_shapes[i].n_seqs == n_seqs && g_shapes[i].n == n_each;
    return found;
}

START_TEST(list_of_a_target_has_plain_steps_and_verifications_of_every_length) {
    int32_t n = list(&k_roomy);
    for (int32_t n_seqs = 1; n_seqs <= FT_SHAPES_SEQS_MAX; n_seqs++)
        for (int32_t each = 1; each <= 20; each++) {
            bool is_in = each <= FT_SHAPES_DRAFTS_MAX + 1 && n_seqs * each <= FT_SHAPES_ROWS_MAX;
            ck_assert_int_eq(count(n, FT_SHAPE_ROWS, n_seqs, each), is_in ? 8 : 0);
        }
    ck_assert_int_eq(n, 8 * 54);
}
END_TEST

START_TEST(list_of_a_draft_has_its_feeding_and_its_drafts) {
    struct ft_shapes_limits limits = k_roomy;
    limits.is_drafting = true;
    int32_t n = list(&limits);
    for (int32_t n_seqs = 1; n_seqs <= FT_SHAPES_SEQS_MAX; n_seqs++)
        for (int32_t k = 1; k <= 20; k++) {
            bool is_fed = k >= n_seqs && k <= 2 * n_seqs;
            bool is_drafted = k <= FT_SHAPES_DRAFTS_MAX && n_seqs * (k + 1) <= FT_SHAPES_ROWS_MAX;
            ck_assert_int_eq(count(n, FT_SHAPE_FEED, n_seqs, k), is_fed ? 8 : 0);
            ck_assert_int_eq(count(n, FT_SHAPE_DRAFTS, n_seqs, k), is_drafted ? 8 : 0);
            ck_assert_int_eq(count(n, FT_SHAPE_ROWS, n_seqs, k), 0);
        }
}
END_TEST

static bool is_same(const struct ft_shape *a, const struct ft_shape *b) {
    return a->kind == b->kind && a->n_seqs == b->n_seqs && a->n == b->n && a->len == b->len &&
           a->is_first == b->is_first;
}

/* A budget cuts the end off, which is what a service comes to last. */
START_TEST(list_grows_with_the_load_and_short_ones_begin_long_ones) {
    int32_t n = list(&k_roomy), load = 1;
    for (int32_t i = 0; i < n; i++) {
        int32_t own = g_shapes[i].n_seqs * (g_shapes[i].len / 512);
        ck_assert_int_ge(own, load);
        load = own;
        for (int32_t k = 0; k < i; k++)
            ck_assert(!is_same(&g_shapes[i], &g_shapes[k]));
    }
    ck_assert(g_shapes[0].n_seqs == 1 && g_shapes[0].n == 1 && g_shapes[0].len == 512);
    static struct ft_shape few[100];
    ck_assert_int_eq(ft_shapes_list(&k_roomy, few, 100), 100);
    for (int32_t i = 0; i < 100; i++)
        ck_assert(is_same(&few[i], &g_shapes[i]));
}
END_TEST

START_TEST(list_keeps_every_limit_of_a_step) {
    struct ft_shapes_limits limits = k_roomy;
    limits.n_seqs_max = 3;
    limits.n_tokens_max = 10;
    limits.n_rows_max = 7;
    limits.len_max = 700;
    int32_t n = list(&limits);
    ck_assert_int_gt(n, 0);
    for (int32_t i = 0; i < n; i++) {
        ck_assert_int_le(g_shapes[i].n_seqs, 3);
        ck_assert_int_le(g_shapes[i].n_seqs * g_shapes[i].n, 7);
        ck_assert(g_shapes[i].len == 512 || g_shapes[i].len == 700);
    }
    limits.is_drafting = true;
    n = list(&limits);
    ck_assert_int_gt(n, 0);
    limits.n_tokens_max = 2;
    int32_t n_less = list(&limits);
    ck_assert_int_lt(n_less, n);
    for (int32_t i = 0; i < n_less; i++)
        ck_assert(g_shapes[i].n_seqs <= 2 &&
                  (g_shapes[i].kind != FT_SHAPE_FEED || g_shapes[i].n <= 2));
}
END_TEST

/* Sequences that the pool cannot hold together are none to prepare for; a length that it holds in
 * part ends where the pool does. */
START_TEST(list_ends_where_the_pool_does) {
    struct ft_shapes_limits limits = k_roomy;
    limits.n_blocks = 70; /* 1120 positions */
    int32_t n = list(&limits);
    for (int32_t i = 0; i < n; i++) {
        int32_t blocks = (g_shapes[i].len + 15) / 16;
        ck_assert_int_le(g_shapes[i].n_seqs * blocks, 70);
    }
    ck_assert_int_eq(count(n, FT_SHAPE_ROWS, 1, 1), 3); /* 512, 1024, 1120 */
    ck_assert_int_eq(count(n, FT_SHAPE_ROWS, 2, 1), 2); /* 512, 560 */
    ck_assert_int_eq(count(n, FT_SHAPE_ROWS, 8, 1), 1); /* 128 */
    limits.n_blocks = 0;
    ck_assert_int_eq(list(&limits), 0);
}
END_TEST

START_TEST(list_of_a_short_context_asks_no_more_positions_than_it_has) {
    struct ft_shapes_limits limits = k_roomy;
    for (int32_t drafting = 0; drafting < 2; drafting++)
        for (int32_t len = 1; len <= 12; len++) {
            limits.is_drafting = drafting == 1;
            limits.len_max = len;
            int32_t n = list(&limits);
            ck_assert_int_gt(n, 0);
            for (int32_t i = 0; i < n; i++) {
                bool is_feed = g_shapes[i].kind == FT_SHAPE_FEED;
                int32_t each =
                    is_feed ? (g_shapes[i].n > g_shapes[i].n_seqs ? 2 : 1) : g_shapes[i].n;
                ck_assert_int_eq(g_shapes[i].len, len);
                ck_assert_int_le(each, len);
            }
        }
}
END_TEST

/* Rows and length each choose among kernels: every number of rows is done once, and every length.
 */
START_TEST(first_of_its_kind_is_marked_once_for_rows_and_for_lengths) {
    struct ft_shapes_limits limits = k_roomy;
    for (int32_t drafting = 0; drafting < 2; drafting++) {
        limits.is_drafting = drafting == 1;
        int32_t n = list(&limits), n_long = 0;
        for (int32_t i = 0; i < n; i++) {
            bool is_new = true;
            for (int32_t k = 0; k < i; k++)
                is_new = is_new && (g_shapes[k].kind != g_shapes[i].kind ||
                                    g_shapes[k].n_seqs != g_shapes[i].n_seqs ||
                                    g_shapes[k].n != g_shapes[i].n);
            ck_assert(g_shapes[i].is_first || !is_new);
            n_long += g_shapes[i].is_first && !is_new;
        }
        ck_assert_int_eq(n_long, 7); /* lengths beyond the first */
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("shapes");
    TCase *tcase = tcase_create("list");
    tcase_add_test(tcase, list_of_a_target_has_plain_steps_and_verifications_of_every_length);
    tcase_add_test(tcase, list_of_a_draft_has_its_feeding_and_its_drafts);
    tcase_add_test(tcase, list_grows_with_the_load_and_short_ones_begin_long_ones);
    tcase_add_test(tcase, list_keeps_every_limit_of_a_step);
    tcase_add_test(tcase, list_ends_where_the_pool_does);
    tcase_add_test(tcase, list_of_a_short_context_asks_no_more_positions_than_it_has);
    tcase_add_test(tcase, first_of_its_kind_is_marked_once_for_rows_and_for_lengths);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
