/* Faults: a worker that dies or hangs costs speed, never a request; what a client abandons is
 * freed; processes end when asked. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "common/base/clock.h"
#include "support/cluster.h"
#include "support/fixtures.h"
#include "support/suite.h"

enum { STREAMS = 8, N = 400 };

static struct cluster g_cluster;
static struct gen g_gen, g_plain[STREAMS], g_gens[STREAMS];

static struct ft_wire_generate request_of(int i, int k) {
    static char prompts[STREAMS][32];
    snprintf(prompts[i], sizeof prompts[i], "stream %d", i);
    struct ft_wire_generate request = gen_text(prompts[i], N, k);
    request.params.ignore_eos = true;
    return request;
}

/* Eight streams, their plain text known. */
static void start_streams(const struct cluster_opts *opts) {
    cluster_start(&g_cluster, opts);
    for (int i = 0; i < STREAMS; i++) {
        struct ft_wire_generate request = request_of(i, 0);
        gen_run(&g_cluster, &request, &g_plain[i]);
        ck_assert_msg(g_plain[i].status.code == 0, "%s", g_plain[i].status.text);
    }
    for (int i = 0; i < STREAMS; i++) {
        struct ft_wire_generate request = request_of(i, 4);
        gen_start(&g_cluster, &request, &g_gens[i]);
    }
}

/* Run until every stream has at least n tokens. */
static void run_until(size_t n) {
    int64_t deadline_ns = ft_clock_now_ns() + 60000000000;
    for (int i = 0; i < STREAMS; i++)
        while (!g_gens[i].done && g_gens[i].n_ids < n) {
            ck_assert(ft_clock_now_ns() < deadline_ns);
            ft_rpc_loop_step(g_cluster.loop, deadline_ns);
        }
}

static void require_streams(void) {
    struct gen *all[STREAMS];
    for (int i = 0; i < STREAMS; i++)
        all[i] = &g_gens[i];
    gen_wait(&g_cluster, all, STREAMS);
    for (int i = 0; i < STREAMS; i++) {
        ck_assert_msg(all[i]->status.code == 0, "stream %d: %s", i, all[i]->status.text);
        ck_assert_uint_eq(all[i]->n_ids, N);
        ck_assert_mem_eq(all[i]->ids, g_plain[i].ids, N * sizeof(int32_t));
        ck_assert(ft_str_eq(ft_buf_str(&all[i]->text), ft_buf_str(&g_plain[i].text)));
        gen_fini(all[i]);
        gen_fini(&g_plain[i]);
    }
}

static struct cluster_opts pair(void) {
    return (struct cluster_opts){
        .target_dir = ft_fixture_model("r7"),
        .draft_dir = ft_fixture_model("r7n"),
        .args = {[CLUSTER_COORDINATOR] = {"--draft_step_timeout_ms=300",
                                          "--target_step_timeout_ms=2000"}},
    };
}

/* For deaths, which the end of a connection tells: a machine that stalls is no hang. */
static struct cluster_opts patient_pair(void) {
    struct cluster_opts opts = pair();
    opts.args[CLUSTER_COORDINATOR][0] = "--draft_step_timeout_ms=20000";
    opts.args[CLUSTER_COORDINATOR][1] = "--target_step_timeout_ms=20000";
    return opts;
}

/* Poll statistics until the draft worker's state is up; fails the test after 20 s. */
static void wait_draft(bool up) {
    int64_t deadline_ns = ft_clock_now_ns() + 20000000000;
    while (cluster_stats(&g_cluster).draft.up != up)
        ck_assert(ft_clock_now_ns() < deadline_ns);
}

