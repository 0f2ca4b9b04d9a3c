/* The length controller in simulated worlds whose costs and acceptance are known: what it chooses
 * is nearly as fast as the best fixed K, which is found by computing them all. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/spec/philox.h"
#include "common/spec/theory.h"
#include "coordinator/length.h"
#include "support/suite.h"

enum { ROUNDS = 4000, BATCH_MAX = 64 };

struct world {
    double alpha;                   /* of every position */
    double row, rows_free;          /* a row past rows_free costs so much of a plain step */
    double draft_begin, draft_step; /* of a plain step */
    double noise;                   /* relative, uniform, both ways */
    bool spikes;                    /* one phase in fifty takes four times as long */
    bool free_drafts;               /* drafts without a model */
    int32_t n;                      /* requests in the batch */
};

static struct co_length g_length;
static struct co_length_request g_requests[BATCH_MAX];
static struct co_length_item g_items[BATCH_MAX];
static uint64_t g_draws;

static double draw(void) {
    return ft_philox_uniform(11, g_draws++, FT_PHILOX_ACCEPT, 0);
}

static double verify_ns(const struct world *w, int32_t rows) {
    double over = rows - w->rows_free;
    return 3e6 * (1 + (over > 0 ? over * w->row : 0));
}

static double draft_ns(const struct world *w, int32_t steps) {
    return steps == 0 || w->free_drafts ? 0 : 3e6 * (w->draft_begin + steps * w->draft_step);
}

static double disturbed(const struct world *w, double ns) {
    ns *= 1 + w->noise * (2 * draw() - 1);
    return w->spikes && draw() < 0.02 ? ns * 4 : ns;
}

/* Tokens a second that a fixed k brings on average. */
static double speed_of(const struct world *w, int32_t k) {
    return w->n * ft_theory_tokens(w->alpha, k) / (verify_ns(w, w->n * (k + 1)) + draft_ns(w, k));
}

static double best_speed(const struct world *w) {
    double best = 0;
    for (int32_t k = 0; k <= FT_DRAFT_LEN_MAX; k++)
        best = fmax(best, speed_of(w, k));
    return best;
}

static void saw(struct co_length_request *request, size_t source, size_t class_at, int32_t n_draft,
                int32_t n_accepted) {
    const struct co_length_seen seen = {
        .source = source, .class_at = class_at, .n_draft = n_draft, .n_accepted = n_accepted};
    co_length_saw_accept(&g_length, request, &seen);
}

static void start(void) {
    co_length_init(&g_length);
    memset(g_requests, 0, sizeof g_requests);
    g_draws = 0;
}

/* Expected tokens a second of what was chosen over n_rounds, in that world without noise. */
static double run(const struct world *w, int32_t n_rounds) {
    double tokens = 0, ns = 0;
    for (int32_t round = 0; round < n_rounds; round++) {
        int32_t rows = 0, steps = 0, drafting = 0;
        for (int32_t i = 0; i < w->n; i++)
            g_items[i] = (struct co_length_item){.request = &g_requests[i],
                                                 .source = w->free_drafts ? 1 : 0,
                                                 .model = !w->free_drafts,
                                                 .is_free = true,
                                                 .k_max = FT_DRAFT_LEN_MAX,
                                                 .reach = 1};
        co_length_choose(&g_length, g_items, w->n);
        for (int32_t i = 0; i < w->n; i++) {
            int32_t k = g_items[i].k, n_accepted = 0;
            ck_assert(k >= 0 && k <= FT_DRAFT_LEN_MAX);
            while (n_accepted < k && draw() < w->alpha)
                n_accepted++;
            if (k > 0)
                saw(&g_requests[i], g_items[i].source, 0, k, n_accepted);
            tokens += ft_theory_tokens(w->alpha, k);
            rows += k + 1;
            drafting += k > 0;
            steps = k > steps ? k : steps;
        }
        ns += verify_ns(w, rows) + draft_ns(w, steps);
        co_length_saw_verify(&g_length, w->n, rows, (int64_t)disturbed(w, verify_ns(w, rows)));
        if (steps > 0 && !w->free_drafts)
            co_length_saw_draft(&g_length, drafting, steps,
                                (int64_t)disturbed(w, draft_ns(w, steps)));
    }
    return tokens / ns;
}

static void require_near_best(const struct world *w, double speed, double part, const char *what) {
    double best = best_speed(w);
    ck_assert_msg(speed >= part * best,
                  "%s, alpha %.2f: %.4f of the best fixed K (plain is %.4f of it), k %.1f", what,
                  w->alpha, speed / best, speed_of(w, 0) / best, g_length.k_mean);
}

static const double alphas[] = {0.02, 0.2, 0.4, 0.55, 0.7, 0.8, 0.9, 0.97};
#define N_ALPHAS 8

