/* Acceptance rules end to end: chosen by request or by parameter, each with what it promises. */
#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>

#include "support/cluster.h"
#include "support/fixtures.h"
#include "support/suite.h"
#include "unit/chi_square.h"

enum { COMPANY = 32 };

static const char *const k_rules[] = {"standard", "coupled", "block", "lenient", "synthetic"};
enum { N_RULES = 5, N_EXACT = 3 };

static struct cluster g_cluster;
static struct gen g_gen, g_other;
static struct gen g_gens[COMPANY];

static void start_pair(const char *target, const char *draft, const char *parameter) {
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model(target),
        .draft_dir = ft_fixture_model(draft),
        .args = {[CLUSTER_COORDINATOR] = {"--allow_lossy=true", parameter}},
    };
    cluster_start(&g_cluster, &opts);
}

static void run_ok(const struct ft_wire_generate *request, struct gen *gen) {
    gen_run(&g_cluster, request, gen);
    gen_require_ok(gen);
}

static struct ft_wire_generate seeded(const char *text, uint32_t max_tokens, int k,
                                      const char *rule, uint64_t seed) {
    struct ft_wire_generate request = gen_text(text, max_tokens, k);
    request.params.temperature = 1.0f;
    request.params.ignore_eos = true;
    request.params.has_seed = true;
    request.params.seed = seed;
    request.spec.rejection_sample_method = ft_str_c(rule);
    if (strcmp(rule, "synthetic") == 0) {
        request.spec.has_synthetic_acceptance_length = k > 0;
        request.spec.synthetic_acceptance_length = 1.0f + (float)k / 2;
    }
    return request;
}

/* Under a sanitizer, which looks for something else, less is counted and fewer run at once. */
static bool is_instrumented(void) {
    return getenv("FORETOKEN_TEST_DRAWS") != NULL;
}

/* ---- coupled -------------------------------------------------------------------------------- */

static struct ft_wire_generate coupled_case(int i, int k) {
    static const char *const prompts[] = {"the first", "another", "x", "yet another prompt"};
    struct ft_wire_generate request =
        seeded(prompts[i % 4], 40 + (uint32_t)i, k, "coupled", (uint64_t)i);
    if (i % 3 == 0)
        request.params.top_k = 20;
    if (i % 4 == 1)
        request.params.frequency_penalty = 0.5f;
    if (i % 5 == 2)
        request.params.min_p = 0.02f;
    return request;
}

