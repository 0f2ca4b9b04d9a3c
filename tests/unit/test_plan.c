/* Properties of the planner, over random loads: nothing exceeds a step, everybody who decodes is
 * served in every round, prefill always moves, and a draft that is behind catches up. */
#include <check.h>
#include <string.h>

#include "common/base/sampling.h"
#include "coordinator/plan.h"
#include "support/suite.h"

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
            .every_row = below(4) == 0,
        };
        items[i].draft_blocks = items[i].draft_len == 0 ? 0 : (items[i].draft_len + 15) / 16;
    }
}

static int32_t blocks(int32_t n_positions) {
    return (n_positions + 15) / 16;
}

/* Everybody who stays can take a plain step; K shrinks before anyone goes; blocks are not exceeded,
 * nor left lying while somebody's K was cut. */
static void check_kv(const struct co_plan_item *before, const struct co_plan_item *items, int32_t n,
                     int32_t n_kept, const struct co_plan_limits *target) {
    int64_t held = 0, plain = 0;
    bool cut = false;
    for (int32_t i = 0; i < n; i++) {
        plain += blocks(items[i].n);
        if (i >= n_kept)
            continue;
        held += items[i].target_blocks;
        REQUIRE(items[i].k_want >= 0 && items[i].k_want <= before[i].k_want);
        REQUIRE(items[i].target_blocks == blocks(items[i].n + items[i].k_want));
        cut = cut || items[i].k_want < before[i].k_want;
        REQUIRE(items[i].target_full == (before[i].k_want > 0 && items[i].k_want == 0));
    }
    REQUIRE(n_kept >= 1 && n_kept <= n);
    REQUIRE((n_kept == n) == (plain <= target->n_blocks || n == 1));
    REQUIRE((co_plan_lack(before, n, target) > 0) == (plain > target->n_blocks));
    if (n_kept > 1 || plain <= target->n_blocks)
        REQUIRE(held <= target->n_blocks);
    if (cut) /* a block more would have been used */
        REQUIRE(held == target->n_blocks);
}

static void check_draft(const struct co_plan_item *before, const struct co_plan_item *items,
                        int32_t n, const struct co_plan_limits *draft) {
    int32_t tokens = 0, rows = 0;
    int64_t held = 0;
    for (int32_t i = 0; i < n; i++) {
        const struct co_plan_item *it = &items[i];
        REQUIRE(it->draft_tokens >= 0);
        REQUIRE(it->draft_len + it->draft_tokens <= it->n);
        REQUIRE(it->draft_k <= it->k_want);
        if (it->draft_k > 0) { /* drafts only on top of the whole committed text */
            REQUIRE(it->draft_len + it->draft_tokens == it->n);
            REQUIRE(it->n - it->target_len == 1);
        }
        if (it->draft_tokens > 0) { /* and only with blocks for all of it */
            int32_t last = it->draft_k > 1 ? it->draft_k - 1 : 0;
            REQUIRE(it->draft_blocks >= blocks(it->n + last) && !it->drop_draft);
        }
        if (it->drop_draft)
            REQUIRE(it->draft_blocks == 0 && before[i].draft_blocks > 0 && it->draft_full);
        else if (it->draft_tokens == 0)
            REQUIRE(it->draft_blocks == before[i].draft_blocks ||
                    it->draft_blocks >= blocks(it->n)); /* reserved, no token left in the step */
        held += it->draft_blocks;
        tokens += it->draft_tokens;
        rows += it->sampled ? it->draft_k : 0;
    }
    REQUIRE(tokens <= draft->max_tokens);
    REQUIRE(rows <= draft->max_rows);
    REQUIRE(held <= draft->n_blocks);
}

static void check_target(const struct co_plan_item *items, int32_t n,
                         const struct co_plan_limits *target) {
    int32_t tokens = 0, rows = 0, first = -1, drafts = 0, prompts = 0, n_decoding = 0;
    bool moved = false;
    for (int32_t i = 0; i < n; i++) {
        const struct co_plan_item *it = &items[i];
        tokens += it->target_tokens + it->verify_k;
        rows += it->n_logits;
        REQUIRE(it->target_len + it->target_tokens <= it->n);
        if (it->n - it->target_len == 1) {
            REQUIRE(it->target_tokens == 1); /* every running stream, every round */
            REQUIRE(it->verify_k >= it->draft_k && it->verify_k <= it->n_drafted);
            drafts += it->verify_k;
            n_decoding++;
            REQUIRE(it->n_logits == it->verify_k + 1);
        } else {
            first = first < 0 ? i : first;
            prompts += it->n - it->target_len;
            moved = moved || it->target_tokens > 0;
            REQUIRE(it->verify_k == 0);
            if (it->every_row)
                REQUIRE(it->n_logits == it->target_tokens);
            else
                REQUIRE(it->n_logits == (it->target_len + it->target_tokens == it->n ? 1 : 0));
        }
    }
    REQUIRE(tokens <= target->max_tokens);
    REQUIRE(rows <= target->max_rows);
    if (prompts > 0) /* nobody waits for ever: the first prompt always moves */
        REQUIRE(moved && items[first].target_tokens > 0);
    int32_t share = target->max_tokens / 4;
    if (drafts > 0)
        REQUIRE(drafts + n_decoding + (prompts < share ? prompts : share) <= target->max_tokens);
}