START_TEST(converges_to_the_best_k) {
    static const struct world worlds[] = {
        {.row = 0.08, .rows_free = 2, .draft_begin = 0.06, .draft_step = 0.05, .n = 1},
        {.row = 0.02, .rows_free = 1, .draft_begin = 0.02, .draft_step = 0.02, .n = 1},
        {.row = 0.08, .rows_free = 2, .draft_begin = 0.05, .draft_step = 0.38, .n = 1},
        {.row = 0.0, .rows_free = 0, .draft_begin = 0.02, .draft_step = 0.1, .n = 1},
        {.row = 0.08, .rows_free = 2, .free_drafts = true, .n = 1},
    };
    struct world w = worlds[_i % 5];
    w.noise = 0.1;
    w.spikes = true;
    for (int i = 0; i < N_ALPHAS; i++) {
        start();
        w.alpha = alphas[i];
        run(&w, ROUNDS / 4);
        require_near_best(&w, run(&w, ROUNDS), 0.97, "converged");
    }
}
END_TEST

/* Here each request is told apart though all are alike, which costs a little more than 3 %. */
START_TEST(a_batch_drafts_less_when_rows_are_dear) {
    for (int i = 0; i < N_ALPHAS; i++) {
        struct world w = {.alpha = alphas[i],
                          .row = 0.08,
                          .rows_free = 8,
                          .draft_begin = 0.05,
                          .draft_step = 0.05,
                          .noise = 0.1,
                          .spikes = true,
                          .n = _i};
        start();
        run(&w, ROUNDS / 8);
        require_near_best(&w, run(&w, ROUNDS / 4), 0.95, "batch");
    }
}
END_TEST

START_TEST(the_start_of_a_service_costs_little) {
    struct world w = {.alpha = 0.8,
                      .row = 0.08,
                      .rows_free = 2,
                      .draft_begin = 0.06,
                      .draft_step = 0.05,
                      .noise = 0.1,
                      .n = 1};
    start();
    require_near_best(&w, run(&w, 300), 0.93, "first 300 rounds");
    /* A later request starts from what others showed. */
    memset(g_requests, 0, sizeof g_requests);
    require_near_best(&w, run(&w, 60), 0.95, "a new request");
}
END_TEST

/* Where every row has its price, many at once gain nothing, and finding that out must not cost what
 * plain decoding would have earned: from the first round on, one or many requests long. */
START_TEST(a_large_batch_loses_little_by_looking) {
    struct world w = {.alpha = 0.7,
                      .row = 0.15,
                      .rows_free = 4,
                      .draft_begin = 0.05,
                      .draft_step = 0.05,
                      .noise = 0.1,
                      .spikes = true,
                      .n = 1};
    start();
    g_draws = (uint64_t)_i << 32;
    run(&w, _i % 2 * 60); /* with and without having seen single requests */
    w.n = _i % 4 < 2 ? 64 : 16;
    for (int turn = 0; turn < 10; turn++) {
        memset(g_requests, 0, sizeof g_requests);
        require_near_best(&w, run(&w, 100), turn == 0 ? 0.93 : 0.98,
                          turn == 0 ? "first of many" : "next of many");
    }
}
END_TEST

