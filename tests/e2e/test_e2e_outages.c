/* A table of what may go wrong while eight streams run, and what it costs them: no request, no
 * token twice. The soak does the same at random for FORETOKEN_SOAK_SECONDS. */
#include <arpa/inet.h>
#include <check.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "e2e/outages.h"
#include "support/fixtures.h"
#include "support/suite.h"

static struct cluster g_cluster;
static struct load g_load;

static struct cluster_opts pair(void) {
    return (struct cluster_opts){
        .target_dir = ft_fixture_model("r7"),
        .draft_dir = ft_fixture_model("r7n005"),
        .args = {[CLUSTER_COORDINATOR] = {"--draft_step_timeout_ms=300",
                                          "--target_step_timeout_ms=1000",
                                          "--shutdown_timeout_ms=60000"}},
    };
}

/* ---- the table ------------------------------------------------------------------------------- */

static void table_head(void) {
    fprintf(stderr, "%-44s %9s %4s %6s %7s %10s\n", "fault", "in flight", "lost", "wrong",
            "doubled", "to speed");
}

static void table_row(const char *name, int in_flight, uint64_t lost, int64_t speed_ms) {
    fprintf(stderr, "%-44s %9d %4llu %6llu %7llu %7lld ms\n", name, in_flight,
            (unsigned long long)lost, (unsigned long long)g_load.n_wrong,
            (unsigned long long)g_load.n_double, (long long)speed_ms);
}

/* Both workers serve and drafts are accepted again: milliseconds until then. */
static int64_t wait_full_speed(void) {
    int64_t begin_ns = ft_clock_now_ns();
    uint64_t accepted = cluster_stats(&g_cluster).num_accepted_tokens_total;
    for (;;) {
        struct ft_wire_stats s = cluster_stats(&g_cluster);
        if (s.target.up && s.draft.up && s.num_accepted_tokens_total > accepted + 20)
            return (ft_clock_now_ns() - begin_ns) / 1000000;
        ck_assert_msg(ft_clock_now_ns() < begin_ns + 60000000000, "drafts are not accepted again");
        load_run(&g_load, 5);
    }
}

static void require_no_harm(const char *name) {
    ck_assert_msg(g_load.n_lost == 0 && g_load.n_wrong == 0 && g_load.n_double == 0, "%s: %s", name,
                  g_load.first_trouble);
}

/* Milliseconds from the repair to full speed. */
static int64_t run_outage(const struct outage *outage) {
    outage->begin(&g_load);
    load_run(&g_load, outage->ms);
    outage->end(&g_load);
    int64_t ms = wait_full_speed();
    require_no_harm(outage->name);
    return ms;
}

START_TEST(dev14_dev41_dev63_no_outage_costs_a_request_or_says_a_token_twice) {
    struct cluster_opts opts = pair();
    cluster_start(&g_cluster, &opts);
    load_start(&g_load, &g_cluster);
    load_run(&g_load, 300);
    int descriptors = outage_descriptors(&g_cluster, CLUSTER_COORDINATOR);
    table_head();
    for (size_t i = 0; i < n_outages; i++) {
        int in_flight = load_in_flight(&g_load);
        int64_t ms = run_outage(&outages[i]);
        table_row(outages[i].name, in_flight, g_load.n_lost, ms);
    }
    ck_assert_int_le(outage_descriptors(&g_cluster, CLUSTER_COORDINATOR), descriptors + 4);
    int in_flight = load_in_flight(&g_load);
    g_load.drains = true;
    kill(g_cluster.pids[CLUSTER_COORDINATOR], SIGTERM); /* what runs is finished */
    while (g_load.n_refused == 0)                       /* what comes later is not taken */
        load_run(&g_load, 5);
    load_end(&g_load);
    require_no_harm("SIGTERM");
    cluster_exits(&g_cluster, CLUSTER_COORDINATOR);
    table_row("SIGTERM: a drain", in_flight, 0, 0);
    cluster_stop(&g_cluster);
}
END_TEST