START_TEST(plan_any_load_stays_within_limits) {
    for (int32_t trial = 0; trial < 20000; trial++) {
        struct co_plan_item items[ITEMS], before[ITEMS];
        int32_t n = 1 + below(ITEMS);
        random_items(items, n);
        int64_t held = 0;
        for (int32_t i = 0; i < n; i++)
            held += items[i].draft_blocks;
        bool roomy = below(2) == 0;
        struct co_plan_limits target = {n + below(600), n + below(100), 16,
                                        roomy ? 100000 : 57 + below(400)};
        struct co_plan_limits draft = {1 + below(600), 1 + below(100), 16,
                                       roomy ? 100000 : held + below(40)};
        memcpy(before, items, sizeof before);
        int32_t n_kept = co_plan_kv(items, n, &target);
        check_kv(before, items, n, n_kept, &target);
        memcpy(before, items, sizeof before);
        n = n_kept;
        co_plan_draft(items, n, &draft, &target);
        check_draft(before, items, n, &draft);
        for (int32_t i = 0; i < n; i++) { /* some have drafts that no draft worker made */
            int32_t n_own = below(4) == 0 ? below(FT_DRAFT_LEN_MAX + 1) : 0;
            bool more = items[i].draft_k + n_own <= FT_DRAFT_LEN_MAX;
            items[i].n_drafted = items[i].draft_k + (more ? n_own : 0);
        }
        co_plan_target(items, n, &target);
        check_target(items, n, &target);
    }
}
END_TEST

START_TEST(plan_kv_shrinks_k_before_it_preempts_the_last) {
    struct co_plan_item items[3] = {
        {.n = 32, .target_len = 31, .k_want = 8},
        {.n = 30, .target_len = 29, .k_want = 8},
        {.n = 16, .target_len = 15, .k_want = 8},
    };
    struct co_plan_limits target = {64, 64, 16, 6};
    ck_assert_int_eq(co_plan_kv(items, 3, &target), 3);
    ck_assert_int_eq(items[0].k_want, 8); /* 5 blocks for plain steps, and one more for the first */
    ck_assert_int_eq(items[1].k_want, 2); /* what its last block holds */
    ck_assert_int_eq(items[2].k_want, 0);
    ck_assert(items[2].target_full);
    target.n_blocks = 5;
    items[0].k_want = 8;
    ck_assert_int_eq(co_plan_kv(items, 3, &target), 3);
    ck_assert_int_eq(items[0].k_want, 0);
    target.n_blocks = 4;
    ck_assert_int_eq(co_plan_lack(items, 3, &target), 1);
    ck_assert_int_eq(co_plan_kv(items, 3, &target), 2);
}
END_TEST

START_TEST(plan_draft_full_pool_is_a_plain_step_for_the_last) {
    struct co_plan_item items[3] = {
        {.n = 33, .target_len = 32, .draft_len = 32, .draft_blocks = 2, .k_want = 4},
        {.n = 20, .target_len = 19, .draft_len = 19, .draft_blocks = 2, .k_want = 4},
        {.n = 20, .target_len = 19, .draft_len = 0, .draft_blocks = 0, .k_want = 4},
    };
    struct co_plan_limits draft = {64, 64, 16, 4}, target = {64, 64, 16, 100};
    co_plan_draft(items, 3, &draft, &target);
    ck_assert_int_eq(items[0].draft_k, 4); /* grows into what the later one held */
    ck_assert_int_eq(items[0].draft_blocks, 3);
    ck_assert(items[1].drop_draft && items[1].draft_blocks == 0);
    ck_assert(items[2].draft_full && !items[2].drop_draft);
    ck_assert_int_eq(items[2].draft_tokens, 0);
    draft.n_blocks = 8; /* and it comes back */
    items[1].draft_len = 0;
    co_plan_draft(items, 3, &draft, &target);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(items[i].draft_k, 4);
}
END_TEST

START_TEST(plan_draft_catch_up_does_not_keep_others_from_drafting) {
    struct co_plan_item items[2] = {
        {.n = 900, .target_len = 899, .draft_len = 0, .k_want = 4},
        {.n = 20, .target_len = 19, .draft_len = 18, .draft_blocks = 2, .k_want = 4},
    };
    struct co_plan_limits limits = {64, 64, 16, 1000};
    co_plan_draft(items, 2, &limits, &limits);
    ck_assert_int_eq(items[1].draft_tokens, 2);
    ck_assert_int_eq(items[1].draft_k, 4);
    ck_assert_int_eq(items[0].draft_tokens, 62);
    ck_assert_int_eq(items[0].draft_k, 0);
}
END_TEST