START_TEST(dev14_dev63_draft_killed_costs_no_request_and_is_used_again) {
    struct cluster_opts opts = patient_pair();
    start_streams(&opts);
    run_until(20);
    cluster_signal(&g_cluster, CLUSTER_DRAFT, SIGKILL);
    run_until(60);
    ck_assert_int_eq(cluster_spawn(&g_cluster, CLUSTER_DRAFT), 0);
    require_streams();
    wait_draft(true);
    struct ft_wire_generate request = request_of(0, 4);
    gen_run(&g_cluster, &request, &g_gen);
    ck_assert_uint_gt(g_gen.spec.num_accepted_tokens, 0);
    gen_fini(&g_gen);
    ck_assert_uint_eq(cluster_stats(&g_cluster).draft.restarts, 1);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev63_draft_killed_again_and_again_is_always_used_again) {
    struct cluster_opts opts = pair();
    cluster_start(&g_cluster, &opts);
    for (int i = 0; i < 15; i++) {
        struct ft_wire_generate request = request_of(0, 4);
        request.params.temperature = (float)(i % 3); /* sampled drafts need q rows, greedy do not */
        gen_start(&g_cluster, &request, &g_gens[0]);
        while (g_gens[0].n_ids < 10)
            ft_rpc_loop_step(g_cluster.loop, INT64_MAX);
        cluster_signal(&g_cluster, CLUSTER_DRAFT, SIGKILL);
        ck_assert_int_eq(cluster_spawn(&g_cluster, CLUSTER_DRAFT), 0);
        struct gen *gen = &g_gens[0];
        gen_wait(&g_cluster, &gen, 1);
        ck_assert_int_eq(gen->status.code, 0);
        ck_assert_uint_eq(gen->n_ids, N);
        gen_fini(gen);
        wait_draft(true);
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev14_draft_that_hangs_costs_no_request) {
    struct cluster_opts opts = pair();
    start_streams(&opts);
    run_until(20);
    cluster_signal(&g_cluster, CLUSTER_DRAFT, SIGSTOP);
    require_streams();
    ck_assert(!cluster_stats(&g_cluster).draft.up);
    cluster_signal(&g_cluster, CLUSTER_DRAFT, SIGCONT);
    wait_draft(true);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev14_target_killed_is_prefilled_again_and_streams_go_on) {
    struct cluster_opts opts = patient_pair();
    start_streams(&opts);
    run_until(30);
    cluster_signal(&g_cluster, CLUSTER_TARGET, SIGKILL);
    ck_assert_int_eq(cluster_spawn(&g_cluster, CLUSTER_TARGET), 0);
    require_streams();
    struct ft_wire_stats stats = cluster_stats(&g_cluster);
    ck_assert(stats.target.up);
    ck_assert_uint_eq(stats.target.restarts, 1);
    ck_assert_uint_eq(stats.target.sequences, 0);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev14_target_gone_for_good_ends_streams_unavailable) {
    struct cluster_opts opts = pair();
    opts.args[CLUSTER_COORDINATOR][2] = "--target_recovery_timeout_ms=500";
    start_streams(&opts);
    run_until(10);
    cluster_signal(&g_cluster, CLUSTER_TARGET, SIGKILL);
    struct gen *all[STREAMS];
    int64_t begin_ns = ft_clock_now_ns();
    for (int i = 0; i < STREAMS; i++)
        all[i] = &g_gens[i];
    gen_wait(&g_cluster, all, STREAMS);
    ck_assert_int_lt((int)((ft_clock_now_ns() - begin_ns) / 1000000), 5000);
    for (int i = 0; i < STREAMS; i++) {
        ck_assert_int_eq(all[i]->status.code, 14);
        gen_fini(all[i]);
        gen_fini(&g_plain[i]);
    }
    ck_assert_int_eq(cluster_spawn(&g_cluster, CLUSTER_TARGET), 0);
    struct ft_wire_generate request = request_of(0, 4);
    int64_t deadline_ns = ft_clock_now_ns() + 30000000000;
    do {
        ck_assert(ft_clock_now_ns() < deadline_ns);
        gen_run(&g_cluster, &request, &g_gen);
        gen_fini(&g_gen);
    } while (g_gen.status.code != 0);
    cluster_stop(&g_cluster);
}
END_TEST

/* A model of the same shapes with other numbers: no stream goes on with it. */
START_TEST(target_back_with_another_model_is_refused_and_the_right_one_taken) {
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("r7"),
        .args = {[CLUSTER_COORDINATOR] = {"--target_recovery_timeout_ms=2000"}},
    };
    cluster_start(&g_cluster, &opts);
    struct ft_wire_generate request = request_of(0, 0);
    gen_start(&g_cluster, &request, &g_gens[0]);
    while (!g_gens[0].done && g_gens[0].n_ids < 10)
        ft_rpc_loop_step(g_cluster.loop, ft_clock_now_ns() + 1000000000);
    cluster_signal(&g_cluster, CLUSTER_TARGET, SIGKILL);
    g_cluster.opts.target_dir = ft_fixture_model("r7n");
    ck_assert_int_eq(cluster_spawn(&g_cluster, CLUSTER_TARGET), 0);
    struct gen *all[1] = {&g_gens[0]};
    gen_wait(&g_cluster, all, 1);
    ck_assert_int_eq(g_gens[0].status.code, 14);
    gen_fini(&g_gens[0]);
    struct ft_buf log = ft_fixture_read(g_cluster.dir, "coordinator.log");
    ck_assert_ptr_nonnull(strstr(log.ptr, "weights_fingerprint is "));
    ft_buf_fini(&log);
    cluster_signal(&g_cluster, CLUSTER_TARGET, SIGTERM);
    g_cluster.opts.target_dir = ft_fixture_model("r7");
    ck_assert_int_eq(cluster_spawn(&g_cluster, CLUSTER_TARGET), 0);
    int64_t deadline_ns = ft_clock_now_ns() + 30000000000;
    do {
        ck_assert(ft_clock_now_ns() < deadline_ns);
        gen_run(&g_cluster, &request, &g_gen);
        gen_fini(&g_gen);
    } while (g_gen.status.code != 0);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev14_target_that_hangs_is_left_and_taken_back) {
    struct cluster_opts opts = pair();
    opts.args[CLUSTER_COORDINATOR][1] = "--target_step_timeout_ms=500";
    start_streams(&opts);
    run_until(20);
    cluster_signal(&g_cluster, CLUSTER_TARGET, SIGSTOP);
    int64_t until_ns = ft_clock_now_ns() + 1500000000;
    while (ft_clock_now_ns() < until_ns)
        ft_rpc_loop_step(g_cluster.loop, until_ns);
    cluster_signal(&g_cluster, CLUSTER_TARGET, SIGCONT);
    require_streams();
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev23_dev41_cancelled_requests_free_everything) {
    struct cluster_opts opts = pair();
    static struct gen gens[16];
    cluster_start(&g_cluster, &opts);
    for (int round = 0; round < 12; round++) {
        struct gen *all[16];
        for (int i = 0; i < 16; i++) {
            struct ft_wire_generate request = request_of(i % STREAMS, (i + round) % 9);
            request.params.max_tokens = 1 + (uint32_t)((i * 7 + round) % 60);
            all[i] = &gens[i];
            gens[i].cancel_after = i % 3 == 0 ? (size_t)(1 + i) : 0;
            gen_start(&g_cluster, &request, all[i]);
            if (i % 5 == 4) /* before anything came back */
                ft_rpc_stream_cancel(all[i]->stream);
        }
        gen_wait(&g_cluster, all, 16);
        for (int i = 0; i < 16; i++) {
            ck_assert(all[i]->status.code == 0 || all[i]->status.code == 1);
            gen_fini(all[i]);
        }
    }
    cluster_require_idle(&g_cluster);
    struct ft_wire_stats s = cluster_stats(&g_cluster);
    ck_assert_uint_ge(s.num_requests_cancelled, 30);
    ck_assert_uint_eq(s.num_requests_failed, 0);
    cluster_stop(&g_cluster);
}
END_TEST

