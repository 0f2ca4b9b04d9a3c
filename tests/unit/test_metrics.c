/* The text that Prometheus scrapes, and whether the dashboard and the alert rules of deploy/ ask
 * for what is in it. */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/metrics.h"
#include "support/fixtures.h"
#include "support/promtext.h"
#include "support/suite.h"

static struct co_app g_app;
static struct prom g_prom;

static void render(void) {
    struct ft_wire_worker_stats target = {
        .kv_blocks_total = 100, .kv_blocks_free = 40, .kv_blocks_cached = 10, .sequences = 3};
    struct ft_wire_worker_stats draft = {0};
    struct ft_buf out;
    ft_buf_init(&out, 0);
    co_metrics_render(&g_app, &target, &draft, &out);
    ck_assert(!out.failed);
    prom_parse(&g_prom, out.ptr, out.len);
    ft_buf_fini(&out);
    ck_assert_msg(g_prom.problem[0] == 0, "%s", g_prom.problem);
}

START_TEST(dev66_metrics_before_the_first_request_are_well_formed_and_zero) {
    co_readiness_init(&g_app.readiness);
    render();
    ck_assert_double_eq(prom_value(&g_prom, "foretoken:generation_tokens_total", NULL), 0);
    ck_assert_double_eq(prom_value(&g_prom, "foretoken:ready", NULL), 0);
    ck_assert_double_eq(prom_value(&g_prom, "foretoken:draft_up", NULL), 0);
    ck_assert_double_eq(prom_value(&g_prom, "foretoken:state", "state=\"starting\""), 1);
    ck_assert_double_eq(prom_value(&g_prom, "foretoken:kv_cache_usage_perc", "model=\"target\""),
                        0.5);
    prom_fini(&g_prom);
}
END_TEST

START_TEST(names_are_those_that_users_know) {
    static const char *const names[] = {
        "foretoken:spec_decode_num_drafts_total",
        "foretoken:spec_decode_num_draft_tokens_total",
        "foretoken:spec_decode_num_accepted_tokens_total",
        "foretoken:spec_decode_num_accepted_tokens_per_pos_total",
        "foretoken:num_requests_running",
        "foretoken:num_requests_waiting",
        "foretoken:kv_cache_usage_perc",
        "foretoken:prefix_cache_queries_total",
        "foretoken:prefix_cache_hits_total",
        "foretoken:time_to_first_token_seconds_bucket",
        "foretoken:inter_token_latency_seconds_bucket",
        "foretoken:e2e_request_latency_seconds_bucket",
        "foretoken:draft_step_seconds_bucket",
        "foretoken:verify_step_seconds_bucket",
        "foretoken:build_info",
    };
    render();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        ck_assert_msg(prom_has(&g_prom, names[i]), "%s", names[i]);
    prom_fini(&g_prom);
}
END_TEST

START_TEST(histograms_hold_what_was_seen) {
    co_stats_saw(&g_app.stats, CO_HISTOGRAM_TTFT, 0.003, 1);
    co_stats_saw(&g_app.stats, CO_HISTOGRAM_TTFT, 500, 1);
    co_stats_verified(&g_app.stats.spec, 4, 3, 1);
    render();
    ck_assert_double_eq(
        prom_value(&g_prom, "foretoken:time_to_first_token_seconds_bucket", "le=\"0.002\""), 0);
    ck_assert_double_eq(
        prom_value(&g_prom, "foretoken:time_to_first_token_seconds_bucket", "le=\"0.005\""), 1);
    ck_assert_double_eq(
        prom_value(&g_prom, "foretoken:time_to_first_token_seconds_bucket", "le=\"120\""), 1);
    ck_assert_double_eq(prom_value(&g_prom, "foretoken:time_to_first_token_seconds_count", NULL),
                        2);
    ck_assert_double_eq(prom_value(&g_prom,
                                   "foretoken:spec_decode_num_accepted_tokens_per_pos_total",
                                   "position=\"2\""),
                        1);
    prom_fini(&g_prom);
}
END_TEST

START_TEST(label_of_a_strange_path_is_escaped) {
    snprintf(g_app.config.drafter, sizeof g_app.config.drafter, "a\"b\\c\nd");
    render();
    ck_assert(prom_has(&g_prom, "foretoken:build_info"));
    prom_fini(&g_prom);
}
END_TEST