/* The one that costs requests: they live in the coordinator. Everything else is freed. */
START_TEST(dev35_coordinator_killed_ends_its_requests_unavailable_and_frees_the_workers) {
    struct cluster_opts opts = pair();
    cluster_start(&g_cluster, &opts);
    load_start(&g_load, &g_cluster);
    load_run(&g_load, 300);
    int in_flight = load_in_flight(&g_load);
    g_load.restarts = false;
    cluster_signal(&g_cluster, CLUSTER_COORDINATOR, SIGKILL);
    load_run(&g_load, 0);
    ck_assert_uint_le(g_load.n_lost, (uint64_t)in_flight);
    ck_assert_uint_eq(g_load.n_wrong + g_load.n_double, 0);
    uint64_t lost = g_load.n_lost;
    ck_assert_int_eq(cluster_spawn(&g_cluster, CLUSTER_COORDINATOR), 0);
    ft_rpc_client_kick(g_cluster.client);
    cluster_require_idle(&g_cluster);
    g_load.n_lost = 0;
    g_load.restarts = true;
    int64_t ms = wait_full_speed();
    load_run(&g_load, 300);
    load_end(&g_load);
    require_no_harm("after the coordinator came back");
    table_head();
    table_row("coordinator killed (its requests are lost)", in_flight, lost, ms);
    cluster_require_idle(&g_cluster);
    cluster_stop(&g_cluster);
}
END_TEST

/* ---- what needs a coordinator of its own ------------------------------------------------------
 */

static int free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    close(fd);
    return ntohs(address.sin_port);
}

START_TEST(full_disk_for_logs_costs_nothing) {
    struct cluster_opts opts = pair();
    opts.log = "/dev/full";
    opts.args[CLUSTER_COORDINATOR][3] = "--log_level=debug";
    opts.args[CLUSTER_TARGET][0] = opts.args[CLUSTER_DRAFT][0] = "--log_level=debug";
    cluster_start(&g_cluster, &opts);
    load_start(&g_load, &g_cluster);
    int in_flight = load_in_flight(&g_load);
    load_run(&g_load, 500);
    cluster_signal(&g_cluster, CLUSTER_DRAFT, SIGKILL); /* which is logged */
    load_run(&g_load, 200);
    ck_assert_int_eq(cluster_spawn(&g_cluster, CLUSTER_DRAFT), 0);
    int64_t ms = wait_full_speed();
    load_end(&g_load);
    require_no_harm("no room for logs");
    table_head();
    table_row("disk full for logs", in_flight, g_load.n_lost, ms);
    cluster_stop(&g_cluster);
}
END_TEST

/* A connection whose other side is gone without a word: no FIN, no RST. */
static void vanish(int fd) {
    int on = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof on) != 0)
        fprintf(stderr, "no TCP_REPAIR here: the connection is closed with a FIN\n");
    close(fd);
}

