/* Clients that read late, and answers larger than what may wait in a call: all of it arrives, or
 * the call says that it did not. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/cluster.h"
#include "support/fixtures.h"
#include "support/suite.h"

/* Instrumented tokens take longer. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { N = 8, TOKENS = 400 };
#else
enum { N = 8, TOKENS = 900 };
#endif

static struct cluster g_cluster;
static struct gen g_gen;

/* Twenty alternatives of each token: a continuation has several hundred KB of them. */
static struct ft_wire_generate request_of(uint32_t n, bool stream) {
    struct ft_wire_generate request = gen_text("several ways to go on", TOKENS, 4);
    request.stream = stream;
    request.params.has_n = true;
    request.params.n = n;
    request.params.temperature = 1;
    request.params.ignore_eos = true;
    request.params.has_logprobs = true;
    request.params.logprobs = 20;
    return request;
}

static void require_whole(const struct gen *gen, uint32_t n) {
    gen_require_ok(gen);
    ck_assert_uint_eq(gen->n_ids, TOKENS);
    ck_assert_uint_eq(gen->logprobs.len, TOKENS * sizeof(struct ft_logprobs));
    ck_assert_int_eq(gen->finish, FT_WIRE_FINISH_LENGTH);
    for (uint32_t i = 1; i < n; i++) {
        ck_assert_uint_eq(gen->others[i - 1].n_tokens, TOKENS);
        ck_assert_int_eq(gen->others[i - 1].finish, FT_WIRE_FINISH_LENGTH);
        ck_assert_uint_eq(gen->others[i - 1].usage.completion_tokens, TOKENS);
    }
}

/* Ticks that the target worker has computed for. */
static unsigned long ticks_of_target(void) {
    char path[64];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)g_cluster.pids[CLUSTER_TARGET]);
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    int n =
        fscanf(file, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    fclose(file);
    ck_assert_int_eq(n, 2);
    return user + system;
}

/* Until all is generated. Not by asking: whatever uses gRPC in this process reads all that there is
 * to read, of other connections, too. */
static void await_end_of_steps(void) {
    unsigned long begin = ticks_of_target(), seen = begin;
    for (int quiet = 0; quiet < 10; quiet++) {
        usleep(100000);
        unsigned long now = ticks_of_target();
        quiet = now > seen || now < begin + 5 ? 0 : quiet;
        seen = now;
    }
}

START_TEST(answers_larger_than_a_queue_or_a_request_arrive_whole) {
    struct gen *all[1] = {&g_gen};
    cluster_start_pair(&g_cluster, "r7", "r7n", "--max_message_bytes=65536");
    for (int i = 0; i < 3; i++) {
        uint32_t n = i == 0 ? 1 : N;
        struct ft_wire_generate request = request_of(n, i == 2);
        gen_start(&g_cluster, &request, &g_gen);
        if (i == 2) /* it generates, and this end reads nothing */
            usleep(1500000);
        gen_wait(&g_cluster, all, 1);
        require_whole(&g_gen, n);
        gen_fini(&g_gen);
    }
    cluster_require_idle(&g_cluster);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev62_answer_that_is_read_after_sigterm_arrives_whole) {
    struct gen *all[1] = {&g_gen};
    for (int stream = 0; stream < 2; stream++) {
        cluster_start_pair(&g_cluster, "r7", "r7n", "--shutdown_timeout_ms=100000");
        struct ft_wire_generate request = request_of(3, stream != 0);
        gen_start(&g_cluster, &request, &g_gen);
        while (cluster_stats(&g_cluster).num_requests_running == 0)
            ;
        await_end_of_steps();
        kill(g_cluster.pids[CLUSTER_COORDINATOR], SIGTERM);
        usleep(700000);
        gen_wait(&g_cluster, all, 1);
        require_whole(&g_gen, 3);
        gen_fini(&g_gen);
        cluster_exits(&g_cluster, CLUSTER_COORDINATOR);
        cluster_stop(&g_cluster);
    }
}
END_TEST

/* Starts a program whose log goes into a pipe, and closes the pipe once it has said something. */
static pid_t start_unread(char *const *argv) {
    char first;
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGPIPE, SIG_DFL);
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        execv(argv[0], argv);
        _exit(127);
    }
    close(fds[1]);
    ck_assert_int_eq(read(fds[0], &first, 1), 1);
    usleep(500000); /* it may have more to say at start, and then nothing until it is asked */
    close(fds[0]);
    return pid;
}

START_TEST(log_that_nobody_reads_ends_no_process) {
    const char *dir = ft_fixture_temp_dir();
    char listen[128], model[512], peer[160];
    snprintf(listen, sizeof listen, "--listen=unix:%s/s", dir);
    snprintf(model, sizeof model, "--model=%s", ft_fixture_model("cyc"));
    snprintf(peer, sizeof peer, "--target_endpoint=unix:%s/t", dir);
    char *const rows[][5] = {
        {FT_TEST_BINARY_DIR "/bin/foretoken-target", listen, model, NULL},
        {FT_TEST_BINARY_DIR "/bin/foretoken-coordinator", listen, peer, NULL},
    };
    for (int i = 0; i < 2; i++) {
        int status = 0;
        pid_t pid = start_unread(rows[i]);
        for (int j = 0; j < 3; j++) { /* each is told of */
            kill(pid, SIGHUP);
            usleep(200000);
        }
        ck_assert_msg(waitpid(pid, &status, WNOHANG) == 0, "%s: %d", rows[i][0], status);
        kill(pid, SIGTERM);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_msg(WIFEXITED(status), "%s: %d", rows[i][0], status);
    }
    ft_fixture_remove_dir(dir);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("e2e_late");
    TCase *tc = tcase_create("late");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, answers_larger_than_a_queue_or_a_request_arrive_whole);
    tcase_add_test(tc, dev62_answer_that_is_read_after_sigterm_arrives_whole);
    tcase_add_test(tc, log_that_nobody_reads_ends_no_process);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
