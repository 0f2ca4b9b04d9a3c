/* Measured acceptance of the real pairs against the reference: alpha = E[sum min(p, q)] over
 * positions that the target generated, here as the share of accepted drafts.
 * Rounds of a running stream would test hard positions more often than easy ones (an accepted
 * draft skips the position of its bonus token), so every tested position gets a request of its
 * own: the prompt and the first j tokens of the target's own text, one draft, one verification.
 * Greedy text repeats itself more the longer it gets, and so alpha depends on its length: prompts
 * and lengths are those of the reference. bench/bench_alpha computes the same without sampling. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "support/cluster.h"
#include "support/fixtures.h"
#include "support/suite.h"

enum { PROMPTS = 96, PROMPT_LEN = 32, LEN = 192, TESTS = 48, TOGETHER = 32 };

static struct cluster g_cluster;
static struct gen g_gens[TOGETHER];
static int32_t g_text[PROMPTS][PROMPT_LEN + LEN];
static double g_accepted[PROMPTS], g_drafted[PROMPTS];

static struct ft_wire_generate request_of(const int32_t *ids, size_t n, float temperature) {
    struct ft_wire_generate request = gen_request();
    request.input = (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_IDS, .ids = ids, .n_ids = n};
    request.stream = false;
    request.params.temperature = temperature;
    request.params.ignore_eos = true;
    request.params.has_seed = true;
    request.params.has_max_tokens = true;
    return request;
}

static void load_prompts(const char *key) {
    json_t *root = ft_fixture_json(ft_fixture_source("tests/data"), "alpha-prompts.json");
    json_t *rows = json_object_get(root, key), *row, *id;
    size_t i, j;
    ck_assert_uint_eq(json_array_size(rows), PROMPTS);
    json_array_foreach(rows, i, row) {
        ck_assert_uint_eq(json_array_size(row), PROMPT_LEN);
        json_array_foreach(row, j, id) g_text[i][j] = (int32_t)json_integer_value(id);
    }
    json_decref(root);
}

/* Run requests first .. first + n - 1 of something together. */
static void run_all(const struct ft_wire_generate *requests, int n) {
    struct gen *all[TOGETHER];
    for (int i = 0; i < n; i++) {
        all[i] = &g_gens[i];
        gen_start(&g_cluster, &requests[i], all[i]);
    }
    gen_wait(&g_cluster, all, (size_t)n);
    for (int i = 0; i < n; i++)
        ck_assert_msg(all[i]->status.code == 0, "%s", all[i]->status.text);
}

/* The target's own continuation of every prompt, decoded plainly. */
static void generate_texts(float temperature) {
    struct ft_wire_generate requests[TOGETHER];
    for (int first = 0; first < PROMPTS; first += TOGETHER) {
        for (int i = 0; i < TOGETHER; i++) {
            requests[i] = request_of(g_text[first + i], PROMPT_LEN, temperature);
            requests[i].params.max_tokens = LEN;
            requests[i].params.seed = 1000 + (uint64_t)(first + i);
            requests[i].num_speculative_tokens = 0;
        }
        run_all(requests, TOGETHER);
        for (int i = 0; i < TOGETHER; i++) {
            ck_assert_uint_eq(g_gens[i].n_ids, LEN);
            memcpy(g_text[first + i] + PROMPT_LEN, g_gens[i].ids, LEN * sizeof(int32_t));
            gen_fini(&g_gens[i]);
        }
    }
}