START_TEST(parse_refuses_what_a_scraper_would_misread) {
    static const char *const bad[] = {
        "",
        "# HELP a b\n# TYPE a gauge\na 1", /* no line end */
        "a 1\n",
        "# HELP a b\n# TYPE a gauge\na 1\na 2\n",
        "# HELP a b\n# TYPE a counter\na 1\n",
        "# HELP a_total b\n# TYPE a_total counter\na_total -1\n",
        "# HELP a b\n# TYPE a gauge\na{x=y} 1\n",
        "# HELP a b\n# TYPE a gauge\na one\n",
        "# HELP a b\n# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_sum 1\n"
        "a_count 1\n",
        "# HELP a b\n# TYPE a histogram\na_bucket{le=\"1\"} 1\na_bucket{le=\"+Inf\"} 2\na_sum 1\n"
        "a_count 3\n",
        "# HELP a b\n# TYPE a histogram\na_bucket{le=\"1\"} 1\na_sum 1\na_count 1\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        prom_parse(&g_prom, bad[i], strlen(bad[i]));
        ck_assert_msg(g_prom.problem[0] != 0, "text %zu", i);
        prom_fini(&g_prom);
    }
}
END_TEST

/* ---- deploy/ --------------------------------------------------------------------------------- */

static void require_known(const char *expr, const char *where) {
    char missing[96];
    ck_assert_msg(prom_knows(&g_prom, expr, missing), "%s: %s in %s", where, missing, expr);
}

static int check_targets(const json_t *panels) {
    size_t i, j;
    json_t *panel, *target;
    int n = 0;
    json_array_foreach(panels, i, panel) {
        const char *title = json_string_value(json_object_get(panel, "title"));
        ck_assert_ptr_nonnull(title);
        json_array_foreach(json_object_get(panel, "targets"), j, target) {
            const char *expr = json_string_value(json_object_get(target, "expr"));
            ck_assert_msg(expr != NULL, "%s has a target without expr", title);
            require_known(expr, title);
            n++;
        }
        n += check_targets(json_object_get(panel, "panels"));
    }
    return n;
}

START_TEST(dashboard_asks_for_metrics_that_are_exported) {
    render();
    json_t *dashboard = ft_fixture_json(ft_fixture_source("deploy/grafana"), "foretoken.json");
    ck_assert_int_ge(check_targets(json_object_get(dashboard, "panels")), 20);
    ck_assert_ptr_nonnull(json_object_get(dashboard, "uid"));
    json_decref(dashboard);
    prom_fini(&g_prom);
}
END_TEST

START_TEST(alert_rules_ask_for_metrics_that_are_exported) {
    render();
    struct ft_buf rules =
        ft_fixture_read(ft_fixture_source("deploy/prometheus"), "foretoken.rules.yml");
    int n = 0, n_alerts = 0, n_texts = 0;
    char *rest = NULL;
    ft_buf_add(&rules, "", 1);
    for (char *line = strtok_r(rules.ptr, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        const char *expr = strstr(line, "expr: ");
        n_alerts += strstr(line, "- alert: ") != NULL;
        n_texts += strstr(line, "summary: ") != NULL;
        if (expr != NULL) {
            require_known(expr + 6, "rules");
            n++;
        }
    }
    ck_assert_int_ge(n, 8);
    ck_assert_int_eq(n, n_alerts);
    ck_assert_int_eq(n, n_texts);
    ft_buf_fini(&rules);
    prom_fini(&g_prom);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("metrics");
    TCase *tc = tcase_create("metrics");
    tcase_add_test(tc, dev66_metrics_before_the_first_request_are_well_formed_and_zero);
    tcase_add_test(tc, names_are_those_that_users_know);
    tcase_add_test(tc, histograms_hold_what_was_seen);
    tcase_add_test(tc, label_of_a_strange_path_is_escaped);
    tcase_add_test(tc, parse_refuses_what_a_scraper_would_misread);
    tcase_add_test(tc, dashboard_asks_for_metrics_that_are_exported);
    tcase_add_test(tc, alert_rules_ask_for_metrics_that_are_exported);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