/* A draft that has 900 tokens to read, at 20 us each, is worth that for a long answer alone. */
START_TEST(a_draft_far_behind_is_not_asked_for_a_short_while) {
    struct world w = {
        .alpha = 0.8, .row = 0.05, .rows_free = 4, .draft_begin = 0.05, .draft_step = 0.05, .n = 1};
    start();
    run(&w, 300);
    for (int i = 0; i < 20; i++)
        co_length_saw_catch_up(&g_length, 1, 0, 900, 18000000);
    static const struct {
        int32_t behind, k_max;
        bool drafts;
    } cases[] = {{0, 4, true}, {900, 4, false}, {0, 16, true}, {60, 16, true}, {900, 16, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct co_length_request request = {.rates[0] = g_requests[0].rates[0]};
        struct co_length_item item = {.request = &request,
                                      .model = true,
                                      .is_free = true,
                                      .k_max = cases[i].k_max,
                                      .reach = 1,
                                      .behind = cases[i].behind};
        g_length.n_rounds[0] = 1000; /* no look at other lengths */
        co_length_choose(&g_length, &item, 1);
        ck_assert_msg((item.k > 0) == cases[i].drafts, "%d behind, at most %d: K = %d",
                      cases[i].behind, cases[i].k_max, item.k);
    }
}
END_TEST

START_TEST(it_comes_back_from_zero) {
    struct world w = {.alpha = 0.9,
                      .row = 0.08,
                      .rows_free = 2,
                      .draft_begin = 0.1,
                      .draft_step = 0.1,
                      .noise = 0.1,
                      .n = 1};
    start();
    run(&w, 300);
    w.alpha = 0.01;
    run(&w, 200);
    require_near_best(&w, run(&w, 1000), 0.97, "nothing to gain");
    ck_assert_msg(g_length.k_mean < 0.5, "k %.2f where nothing is accepted", g_length.k_mean);
    w.alpha = 0.9;
    run(&w, 1000);
    require_near_best(&w, run(&w, 500), 0.97, "back");
}
END_TEST

START_TEST(it_follows_a_machine_that_slows_down) {
    struct world w = {.alpha = 0.75,
                      .row = 0.08,
                      .rows_free = 2,
                      .draft_begin = 0.05,
                      .draft_step = 0.05,
                      .noise = 0.05,
                      .n = 1};
    start();
    run(&w, 600);
    w.draft_step = 0.5; /* the draft's core is taken by somebody */
    run(&w, 600);
    require_near_best(&w, run(&w, 600), 0.97, "dear drafts");
    w.draft_step = 0.05;
    run(&w, 1200);
    require_near_best(&w, run(&w, 600), 0.97, "cheap again");
}
END_TEST

START_TEST(requests_of_one_batch_get_what_suits_each) {
    struct world w = {
        .alpha = 0.95, .row = 0.1, .rows_free = 4, .draft_begin = 0.05, .draft_step = 0.05, .n = 2};
    start();
    run(&w, 300);
    double k[2] = {0, 0};
    for (int32_t round = 0; round < 600; round++) {
        for (int32_t i = 0; i < 2; i++)
            g_items[i] = (struct co_length_item){.request = &g_requests[i],
                                                 .model = true,
                                                 .is_free = true,
                                                 .k_max = FT_DRAFT_LEN_MAX,
                                                 .reach = 1};
        co_length_choose(&g_length, g_items, 2);
        for (int32_t i = 0; i < 2; i++) {
            int32_t n_accepted = 0;
            while (n_accepted < g_items[i].k && draw() < (i == 0 ? 0.95 : 0.2))
                n_accepted++;
            if (g_items[i].k > 0)
                saw(&g_requests[i], 0, 0, g_items[i].k, n_accepted);
            k[i] += round >= 100 ? g_items[i].k / 500.0 : 0;
        }
    }
    ck_assert_msg(k[0] > k[1] + 3, "k %.2f and %.2f", k[0], k[1]);
}
END_TEST

START_TEST(fixed_lengths_are_kept) {
    struct co_length_request request = {0};
    start();
    for (int32_t k = 0; k <= FT_DRAFT_LEN_MAX; k++) {
        struct co_length_item item = {
            .request = &request, .model = true, .k_max = k, .reach = 1, .k = -1};
        co_length_choose(&g_length, &item, 1);
        ck_assert_int_eq(item.k, k);
    }
    struct co_length_item none = {.request = &request, .is_free = true, .reach = 1, .k = -1};
    co_length_choose(&g_length, &none, 1);
    ck_assert_int_eq(none.k, 0);
}
END_TEST

START_TEST(rates_are_what_was_seen) {
    struct co_length_request request = {0};
    start();
    ck_assert(co_length_alpha(&g_length, 2) < 0);
    for (int i = 0; i < 400; i++)
        saw(&request, 2, 1, 4, i % 2 == 0 ? 1 : 4);
    ck_assert_double_eq_tol(co_length_rate(&g_length, &request, 2, 1, 0), 1.0, 0.02);
    ck_assert_double_eq_tol(co_length_rate(&g_length, &request, 2, 1, 1), 0.5, 0.08);
    ck_assert_double_eq_tol(co_length_rate(&g_length, &request, 2, 1, 3), 1.0, 0.1);
    ck_assert_double_eq_tol(co_length_alpha(&g_length, 2), 5.0 / 6, 0.02);
}
END_TEST

START_TEST(policies_are_numbers_auto_or_tables) {
    static const char *const bad[] = {"",        "17",   "-1",      "4x",      "2:4",
                                      "1:4,1:3", "1:17", "1:4,",    "1:4;2:3", "automatic",
                                      "1:",      ":4",   "4:2,1:3", "1:4,8",   "99999:1"};
    struct co_length_policy policy = {0};
    struct ft_err err = {0};
    ck_assert_int_eq(co_length_parse(&policy, "7", &err), FT_OK);
    ck_assert_int_eq(policy.mode, CO_LENGTH_FIXED);
    ck_assert_int_eq(co_length_policy_k(&policy, 30), 7);
    ck_assert_int_eq(co_length_parse(&policy, "auto", &err), FT_OK);
    ck_assert_int_eq(policy.mode, CO_LENGTH_AUTO);
    ck_assert_int_eq(co_length_policy_k(&policy, 1), FT_DRAFT_LEN_MAX);
    ck_assert_int_eq(co_length_parse(&policy, "1:6,4:3,16:0", &err), FT_OK);
    ck_assert_int_eq(policy.mode, CO_LENGTH_TABLE);
    ck_assert_int_eq(policy.k_max, 6);
    static const int32_t batch[] = {0, 1, 3, 4, 15, 16, 500}, k[] = {6, 6, 6, 3, 3, 0, 0};
    for (int i = 0; i < 7; i++)
        ck_assert_int_eq(co_length_policy_k(&policy, batch[i]), k[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_int_eq(co_length_parse(&policy, bad[i], &err), FT_E_PROC_CONFIG);
        ck_assert_ptr_nonnull(strstr(err.text, "num_speculative_tokens"));
    }
}
END_TEST

START_TEST(costs_are_lines_between_what_was_measured) {
    static struct co_cost cost;
    co_cost_init(&cost, 1);
    ck_assert_double_eq(co_cost_estimate(&cost, 1, 4), 0);
    co_cost_add(&cost, 1, 3, 400);
    ck_assert_double_eq_tol(co_cost_estimate(&cost, 1, 7), 800, 1e-6); /* by growth */
    for (int i = 0; i < 200; i++) {
        co_cost_add(&cost, 1, 3, 400);
        co_cost_add(&cost, 1, 9, i % 40 == 39 ? 99000 : 1000);
    }
    ck_assert_double_eq_tol(co_cost_estimate(&cost, 1, 3), 400, 12);
    ck_assert_double_eq_tol(co_cost_estimate(&cost, 1, 6), 700, 25);
    ck_assert_double_eq_tol(co_cost_estimate(&cost, 1, 12), 1300, 60);
    ck_assert_double_eq_tol(co_cost_estimate(&cost, 1, 1), 200, 25);
    ck_assert_double_eq_tol(co_cost_estimate(&cost, 30, 6), 700, 25); /* borrowed */
    ck_assert_double_ge(co_cost_estimate(&cost, 1, 4096), 1300);
    co_cost_add(&cost, 1, 9, 0);
    co_cost_add(&cost, 1, 9, -5);
}
END_TEST

START_TEST(costs_beyond_what_was_measured_grow_as_those_of_others) {
    static struct co_cost cost;
    co_cost_init(&cost, 1);
    for (int i = 0; i < 50; i++) {
        co_cost_add(&cost, 1, 1, 1000);
        co_cost_add(&cost, 1, 5, 1000);
        co_cost_add(&cost, 1, 17, 3400);
    }
    /* A larger batch has its own level: twice what single requests make of 17 rows. */
    double alone = co_cost_estimate(&cost, 1, 33);
    for (int i = 0; i < 50; i++)
        co_cost_add(&cost, 16, 17, 6800);
    ck_assert_double_eq_tol(co_cost_estimate(&cost, 16, 17), 6800, 70);
    ck_assert_double_eq_tol(co_cost_estimate(&cost, 16, 33), 2 * alone, 150);
    /* Two sizes that lie close say nothing of a third far away, and all of one between them. */
    for (int i = 0; i < 50; i++)
        co_cost_add(&cost, 16, 19, 6000);
    ck_assert_double_eq_tol(co_cost_estimate(&cost, 16, 18), 6400, 100);
    ck_assert_double_ge(co_cost_estimate(&cost, 16, 38), 6800);
    /* Once they lie far apart, what was measured counts and not what others say. */
    for (int i = 0; i < 50; i++)
        co_cost_add(&cost, 16, 32, 7000);
    ck_assert_double_eq_tol(co_cost_estimate(&cost, 16, 34), 7100, 200);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("length");
    TCase *tc = tcase_create("length");
    tcase_set_timeout(tc, 280);
    tcase_add_loop_test(tc, converges_to_the_best_k, 0, 5);
    static const int batches[] = {2, 4, 8, 16};
    for (int i = 0; i < 4; i++)
        tcase_add_loop_test(tc, a_batch_drafts_less_when_rows_are_dear, batches[i], batches[i] + 1);
    tcase_add_test(tc, the_start_of_a_service_costs_little);
    tcase_add_loop_test(tc, a_large_batch_loses_little_by_looking, 0, 16);
    tcase_add_test(tc, a_draft_far_behind_is_not_asked_for_a_short_while);
    tcase_add_test(tc, it_comes_back_from_zero);
    tcase_add_test(tc, it_follows_a_machine_that_slows_down);
    tcase_add_test(tc, requests_of_one_batch_get_what_suits_each);
    tcase_add_test(tc, fixed_lengths_are_kept);
    tcase_add_test(tc, rates_are_what_was_seen);
    tcase_add_test(tc, policies_are_numbers_auto_or_tables);
    tcase_add_test(tc, costs_are_lines_between_what_was_measured);
    tcase_add_test(tc, costs_beyond_what_was_measured_grow_as_those_of_others);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
