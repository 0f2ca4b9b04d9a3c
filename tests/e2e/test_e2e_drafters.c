/* Every drafter in the real processes, with a draft worker and without: greedy text is that of
 * plain decoding, samples have the target's distribution, and a request that a drafter has nothing
 * for decodes plainly. The length controller chooses K and changes no text. */
#include <check.h>
#include <stdlib.h>

#include "support/cluster.h"
#include "support/fixtures.h"
#include "support/suite.h"
#include "unit/chi_square.h"

enum { TOGETHER = 16 };

static struct cluster g_cluster;
static struct gen g_gen, g_plain, g_gens[TOGETHER];

static const char *const g_drafters[] = {"model",   "ngram",  "lookup", "bigram",
                                         "unigram", "random", "chain"};
enum { N_DRAFTERS = sizeof g_drafters / sizeof g_drafters[0] };

/* The last argument of the coordinator is NULL. */
#define start(target, draft, ...)                                                                  \
    start_with(target, draft, (const char *const[]){__VA_ARGS__, NULL})
static void start_with(const char *target, const char *draft, const char *const *more) {
    static char text_arg[512];
    const char *dir = ft_fixture_temp_dir();
    const char *text = "the quick brown fox. abcdeabcdeabcde bcbcd aabbccdd abab";
    ft_fixture_write(dir, "text.txt", text, strlen(text));
    snprintf(text_arg, sizeof text_arg, "--drafter_text=%s/text.txt", dir);
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model(target),
        .draft_dir = draft != NULL ? ft_fixture_model(draft) : NULL,
    };
    opts.args[CLUSTER_COORDINATOR][0] = text_arg;
    for (int i = 0; more[i] != NULL; i++)
        opts.args[CLUSTER_COORDINATOR][1 + i] = more[i];
    cluster_start(&g_cluster, &opts);
    ft_fixture_remove_dir(dir); /* it was read at start */
}

/* Greedy r7 on a prompt that repeats itself, by every drafter and K. */
static void check_greedy(bool with_model) {
    static const int ks[] = {1, 4, 16};
    start("r7", with_model ? "r7n" : NULL, NULL);
    struct ft_wire_generate request = gen_text("abcabcabcdabcabd", 60, 0);
    request.params.ignore_eos = true;
    gen_run(&g_cluster, &request, &g_plain);
    gen_require_ok(&g_plain);
    for (size_t d = 0; d < N_DRAFTERS; d++) {
        for (size_t i = 0; i < 3; i++) {
            request.drafter = ft_str_c(g_drafters[d]);
            request.num_speculative_tokens = (uint32_t)ks[i];
            gen_run(&g_cluster, &request, &g_gen);
            gen_require_same(&g_gen, &g_plain, g_drafters[d]);
            bool always = d >= 3 && d <= 5; /* they need nothing of the text */
            if (always || (with_model && d == 0))
                ck_assert_msg(g_gen.spec.num_draft_tokens > 0, "%s", g_drafters[d]);
            if (!with_model && d == 0)
                ck_assert_uint_eq(g_gen.spec.num_draft_tokens, 0);
            gen_fini(&g_gen);
        }
    }
    gen_fini(&g_plain);
    cluster_stop(&g_cluster);
}

START_TEST(dev03_greedy_equals_plain_for_every_drafter) {
    check_greedy(true);
}
END_TEST

START_TEST(drafters_need_no_draft_worker) {
    check_greedy(false);
}
END_TEST

