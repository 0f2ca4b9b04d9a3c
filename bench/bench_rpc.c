/* Round trips between two processes over common/rpc: one message there, the same one back.
 *
 *   bench_rpc [ROUNDS]
 *
 * The server is a child, forked before gRPC is up. Both sides use the same spin. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/rpc/rpc.h"

#define ROUNDS_DEFAULT 20000
#define WARM_UP_PART 10 /* one tenth of the rounds is not counted */
#define PATIENCE_NS ((int64_t)10000000000)

static const size_t k_sizes[] = {64, 512, 4096};
static const int k_spins_us[] = {0, 200};

static void die(const struct ft_err *err) {
    ft_error("bench_rpc why %s", err->text);
    exit(1);
}

/* ---- server --------------------------------------------------------------------------------- */

static void echo_unary(struct ft_rpc_call *call, void *service, struct ft_str message) {
    (void)service;
    ft_rpc_call_reply(call, message);
}

static void echo_bidi(struct ft_rpc_call *call, void *service, struct ft_str message) {
    (void)service;
    ft_rpc_call_send(call, message);
}

static void serve(const char *endpoint, int spin_us) {
    static const struct ft_rpc_method methods[] = {
        {.path = "/bench.Echo/Unary", .kind = FT_RPC_UNARY, .on_message = echo_unary},
        {.path = "/bench.Echo/Bidi", .kind = FT_RPC_BIDI, .on_message = echo_bidi}};
    struct ft_rpc_server_opts opts = {.methods = methods, .n_methods = 2};
    struct ft_rpc_loop *loop = NULL;
    struct ft_rpc_server *server = NULL;
    struct ft_err err = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (ft_rpc_loop_create(&loop, (int64_t)spin_us * 1000, &err) != FT_OK ||
        ft_rpc_server_create(&server, loop, &opts, &err) != FT_OK ||
        ft_rpc_server_listen(server, endpoint, NULL, &err) != FT_OK ||
        ft_rpc_server_start(server, &err) != FT_OK)
        die(&err);
    ft_rpc_loop_run(loop);
}

/* ---- client --------------------------------------------------------------------------------- */

struct bench {
    struct ft_rpc_loop *loop;
    struct ft_rpc_client *client;
    struct ft_rpc_stream *stream;
    struct ft_str message;
    int n_rounds, n_done;
    int64_t start_ns;
    int64_t *took_ns; /* [n_rounds] */
    struct ft_rpc_status status;
};

static void on_unary(void *user, const struct ft_rpc_status *status, struct ft_str reply);

static void next_round(struct bench *b) {
    struct ft_err err = {0};
    if (b->n_done == b->n_rounds) {
        ft_rpc_loop_stop(b->loop);
        return;
    }
    b->start_ns = ft_clock_now_ns();
    struct ft_rpc_call_opts opts = {.deadline_ns = b->start_ns + PATIENCE_NS,
                                    .wait_for_ready = true};
    if (b->stream != NULL)
        ft_rpc_stream_send(b->stream, b->message);
    else if (ft_rpc_client_unary(b->client, "/bench.Echo/Unary", b->message, &opts, on_unary, b,
                                 &err) != FT_OK)
        die(&err);
}

static void end_round(struct bench *b, size_t len) {
    b->took_ns[b->n_done++] = ft_clock_now_ns() - b->start_ns;
    if (len != b->message.len) {
        ft_error("bench_rpc why reply_has %zu bytes wanted %zu", len, b->message.len);
        exit(1);
    }
    next_round(b);
}

static void on_unary(void *user, const struct ft_rpc_status *status, struct ft_str reply) {
    struct bench *b = user;
    if (status->code != 0) {
        ft_error("bench_rpc why %s", status->text);
        exit(1);
    }
    end_round(b, reply.len);
}

static void on_message(void *user, struct ft_str message) {
    end_round(user, message.len);
}

static void on_done(void *user, const struct ft_rpc_status *status) {
    struct bench *b = user;
    b->status = *status;
    b->stream = NULL;
    ft_rpc_loop_stop(b->loop);
}