static void test_positions(float temperature) {
    struct ft_wire_generate requests[TOGETHER];
    memset(g_accepted, 0, sizeof g_accepted);
    memset(g_drafted, 0, sizeof g_drafted);
    uint32_t state = 4242;
    for (int test = 0; test < TESTS; test++) {
        for (int first = 0; first < PROMPTS; first += TOGETHER) {
            for (int i = 0; i < TOGETHER; i++) {
                state = state * 1664525u + 1013904223u;
                size_t j = (state >> 8) % LEN;
                requests[i] = request_of(g_text[first + i], PROMPT_LEN + j, temperature);
                /* One token by prefill, then one round with one draft. */
                requests[i].params.max_tokens = 3;
                requests[i].params.seed = 77777 + state;
                requests[i].num_speculative_tokens = 1;
            }
            run_all(requests, TOGETHER);
            for (int i = 0; i < TOGETHER; i++) {
                /* A draft that was still catching up with its prompts had no turn. */
                g_accepted[first + i] += (double)g_gens[i].spec.num_accepted_tokens;
                g_drafted[first + i] += (double)g_gens[i].spec.num_draft_tokens;
                gen_fini(&g_gens[i]);
            }
        }
    }
}

static void require_alpha(const char *pair, const char *domain, int temperature) {
    char key[64];
    snprintf(key, sizeof key, "%s %s", pair, domain);
    load_prompts(key);
    generate_texts((float)temperature);
    test_positions((float)temperature);
    double mean = 0, variance = 0;
    for (int i = 0; i < PROMPTS; i++) {
        ck_assert(g_drafted[i] > 0);
        g_accepted[i] /= g_drafted[i];
    }
    for (int i = 0; i < PROMPTS; i++)
        mean += g_accepted[i] / PROMPTS;
    for (int i = 0; i < PROMPTS; i++)
        variance += (g_accepted[i] - mean) * (g_accepted[i] - mean) / (PROMPTS - 1);
    snprintf(key, sizeof key, "%s-reference.json", pair);
    json_t *root = ft_fixture_json(ft_fixture_source("tests/data"), key);
    snprintf(key, sizeof key, "%s T=%d", domain, temperature);
    json_t *row = json_object_get(json_object_get(root, "alpha"), key);
    double alpha = json_number_value(json_object_get(row, "alpha"));
    double sem = json_number_value(json_object_get(row, "sem"));
    double error = sqrt(variance / PROMPTS + sem * sem);
    printf("alpha %s %s: %.4f, reference %.4f, difference %.1f standard errors of %.4f\n", pair,
           key, mean, alpha, (mean - alpha) / error, error);
    fflush(stdout);
    ck_assert(alpha > 0.3 && sem > 0);
    ck_assert_msg(fabs(mean - alpha) <= 3 * error, "alpha is %.4f, the reference %.4f +- %.4f",
                  mean, alpha, error);
    json_decref(root);
}

static bool start(const char *pair) {
    char target[64], draft[64];
    struct cluster_opts opts = {0};
    if (strcmp(pair, "demo") == 0) {
        opts.target_dir = ft_fixture_source("models/demo-target");
        opts.draft_dir = ft_fixture_source("models/demo-draft");
    } else {
        snprintf(target, sizeof target, "%s-target", pair);
        snprintf(draft, sizeof draft, "%s-draft", pair);
        opts.target_dir = ft_fixture_bench_model(target);
        opts.draft_dir = ft_fixture_bench_model(draft);
        if (opts.target_dir == NULL)
            return false; /* the fixture said so */
    }
    cluster_start(&g_cluster, &opts);
    return true;
}

START_TEST(demo_pair_accepts_as_the_reference_says) {
    ck_assert(start("demo"));
    require_alpha("demo", "stories", _i);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(bench_pair_accepts_stories_as_the_reference_says) {
    if (!start("bench"))
        return;
    require_alpha("bench", "stories", _i);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(bench_pair_accepts_code_as_the_reference_says) {
    if (!start("bench"))
        return;
    require_alpha("bench", "code", _i);
    cluster_stop(&g_cluster);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("e2e_alpha");
    TCase *tc = tcase_create("alpha");
    tcase_set_timeout(tc, 3500);
    tcase_add_loop_test(tc, demo_pair_accepts_as_the_reference_says, 0, 2);
    tcase_add_loop_test(tc, bench_pair_accepts_stories_as_the_reference_says, 0, 2);
    tcase_add_loop_test(tc, bench_pair_accepts_code_as_the_reference_says, 0, 2);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