START_TEST(plan_short_prompt_does_not_wait_for_a_long_one) {
    struct co_plan_item items[3] = {{.n = 900}, {.n = 400}, {.n = 20}};
    struct co_plan_limits limits = {64, 64, 16, 1000};
    co_plan_target(items, 3, &limits);
    ck_assert_int_eq(items[2].target_tokens, 20);
    ck_assert_int_eq(items[2].n_logits, 1);
    ck_assert_int_eq(items[0].target_tokens, 32);
    ck_assert_int_eq(items[1].target_tokens, 12);
}
END_TEST

START_TEST(plan_draft_behind_catches_up_then_drafts) {
    struct co_plan_item item = {.n = 1000, .target_len = 999, .draft_len = 0, .k_want = 4};
    struct co_plan_limits limits = {256, 64, 16, 1000};
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
    struct co_plan_limits limits = {64, 64, 16, 1000};
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
    struct co_plan_limits limits = {256, 1, 16, 1000};
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

/* One stream drafts as much as the whole step takes; a quarter of it is the prompt's all the same.
 */
START_TEST(plan_drafts_leave_a_share_to_prompts) {
    struct co_plan_item items[2] = {
        {.n = 20, .target_len = 19, .draft_len = 19, .k_want = 16},
        {.n = 40},
    };
    struct co_plan_limits limits = {17, 17, 16, 1000};
    co_plan_draft(items, 2, &limits, &limits);
    ck_assert_int_eq(items[0].draft_k, 12);
    items[0].n_drafted = items[0].draft_k;
    co_plan_target(items, 2, &limits);
    ck_assert_int_eq(items[0].verify_k, 12);
    ck_assert_int_eq(items[1].target_tokens, 4);
    items[1].target_len = 38; /* what it does not need is not kept */
    co_plan_draft(items, 2, &limits, &limits);
    ck_assert_int_eq(items[0].draft_k, 14);
    items[1].target_len = 39; /* it decodes as well */
    co_plan_draft(items, 2, &limits, &limits);
    ck_assert_int_eq(items[0].draft_k, 15);
}
END_TEST

/* Drafts that no worker made are verified where there is room: neither prompts nor what the draft
 * worker was asked for make way for them. */
START_TEST(plan_free_drafts_take_what_is_left) {
    struct co_plan_item items[3] = {
        {.n = 20, .target_len = 19, .n_drafted = 16},
        {.n = 20, .target_len = 19, .draft_len = 19, .k_want = 8},
        {.n = 40},
    };
    struct co_plan_limits limits = {20, 20, 16, 1000};
    co_plan_draft(items, 3, &limits, &limits);
    ck_assert_int_eq(items[1].draft_k, 8);
    items[1].n_drafted = 8;
    co_plan_target(items, 3, &limits);
    ck_assert_int_eq(items[0].verify_k, 20 - 5 - 1 - 9);
    ck_assert_int_eq(items[1].verify_k, 8);
    ck_assert_int_eq(items[2].target_tokens, 5);
}
END_TEST

/* A prompt whose every row is wanted takes as many steps as its rows need. */
START_TEST(plan_of_every_row_is_bounded_by_rows) {
    struct co_plan_item items[2] = {{.n = 100, .every_row = true}, {.n = 20, .target_len = 19}};
    struct co_plan_limits limits = {
        .max_tokens = 64, .max_rows = 17, .block_tokens = 16, .n_blocks = 1000};
    int32_t steps = 0;
    while (items[0].target_len < items[0].n - 1) {
        co_plan_target(items, 2, &limits);
        ck_assert_int_eq(items[1].n_logits, 1); /* the stream beside it is not delayed */
        ck_assert_int_eq(items[0].n_logits, items[0].target_tokens);
        ck_assert_int_le(items[0].n_logits, 16);
        items[0].target_len += items[0].target_tokens;
        ck_assert_int_lt(++steps, 10);
    }
    ck_assert_int_eq(steps, 7);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("plan");
    TCase *tc = tcase_create("plan");
    tcase_add_test(tc, plan_any_load_stays_within_limits);
    tcase_add_test(tc, plan_kv_shrinks_k_before_it_preempts_the_last);
    tcase_add_test(tc, plan_draft_full_pool_is_a_plain_step_for_the_last);
    tcase_add_test(tc, plan_draft_catch_up_does_not_keep_others_from_drafting);
    tcase_add_test(tc, plan_short_prompt_does_not_wait_for_a_long_one);
    tcase_add_test(tc, plan_draft_behind_catches_up_then_drafts);
    tcase_add_test(tc, dev21_ragged_k_in_one_batch_is_kept_apart);
    tcase_add_test(tc, plan_drafts_leave_a_share_to_prompts);
    tcase_add_test(tc, plan_free_drafts_take_what_is_left);
    tcase_add_test(tc, plan_of_every_row_is_bounded_by_rows);
    tcase_add_test(tc, dev31_prompt_longer_than_a_step_is_chunked);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
