/* foretokenctl trace on the real processes: a file that a viewer accepts, in which every token that
 * was generated lies in a round. */
#include <check.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/file.h"
#include "support/cluster.h"
#include "support/fixtures.h"
#include "support/suite.h"
#include "support/trace_events.h"

static struct cluster g_cluster;
static struct gen g_gens[4];

static void start(const char *draft) {
    struct cluster_opts opts = {.target_dir = ft_fixture_model("r7"),
                                .draft_dir = draft != NULL ? ft_fixture_model(draft) : NULL};
    cluster_start(&g_cluster, &opts);
}

/* foretokenctl trace; the file it wrote, parsed and checked. */
static json_t *trace(const char *flag) {
    char command[700], path[160];
    struct ft_buf text;
    struct ft_err err = {0};
    snprintf(path, sizeof path, "%s/trace.json", g_cluster.dir);
    snprintf(command, sizeof command, "%s --endpoint=%s trace %s %s", FT_TEST_CTL,
             g_cluster.endpoint, flag, path);
    int status = system(command);
    ck_assert_msg(status == 0, "%s: %d", command, status);
    ft_buf_init(&text, 0);
    ck_assert_int_eq(ft_file_read(path, 64 << 20, &text, &err), FT_OK);
    json_t *loaded = trace_events_load(ft_buf_str(&text));
    ft_buf_fini(&text);
    unlink(path);
    return loaded;
}

START_TEST(every_token_lies_in_a_round) {
    struct gen *gens[4];
    size_t n_tokens = 0;
    start("r7n");
    struct ft_wire_generate request = gen_text("abcabcabcdabcabd", 60, 4);
    request.params.ignore_eos = true;
    for (int i = 0; i < 4; i++) {
        gens[i] = &g_gens[i];
        gen_start(&g_cluster, &request, gens[i]);
    }
    gen_wait(&g_cluster, gens, 4);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(gens[i]->status.code, 0);
        n_tokens += gens[i]->n_ids;
    }
    json_t *all = trace("");
    int n_rounds = trace_events_count(all, "round");
    ck_assert_int_ge(n_rounds, 12);
    ck_assert_int_eq((int)trace_events_sum(all, "round", "committed"), (int)n_tokens);
    ck_assert_int_eq((int)trace_events_sum(all, "accept", "committed"), (int)n_tokens);
    ck_assert_int_gt((int)trace_events_sum(all, "round", "drafted"), 0);
    ck_assert_int_gt(trace_events_count(all, "draft"), 0);
    ck_assert_int_gt(trace_events_count(all, "prefill"), 0);
    ck_assert_int_eq(trace_events_count(all, "write"), n_rounds);
    json_decref(all);
    json_t *two = trace("--rounds 2");
    ck_assert_int_eq(trace_events_count(two, "round"), 2);
    json_decref(two);
    for (int i = 0; i < 4; i++)
        gen_fini(gens[i]);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(plain_service_has_no_draft_spans) {
    start(NULL);
    json_t *none = trace("");
    ck_assert_int_eq(trace_events_count(none, ""), 0);
    json_decref(none);
    struct ft_wire_generate request = gen_text("abcabc", 10, 0);
    request.params.ignore_eos = true;
    gen_run(&g_cluster, &request, &g_gens[0]);
    json_t *all = trace("");
    ck_assert_int_eq((int)trace_events_sum(all, "round", "committed"), 10);
    ck_assert_int_eq(trace_events_count(all, "draft"), 0);
    ck_assert_int_eq(trace_events_count(all, "plain step"), 9);
    json_decref(all);
    gen_fini(&g_gens[0]);
    cluster_stop(&g_cluster);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("e2e_trace");
    TCase *tc = tcase_create("trace");
    tcase_set_timeout(tc, 280);
    tcase_add_test(tc, every_token_lies_in_a_round);
    tcase_add_test(tc, plain_service_has_no_draft_spans);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
