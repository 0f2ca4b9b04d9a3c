/* Whoever waits is passed so often and no more, never by a lower priority, and comes in the end:
 * over random queues, pools and lengths of service. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/turns.h"
#include "support/suite.h"

enum { REQUESTS = 200, POOL = 64, QUEUES = 300 };

/* A ck_assert writes to a pipe each time, which is too slow for millions of checks. */
#define REQUIRE(cond) ((cond) ? (void)0 : ck_abort_msg("%s", #cond))

static uint32_t g_state = 1;

static int32_t below(int32_t n) {
    g_state = g_state * 1664525u + 1013904223u;
    return (int32_t)((g_state >> 8) % (uint32_t)n);
}

struct waiting {
    struct co_turn turn;
    int32_t blocks, service; /* what it needs, and for how many rounds */
    int32_t arrives;
    int32_t ends;        /* 0: it waits */
    int32_t n_passed_by; /* counted here, from what happened alone */
};

static struct waiting g_all[REQUESTS];
static struct waiting *g_order[REQUESTS]; /* by priority, then by arrival */

static void random_queue(void) {
    memset(g_all, 0, sizeof g_all);
    int32_t widest = 1 + below(POOL), spread = 1 + below(300);
    for (int i = 0; i < REQUESTS; i++) {
        g_all[i].turn.priority = below(4) == 0 ? below(3) - 1 : 0;
        g_all[i].blocks = 1 + below(below(3) == 0 ? widest : 4);
        g_all[i].service = 1 + below(20);
        g_all[i].arrives = below(spread);
    }
}

static int compare(const void *a, const void *b) {
    const struct waiting *x = *(struct waiting *const *)a, *y = *(struct waiting *const *)b;
    if (x->turn.priority != y->turn.priority)
        return x->turn.priority < y->turn.priority ? -1 : 1;
    if (x->arrives != y->arrives)
        return x->arrives < y->arrives ? -1 : 1;
    return x < y ? -1 : 1;
}

static bool waits(const struct waiting *w, int32_t now) {
    return w->arrives <= now && w->ends == 0;
}

/* Everybody who stands before w and waits was passed by it. */
static void note_passed(int i, int32_t now, int32_t overtaken_max) {
    for (int j = 0; j < i; j++) {
        struct waiting *before = g_order[j];
        if (!waits(before, now))
            continue;
        REQUIRE(before->turn.priority == g_order[i]->turn.priority);
        REQUIRE(++before->n_passed_by <= overtaken_max);
        REQUIRE(before->n_passed_by == before->turn.n_overtaken);
    }
}

/* One round's admissions; returns the blocks left. */
static int32_t admit(int32_t now, int32_t free_blocks, int32_t overtaken_max) {
    struct co_turns turns;
    bool any_fits_first = true;
    co_turns_begin(&turns, overtaken_max);
    for (int i = 0; i < REQUESTS; i++) {
        struct waiting *w = g_order[i];
        if (!waits(w, now))
            continue;
        if (!co_turns_open(&turns, &w->turn))
            break;
        if (w->blocks > free_blocks) {
            co_turns_block(&turns, &w->turn);
            any_fits_first = false;
            continue;
        }
        REQUIRE(overtaken_max > 0 || any_fits_first);
        co_turns_pass(&turns);
        w->ends = now + w->service;
        note_passed(i, now, overtaken_max);
        free_blocks -= w->blocks;
    }
    return free_blocks;
}

START_TEST(nobody_is_passed_too_often_nor_waits_for_ever) {
    static const int32_t limits[] = {0, 1, 3, 16, 1000};
    for (int q = 0; q < QUEUES; q++) {
        int32_t overtaken_max = limits[q % 5], n_done = 0, free_blocks = POOL;
        random_queue();
        for (int i = 0; i < REQUESTS; i++)
            g_order[i] = &g_all[i];
        qsort(g_order, REQUESTS, sizeof g_order[0], compare);
        int32_t now = 1;
        for (; n_done < REQUESTS; now++) {
            REQUIRE(now < 300 + REQUESTS * 21); /* one after the other would take no longer */
            for (int i = 0; i < REQUESTS; i++)
                if (g_all[i].ends == now) {
                    free_blocks += g_all[i].blocks;
                    n_done++;
                }
            free_blocks = admit(now, free_blocks, overtaken_max);
            REQUIRE(free_blocks >= 0);
        }
    }
}
END_TEST

/* One that needs the whole pool, and small ones without end: it comes after overtaken_max of them.
 */
START_TEST(stream_of_small_requests_does_not_starve_a_large_one) {
    struct co_turn large = {0}, small = {0};
    int32_t free_blocks = POOL - 1, n_passed = 0;
    for (int round = 0; round < 1000; round++) {
        struct co_turns turns;
        co_turns_begin(&turns, 16);
        if (free_blocks == POOL)
            break;
        ck_assert(co_turns_open(&turns, &large));
        co_turns_block(&turns, &large);
        if (co_turns_open(&turns, &small)) {
            co_turns_pass(&turns); /* it goes, and one that went before it ends */
            n_passed++;
        } else {
            free_blocks = POOL; /* nobody new came: what ran has ended */
        }
    }
    ck_assert_int_eq(free_blocks, POOL);
    ck_assert_int_eq(n_passed, 16);
    ck_assert_int_eq(large.n_overtaken, 16);
}
END_TEST

START_TEST(walk_looks_behind_a_bounded_number_of_requests) {
    struct co_turn turn[CO_TURNS_BLOCKED_MAX + 1] = {0};
    struct co_turns turns;
    co_turns_begin(&turns, 1000);
    for (int i = 0; i < CO_TURNS_BLOCKED_MAX; i++) {
        ck_assert(co_turns_open(&turns, &turn[i]));
        co_turns_block(&turns, &turn[i]);
    }
    ck_assert(!co_turns_open(&turns, &turn[CO_TURNS_BLOCKED_MAX]));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("turns");
    TCase *tc = tcase_create("turns");
    tcase_add_test(tc, nobody_is_passed_too_often_nor_waits_for_ever);
    tcase_add_test(tc, stream_of_small_requests_does_not_starve_a_large_one);
    tcase_add_test(tc, walk_looks_behind_a_bounded_number_of_requests);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