START_TEST(coupled_text_does_not_depend_on_speculation_or_company) {
    static struct gen plain[COMPANY];
    struct gen *all[COMPANY];
    const int n_company = is_instrumented() ? 10 : COMPANY;
    start_pair("r7", "r7n", NULL);
    for (int i = 0; i < n_company; i++) {
        struct ft_wire_generate request = coupled_case(i, 0);
        request.has_spec_enabled = true;
        run_ok(&request, &plain[i]);
    }
    for (int k = 1; k <= 8; k++) {
        struct ft_wire_generate request = coupled_case(k, k);
        request.spec.has_draft_temperature = k % 2 == 0;
        request.spec.draft_temperature = (float)k / 4 - 0.5f;
        run_ok(&request, &g_gen);
        gen_require_same(&g_gen, &plain[k], "alone");
        ck_assert_uint_gt(g_gen.spec.num_accepted_tokens, 0);
        ck_assert(!g_gen.spec.lossy);
        gen_fini(&g_gen);
    }
    for (int i = 0; i < n_company; i++) {
        struct ft_wire_generate request = coupled_case(i, i % 9);
        all[i] = &g_gens[i];
        gen_start(&g_cluster, &request, all[i]);
    }
    gen_wait(&g_cluster, all, (size_t)n_company);
    for (int i = 0; i < n_company; i++) {
        gen_require_ok(all[i]);
        gen_require_same(all[i], &plain[i], "in company");
        gen_fini(all[i]);
        gen_fini(&plain[i]);
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(coupled_text_outlives_either_worker) {
    start_pair("r7", "r7n", "--rejection_sample_method=coupled");
    struct ft_wire_generate request = seeded("on and on", is_instrumented() ? 200 : 600, 0, "", 7);
    run_ok(&request, &g_other);
    for (int role = CLUSTER_TARGET; role <= CLUSTER_DRAFT; role++) {
        struct gen *gen = &g_gen;
        request.num_speculative_tokens = 4;
        gen_start(&g_cluster, &request, gen);
        while (gen->n_ids < 50)
            ft_rpc_loop_step(g_cluster.loop, INT64_MAX);
        cluster_signal(&g_cluster, (enum cluster_role)role, SIGKILL);
        ck_assert_int_eq(cluster_spawn(&g_cluster, (enum cluster_role)role), 0);
        gen_wait(&g_cluster, &gen, 1);
        gen_require_ok(gen);
        gen_require_same(gen, &g_other, role == CLUSTER_TARGET ? "target killed" : "draft killed");
        gen_fini(gen);
    }
    gen_fini(&g_other);
    cluster_stop(&g_cluster);
}
END_TEST

/* A pool of one and a half requests: others take the KV of a request, and its text goes on as it
 * would have, log-probabilities and all. */
START_TEST(coupled_text_outlives_preemption) {
    enum { PRESSED = 6 };
    static struct gen plain[PRESSED];
    struct gen *all[PRESSED];
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("r7"),
        .draft_dir = ft_fixture_model("r7n"),
        .args = {{"--kv_cache_bytes=320Ki"}, {"--kv_cache_bytes=320Ki"}},
    };
    cluster_start(&g_cluster, &opts);
    for (int with = 0; with < 2; with++) { /* alone and plainly, then together and drafting */
        for (int i = 0; i < PRESSED; i++) {
            struct ft_wire_generate request = seeded("some text to begin with", 180,
                                                     with == 0 ? 0 : 1 + i, "coupled", (uint64_t)i);
            request.params.has_logprobs = request.params.has_prompt_logprobs = true;
            request.params.logprobs = request.params.prompt_logprobs = 2;
            if (with == 0)
                run_ok(&request, &plain[i]);
            else
                gen_start(&g_cluster, &request, all[i] = &g_gens[i]);
        }
    }
    gen_wait(&g_cluster, all, PRESSED);
    for (int i = 0; i < PRESSED; i++) {
        gen_require_ok(all[i]);
        gen_require_same(all[i], &plain[i], "preempted");
        ck_assert_uint_eq(all[i]->logprobs.len, plain[i].logprobs.len);
        ck_assert_mem_eq(all[i]->logprobs.ptr, plain[i].logprobs.ptr, plain[i].logprobs.len);
        ck_assert_uint_eq(all[i]->prompt_logprobs.len, plain[i].prompt_logprobs.len);
        ck_assert_mem_eq(all[i]->prompt_logprobs.ptr, plain[i].prompt_logprobs.ptr,
                         plain[i].prompt_logprobs.len);
        gen_fini(all[i]);
        gen_fini(&plain[i]);
    }
    ck_assert_uint_gt(cluster_stats(&g_cluster).num_preemptions_total, 0);
    cluster_stop(&g_cluster);
}
END_TEST

/* Tokens of a text that is counted. */
static uint32_t n_counted(void) {
    return is_instrumented() ? 200 : 600;
}

/* Four standard deviations of a mean over the rounds of such a text, each of about three tokens. */
static double slack(double deviation) {
    return 4 * deviation / sqrt(n_counted() / 3.0);
}

/* ---- distributions -------------------------------------------------------------------------- */

/* Tokens of the iid pair are independent, so that one long text is many draws. */
static void require_iid(struct ft_wire_generate request, const char *what) {
    static const double p[] = {0.66524, 0.24473, 0.09003};
    uint32_t counts[3] = {0};
    uint64_t drafted = 0;
    run_ok(&request, &g_gen);
    for (size_t j = 0; j < g_gen.n_ids; j++) {
        ck_assert(g_gen.ids[j] >= 'b' && g_gen.ids[j] <= 'd');
        counts[g_gen.ids[j] - 'b']++;
    }
    drafted += g_gen.spec.num_draft_tokens;
    gen_fini(&g_gen);
    check_distribution(counts, p, 3, what);
    ck_assert_uint_gt(drafted, 0);
}

START_TEST(exact_rules_keep_the_distribution) {
    static const struct {
        const char *what;
        float temperature, top_p;
        int32_t top_k;
    } drafts[] = {{"as the request", 1, 1, 0},
                  {"greedy draft", 0, 1, 0},
                  {"hot draft", 2, 1, 0},
                  {"cut draft", 1, 0.7f, 2}};
    start_pair("iid", "iid-draft", NULL);
    for (size_t rule = 0; rule < N_EXACT; rule++)
        for (size_t i = 0; i < sizeof drafts / sizeof drafts[0]; i++) {
            char what[80];
            struct ft_wire_generate request = seeded("a", n_counted(), 4, k_rules[rule], 1000 + i);
            request.spec.has_draft_temperature = request.spec.has_draft_top_p =
                request.spec.has_draft_top_k = i > 0;
            request.spec.draft_temperature = drafts[i].temperature;
            request.spec.draft_top_p = drafts[i].top_p;
            request.spec.draft_top_k = drafts[i].top_k;
            snprintf(what, sizeof what, "%s, %s", k_rules[rule], drafts[i].what);
            require_iid(request, what);
        }
    cluster_stop(&g_cluster);
}
END_TEST

static double accepted_per_round(struct ft_wire_generate request) {
    request.params.seed = 3;
    run_ok(&request, &g_gen);
    double mean = (double)g_gen.spec.num_accepted_tokens / (double)g_gen.spec.num_drafts;
    gen_fini(&g_gen);
    return mean;
}

START_TEST(rules_accept_as_theory_says) {
    start_pair("iid", "iid-draft", NULL);
    double standard = accepted_per_round(seeded("a", n_counted(), 4, "standard", 0));
    ck_assert_double_eq_tol(standard, 0.7145, slack(1.1));
    ck_assert_double_gt(accepted_per_round(seeded("a", n_counted(), 4, "block", 0)),
                        0.7145 - slack(1.1));
    /* The sum of min(q, p / l) is 0.09003 + 0.48946 + 0.18006 at l = 1/2. */
    struct ft_wire_generate request = seeded("a", n_counted(), 1, "lenient", 0);
    request.spec.has_lenience = true;
    request.spec.lenience = 0.5f;
    ck_assert_double_eq_tol(accepted_per_round(request), 0.75955, slack(0.43));
    request.spec.lenience = 1;
    ck_assert_double_eq_tol(accepted_per_round(request), 0.42479, slack(0.5));
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(synthetic_gives_the_length_that_was_asked_for) {
    static const float lengths[] = {1, 3, 4.2f, 5}, rates[] = {0.8f, 0.5f};
    start_pair("iid", "iid-draft", NULL);
    for (size_t i = 0; i < 4; i++) {
        struct ft_wire_generate request = seeded("a", n_counted(), 4, "synthetic", 0);
        request.params.temperature = i % 2 == 0 ? 0 : 1;
        request.spec.synthetic_acceptance_length = lengths[i];
        double length = 1 + accepted_per_round(request);
        ck_assert_double_eq_tol(length, (double)lengths[i], slack(1.7));
    }
    struct ft_wire_generate request = seeded("a", n_counted(), 3, "synthetic", 0);
    request.spec.has_synthetic_acceptance_length = false;
    request.spec.synthetic_acceptance_rates = rates;
    request.spec.n_synthetic_acceptance_rates = 2;
    ck_assert_double_eq_tol(accepted_per_round(request), 0.8 + 0.8 * 0.5 + 0.8 * 0.25, slack(1.2));
    cluster_stop(&g_cluster);
}
END_TEST

/* ---- choice, and what holds under every rule ------------------------------------------------- */

START_TEST(rule_is_the_parameters_or_the_requests) {
    static const char *const parameters[] = {
        "--rejection_sample_method=standard", "--rejection_sample_method=coupled",
        "--rejection_sample_method=block", "--rejection_sample_method=lenient",
        "--rejection_sample_method=synthetic"};
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("iid"),
        .draft_dir = ft_fixture_model("iid-draft"),
        .args = {[CLUSTER_COORDINATOR] = {"--allow_lossy=true", parameters[_i],
                                          "--synthetic_acceptance_rates=0.5,1"}},
    };
    cluster_start(&g_cluster, &opts);
    struct ft_wire_generate request = seeded("a", 200, 4, "", 3);
    run_ok(&request, &g_other);
    ck_assert_int_eq(g_other.spec.lossy, _i >= N_EXACT);
    request = seeded("a", 200, 4, k_rules[_i], 3); /* the same by request */
    request.spec.has_synthetic_acceptance_length = false;
    run_ok(&request, &g_gen);
    gen_require_same(&g_gen, &g_other, k_rules[_i]);
    gen_fini(&g_gen);
    request = seeded("a", 200, 4, "coupled", 3);
    run_ok(&request, &g_gen);
    ck_assert(!g_gen.spec.lossy);
    gen_fini(&g_gen);
    gen_fini(&g_other);
    cluster_stop(&g_cluster);
}
END_TEST

static void require_text(const struct ft_wire_generate *request, const char *text,
                         enum ft_wire_finish finish, const char *what) {
    run_ok(request, &g_gen);
    ck_assert_msg(ft_str_eq(ft_buf_str(&g_gen.text), ft_str_c(text)), "%s: '%.*s', not '%s'", what,
                  (int)g_gen.text.len, g_gen.text.ptr, text);
    ck_assert_int_eq(g_gen.finish, finish);
    gen_fini(&g_gen);
}

/* The text is forced, so that it is the same greedy and sampled, under every rule. */
static void check_stops(const char *rule, int k, float temperature) {
    struct ft_wire_generate request = seeded("a", 20, k, rule, 1);
    if (strcmp(rule, "synthetic") == 0) {
        static const float always[] = {1};
        request.spec.has_synthetic_acceptance_length = false;
        request.spec.synthetic_acceptance_rates = always;
        request.spec.n_synthetic_acceptance_rates = 1;
    }
    request.params.temperature = temperature;
    request.params.ignore_eos = false;
    require_text(&request, "b", FT_WIRE_FINISH_STOP, rule);
    request.params.ignore_eos = true;
    request.params.max_tokens = 6;
    require_text(&request, "bcdcd", FT_WIRE_FINISH_LENGTH, rule);
    int32_t stop = 'd';
    request.params.stop_token_ids = &stop;
    request.params.n_stop_token_ids = 1;
    require_text(&request, "bc", FT_WIRE_FINISH_STOP, rule);
    struct ft_str text = ft_str_c("cd");
    request.params.n_stop_token_ids = 0;
    request.params.stop = &text;
    request.params.n_stop = 1;
    require_text(&request, "b", FT_WIRE_FINISH_STOP, rule);
}

START_TEST(stops_and_lengths_hold_under_every_rule) {
    start_pair("eosmid", "eosmid", NULL);
    for (int rule = 0; rule < N_RULES; rule++)
        for (int k = 0; k <= 8; k += 4) {
            check_stops(k_rules[rule], k, 0);
            check_stops(k_rules[rule], k, 1);
        }
    cluster_stop(&g_cluster);
}
END_TEST

static void require_only(const struct ft_wire_generate *request, int32_t first, int32_t last) {
    run_ok(request, &g_gen);
    for (size_t i = 0; i < g_gen.n_ids; i++)
        ck_assert(g_gen.ids[i] >= first && g_gen.ids[i] <= last);
    gen_fini(&g_gen);
}

static void check_masks(const char *rule, int k, float temperature) {
    static const int32_t allowed[] = {'d', 'c', 257, 'c'}, banned[] = {'b', 'c'};
    struct ft_wire_generate request = seeded("a", 40, k, rule, 1);
    if (strcmp(rule, "synthetic") == 0 && k == 0) {
        request.spec.has_synthetic_acceptance_length = true;
        request.spec.synthetic_acceptance_length = 1;
    }
    request.params.temperature = temperature;
    request.params.banned_token_ids = banned;
    request.params.n_banned_token_ids = 2;
    require_only(&request, 'd', 'd');
    request.params.n_banned_token_ids = 1;
    request.params.allowed_token_ids = allowed;
    request.params.n_allowed_token_ids = 4;
    require_only(&request, 'c', 'd');
    /* Only EOS is allowed, and it is not before min_tokens: there is nothing to say. */
    request.params.allowed_token_ids = allowed + 2;
    request.params.n_allowed_token_ids = 1;
    request.params.ignore_eos = false;
    request.params.min_tokens = 1;
    gen_run(&g_cluster, &request, &g_gen);
    ck_assert_int_eq(g_gen.status.code, 3);
    ck_assert_ptr_nonnull(strstr(g_gen.status.text, "every token is banned"));
    gen_fini(&g_gen);
    request.params.min_tokens = 0;
    require_text(&request, "", FT_WIRE_FINISH_STOP, rule);
}

START_TEST(masks_and_min_tokens_hold_under_every_rule) {
    start_pair("iid", "iid-draft", NULL);
    for (int rule = 0; rule < N_RULES; rule++)
        for (int k = 0; k <= 4; k += 2) {
            check_masks(k_rules[rule], k, 0);
            check_masks(k_rules[rule], k, 1);
        }
    cluster_stop(&g_cluster);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("e2e_rules");
    TCase *tc = tcase_create("rules");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, coupled_text_does_not_depend_on_speculation_or_company);
    tcase_add_test(tc, coupled_text_outlives_either_worker);
    tcase_add_test(tc, coupled_text_outlives_preemption);
    tcase_add_test(tc, exact_rules_keep_the_distribution);
    tcase_add_test(tc, rules_accept_as_theory_says);
    tcase_add_test(tc, synthetic_gives_the_length_that_was_asked_for);
    tcase_add_loop_test(tc, rule_is_the_parameters_or_the_requests, 0, N_RULES);
    tcase_add_test(tc, stops_and_lengths_hold_under_every_rule);
    tcase_add_test(tc, masks_and_min_tokens_hold_under_every_rule);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