/* Once the cycle was seen, n-grams of it are always right. */
START_TEST(dev44_ngram_of_a_cycle_is_always_accepted) {
    static const char *const names[] = {"ngram", "lookup", "chain"};
    start("cyc", NULL, "--drafter_min_match=2");
    for (size_t d = 0; d < 3; d++) {
        struct ft_wire_generate request = gen_text("abcdeabcde", 61, 4);
        request.drafter = ft_str_c(names[d]);
        gen_run(&g_cluster, &request, &g_gen);
        gen_require_ok(&g_gen);
        ck_assert_uint_eq(g_gen.n_ids, 61);
        for (size_t i = 0; i < 61; i++)
            ck_assert_int_eq(g_gen.ids[i], "abcde"[i % 5]);
        ck_assert_uint_gt(g_gen.spec.num_draft_tokens, 40);
        ck_assert_uint_eq(g_gen.spec.num_accepted_tokens, g_gen.spec.num_draft_tokens);
        ck_assert_uint_le(g_gen.spec.num_target_steps, 16);
        gen_fini(&g_gen);
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev11_drafters_stop_at_the_context) {
    start("cyc+ctx=64", "cyc-draft+ctx=64", NULL);
    for (size_t d = 0; d < N_DRAFTERS; d++) {
        for (int len = 5; len <= 60; len += 11) {
            char prompt[64];
            for (int i = 0; i < len; i++)
                prompt[i] = "abcde"[i % 5];
            prompt[len] = 0;
            struct ft_wire_generate request = gen_text(prompt, 100, 8);
            request.drafter = ft_str_c(g_drafters[d]);
            gen_run(&g_cluster, &request, &g_gen);
            gen_require_ok(&g_gen);
            ck_assert_uint_eq(g_gen.n_ids, (size_t)(64 - len));
            ck_assert_int_eq(g_gen.finish, FT_WIRE_FINISH_LENGTH);
            for (size_t i = 0; i < g_gen.n_ids; i++)
                ck_assert_int_eq(g_gen.ids[i], "abcde"[(i + (size_t)len) % 5]);
            gen_fini(&g_gen);
        }
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev19_penalties_count_under_every_drafter) {
    start("pen", "pen-swap", NULL);
    for (size_t d = 0; d < N_DRAFTERS; d++) {
        struct ft_wire_generate request = gen_text("a", 12, 4);
        request.params.has_repetition_penalty = true;
        request.params.repetition_penalty = 2.0f;
        request.drafter = ft_str_c(g_drafters[d]);
        gen_run(&g_cluster, &request, &g_gen);
        gen_require_ok(&g_gen);
        ck_assert_msg(ft_str_eq(ft_buf_str(&g_gen.text), ft_str_c("bcdbbbbbbbbb")), "%s: '%.*s'",
                      g_drafters[d], (int)g_gen.text.len, g_gen.text.ptr);
        gen_fini(&g_gen);
    }
    cluster_stop(&g_cluster);
}
END_TEST

/* p of b, c, d is the softmax of 2, 1, 0. */
START_TEST(dev02_samples_have_the_targets_distribution) {
    const double prob[] = {0.66524096, 0.24472847, 0.09003057};
    int n_draws = getenv("FORETOKEN_TEST_DRAWS") != NULL ? 128 : 400;
    start("iid", "iid-draft", _i % 2 == 0 ? NULL : "--drafter_counts_as_q");
    const char *name = g_drafters[_i / 2];
    uint32_t counts[3] = {0};
    uint64_t drafted = 0;
    for (int done = 0; done < n_draws; done += TOGETHER) {
        struct gen *all[TOGETHER];
        for (int i = 0; i < TOGETHER; i++) {
            struct ft_wire_generate request = gen_text("abcabdbb", 12, 4);
            request.drafter = ft_str_c(name);
            request.params.temperature = 1.0f;
            request.params.has_seed = true;
            request.params.seed = 7000u + (uint64_t)(done + i);
            all[i] = &g_gens[i];
            gen_start(&g_cluster, &request, all[i]);
        }
        gen_wait(&g_cluster, all, TOGETHER);
        for (int i = 0; i < TOGETHER; i++) {
            gen_require_ok(all[i]);
            for (size_t j = 0; j < all[i]->n_ids; j++) {
                ck_assert(all[i]->ids[j] >= 'b' && all[i]->ids[j] <= 'd');
                counts[all[i]->ids[j] - 'b']++;
            }
            drafted += all[i]->spec.num_draft_tokens;
            gen_fini(all[i]);
        }
    }
    ck_assert_uint_gt(drafted, 0);
    check_distribution(counts, prob, 3, name);
    cluster_stop(&g_cluster);
}
END_TEST

/* A model that drafts greedily leaves no q rows; n-grams behind its tokens do. Each such request
 * follows one whose rows were the model's. */
START_TEST(greedy_drafts_before_drawn_ones_keep_the_distribution) {
    static const double prob[] = {0.66524096, 0.24472847, 0.09003057};
    int n_draws = getenv("FORETOKEN_TEST_DRAWS") != NULL ? 32 : 200;
    start("iid", "iid", "--num_speculative_tokens=auto", "--drafter_chain=model,ngram",
          "--drafter_min_match=1", "--drafter_counts_as_q");
    uint32_t counts[3] = {0};
    for (int i = 0; i < n_draws; i++) {
        struct ft_wire_generate request = gen_text("abcabdbbabcbdbab", 24, 0);
        request.has_num_speculative_tokens = false;
        request.drafter = ft_str_c("chain");
        request.params.temperature = 1.0f;
        request.params.has_seed = true;
        request.params.seed = 9000u + (uint64_t)i;
        request.spec.has_draft_temperature = true;
        request.spec.draft_temperature = i % 2 == 0 ? 0.0f : 1.0f;
        gen_run(&g_cluster, &request, &g_gen);
        gen_require_ok(&g_gen);
        for (size_t j = 0; i % 2 == 0 && j < g_gen.n_ids; j++) {
            ck_assert(g_gen.ids[j] >= 'b' && g_gen.ids[j] <= 'd');
            counts[g_gen.ids[j] - 'b']++;
        }
        gen_fini(&g_gen);
    }
    check_distribution(counts, prob, 3, "greedy drafts");
    cluster_stop(&g_cluster);
}
END_TEST

/* DEV-07: a draft vocabulary that is the larger one. At this temperature most of what is drafted
 * lies outside the target's. */
START_TEST(dev07_drafts_outside_the_targets_vocabulary_are_rejected) {
    static const double prob[] = {0.66524096, 0.24472847, 0.09003057};
    uint32_t counts[3] = {0};
    start("iid+vocab=264", "iid-draft+vocab=512", NULL);
    for (int i = 0; i < 24; i++) {
        struct ft_wire_generate request = gen_text("abcabdbb", 24, 1 + i % 4);
        request.params.temperature = i < 20 ? 1.0f : 0.0f;
        request.params.has_seed = true;
        request.params.seed = 100u + (uint64_t)i;
        request.spec.has_draft_temperature = true;
        request.spec.draft_temperature = 100.0f;
        gen_run(&g_cluster, &request, &g_gen);
        gen_require_ok(&g_gen);
        ck_assert_uint_eq(g_gen.n_ids, 24);
        for (size_t j = 0; i < 20 && j < g_gen.n_ids; j++)
            counts[g_gen.ids[j] - 'b']++;
        ck_assert_uint_gt(g_gen.spec.num_draft_tokens, 0);
        gen_fini(&g_gen);
    }
    check_distribution(counts, prob, 3, "ids outside");
    cluster_stop(&g_cluster);
}
END_TEST

/* DEV-17: the row behind a z is NaN, and the greedy text has no z: that a z was drafted ends
 * nothing. */
START_TEST(dev17_non_finite_rows_behind_a_rejection_are_not_looked_at) {
    start("nant", NULL, NULL);
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct ft_wire_generate request = gen_text("abc", 300, 4);
        request.drafter = ft_str_c("random");
        request.params.has_seed = true;
        request.params.seed = seed;
        gen_run(&g_cluster, &request, &g_gen);
        gen_require_ok(&g_gen);
        for (size_t i = 0; i < g_gen.n_ids; i++)
            ck_assert_int_eq(g_gen.ids[i], "abcde"[(i + 3) % 5]);
        gen_fini(&g_gen);
    }
    cluster_stop(&g_cluster);
}
END_TEST

/* DEV-21 and DEV-64: requests with lengths of their own beside some that the controller decides,
 * which goes to 0 and comes back; the draft catches up. */
START_TEST(dev21_dev64_auto_changes_no_text) {
    static struct gen solo[TOGETHER];
    struct gen *all[TOGETHER];
    struct ft_wire_generate requests[TOGETHER];
    start("r7", "r7n", "--num_speculative_tokens=auto");
    for (int i = 0; i < TOGETHER; i++) {
        requests[i] =
            gen_text(i % 2 == 0 ? "abcabcabc" : "a long prompt that says something", 40, 0);
        requests[i].params.ignore_eos = true;
        requests[i].params.max_tokens = 20u + 11u * (uint32_t)i;
        gen_run(&g_cluster, &requests[i], &solo[i]);
        gen_require_ok(&solo[i]);
        requests[i].has_num_speculative_tokens = i % 3 == 0;
        requests[i].num_speculative_tokens = (uint32_t)i;
        requests[i].drafter = ft_str_c(g_drafters[i % N_DRAFTERS]);
    }
    for (int i = 0; i < TOGETHER; i++) {
        all[i] = &g_gens[i];
        gen_start(&g_cluster, &requests[i], all[i]);
    }
    gen_wait(&g_cluster, all, TOGETHER);
    for (int i = 0; i < TOGETHER; i++) {
        gen_require_same(all[i], &solo[i], g_drafters[i % N_DRAFTERS]);
        gen_fini(all[i]);
        gen_fini(&solo[i]);
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(auto_drafts_where_everything_is_accepted) {
    start("r7", "r7", "--num_speculative_tokens=auto");
    struct ft_wire_generate request = gen_text("abc", 400, 0);
    request.params.ignore_eos = true;
    request.has_num_speculative_tokens = false;
    gen_run(&g_cluster, &request, &g_gen);
    gen_require_ok(&g_gen);
    ck_assert_uint_gt(g_gen.spec.num_draft_tokens, 0);
    ck_assert_uint_eq(g_gen.spec.num_accepted_tokens, g_gen.spec.num_draft_tokens);
    gen_fini(&g_gen);
    cluster_stop(&g_cluster);
}
END_TEST

static void require_refused(const char *drafter, const char *word) {
    struct ft_wire_generate request = gen_text("abc", 4, 2);
    request.drafter = ft_str_c(drafter);
    gen_run(&g_cluster, &request, &g_gen);
    ck_assert_msg(g_gen.status.code == 3, "%s: status %d", drafter, g_gen.status.code);
    ck_assert_msg(strstr(g_gen.status.text, "drafter") != NULL &&
                      strstr(g_gen.status.text, word) != NULL,
                  "'%s'", g_gen.status.text);
    gen_fini(&g_gen);
}

START_TEST(unknown_and_unlearnt_drafters_are_refused) {
    struct cluster_opts opts = {.target_dir = ft_fixture_model("cyc")};
    cluster_start(&g_cluster, &opts);
    require_refused("nosuch", "chain");
    require_refused("bigram", "drafter_text");
    cluster_stop(&g_cluster);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("e2e_drafters");
    TCase *tc = tcase_create("drafters");
    tcase_set_timeout(tc, 550);
    tcase_add_test(tc, dev03_greedy_equals_plain_for_every_drafter);
    tcase_add_test(tc, drafters_need_no_draft_worker);
    tcase_add_test(tc, dev44_ngram_of_a_cycle_is_always_accepted);
    tcase_add_test(tc, dev11_drafters_stop_at_the_context);
    tcase_add_test(tc, dev19_penalties_count_under_every_drafter);
    /* Where draws are few, the last drafter alone: `chain`, which asks others. */
    int first = getenv("FORETOKEN_TEST_DRAWS") != NULL ? 2 * (N_DRAFTERS - 1) : 0;
    tcase_add_loop_test(tc, dev02_samples_have_the_targets_distribution, first, 2 * N_DRAFTERS);
    tcase_add_test(tc, greedy_drafts_before_drawn_ones_keep_the_distribution);
    tcase_add_test(tc, dev07_drafts_outside_the_targets_vocabulary_are_rejected);
    tcase_add_test(tc, dev17_non_finite_rows_behind_a_rejection_are_not_looked_at);
    tcase_add_test(tc, dev21_dev64_auto_changes_no_text);
    tcase_add_test(tc, auto_drafts_where_everything_is_accepted);
    tcase_add_test(tc, unknown_and_unlearnt_drafters_are_refused);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