/* The only request of a round ends while the draft computes: whoever came meanwhile is next. */
START_TEST(dev23_request_behind_a_cancelled_one_is_served) {
    struct cluster_opts opts = pair();
    cluster_start(&g_cluster, &opts);
    for (int i = 0; i < 300; i++) {
        struct ft_wire_generate first = request_of(0, 8), second = request_of(1, 8);
        second.params.max_tokens = 4;
        gen_start(&g_cluster, &first, &g_gens[0]);
        while (g_gens[0].n_ids < 1 + (size_t)(i % 7))
            ft_rpc_loop_step(g_cluster.loop, INT64_MAX);
        ft_rpc_stream_cancel(g_gens[0].stream);
        gen_start(&g_cluster, &second, &g_gens[1]);
        struct gen *both[] = {&g_gens[0], &g_gens[1]};
        gen_wait(&g_cluster, both, 2);
        ck_assert_uint_eq(g_gens[1].n_ids, 4);
        gen_fini(&g_gens[0]);
        gen_fini(&g_gens[1]);
    }
    cluster_require_idle(&g_cluster);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev66_statistics_are_finite_and_never_decrease) {
    struct cluster_opts opts = pair();
    cluster_start(&g_cluster, &opts);
    struct ft_wire_stats last = cluster_stats(&g_cluster);
    ck_assert_uint_eq(last.rounds_total, 0);
    ck_assert(last.round_p50_us < 1e-9 && last.host_p50_us < 1e-9);
    cluster_stop(&g_cluster);
    start_streams(&opts); /* begins with requests at K = 0 */
    for (int i = 0; i < 100; i++) {
        struct ft_wire_stats s = cluster_stats(&g_cluster);
        ck_assert_uint_ge(s.rounds_total, last.rounds_total);
        ck_assert_uint_ge(s.generation_tokens_total, last.generation_tokens_total);
        ck_assert_uint_ge(s.num_draft_tokens_total, last.num_draft_tokens_total);
        ck_assert_uint_ge(s.num_accepted_tokens_total, last.num_accepted_tokens_total);
        ck_assert_uint_le(s.num_accepted_tokens_total, s.num_draft_tokens_total);
        ck_assert(s.round_p50_us >= 0 && s.round_p50_us < 1e9);
        last = s;
    }
    require_streams();
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(time_limit_ends_a_request_with_what_it_has) {
    struct cluster_opts opts = pair();
    cluster_start(&g_cluster, &opts);
    struct ft_wire_generate request = gen_text("long", 4000, 0);
    request.params.ignore_eos = true;
    request.params.has_time_limit_millis = true;
    request.params.time_limit_millis = 100;
    gen_run(&g_cluster, &request, &g_gen);
    ck_assert_msg(g_gen.status.code == 0, "%s", g_gen.status.text);
    ck_assert_int_eq(g_gen.finish, FT_WIRE_FINISH_TIME_LIMIT);
    ck_assert_uint_lt(g_gen.n_ids, 4000);
    ck_assert_uint_eq(g_gen.usage.completion_tokens, g_gen.n_ids);
    gen_fini(&g_gen);
    cluster_require_idle(&g_cluster);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev62_sigterm_finishes_streams_and_exits_zero) {
    struct cluster_opts opts = pair();
    opts.args[CLUSTER_COORDINATOR][2] = "--shutdown_timeout_ms=60000"; /* sanitizers are slow */
    start_streams(&opts);
    run_until(10);
    kill(g_cluster.pids[CLUSTER_COORDINATOR], SIGTERM);
    require_streams();
    cluster_exits(&g_cluster, CLUSTER_COORDINATOR);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev62_second_sigterm_exits_at_once) {
    struct cluster_opts opts = pair();
    opts.args[CLUSTER_COORDINATOR][2] = "--shutdown_timeout_ms=60000";
    start_streams(&opts);
    run_until(10);
    int64_t begin_ns = ft_clock_now_ns();
    kill(g_cluster.pids[CLUSTER_COORDINATOR], SIGTERM);
    kill(g_cluster.pids[CLUSTER_COORDINATOR], SIGINT);
    struct gen *all[STREAMS];
    for (int i = 0; i < STREAMS; i++)
        all[i] = &g_gens[i];
    gen_wait(&g_cluster, all, STREAMS);
    cluster_exits(&g_cluster, CLUSTER_COORDINATOR);
    ck_assert_int_lt((int)((ft_clock_now_ns() - begin_ns) / 1000000), 5000);
    for (int i = 0; i < STREAMS; i++) {
        gen_fini(all[i]);
        gen_fini(&g_plain[i]);
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(sighup_while_the_coordinator_ends_changes_nothing) {
    struct cluster_opts opts = pair();
    start_streams(&opts);
    run_until(10);
    kill(g_cluster.pids[CLUSTER_COORDINATOR], SIGTERM);
    kill(g_cluster.pids[CLUSTER_COORDINATOR], SIGINT); /* at once */
    struct gen *all[STREAMS];
    for (int i = 0; i < STREAMS; i++)
        all[i] = &g_gens[i];
    gen_wait(&g_cluster, all, STREAMS);
    /* Its server is closing now: it leaves what it sent some time to be read. */
    kill(g_cluster.pids[CLUSTER_COORDINATOR], SIGHUP);
    cluster_exits(&g_cluster, CLUSTER_COORDINATOR);
    for (int i = 0; i < STREAMS; i++) {
        gen_fini(all[i]);
        gen_fini(&g_plain[i]);
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev35_coordinator_killed_leaves_workers_for_the_next_one) {
    struct cluster_opts opts = pair();
    start_streams(&opts);
    run_until(10);
    cluster_signal(&g_cluster, CLUSTER_COORDINATOR, SIGKILL);
    struct gen *all[STREAMS];
    for (int i = 0; i < STREAMS; i++)
        all[i] = &g_gens[i];
    gen_wait(&g_cluster, all, STREAMS);
    for (int i = 0; i < STREAMS; i++) {
        ck_assert_int_eq(all[i]->status.code, 14);
        gen_fini(all[i]);
    }
    ck_assert_int_eq(cluster_spawn(&g_cluster, CLUSTER_COORDINATOR), 0);
    int64_t deadline_ns = ft_clock_now_ns() + 20000000000;
    struct ft_wire_generate request = request_of(3, 4);
    for (;;) { /* the client's channel finds the new socket */
        gen_run(&g_cluster, &request, &g_gen);
        if (g_gen.status.code != 14)
            break;
        ck_assert(ft_clock_now_ns() < deadline_ns);
        gen_fini(&g_gen);
    }
    ck_assert_uint_eq(g_gen.n_ids, N);
    ck_assert_mem_eq(g_gen.ids, g_plain[3].ids, N * sizeof(int32_t));
    gen_fini(&g_gen);
    cluster_require_idle(&g_cluster);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev07_swapped_tokens_are_refused_naming_the_first_difference) {
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("cyc"),
        .draft_dir = ft_fixture_model("cyc-draft"),
    };
    cluster_start(&g_cluster, &opts);
    cluster_signal(&g_cluster, CLUSTER_COORDINATOR, SIGTERM);
    cluster_signal(&g_cluster, CLUSTER_DRAFT, SIGTERM);
    g_cluster.opts.draft_dir = ft_fixture_model("cyc-draft+swap=98,99");
    ck_assert_int_eq(cluster_spawn(&g_cluster, CLUSTER_DRAFT), 0);
    ck_assert_int_eq(cluster_spawn(&g_cluster, CLUSTER_COORDINATOR), 78);
    struct ft_buf log = ft_fixture_read(g_cluster.dir, "coordinator.log");
    ck_assert_ptr_nonnull(strstr(log.ptr, "another tokenizer"));
    ck_assert_ptr_nonnull(strstr(log.ptr, "98"));
    ft_buf_fini(&log);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev71_mode_and_reason_are_told) {
    struct cluster_opts opts = {.target_dir = ft_fixture_model("cyc")};
    cluster_start(&g_cluster, &opts);
    struct ft_wire_generate request = gen_text("a", 10, 4);
    gen_run(&g_cluster, &request, &g_gen);
    ck_assert_int_eq(g_gen.status.code, 0);
    ck_assert_uint_eq(g_gen.n_ids, 10);
    ck_assert_uint_eq(g_gen.spec.num_draft_tokens, 0);
    gen_fini(&g_gen);
    struct ft_buf log = ft_fixture_read(g_cluster.dir, "coordinator.log");
    ck_assert_ptr_nonnull(strstr(log.ptr, "speculation plain"));
    ck_assert_ptr_nonnull(strstr(log.ptr, "no draft worker configured"));
    ft_buf_fini(&log);
    cluster_stop(&g_cluster);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("e2e_faults");
    TCase *tc = tcase_create("faults");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, dev14_dev63_draft_killed_costs_no_request_and_is_used_again);
    tcase_add_test(tc, dev63_draft_killed_again_and_again_is_always_used_again);
    tcase_add_test(tc, dev14_draft_that_hangs_costs_no_request);
    tcase_add_test(tc, dev14_target_killed_is_prefilled_again_and_streams_go_on);
    tcase_add_test(tc, dev14_target_gone_for_good_ends_streams_unavailable);
    tcase_add_test(tc, target_back_with_another_model_is_refused_and_the_right_one_taken);
    tcase_add_test(tc, dev14_target_that_hangs_is_left_and_taken_back);
    tcase_add_test(tc, dev23_dev41_cancelled_requests_free_everything);
    tcase_add_test(tc, dev23_request_behind_a_cancelled_one_is_served);
    tcase_add_test(tc, dev66_statistics_are_finite_and_never_decrease);
    tcase_add_test(tc, time_limit_ends_a_request_with_what_it_has);
    tcase_add_test(tc, dev62_sigterm_finishes_streams_and_exits_zero);
    tcase_add_test(tc, dev62_second_sigterm_exits_at_once);
    tcase_add_test(tc, sighup_while_the_coordinator_ends_changes_nothing);
    tcase_add_test(tc, dev35_coordinator_killed_leaves_workers_for_the_next_one);
    tcase_add_test(tc, dev07_swapped_tokens_are_refused_naming_the_first_difference);
    tcase_add_test(tc, dev71_mode_and_reason_are_told);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
