/* What an operator does while requests run: drain, resume, cancel, set, another draft model; and
 * what it costs the requests, which is nothing. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/wire/operate.h"
#include "support/cluster.h"
#include "support/fixtures.h"
#include "support/promtext.h"
#include "support/suite.h"

/* A stream of N_LONG goes on while a command is started; instrumented tokens take longer. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STREAMS = 4, N = 200, N_LONG = 1500 };
#else
enum { STREAMS = 4, N = 600, N_LONG = 3500 };
#endif
static int g_n_streams = STREAMS;
static size_t g_n = N; /* tokens of a stream */

static struct cluster g_cluster;
static struct gen g_gen, g_plain[STREAMS], g_gens[STREAMS];
static struct ft_arena *g_arena;
static struct ft_buf g_message, g_reply;

static struct cluster_opts pair(void) {
    return (struct cluster_opts){
        .target_dir = ft_fixture_model("r7"),
        .draft_dir = ft_fixture_model("r7n"),
        .args = {[CLUSTER_COORDINATOR] = {"--shutdown_timeout_ms=60000"}},
    };
}

static void setup(void) {
    g_arena = ft_arena_create(4096, 0);
    ft_buf_init(&g_message, 0);
    ft_buf_init(&g_reply, 0);
}

static void teardown(void) {
    ft_arena_destroy(&g_arena);
    ft_buf_fini(&g_message);
    ft_buf_fini(&g_reply);
}

/* A stream that says nothing of speculation: the service's settings are its own. */
static struct ft_wire_generate request_of(int i) {
    static char prompts[STREAMS][32], ids[STREAMS][16];
    snprintf(prompts[i], sizeof prompts[i], "stream %d", i);
    snprintf(ids[i], sizeof ids[i], "id-%d", i);
    struct ft_wire_generate request = gen_text(prompts[i], (uint32_t)g_n, 0);
    request.has_num_speculative_tokens = false;
    request.request_id = ft_str_c(ids[i]);
    request.params.ignore_eos = true;
    return request;
}

static void run_until(size_t n) {
    for (int i = 0; i < g_n_streams; i++)
        while (!g_gens[i].done && g_gens[i].n_ids < n)
            ft_rpc_loop_step(g_cluster.loop, ft_clock_now_ns() + 1000000000);
}

static void start_streams(const struct cluster_opts *opts) {
    cluster_start(&g_cluster, opts);
    for (int i = 0; i < g_n_streams; i++) {
        struct ft_wire_generate request = request_of(i);
        request.has_spec_enabled = true;
        gen_run(&g_cluster, &request, &g_plain[i]);
        ck_assert_msg(g_plain[i].status.code == 0, "%s", g_plain[i].status.text);
        ck_assert_uint_eq(g_plain[i].spec.num_draft_tokens, 0);
    }
    for (int i = 0; i < g_n_streams; i++) {
        struct ft_wire_generate request = request_of(i);
        gen_start(&g_cluster, &request, &g_gens[i]);
    }
    run_until(10);
}

static void require_streams(void) {
    struct gen *all[STREAMS];
    for (int i = 0; i < g_n_streams; i++)
        all[i] = &g_gens[i];
    gen_wait(&g_cluster, all, (size_t)g_n_streams);
    for (int i = 0; i < g_n_streams; i++) {
        ck_assert_msg(all[i]->status.code == 0, "stream %d: %s", i, all[i]->status.text);
        ck_assert_uint_eq(all[i]->n_ids, g_n);
        ck_assert_mem_eq(all[i]->ids, g_plain[i].ids, g_n * sizeof(int32_t));
        gen_fini(all[i]);
        gen_fini(&g_plain[i]);
    }
}

/* g_message to the method, the answer to g_reply; g_message is empty afterwards. */
static struct ft_rpc_status admin(const char *method) {
    ft_buf_reset(&g_reply);
    struct ft_rpc_status status =
        cluster_admin(&g_cluster, method, ft_buf_str(&g_message), &g_reply);
    ft_buf_reset(&g_message);
    return status;
}