static int compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void report(struct bench *b, const char *kind, int spin_us) {
    int skip = b->n_rounds / WARM_UP_PART, n = b->n_done - skip;
    int64_t *t = b->took_ns + skip;
    if (n <= 0) {
        ft_error("bench_rpc why %s", b->status.text);
        exit(1);
    }
    qsort(t, (size_t)n, sizeof t[0], compare);
    printf("%-6s spin %3d us %5zu B   p50 %7.1f us   p90 %7.1f us   p99 %7.1f us\n", kind, spin_us,
           b->message.len, (double)t[n / 2] / 1e3, (double)t[n * 9 / 10] / 1e3,
           (double)t[n * 99 / 100] / 1e3);
    fflush(stdout);
}

static void measure(struct bench *b, bool bidi, int spin_us) {
    static const struct ft_rpc_stream_handlers handlers = {.on_message = on_message,
                                                           .on_done = on_done};
    struct ft_rpc_call_opts opts = {.wait_for_ready = true};
    struct ft_err err = {0};
    b->n_done = 0;
    if (bidi && ft_rpc_stream_open(&b->stream, b->client, "/bench.Echo/Bidi", &opts, &handlers, b,
                                   &err) != FT_OK)
        die(&err);
    next_round(b);
    ft_rpc_loop_run(b->loop);
    report(b, bidi ? "bidi" : "unary", spin_us);
    if (b->stream != NULL) {
        ft_rpc_stream_cancel(b->stream);
        ft_rpc_loop_run(b->loop); /* until on_done */
    }
}

static void run_client(const char *endpoint, int n_rounds, int spin_us) {
    static char bytes[4096];
    struct bench b = {.n_rounds = n_rounds};
    struct ft_err err = {0};
    b.took_ns = calloc((size_t)n_rounds, sizeof b.took_ns[0]);
    if (b.took_ns == NULL)
        exit(1);
    if (ft_rpc_loop_create(&b.loop, (int64_t)spin_us * 1000, &err) != FT_OK ||
        ft_rpc_client_open(&b.client, b.loop, endpoint, NULL, &err) != FT_OK)
        die(&err);
    for (size_t i = 0; i < sizeof k_sizes / sizeof k_sizes[0]; i++) {
        b.message = (struct ft_str){bytes, k_sizes[i]};
        measure(&b, true, spin_us);
        measure(&b, false, spin_us);
    }
    ft_rpc_client_close(&b.client);
    ft_rpc_loop_destroy(&b.loop);
    free(b.took_ns);
}

/* Two fresh processes for each spin: neither may be forked from one that has gRPC up. */
static bool run_pair(const char *folder, int n_rounds, int spin_us) {
    char endpoint[128];
    snprintf(endpoint, sizeof endpoint, "unix:%s/s%d", folder, spin_us);
    pid_t server = fork();
    if (server == 0) {
        serve(endpoint, spin_us);
        _exit(0);
    }
    pid_t client = fork();
    if (client == 0) {
        run_client(endpoint, n_rounds, spin_us);
        exit(0);
    }
    int status = 1;
    waitpid(client, &status, 0);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    char path[160];
    snprintf(path, sizeof path, "%s", endpoint + 5);
    unlink(path);
    snprintf(path, sizeof path, "%s.lock", endpoint + 5);
    unlink(path);
    return status == 0;
}

int main(int argc, char **argv) {
    int n_rounds = argc > 1 ? atoi(argv[1]) : ROUNDS_DEFAULT;
    char folder[] = "/tmp/bench_rpc_XXXXXX";
    ft_log_init("bench_rpc", FT_LOG_INFO);
    if (n_rounds < WARM_UP_PART || mkdtemp(folder) == NULL) {
        fprintf(stderr, "usage: bench_rpc [ROUNDS], at least %d\n", WARM_UP_PART);
        return 64;
    }
    bool ok = true;
    for (size_t i = 0; i < sizeof k_spins_us / sizeof k_spins_us[0]; i++)
        ok = run_pair(folder, n_rounds, k_spins_us[i]) && ok;
    rmdir(folder);
    return ok ? 0 : 1;
}
