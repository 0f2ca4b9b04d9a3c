#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite.h"
#include "unit/model_run.h"

#define DATA FT_TEST_SOURCE_DIR "/tests/data/"
#define IDS_MAX 1024

static json_t *read_json(const char *path) {
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    ck_assert_msg(root != NULL, "%s: %s", path, error.text);
    return root;
}

static int32_t read_ids(const json_t *array, int32_t *out) {
    size_t n = json_array_size(array);
    ck_assert_uint_gt(n, 0);
    ck_assert_uint_le(n, IDS_MAX);
    for (size_t i = 0; i < n; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return (int32_t)n;
}

static void ids_equal(const int32_t *got, const int32_t *want, int32_t n, const char *what) {
    for (int32_t i = 0; i < n; i++)
        ck_assert_msg(got[i] == want[i], "%s: token %d is %d, the reference has %d", what, i,
                      got[i], want[i]);
}

static const char *const golden[] = {
    "llama-bias",        "llama-f16-sharded", "llama-gqa-tied-bf16", "llama-mqa-rope-llama3",
    "llama-rope-linear", "llama-untied-f32",  "mistral-untied",      "qwen2-tied",
    "qwen3-qknorm",
};
#define N_GOLDEN ((int)(sizeof golden / sizeof golden[0]))

static void check_golden_logits(struct run *run, const json_t *root, const char *what) {
    int32_t ids[IDS_MAX], n = read_ids(json_object_get(root, "ids"), ids);
    run_step(run, 0, 0, ids, n, n);
    const char *position;
    json_t *logits;
    size_t n_positions = 0;
    json_object_foreach(json_object_get(root, "logits"), position, logits) {
        const float *row = run_row(run, (int32_t)strtol(position, NULL, 10));
        ck_assert_uint_eq(json_array_size(logits), (size_t)run->vocab);
        for (int32_t i = 0; i < run->vocab; i++) {
            double want = json_number_value(json_array_get(logits, (size_t)i));
            ck_assert_msg(fabs(row[i] - want) < 2e-3, "%s: position %s, logit %d is %g, not %g",
                          what, position, i, (double)row[i], want);
        }
        n_positions++;
    }
    ck_assert_uint_ge(n_positions, 9);
}

static void check_golden(const char *name, const char *device) {
    char dir[512], path[600], what[128];
    snprintf(dir, sizeof dir, DATA "golden/%s", name);
    snprintf(path, sizeof path, "%s/reference.json", dir);
    snprintf(what, sizeof what, "%s on %s", name, device);
    json_t *root = read_json(path);
    struct run run;
    run_open(&run, &(struct run_opts){.dir = dir, .device = device, .n_threads = 2, .n_seqs = 1});
    check_golden_logits(&run, root, what);

    int32_t ids[IDS_MAX], want[IDS_MAX], got[IDS_MAX];
    read_ids(json_object_get(root, "ids"), ids);
    int32_t n = read_ids(json_object_get(root, "greedy_from_24"), want);
    run_greedy(&run, ids, 24, got, n);
    ids_equal(got, want, n, what);
    run_close(&run);
    json_decref(root);
}

START_TEST(forward_of_golden_model_matches_reference) {
    char device[RUN_DEVICE_MAX];
    for (size_t i = 0; run_device(i, device); i++)
        check_golden(golden[_i], device);
}
END_TEST

/* The reference's ten largest logits of the last prompt position, and its greedy continuation. */
static void check_prompt(struct run *run, const json_t *ref, const int32_t *prompt, int32_t n,
                         const char *what) {
    int32_t want[IDS_MAX], got[IDS_MAX];
    run_step(run, 0, 0, prompt, n, 1);
    size_t i;
    json_t *pair;
    json_array_foreach(json_object_get(ref, "last_logits_top10"), i, pair) {
        int32_t id = (int32_t)json_integer_value(json_array_get(pair, 0));
        double logit = json_number_value(json_array_get(pair, 1));
        ck_assert_msg(fabs(run_row(run, 0)[id] - logit) < 2e-3, "%s: logit of %d is %g, not %g",
                      what, id, (double)run_row(run, 0)[id], logit);
    }
    ck_assert_uint_eq(i, 10);
    int32_t n_want = read_ids(json_object_get(ref, "greedy_ids"), want);
    run_greedy(run, prompt, n, got, n_want);
    /* Where the reference's two best logits nearly tie, another order of summation may rightly
     * choose the other; the reference says how near they came. */
    if (json_number_value(json_object_get(ref, "min_margin")) > 0.005)
        ids_equal(got, want, n_want, what);
}

/* All prompts of one side of a pair; returns how many continuations could be compared. */
static int check_side(const char *reference, const char *dir, const char *side,
                      const char *device) {
    char what[96];
    json_t *root = read_json(reference), *prompt;
    struct run run;
    run_open(&run, &(struct run_opts){.dir = dir, .device = device, .n_threads = 2, .n_seqs = 1});
    size_t i;
    int n_compared = 0;
    json_array_foreach(json_object_get(root, "prompts"), i, prompt) {
        int32_t ids[IDS_MAX], n = read_ids(json_object_get(prompt, "prompt_ids"), ids);
        const json_t *ref = json_object_get(prompt, side);
        snprintf(what, sizeof what, "%s on %s, prompt %zu", side, device, i);
        check_prompt(&run, ref, ids, n, what);
        n_compared += json_number_value(json_object_get(ref, "min_margin")) > 0.005;
    }
    run_close(&run);
    json_decref(root);
    return n_compared;
}

static const char *const sides[] = {"draft", "target"};

START_TEST(greedy_of_demo_pair_matches_reference) {
    char dir[512];
    snprintf(dir, sizeof dir, FT_TEST_SOURCE_DIR "/models/demo-%s", sides[_i]);
    char device[RUN_DEVICE_MAX];
    for (size_t i = 0; run_device_kind(i, device); i++)
        ck_assert_int_ge(check_side(DATA "demo-reference.json", dir, sides[_i], device), 3);
}
END_TEST

START_TEST(greedy_of_bench_pair_matches_reference) {
    const char *models = getenv("FORETOKEN_BENCH_MODELS");
    char dir[512];
    snprintf(dir, sizeof dir, "%s/bench-%s", models, sides[_i]);
    char device[RUN_DEVICE_MAX];
    for (size_t i = 0; run_device_kind(i, device); i++)
        ck_assert_int_ge(check_side(DATA "bench-reference.json", dir, sides[_i], device), 8);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("model_golden");
    TCase *tcase = tcase_create("reference");
    tcase_add_loop_test(tcase, forward_of_golden_model_matches_reference, 0, N_GOLDEN);
    tcase_add_loop_test(tcase, greedy_of_demo_pair_matches_reference, 0, 2);
    if (getenv("FORETOKEN_BENCH_MODELS") != NULL)
        tcase_add_loop_test(tcase, greedy_of_bench_pair_matches_reference, 0, 2);
    else
        puts("skipped: the bench pair (FORETOKEN_BENCH_MODELS is not set)");
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