START_TEST(half_open_tcp_and_vanished_peers_cost_nothing) {
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    char listen[32];
    int port = free_port(), fds[16];
    snprintf(listen, sizeof listen, "127.0.0.1:%d", port);
    struct cluster_opts opts = pair();
    opts.listen = listen;
    cluster_start(&g_cluster, &opts);
    load_start(&g_load, &g_cluster);
    int in_flight = load_in_flight(&g_load);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    for (int i = 0; i < 16; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(connect(fds[i], (struct sockaddr *)&address, sizeof address), 0);
        size_t n = i % 2 == 0 ? sizeof preface - 1 : 10; /* some stop inside the preface */
        ck_assert_int_eq((int)write(fds[i], preface, n), (int)n);
    }
    load_run(&g_load, 500);
    for (int i = 0; i < 8; i++)
        vanish(fds[i]);
    load_run(&g_load, 500);
    int64_t ms = wait_full_speed();
    load_end(&g_load);
    require_no_harm("half-open TCP");
    for (int i = 8; i < 16; i++)
        close(fds[i]);
    table_head();
    table_row("half-open TCP, peers that vanish", in_flight, g_load.n_lost, ms);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(wall_clock_that_jumps_costs_nothing) {
    static const int64_t jumps_s[] = {3600, -7200, 86400 * 400, -86400, 0};
    struct cluster_opts opts = pair();
    const char *dir = ft_fixture_temp_dir();
    char path[512];
    snprintf(path, sizeof path, "%s/clock", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(ftruncate(fd, sizeof(int64_t)), 0);
    volatile int64_t *offset_s =
        mmap(NULL, sizeof *offset_s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert(offset_s != MAP_FAILED);
    setenv("FORETOKEN_TEST_CLOCK", path, 1);
    opts.preload = getenv("FORETOKEN_TEST_CLOCKJUMP");
    if (opts.preload == NULL) { /* a sanitizer's runtime wants to come first */
        fprintf(stderr, "clock jumps are not tested in this build\n");
        return;
    }
    cluster_start(&g_cluster, &opts);
    load_start(&g_load, &g_cluster);
    int in_flight = load_in_flight(&g_load);
    for (size_t i = 0; i < sizeof jumps_s / sizeof jumps_s[0]; i++) {
        *offset_s = jumps_s[i];
        load_run(&g_load, 300);
        struct ft_wire_stats s = cluster_stats(&g_cluster);
        ck_assert(s.uptime_seconds >= 0 && s.uptime_seconds < 600);
    }
    int64_t ms = wait_full_speed();
    load_end(&g_load);
    require_no_harm("the clock jumped");
    struct ft_buf log = ft_fixture_read(g_cluster.dir, "coordinator.log");
    ft_buf_add(&log, "", 1);
    ck_assert_ptr_null(strstr(log.ptr, "worker-down"));
    ft_buf_fini(&log);
    table_head();
    table_row("clock jumps", in_flight, g_load.n_lost, ms);
    close(fd);
    ft_fixture_remove_dir(dir);
    cluster_stop(&g_cluster);
}
END_TEST

/* ---- soak ------------------------------------------------------------------------------------ */

START_TEST(dev41_random_outages_for_a_long_time_cost_nothing_and_leave_nothing) {
    const char *text = getenv("FORETOKEN_SOAK_SECONDS"), *seed_text = getenv("FORETOKEN_SOAK_SEED");
    int64_t seconds = text != NULL ? atoi(text) : 20;
    uint64_t seed = seed_text != NULL ? strtoull(seed_text, NULL, 10) : ft_clock_random_u64();
    fprintf(stderr, "soak seed %llu, %lld s\n", (unsigned long long)seed, (long long)seconds);
    struct cluster_opts opts = pair();
    cluster_start(&g_cluster, &opts);
    load_start(&g_load, &g_cluster);
    for (size_t i = 0; i < n_outages; i++) /* each once, before memory is looked at */
        run_outage(&outages[i]);
    int descriptors = outage_descriptors(&g_cluster, CLUSTER_COORDINATOR);
    size_t memory = outage_memory(&g_cluster, CLUSTER_COORDINATOR);
    int64_t until_ns = ft_clock_now_ns() + seconds * 1000000000, slowest_ms = 0;
    uint64_t n_runs = 0, done_before = g_load.n_done;
    while (ft_clock_now_ns() < until_ns) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const struct outage *outage = &outages[(seed >> 33) % n_outages];
        int64_t ms = run_outage(outage);
        slowest_ms = ms > slowest_ms ? ms : slowest_ms;
        load_run(&g_load, 200 + (int)((seed >> 20) % 2800));
        n_runs++;
    }
    load_end(&g_load);
    require_no_harm("soak");
    cluster_require_idle(&g_cluster);
    int descriptors_after = outage_descriptors(&g_cluster, CLUSTER_COORDINATOR);
    size_t memory_after = outage_memory(&g_cluster, CLUSTER_COORDINATOR);
    fprintf(stderr,
            "soak: %llu outages, %llu requests, %llu lost, %llu wrong, %llu tokens doubled, full "
            "speed after %lld ms at most, descriptors %d then %d, coordinator %zu KiB then %zu\n",
            (unsigned long long)n_runs, (unsigned long long)(g_load.n_done - done_before),
            (unsigned long long)g_load.n_lost, (unsigned long long)g_load.n_wrong,
            (unsigned long long)g_load.n_double, (long long)slowest_ms, descriptors,
            descriptors_after, memory / 1024, memory_after / 1024);
    ck_assert_int_le(descriptors_after, descriptors + 4);
    ck_assert_uint_le(memory_after, memory + (16 << 20));
    cluster_stop(&g_cluster);
    exit(0); /* Check cannot tell the time of a test of more than 35 minutes, and calls it failed */
}
END_TEST

int main(void) {
    Suite *suite = suite_create("e2e_outages");
    TCase *tc = tcase_create("outages");
    tcase_set_timeout(tc, 600);
    tcase_add_test(tc, dev14_dev41_dev63_no_outage_costs_a_request_or_says_a_token_twice);
    tcase_add_test(tc,
                   dev35_coordinator_killed_ends_its_requests_unavailable_and_frees_the_workers);
    tcase_add_test(tc, full_disk_for_logs_costs_nothing);
    tcase_add_test(tc, half_open_tcp_and_vanished_peers_cost_nothing);
    tcase_add_test(tc, wall_clock_that_jumps_costs_nothing);
    suite_add_tcase(suite, tc);
    TCase *soak = tcase_create("soak");
    tcase_set_timeout(soak, 7200);
    tcase_add_exit_test(soak, dev41_random_outages_for_a_long_time_cost_nothing_and_leave_nothing,
                        0);
    suite_add_tcase(suite, soak);
    return suite_run(suite);
}
