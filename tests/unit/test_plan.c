/* Properties of the planner, over random loads: nothing exceeds a step, everybody who decodes is
 * served in every round, prefill always moves, and a draft that is behind catches up. */
#include <check.h>
#include <stdlib.h>

#include "common/base/sampling.h"
#include "coordinator/plan.h"

enum { ITEMS = 40 };

/* A ck_assert writes to a pipe each time, which is too slow for millions of checks. */
#define REQUIRE(cond) ((cond) ? (void)0 : ck_abort_msg("%s", #cond))

static uint32_t g_state = 1;

static int32_t below(int32_t n) {
    g_state = g_state * 1664525u + 1013904223u;
    return (int32_t)((g_state >> 8) % (uint32_t)n);
}

static void random_items(struct co_plan_item *items, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        int32_t len = 1 + below(below(4) == 0 ? 900 : 40);
        bool decoding = below(3) != 0;
        items[i] = (struct co_plan_item){
            .n = len,
            .target_len = decoding ? len - 1 : below(len),
            .draft_len = below(len),
            .k_want = below(FT_DRAFT_LEN_MAX + 1),
            .sampled = below(2) == 0,
        };
    }
}

static void check_draft(const struct co_plan_item *items, int32_t n,
                        const struct co_plan_limits *draft) {
    int32_t tokens = 0, rows = 0;
    for (int32_t i = 0; i < n; i++) {
        const struct co_plan_item *it = &items[i];
        REQUIRE(it->draft_tokens >= 0);
        REQUIRE(it->draft_len + it->draft_tokens <= it->n);
        REQUIRE(it->draft_k <= it->k_want);
        if (it->draft_k > 0) { /* drafts only on top of the whole committed text */
            REQUIRE(it->draft_len + it->draft_tokens == it->n);
            REQUIRE(it->n - it->target_len == 1);
        }
        tokens += it->draft_tokens;
        rows += it->sampled ? it->draft_k : 0;
    }
    REQUIRE(tokens <= draft->max_tokens);
    REQUIRE(rows <= draft->max_rows);
}

static void check_target(const struct co_plan_item *items, int32_t n,
                         const struct co_plan_limits *target) {
    int32_t tokens = 0, rows = 0;
    bool waiting = false, moved = false;
    for (int32_t i = 0; i < n; i++) {
        const struct co_plan_item *it = &items[i];
        tokens += it->target_tokens + it->verify_k;
        rows += it->n_logits;
        REQUIRE(it->target_len + it->target_tokens <= it->n);
        if (it->n - it->target_len == 1) {
            REQUIRE(it->target_tokens == 1); /* every running stream, every round */
            REQUIRE(it->verify_k == it->n_drafted);
            REQUIRE(it->n_logits == it->verify_k + 1);
        } else {
            waiting = true;
            moved = moved || it->target_tokens > 0;
            REQUIRE(it->verify_k == 0);
            REQUIRE(it->n_logits == (it->target_len + it->target_tokens == it->n ? 1 : 0));
        }
    }
    REQUIRE(tokens <= target->max_tokens);
    REQUIRE(rows <= target->max_rows);
    if (waiting && tokens < target->max_tokens && rows < target->max_rows)
        REQUIRE(moved);
}

START_TEST(plan_any_load_stays_within_limits) {
    for (int32_t trial = 0; trial < 20000; trial++) {
        struct co_plan_item items[ITEMS];
        int32_t n = 1 + below(ITEMS);
        random_items(items, n);
        struct co_plan_limits target = {n + below(600), n + below(100)};
        struct co_plan_limits draft = {1 + below(600), 1 + below(100)};
        co_plan_draft(items, n, &draft, &target);
        check_draft(items, n, &draft);
        for (int32_t i = 0; i < n; i++)
            items[i].n_drafted = items[i].draft_k;
        co_plan_target(items, n, &target);
        check_target(items, n, &target);
    }
}
END_TEST

START_TEST(plan_draft_behind_catches_up_then_drafts) {
    struct co_plan_item item = {.n = 1000, .target_len = 999, .draft_len = 0, .k_want = 4};
    struct co_plan_limits limits = {256, 64};
    int32_t rounds = 0;
    for (;; rounds++) {
        co_plan_draft(&item, 1, &limits, &limits);
        ck_assert_int_gt(item.draft_tokens, 0);
        item.draft_len += item.draft_tokens;
        if (item.draft_k > 0)
            break;
    }
    ck_assert_int_eq(rounds, 3); /* 256 + 256 + 256, and the rest with drafting */
    ck_assert_int_eq(item.draft_k, 4);
}
END_TEST

START_TEST(dev21_ragged_k_in_one_batch_is_kept_apart) {
    struct co_plan_item items[4] = {
        {.n = 10, .target_len = 9, .draft_len = 9, .k_want = 0},
        {.n = 20, .target_len = 19, .draft_len = 18, .k_want = 1},
        {.n = 30, .target_len = 29, .draft_len = 29, .k_want = 8},
        {.n = 500, .target_len = 0, .draft_len = 0, .k_want = 8},
    };
    struct co_plan_limits limits = {64, 64};
    co_plan_draft(items, 4, &limits, &limits);
    ck_assert_int_eq(items[0].draft_tokens, 0);
    ck_assert_int_eq(items[1].draft_tokens, 2);
    ck_assert_int_eq(items[1].draft_k, 1);
    ck_assert_int_eq(items[2].draft_k, 8);
    ck_assert_int_eq(items[3].draft_tokens, 0); /* it prefills: its draft waits */
    for (int i = 0; i < 4; i++)
        items[i].n_drafted = items[i].draft_k;
    co_plan_target(items, 4, &limits);
    ck_assert_int_eq(items[0].n_logits, 1);
    ck_assert_int_eq(items[1].n_logits, 2);
    ck_assert_int_eq(items[2].n_logits, 9);
    ck_assert_int_eq(items[3].target_tokens, 64 - 1 - 2 - 9);
    ck_assert_int_eq(items[3].n_logits, 0);
}
END_TEST

START_TEST(dev31_prompt_longer_than_a_step_is_chunked) {
    struct co_plan_item item = {.n = 1000};
    struct co_plan_limits limits = {256, 1};
    int32_t steps = 0;
    while (item.target_len < item.n) {
        co_plan_target(&item, 1, &limits);
        item.target_len += item.target_tokens;
        ck_assert_int_lt(++steps, 10);
    }
    ck_assert_int_eq(steps, 4);
    ck_assert_int_eq(item.n_logits, 1);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("plan");
    TCase *tc = tcase_create("plan");
    tcase_add_test(tc, plan_any_load_stays_within_limits);
    tcase_add_test(tc, plan_draft_behind_catches_up_then_drafts);
    tcase_add_test(tc, dev21_ragged_k_in_one_batch_is_kept_apart);
    tcase_add_test(tc, dev31_prompt_longer_than_a_step_is_chunked);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