static struct ft_wire_service_health health(const char *method) {
    struct ft_wire_service_health out;
    struct ft_rpc_status status = admin(method);
    ck_assert_msg(status.code == 0, "%s: %s", method, status.text);
    ck_assert_int_eq(ft_wire_decode_service_health(ft_buf_str(&g_reply), g_arena, &out, NULL),
                     FT_OK);
    return out;
}

static void require_state(struct ft_wire_service_health h, const char *state, const char *reason) {
    ck_assert_msg(ft_str_eq(h.state, ft_str_c(state)), "%.*s", (int)h.state.len, h.state.ptr);
    ck_assert_msg(ft_str_eq(h.reason, ft_str_c(reason)), "%.*s", (int)h.reason.len, h.reason.ptr);
}

/* Both into SetParameters. */
static struct ft_rpc_status set(const char *name, const char *value) {
    ft_wire_encode_parameter(&(struct ft_wire_parameter){ft_str_c(name), ft_str_c(value)},
                             &g_message);
    return admin("SetParameters");
}

/* ---- drain ----------------------------------------------------------------------------------- */

START_TEST(drain_refuses_new_requests_and_resume_takes_them_again) {
    struct cluster_opts opts = pair();
    start_streams(&opts);
    require_state(health("GetHealth"), "ready", "");
    ft_wire_encode_drain(ft_str_c("new cables"), &g_message);
    require_state(health("Drain"), "draining", "new cables");
    struct ft_wire_generate request = request_of(0);
    request.request_id = ft_str_c("late");
    gen_run(&g_cluster, &request, &g_gen);
    ck_assert_int_eq(g_gen.status.code, 14);
    ck_assert_str_eq(g_gen.status.text, "new cables");
    gen_fini(&g_gen);
    require_streams();
    struct ft_wire_service_health h = health("GetHealth");
    require_state(h, "draining", "new cables");
    ck_assert_uint_eq(h.num_requests_running, 0);
    require_state(health("Resume"), "ready", "");
    gen_run(&g_cluster, &request, &g_gen);
    ck_assert_msg(g_gen.status.code == 0, "%s", g_gen.status.text);
    gen_fini(&g_gen);
    ft_wire_encode_drain(ft_str_c("two\nlines"), &g_message);
    ck_assert_int_eq(admin("Drain").code, 3);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev62_sigterm_says_so_refuses_new_requests_and_finishes_the_rest) {
    struct cluster_opts opts = pair();
    g_n_streams = 2;
    g_n = N_LONG; /* they go on while the signal is on its way */
    start_streams(&opts);
    kill(g_cluster.pids[CLUSTER_COORDINATOR], SIGTERM);
    struct ft_wire_service_health h;
    do /* the signal comes when it comes */
        h = health("GetHealth");
    while (ft_str_eq(h.state, ft_str_c("ready")));
    require_state(h, "draining", "the service is shutting down");
    ck_assert_uint_gt(h.num_requests_running, 0);
    struct ft_wire_generate request = request_of(0);
    gen_run(&g_cluster, &request, &g_gen);
    ck_assert_int_eq(g_gen.status.code, 14);
    ck_assert_str_eq(g_gen.status.text, "the service is shutting down");
    gen_fini(&g_gen);
    ck_assert_int_eq(admin("Resume").code, 9);
    require_streams();
    cluster_exits(&g_cluster, CLUSTER_COORDINATOR);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev62_what_runs_past_the_shutdown_timeout_ends_unavailable) {
    struct cluster_opts opts = pair();
    opts.args[CLUSTER_COORDINATOR][0] = "--shutdown_timeout_ms=150";
    cluster_start(&g_cluster, &opts);
    struct ft_wire_generate request = request_of(0);
    request.params.max_tokens = 4000;
    request.has_spec_enabled = true;
    gen_start(&g_cluster, &request, &g_gen);
    while (g_gen.n_ids < 10)
        ft_rpc_loop_step(g_cluster.loop, INT64_MAX);
    int64_t begin_ns = ft_clock_now_ns();
    kill(g_cluster.pids[CLUSTER_COORDINATOR], SIGTERM);
    struct gen *gen = &g_gen;
    gen_wait(&g_cluster, &gen, 1);
    int64_t took_ms = (ft_clock_now_ns() - begin_ns) / 1000000;
    ck_assert_int_eq(g_gen.status.code, 14);
    ck_assert_str_eq(g_gen.status.text, "the service is shutting down");
    ck_assert_int_ge((int)took_ms, 150);
    ck_assert_int_lt((int)took_ms, 5000);
    gen_fini(&g_gen);
    cluster_exits(&g_cluster, CLUSTER_COORDINATOR);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(sigterm_ends_a_service_that_an_operator_has_drained) {
    struct cluster_opts opts = pair();
    cluster_start(&g_cluster, &opts);
    require_state(health("Drain"), "draining", "the service is draining");
    cluster_stop(&g_cluster); /* each exits 0 */
}
END_TEST

/* ---- requests -------------------------------------------------------------------------------- */

START_TEST(list_names_every_request_and_cancel_ends_one_with_what_it_has) {
    struct cluster_opts opts = pair();
    g_n = 2 * N; /* the last is still there when it is cancelled */
    opts.args[CLUSTER_COORDINATOR][1] = "--max_num_seqs=2";
    start_streams(&opts);
    ck_assert_int_eq(admin("ListRequests").code, 0);
    struct ft_wire_request_info *list;
    size_t n;
    int n_running = 0, n_waiting = 0;
    ck_assert_int_eq(ft_wire_decode_requests(ft_buf_str(&g_reply), g_arena, &list, &n, NULL),
                     FT_OK);
    for (size_t i = 0; i < n; i++) {
        n_running += ft_str_eq(list[i].state, ft_str_c("running"));
        n_waiting += ft_str_eq(list[i].state, ft_str_c("waiting"));
        ck_assert_uint_eq(list[i].max_tokens, g_n);
        ck_assert_uint_eq(list[i].num_speculative_tokens, 4);
        ck_assert(ft_str_eq(list[i].drafter, ft_str_c("model")));
        ck_assert_uint_gt(list[i].client.len, 0);
        ck_assert_uint_gt(list[i].prompt_tokens, 0);
        ck_assert(list[i].age_seconds >= 0 && list[i].age_seconds < 600);
    }
    ck_assert_int_le(n_running, 2);
    ck_assert_int_ge(n_running + n_waiting, 1);
    ft_wire_encode_cancel(ft_str_c("id-3"), &g_message);
    ck_assert_int_eq(admin("CancelRequest").code, 0);
    ft_wire_encode_cancel(ft_str_c("id-3"), &g_message);
    ck_assert_int_eq(admin("CancelRequest").code, 5);
    struct gen *last = &g_gens[3];
    gen_wait(&g_cluster, &last, 1);
    ck_assert_int_eq(last->status.code, 0);
    ck_assert_int_eq(last->finish, FT_WIRE_FINISH_ABORT);
    ck_assert_uint_lt(last->n_ids, g_n);
    ck_assert_uint_eq(last->usage.completion_tokens, last->n_ids);
    ck_assert_mem_eq(last->ids, g_plain[3].ids, last->n_ids * sizeof(int32_t));
    struct gen *others[] = {&g_gens[0], &g_gens[1], &g_gens[2]};
    gen_wait(&g_cluster, others, 3);
    for (int i = 0; i < 3; i++)
        ck_assert_uint_eq(others[i]->n_ids, g_n);
    for (int i = 0; i < g_n_streams; i++) {
        gen_fini(&g_gens[i]);
        gen_fini(&g_plain[i]);
    }
    cluster_stop(&g_cluster);
}
END_TEST

/* ---- set ------------------------------------------------------------------------------------- */

static uint64_t drafted(void) {
    return cluster_stats(&g_cluster).num_draft_tokens_total;
}

static void require_text(const char *name, const char *value) {
    struct ft_wire_parameter list[FT_WIRE_PARAMETERS_MAX];
    size_t n = 0;
    ck_assert_int_eq(admin("SetParameters").code, 0);
    ck_assert_int_eq(ft_wire_decode_parameters(ft_buf_str(&g_reply), g_arena, list, &n, NULL),
                     FT_OK);
    for (size_t i = 0; i < n; i++)
        if (ft_str_eq(list[i].name, ft_str_c(name))) {
            ck_assert_msg(ft_str_eq(list[i].value, ft_str_c(value)), "%s is %.*s", name,
                          (int)list[i].value.len, list[i].value.ptr);
            return;
        }
    ck_abort_msg("%s is not shown", name);
}

/* Tokens drafted during so many more of stream 0, whose rounds are everybody's. */
static uint64_t drafted_during(size_t n) {
    uint64_t before = drafted();
    run_until(g_gens[0].n_ids + n);
    return drafted() - before;
}

START_TEST(what_is_set_is_what_the_next_round_of_running_requests_uses) {
    struct cluster_opts opts = pair();
    opts.args[CLUSTER_COORDINATOR][1] = "--num_speculative_tokens=2";
    g_n_streams = 1;
    g_n = N_LONG; /* it goes on while this client asks and sets */
    start_streams(&opts);
    ck_assert_uint_gt(drafted_during(50), 0);
    ck_assert_int_eq(set("speculation", "false").code, 0);
    run_until(g_gens[0].n_ids + 10); /* a round that was on its way */
    ck_assert_uint_eq(drafted_during(50), 0);
    require_text("speculation", "false");
    ck_assert_int_eq(set("speculation", "true").code, 0);
    ck_assert_uint_gt(drafted_during(50), 0);
    ck_assert_int_eq(set("num-speculative-tokens", "0").code, 0);
    run_until(g_gens[0].n_ids + 10);
    ck_assert_uint_eq(drafted_during(50), 0);
    ck_assert_int_eq(set("num_speculative_tokens", "7").code, 0);
    require_text("num_speculative_tokens", "7");
    ck_assert_int_eq(set("drafter", "ngram").code, 0);
    run_until(g_gens[0].n_ids + 10);
    uint64_t draft_steps = cluster_stats(&g_cluster).draft.steps;
    run_until(g_gens[0].n_ids + 50);
    ck_assert_uint_eq(cluster_stats(&g_cluster).draft.steps, draft_steps);
    ck_assert_int_eq(set("drafter", "model").code, 0);
    run_until(g_gens[0].n_ids + 50);
    ck_assert_uint_gt(cluster_stats(&g_cluster).draft.steps, draft_steps);
    for (int i = 0; i < g_n_streams; i++)
        ck_assert(!g_gens[i].done); /* else nothing was shown */
    require_streams();
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(rule_that_was_lossy_for_a_while_is_told_and_greedy_text_stays) {
    struct cluster_opts opts = pair();
    g_n_streams = 1;
    g_n = N_LONG;
    start_streams(&opts);
    ck_assert_int_eq(set("rejection_sample_method", "lenient").code, 0);
    run_until(g_gens[0].n_ids + 50);
    ck_assert_int_eq(set("rejection_sample_method", "coupled").code, 0);
    run_until(g_gens[0].n_ids + 50);
    ck_assert_int_eq(set("rejection_sample_method", "standard").code, 0);
    struct gen *all[STREAMS];
    for (int i = 0; i < g_n_streams; i++)
        all[i] = &g_gens[i];
    gen_wait(&g_cluster, all, (size_t)g_n_streams);
    for (int i = 0; i < g_n_streams; i++)
        ck_assert(g_gens[i].spec.lossy);
    require_streams();
    struct ft_wire_generate request = request_of(0);
    gen_run(&g_cluster, &request, &g_gen);
    ck_assert(!g_gen.spec.lossy);
    gen_fini(&g_gen);
    cluster_stop(&g_cluster);
}
END_TEST

/* It named no rule, but a parameter of the service's: that is its own whatever else is set. */
START_TEST(own_lenience_stays_while_others_are_set) {
    struct cluster_opts opts = {.target_dir = ft_fixture_model("iid"),
                                .draft_dir = ft_fixture_model("iid-draft")};
    opts.args[CLUSTER_COORDINATOR][0] = "--rejection_sample_method=lenient";
    opts.args[CLUSTER_COORDINATOR][1] = "--lenience=0.1";
    g_n_streams = 1;
    cluster_start(&g_cluster, &opts);
    struct ft_wire_generate request = gen_text("abc", N_LONG, 4);
    request.params.temperature = 1;
    request.params.has_seed = true;
    request.params.seed = 9;
    request.spec.has_lenience = true;
    request.spec.lenience = 1;
    gen_run(&g_cluster, &request, &g_gen);
    gen_start(&g_cluster, &request, &g_gens[0]);
    run_until(20);
    ck_assert_int_eq(set("log_level", "info").code, 0);
    ck_assert(!g_gens[0].done);
    struct gen *all[1] = {&g_gens[0]};
    gen_wait(&g_cluster, all, 1);
    gen_require_same(&g_gens[0], &g_gen, "own lenience");
    gen_fini(&g_gens[0]);
    gen_fini(&g_gen);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(value_that_is_refused_changes_nothing_and_is_named) {
    struct cluster_opts opts = pair();
    cluster_start(&g_cluster, &opts);
    static const struct {
        const char *name, *value, *says;
    } rows[] = {
        {"num_speculative_tokens", "17", "17"},
        {"num_speculative_tokens", "many", "many"},
        {"drafter", "oracle", "must be one of"},
        {"drafter", "bigram", "drafter_text"},
        {"rejection_sample_method", "synthetic", "synthetic_acceptance_length"},
        {"speculation", "perhaps", "must be true or false"},
        {"lenience", "2", "must be 0.01 to 1"},
        {"log_level", "loud", "error|warn|info|debug"},
        {"listen", "127.0.0.1:1", "cannot be set while the service runs"},
        {"nonsense", "1", "cannot be set while the service runs"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ft_wire_encode_parameter(
            &(struct ft_wire_parameter){ft_str_c("num_speculative_tokens"), ft_str_c("9")},
            &g_message); /* good, but not alone */
        struct ft_rpc_status status = set(rows[i].name, rows[i].value);
        ck_assert_msg(status.code == 3, "%s: code %d %s", rows[i].name, status.code, status.text);
        ck_assert_msg(strstr(status.text, rows[i].says) != NULL, "%s: %s", rows[i].name,
                      status.text);
        require_text("num_speculative_tokens", "4");
    }
    cluster_stop(&g_cluster);
}
END_TEST

/* ---- another draft model --------------------------------------------------------------------- */

static struct ft_rpc_status reload(const char *dir) {
    ft_wire_encode_reload_draft(ft_str_c(dir), &g_message);
    return admin("ReloadDraft");
}

static void wait_draft(void) {
    int64_t deadline_ns = ft_clock_now_ns() + 20000000000;
    while (!cluster_stats(&g_cluster).draft.up)
        ck_assert(ft_clock_now_ns() < deadline_ns);
}

START_TEST(draft_model_is_exchanged_under_load_and_no_request_notices) {
    struct cluster_opts opts = pair();
    g_n_streams = 2;
    g_n = N_LONG;
    opts.draft_dir = ft_fixture_model("r8+ctx=64"); /* which guesses nothing of r7's, and ends */
    start_streams(&opts);
    run_until(100);
    struct ft_wire_stats before = cluster_stats(&g_cluster);
    struct ft_rpc_status status = reload(ft_fixture_model("r7n005"));
    ck_assert_msg(status.code == 0, "%s", status.text);
    struct ft_wire_draft_reloaded done;
    ck_assert_int_eq(ft_wire_decode_draft_reloaded(ft_buf_str(&g_reply), g_arena, &done, NULL),
                     FT_OK);
    wait_draft();
    struct ft_wire_stats after = cluster_stats(&g_cluster);
    ck_assert_uint_ne(after.draft.epoch, before.draft.epoch);
    ck_assert_uint_eq(after.draft.epoch, done.epoch);
    require_streams();
    struct ft_wire_stats end = cluster_stats(&g_cluster);
    ck_assert_uint_gt(end.num_accepted_tokens_total - after.num_accepted_tokens_total,
                      (end.num_draft_tokens_total - after.num_draft_tokens_total) / 4);
    for (int i = 0; i < 3; i++) { /* again and again, with nothing running */
        status = reload(ft_fixture_model(i % 2 == 0 ? "r8" : "r7n"));
        ck_assert_msg(status.code == 0, "%s", status.text);
        wait_draft();
    }
    ck_assert_uint_eq(cluster_stats(&g_cluster).draft.sequences, 0);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(draft_model_that_does_not_fit_is_refused_by_name_and_the_old_goes_on) {
    struct cluster_opts opts = pair();
    g_n_streams = 2;
    g_n = N_LONG;
    start_streams(&opts);
    struct ft_wire_stats before = cluster_stats(&g_cluster);
    static const struct {
        const char *dir, *says;
    } rows[] = {
        {"/nowhere/at/all", "/nowhere/at/all"},
        {"", "model_dir has 0 bytes"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ft_rpc_status status = reload(rows[i].dir);
        ck_assert_int_ne(status.code, 0);
        ck_assert_msg(strstr(status.text, rows[i].says) != NULL, "%s", status.text);
    }
    struct ft_rpc_status status = reload(ft_fixture_model("r7n+swap=98,99"));
    ck_assert_int_eq(status.code, 9);
    ck_assert_msg(strstr(status.text, "another tokenizer") != NULL, "%s", status.text);
    ck_assert_msg(strstr(status.text, "98") != NULL, "%s", status.text);
    struct ft_wire_stats after = cluster_stats(&g_cluster);
    ck_assert(after.draft.up);
    ck_assert_uint_eq(after.draft.epoch, before.draft.epoch);
    require_streams();
    ck_assert_uint_gt(drafted(), after.num_draft_tokens_total);
    cluster_stop(&g_cluster);
}
END_TEST

/* ---- metrics --------------------------------------------------------------------------------- */

/* The port that the coordinator's log names. */
static int metrics_port(void) {
    struct ft_buf log = ft_fixture_read(g_cluster.dir, "coordinator.log");
    ft_buf_add(&log, "", 1);
    const char *line = strstr(log.ptr, "metrics listen ");
    ck_assert_ptr_nonnull(line);
    const char *port = strstr(line, " port ");
    ck_assert_ptr_nonnull(port);
    int n = atoi(port + 6);
    ft_buf_fini(&log);
    return n;
}

/* One request over TCP; the body is appended to out. Returns the status. */
static int http_get(int port, const char *request, struct ft_buf *out) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char part[4096];
    ssize_t n;
    struct ft_buf all;
    ft_buf_init(&all, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq((int)write(fd, request, strlen(request)), (int)strlen(request));
    while ((n = read(fd, part, sizeof part)) > 0)
        ft_buf_add(&all, part, (size_t)n);
    close(fd);
    ft_buf_add(&all, "", 1);
    const char *body = strstr(all.ptr, "\r\n\r\n");
    ck_assert_ptr_nonnull(body);
    ft_buf_add_c(out, body + 4);
    int status = atoi(all.ptr + 9);
    ft_buf_fini(&all);
    return status;
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

START_TEST(metrics_agree_with_the_statistics_and_health_with_the_state) {
    struct cluster_opts opts = pair();
    opts.args[CLUSTER_COORDINATOR][1] = "--metrics_listen=127.0.0.1:0";
    start_streams(&opts);
    int port = metrics_port();
    struct prom prom;
    for (int i = 0; i < 20; i++) { /* while rounds go on */
        ft_buf_reset(&g_reply);
        ck_assert_int_eq(http_get(port, GET("/metrics"), &g_reply), 200);
        prom_parse(&prom, g_reply.ptr, g_reply.len);
        ck_assert_msg(prom.problem[0] == 0, "%s", prom.problem);
        prom_fini(&prom);
    }
    require_streams();
    struct ft_wire_stats stats = cluster_stats(&g_cluster);
    ft_buf_reset(&g_reply);
    ck_assert_int_eq(http_get(port, GET("/metrics"), &g_reply), 200);
    prom_parse(&prom, g_reply.ptr, g_reply.len);
    ck_assert_double_eq(prom_value(&prom, "foretoken:generation_tokens_total", NULL),
                        (double)stats.generation_tokens_total);
    ck_assert_double_eq(prom_value(&prom, "foretoken:spec_decode_num_accepted_tokens_total", NULL),
                        (double)stats.num_accepted_tokens_total);
    ck_assert_double_eq(
        prom_value(&prom, "foretoken:request_success_total", "finished_reason=\"length\""),
        2 * STREAMS);
    ck_assert_double_eq(prom_value(&prom, "foretoken:time_to_first_token_seconds_count", NULL),
                        2 * STREAMS);
    /* every token but the first of each request has one before it */
    ck_assert_double_eq(prom_value(&prom, "foretoken:inter_token_latency_seconds_count", NULL),
                        (double)stats.generation_tokens_total - 2 * STREAMS);
    ck_assert_double_eq(prom_value(&prom, "foretoken:draft_up", NULL), 1);
    prom_fini(&prom);
    ft_buf_reset(&g_reply);
    ck_assert_int_eq(http_get(port, GET("/healthz"), &g_reply), 200);
    health("Drain");
    ft_buf_reset(&g_reply);
    ck_assert_int_eq(http_get(port, GET("/healthz"), &g_reply), 503);
    ft_buf_add(&g_reply, "", 1);
    ck_assert_ptr_nonnull(strstr(g_reply.ptr, "draining: the service is draining"));
    ft_buf_reset(&g_reply);
    ck_assert_int_eq(http_get(port, GET("/secrets"), &g_reply), 404);
    ck_assert_int_eq(http_get(port,
                              "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
                              "Connection: close\r\n\r\nabc",
                              &g_reply),
                     405);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(metrics_answer_while_a_worker_is_stopped) {
    struct cluster_opts opts = pair();
    opts.args[CLUSTER_COORDINATOR][1] = "--metrics_listen=127.0.0.1:0";
    cluster_start(&g_cluster, &opts);
    int port = metrics_port();
    cluster_signal(&g_cluster, CLUSTER_DRAFT, SIGSTOP);
    ck_assert_int_eq(http_get(port, GET("/metrics"), &g_reply), 200);
    cluster_signal(&g_cluster, CLUSTER_DRAFT, SIGCONT);
    cluster_signal(&g_cluster, CLUSTER_TARGET, SIGKILL);
    int64_t deadline_ns = ft_clock_now_ns() + 20000000000;
    do {
        ck_assert(ft_clock_now_ns() < deadline_ns);
        ft_buf_reset(&g_reply);
    } while (http_get(port, GET("/healthz"), &g_reply) != 503);
    ft_buf_add(&g_reply, "", 1);
    ck_assert_ptr_nonnull(strstr(g_reply.ptr, "unavailable: the target worker is lost"));
    cluster_stop(&g_cluster);
}
END_TEST

/* ---- the commands ---------------------------------------------------------------------------- */

/* Exit status; what was printed to g_reply, with a NUL behind it. */
static int ctl(const char *arguments) {
    char command[1024];
    ft_buf_reset(&g_reply);
    snprintf(command, sizeof command, "%s/bin/foretokenctl --endpoint %s %s 2>&1",
             FT_TEST_BINARY_DIR, g_cluster.endpoint, arguments);
    FILE *out = popen(command, "r");
    ck_assert_ptr_nonnull(out);
    char part[4096];
    size_t n;
    while ((n = fread(part, 1, sizeof part, out)) > 0)
        ft_buf_add(&g_reply, part, n);
    ft_buf_add(&g_reply, "", 1);
    int status = pclose(out);
    ck_assert_msg(WIFEXITED(status), "%s: 0x%x", arguments, status);
    return WEXITSTATUS(status);
}

START_TEST(every_command_prints_text_and_one_json_object) {
    struct cluster_opts opts = pair();
    g_n_streams = 2;
    g_n = N_LONG; /* they go on while commands are started */
    start_streams(&opts);
    char reload_command[512];
    snprintf(reload_command, sizeof reload_command, "draft reload --model %s",
             ft_fixture_model("r7n"));
    const struct {
        const char *command, *says, *key;
    } rows[] = {
        {"health", "ready\n2 running, 0 waiting, target up, draft up\n", "state"},
        {"requests", "id-0                 ", "requests"}, /* running, or its client lags */
        {"cancel id-1", "cancelled 1\n", NULL},
        {"stats", "inter_token_latency_seconds.p99", "inter_token_latency_seconds"},
        {"set", "num_speculative_tokens          4\n", "drafter"},
        {"set num-speculative-tokens=2 drafter=chain", "drafter                         chain\n",
         "drafter"},
        {"set drafter model", "drafter                         model\n", "drafter"},
        {reload_command, "reloaded in ", "epoch"},
        {"drain --reason tea", "draining: tea\n", "reason"},
        {"resume", "ready\n", "state"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_msg(ctl(rows[i].command) == 0, "%s: %s", rows[i].command, g_reply.ptr);
        ck_assert_msg(strstr(g_reply.ptr, rows[i].says) != NULL, "%s: %s", rows[i].command,
                      g_reply.ptr);
        if (rows[i].key == NULL)
            continue;
        wait_draft();
        char json[600];
        snprintf(json, sizeof json, "--json %s", rows[i].command);
        ck_assert_msg(ctl(json) == 0, "%s: %s", json, g_reply.ptr);
        json_t *root = json_loads(g_reply.ptr, 0, NULL);
        ck_assert_msg(root != NULL, "%s: %s", json, g_reply.ptr);
        ck_assert_msg(json_object_get(root, rows[i].key) != NULL, "%s: %s", json, g_reply.ptr);
        json_decref(root);
    }
    ck_assert_int_eq(ctl("cancel id-1"), 66);
    ck_assert_int_eq(ctl("set drafter=oracle"), 64);
    ck_assert_int_eq(ctl("drain"), 0);
    ck_assert_int_eq(ctl("health"), 69);
    struct gen *all[STREAMS];
    for (int i = 0; i < g_n_streams; i++)
        all[i] = &g_gens[i];
    gen_wait(&g_cluster, all, (size_t)g_n_streams);
    for (int i = 0; i < g_n_streams; i++) {
        ck_assert_int_eq(all[i]->status.code, 0);
        ck_assert_mem_eq(all[i]->ids, g_plain[i].ids, all[i]->n_ids * sizeof(int32_t));
        gen_fini(all[i]);
        gen_fini(&g_plain[i]);
    }
    cluster_stop(&g_cluster);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("e2e_operate");
    TCase *tc = tcase_create("operate");
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, drain_refuses_new_requests_and_resume_takes_them_again);
    tcase_add_test(tc, dev62_sigterm_says_so_refuses_new_requests_and_finishes_the_rest);
    tcase_add_test(tc, dev62_what_runs_past_the_shutdown_timeout_ends_unavailable);
    tcase_add_test(tc, sigterm_ends_a_service_that_an_operator_has_drained);
    tcase_add_test(tc, list_names_every_request_and_cancel_ends_one_with_what_it_has);
    tcase_add_test(tc, what_is_set_is_what_the_next_round_of_running_requests_uses);
    tcase_add_test(tc, rule_that_was_lossy_for_a_while_is_told_and_greedy_text_stays);
    tcase_add_test(tc, own_lenience_stays_while_others_are_set);
    tcase_add_test(tc, value_that_is_refused_changes_nothing_and_is_named);
    tcase_add_test(tc, draft_model_is_exchanged_under_load_and_no_request_notices);
    tcase_add_test(tc, draft_model_that_does_not_fit_is_refused_by_name_and_the_old_goes_on);
    tcase_add_test(tc, metrics_agree_with_the_statistics_and_health_with_the_state);
    tcase_add_test(tc, metrics_answer_while_a_worker_is_stopped);
    tcase_add_test(tc, every_command_prints_text_and_one_json_object);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
