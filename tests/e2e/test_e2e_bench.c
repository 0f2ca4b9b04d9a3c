/* foretokenctl bench on the real processes: every row measured, and requests in the shape of vLLM's
 * benchmark results, whose times add up. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "support/cluster.h"
#include "support/fixtures.h"
#include "support/suite.h"

static struct cluster g_cluster;

static double number(const json_t *of, const char *key) {
    const json_t *value = json_object_get(of, key);
    ck_assert_msg(json_is_number(value), "%s is no number", key);
    return json_number_value(value);
}

/* The report; what was said meanwhile goes to standard error, or to the end of *said. */
static json_t *bench(const char *flags, struct ft_buf *said) {
    char command[900], path[160], log[160];
    struct ft_buf text;
    struct ft_err err = {0};
    json_error_t error;
    snprintf(path, sizeof path, "%s/bench.json", g_cluster.dir);
    snprintf(log, sizeof log, "%s/bench.log", g_cluster.dir);
    snprintf(command, sizeof command, "%s --endpoint=%s bench --json %s >%s %s%s", FT_TEST_CTL,
             g_cluster.endpoint, flags, path, said != NULL ? "2>" : "", said != NULL ? log : "");
    int status = system(command);
    ck_assert_msg(status == 0, "%s: %d", command, status);
    ft_buf_init(&text, 0);
    ck_assert_int_eq(ft_file_read(path, 64 << 20, &text, &err), FT_OK);
    json_t *loaded =
        json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    ck_assert_msg(loaded != NULL, "line %d: %s", error.line, error.text);
    ft_buf_fini(&text);
    unlink(path);
    if (said != NULL)
        ck_assert_int_eq(ft_file_read(log, 1 << 20, said, &err), FT_OK);
    return loaded;
}

static void check_request(const json_t *request) {
    double first = number(request, "ttft"), latency = number(request, "latency"), sum = 0;
    double tokens = number(request, "output_tokens");
    const json_t *itl = json_object_get(request, "itl"), *value;
    size_t i;
    ck_assert(json_is_true(json_object_get(request, "success")));
    ck_assert_str_eq(json_string_value(json_object_get(request, "error")), "");
    ck_assert(json_is_string(json_object_get(request, "generated_text")));
    ck_assert(number(request, "start_time") > 0 && number(request, "prompt_len") > 0);
    ck_assert(json_is_array(itl));
    json_array_foreach(itl, i, value) sum += json_number_value(value);
    ck_assert(fabs(first + sum - latency) < 1e-4);
    ck_assert(fabs((latency - first) / (tokens - 1) - number(request, "tpot")) < 1e-5);
    ck_assert_double_eq(tokens, 12);
}

/* Without a terminal each sample has its line, counted up to all of them. */
static void check_lines(struct ft_buf *said, int n_samples) {
    char *rest = NULL;
    int n = 0, at, all, clients, prompt;
    double speed;
    ft_buf_add(said, "", 1);
    for (char *line = strtok_r(said->ptr, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        ck_assert_msg(sscanf(line, "%d/%d %*[^,], clients %d, prompt %d: %lf tokens/s", &at, &all,
                             &clients, &prompt, &speed) == 5,
                      "%s", line);
        ck_assert_msg(at == ++n && all == n_samples && speed > 0, "%s", line);
        ck_assert_msg(prompt >= 1 && prompt <= 4 && clients >= 1 && clients <= 2, "%s", line);
    }
    ck_assert_int_eq(n, n_samples);
}

START_TEST(every_row_is_measured) {
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("r7"),
        .draft_dir = ft_fixture_model("r7n"),
        .args = {[CLUSTER_COORDINATOR] = {"--num_speculative_tokens=auto"}}};
    cluster_start(&g_cluster, &opts);
    const char *dir = ft_fixture_temp_dir();
    char flags[600];
    ft_fixture_write_text(dir, "prompts", "abcabcabcd\nbbcd\nabab\\nabab\ndcba\n");
    snprintf(flags, sizeof flags,
             "--prompt-file %s/prompts --max-tokens 12 --repeats 2 --bench-k 1,3 --clients 1,2 "
             "--bench-drafter ngram --bench-drafter chain --html %s/page.html",
             dir, dir);
    struct ft_buf said;
    ft_buf_init(&said, 0);
    json_t *all = bench(flags, &said);
    const json_t *rows = json_object_get(all, "rows"), *row;
    const json_t *requests = json_object_get(all, "requests"), *request;
    size_t i, n_expected = 0;
    ck_assert_uint_eq(json_array_size(rows), 12);
    json_array_foreach(rows, i, row) {
        const char *name = json_string_value(json_object_get(row, "row"));
        ck_assert_msg(number(row, "output_throughput") > 0, "%s", name);
        ck_assert(number(row, "speedup_low") <= number(row, "speedup"));
        ck_assert(number(row, "p99_ttft_ms") >= number(row, "median_ttft_ms"));
        ck_assert(number(row, "p99_itl_ms") >= number(row, "p90_itl_ms"));
        if (name[0] == 'K')
            ck_assert_msg(number(row, "num_drafts") > 0 && number(row, "alpha") >= 0, "%s", name);
        if (strcmp(name, "off") == 0)
            ck_assert_double_eq(number(row, "num_drafts"), 0);
        /* Four prompts, twice, whether one at a time or two. */
        ck_assert_double_eq(number(row, "output_tokens"), 8 * 11);
        n_expected += 8;
    }
    ck_assert_uint_eq(json_array_size(requests), n_expected);
    json_array_foreach(requests, i, request) check_request(request);
    json_decref(all);
    check_lines(&said, 2 * (6 * 4 + 6 * 2));
    ft_buf_fini(&said);
    snprintf(flags, sizeof flags, "%s/page.html", dir);
    ck_assert_int_eq(access(flags, R_OK), 0);
    ft_fixture_remove_dir(dir);
    cluster_stop(&g_cluster);
}
END_TEST

/* A cost measurement with acceptance that was asked for: the rows say that they are lossy. */
START_TEST(synthetic_acceptance_is_flagged) {
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("r7"),
        .draft_dir = ft_fixture_model("r7n"),
        .args = {[CLUSTER_COORDINATOR] = {"--allow_lossy=true"}},
    };
    cluster_start(&g_cluster, &opts);
    json_t *all =
        bench("--max-tokens 60 --repeats 2 --bench-k 4 --rejection-sample-method synthetic "
              "--synthetic-acceptance-rates 0.5",
              NULL);
    const json_t *row = json_array_get(json_object_get(all, "rows"), 1);
    ck_assert(json_is_true(json_object_get(row, "lossy")));
    /* 16 requests of 60 tokens: some 500 drafts that are decided. */
    ck_assert_msg(fabs(number(row, "alpha") - 0.5) < 0.12, "alpha %.3f", number(row, "alpha"));
    json_decref(all);
    cluster_stop(&g_cluster);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("e2e_bench");
    TCase *tc = tcase_create("bench");
    tcase_set_timeout(tc, 280);
    tcase_add_test(tc, every_row_is_measured);
    tcase_add_test(tc, synthetic_acceptance_is_flagged);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
