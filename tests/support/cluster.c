#include "support/cluster.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "support/fixtures.h"

extern char **environ;

static const char *const k_programs[] = {"foretoken-target", "foretoken-draft",
                                         "foretoken-coordinator"};
static const char *const k_names[] = {"target", "draft", "coordinator"};

enum { READY_FD = 9, ARGV_MAX = 24, START_TIMEOUT_MS = 60000 };

/* argv of one process; strings live in text. */
static void build_argv(const struct cluster *c, enum cluster_role role, char *argv[ARGV_MAX],
                       char text[8][256]) {
    int n = 0, t = 0;
    snprintf(text[t], 256, "%s/bin/%s", FT_TEST_BINARY_DIR, k_programs[role]);
    argv[n++] = text[t++];
    if (role == CLUSTER_COORDINATOR) {
        snprintf(text[t], 256, "--metrics_listen="); /* a test that wants it says where */
        argv[n++] = text[t++];
        snprintf(text[t], 256, "--listen=%s", c->endpoint);
        argv[n++] = text[t++];
        snprintf(text[t], 256, "--target_endpoint=unix:%s/target.sock", c->dir);
        argv[n++] = text[t++];
        if (c->opts.draft_dir != NULL) {
            snprintf(text[t], 256, "--draft_endpoint=unix:%s/draft.sock", c->dir);
            argv[n++] = text[t++];
        }
    } else {
        snprintf(text[t], 256, "--listen=unix:%s/%s.sock", c->dir, k_names[role]);
        argv[n++] = text[t++];
        snprintf(text[t], 256, "--model=%s",
                 role == CLUSTER_TARGET ? c->opts.target_dir : c->opts.draft_dir);
        argv[n++] = text[t++];
    }
    const char *device = getenv("FORETOKEN_TEST_DEVICE");
    if (role != CLUSTER_COORDINATOR && device != NULL) {
        snprintf(text[t], 256, "--device=%s", device);
        argv[n++] = text[t++];
    }
    snprintf(text[t], 256, "--ready_fd=%d", READY_FD);
    argv[n++] = text[t++];
    snprintf(text[t], 256, "--die_with_parent");
    argv[n++] = text[t++];
    for (int i = 0; i < CLUSTER_ARGS && c->opts.args[role][i] != NULL; i++)
        argv[n++] = (char *)(uintptr_t)c->opts.args[role][i];
    argv[n] = NULL;
}

/* 0 when the process said ready, else its exit status (128 + signal). */
static int wait_ready(struct cluster *c, enum cluster_role role, int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char line[8] = "";
    int n = poll(&p, 1, START_TIMEOUT_MS);
    ck_assert_msg(n == 1, "%s is not ready after %d ms", k_programs[role], START_TIMEOUT_MS);
    ssize_t got = read(fd, line, sizeof line);
    close(fd);
    if (got == 6 && memcmp(line, "ready\n", 6) == 0)
        return 0;
    int status = 0;
    waitpid(c->pids[role], &status, 0);
    c->pids[role] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int cluster_spawn(struct cluster *c, enum cluster_role role) {
    char *argv[ARGV_MAX];
    char text[8][256];
    char log[192];
    int fds[2];
    build_argv(c, role, argv, text);
    snprintf(log, sizeof log, "%s/%s.log", c->dir, k_names[role]);
    if (c->opts.log != NULL)
        snprintf(log, sizeof log, "%s", c->opts.log);
    if (c->opts.preload != NULL && role == CLUSTER_COORDINATOR)
        setenv("LD_PRELOAD", c->opts.preload, 1);
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], READY_FD);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log, O_WRONLY | O_CREAT | O_APPEND,
                                     0600);
    int failed = posix_spawn(&c->pids[role], argv[0], &actions, NULL, argv, environ);
    unsetenv("LD_PRELOAD");
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    ck_assert_msg(failed == 0, "cannot start %s: %s", argv[0], strerror(failed));
    return wait_ready(c, role, fds[0]);
}

static void show_log(const struct cluster *c, enum cluster_role role) {
    char command[256];
    snprintf(command, sizeof command, "tail -n 20 %s/%s.log >&2", c->dir, k_names[role]);
    if (system(command) != 0)
        fprintf(stderr, "no log of %s\n", k_names[role]);
}

void cluster_start(struct cluster *c, const struct cluster_opts *opts) {
    memset(c, 0, sizeof *c);
    c->opts = *opts;
    snprintf(c->dir, sizeof c->dir, "/tmp/foretoken-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(c->dir));
    snprintf(c->endpoint, sizeof c->endpoint, "unix:%s/public.sock", c->dir);
    if (opts->listen != NULL)
        snprintf(c->endpoint, sizeof c->endpoint, "%s", opts->listen);
    for (int role = 0; role < CLUSTER_ROLES; role++) {
        if (role == CLUSTER_DRAFT && opts->draft_dir == NULL)
            continue;
        int status = cluster_spawn(c, (enum cluster_role)role);
        if (status != 0)
            show_log(c, (enum cluster_role)role);
        ck_assert_msg(status == 0, "%s exited with %d at start", k_programs[role], status);
    }
    struct ft_err err = {0};
    struct ft_rpc_client_opts client_opts = {.message_max = 64 << 20};
    ck_assert_msg(ft_rpc_loop_create(&c->loop, 0, &err) == FT_OK, "%s", err.text);
    ck_assert_msg(ft_rpc_client_open(&c->client, c->loop, c->endpoint, &client_opts, &err) == FT_OK,
                  "%s", err.text);
}

void cluster_start_pair(struct cluster *c, const char *target, const char *draft, const char *arg) {
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model(target),
        .draft_dir = draft != NULL ? ft_fixture_model(draft) : NULL,
        .args = {[CLUSTER_COORDINATOR] = {arg}},
    };
    cluster_start(c, &opts);
}

int cluster_signal(struct cluster *c, enum cluster_role role, int signo) {
    int status = 0;
    ck_assert_int_ne(c->pids[role], 0);
    kill(c->pids[role], signo);
    if (signo == SIGKILL || signo == SIGTERM) {
        waitpid(c->pids[role], &status, 0);
        c->pids[role] = 0;
    }
    return status;
}

void cluster_exits(struct cluster *c, enum cluster_role role) {
    int status = 0;
    ck_assert_int_ne(c->pids[role], 0);
    waitpid(c->pids[role], &status, 0);
    c->pids[role] = 0;
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: status 0x%x",
                  k_programs[role], status);
}

void cluster_stop(struct cluster *c) {
    ft_rpc_client_close(&c->client);
    ft_rpc_loop_destroy(&c->loop);
    for (int role = CLUSTER_ROLES - 1; role >= 0; role--) {
        if (c->pids[role] == 0)
            continue;
        int status = cluster_signal(c, (enum cluster_role)role, SIGTERM);
        if (status != 0)
            show_log(c, (enum cluster_role)role);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s ended with status 0x%x",
                      k_programs[role], status);
    }
    char command[192];
    snprintf(command, sizeof command, "rm -rf %s", c->dir);
    ck_assert_int_eq(system(command), 0);
}

/* ---- generation ----------------------------------------------------------------------------- */

struct ft_wire_generate gen_request(void) {
    return (struct ft_wire_generate){
        .params = {.has_temperature = true, .temperature = 0.0f},
        .stream = true,
        .has_num_speculative_tokens = true,
        .num_speculative_tokens = 4,
    };
}

struct ft_wire_generate gen_text(const char *text, uint32_t max_tokens, int k) {
    struct ft_wire_generate request = gen_request();
    request.input.kind = FT_WIRE_INPUT_TEXT;
    request.input.text = ft_str_c(text);
    request.params.has_max_tokens = true;
    request.params.max_tokens = max_tokens;
    request.num_speculative_tokens = (uint32_t)k;
    return request;
}

static void on_other(struct gen *gen, const struct ft_wire_generated *out) {
    ck_assert_uint_le(out->index, GEN_OTHERS);
    struct gen_other *other = &gen->others[out->index - 1];
    ck_assert_int_eq(other->finish, FT_WIRE_FINISH_NONE);
    for (size_t i = 0; i < out->n_token_ids && other->n_ids < GEN_OTHER_IDS_MAX; i++)
        other->ids[other->n_ids++] = out->token_ids[i];
    for (size_t i = 0; i < out->n_logprobs && other->n_logprobs < GEN_OTHER_IDS_MAX; i++)
        other->logprobs[other->n_logprobs++] = out->logprobs[i].token_logprob;
    other->n_tokens += out->n_token_ids;
    other->finish = out->finish;
    other->usage = out->usage;
}

static void on_message(void *user, struct ft_str message) {
    struct gen *gen = user;
    struct ft_wire_generated out;
    struct ft_err err = {0};
    ft_arena_reset(gen->arena);
    ck_assert_msg(ft_wire_decode_generated(message, gen->arena, &out, &err) == FT_OK, "%s",
                  err.text);
    gen->n_messages++;
    if (out.index > 0) {
        on_other(gen, &out);
        return;
    }
    for (size_t i = 0; i < out.n_token_ids && gen->n_ids < GEN_IDS_MAX; i++)
        gen->ids[gen->n_ids++] = out.token_ids[i];
    gen->bad_utf8 = gen->bad_utf8 || ft_utf8_valid_prefix(out.text) != out.text.len;
    ft_buf_add_str(&gen->text, out.text);
    ft_buf_add(&gen->logprobs, out.logprobs, out.n_logprobs * sizeof *out.logprobs);
    ft_buf_add(&gen->prompt_logprobs, out.prompt_logprobs,
               out.n_prompt_logprobs * sizeof *out.prompt_logprobs);
    ft_buf_add(&gen->prompt_ids, out.prompt_token_ids,
               out.n_prompt_token_ids * sizeof *out.prompt_token_ids);
    if (out.finish != FT_WIRE_FINISH_NONE) {
        gen->finish = out.finish;
        gen->has_matched_token = out.has_matched_token;
        gen->matched_token = out.matched_token_id;
        gen->has_matched_str = out.has_matched_str;
        snprintf(gen->matched_str, sizeof gen->matched_str, "%.*s", (int)out.matched_stop_str.len,
                 out.matched_stop_str.len ? out.matched_stop_str.ptr : "");
        gen->usage = out.usage;
        gen->spec = out.speculative;
        gen->spec.fallback_reason = (struct ft_str){NULL, 0};
    }
    if (gen->cancel_after != 0 && gen->n_ids >= gen->cancel_after)
        ft_rpc_stream_cancel(gen->stream);
}

static void on_done(void *user, const struct ft_rpc_status *status) {
    struct gen *gen = user;
    gen->status = *status;
    gen->done = true;
}

static const struct ft_rpc_stream_handlers k_handlers = {.on_message = on_message,
                                                         .on_done = on_done};

void gen_start(struct cluster *c, const struct ft_wire_generate *request, struct gen *gen) {
    size_t cancel_after = gen->cancel_after;
    memset(gen, 0, sizeof *gen);
    gen->cancel_after = cancel_after;
    gen->arena = ft_arena_create(4096, 0);
    ft_buf_init(&gen->text, 0);
    ft_buf_init(&gen->logprobs, 0);
    ft_buf_init(&gen->prompt_logprobs, 0);
    ft_buf_init(&gen->prompt_ids, 0);
    struct ft_buf out;
    struct ft_err err = {0};
    struct ft_rpc_call_opts opts = {0};
    ft_buf_init(&out, 0);
    ft_wire_encode_generate(request, &out);
    ck_assert_msg(ft_rpc_stream_open(&gen->stream, c->client, FT_WIRE_INFERENCE_SERVICE "Generate",
                                     &opts, &k_handlers, gen, &err) == FT_OK,
                  "%s", err.text);
    ck_assert_int_eq(ft_rpc_stream_send(gen->stream, ft_buf_str(&out)), FT_OK);
    ft_rpc_stream_half_close(gen->stream);
    ft_buf_fini(&out);
}

void gen_wait(struct cluster *c, struct gen *const *gens, size_t n) {
    int64_t deadline_ns = ft_clock_now_ns() + 120000000000;
    for (size_t i = 0; i < n; i++) {
        while (!gens[i]->done) {
            ck_assert_msg(ft_clock_now_ns() < deadline_ns, "generation %zu is not done", i);
            ft_rpc_loop_step(c->loop, deadline_ns);
        }
    }
}

void gen_run(struct cluster *c, const struct ft_wire_generate *request, struct gen *gen) {
    gen_start(c, request, gen);
    gen_wait(c, &gen, 1);
}

const struct ft_logprobs *gen_logprobs(const struct gen *gen, size_t i) {
    ck_assert_uint_ge(gen->logprobs.len / sizeof(struct ft_logprobs), i + 1);
    return (const struct ft_logprobs *)(const void *)gen->logprobs.ptr + i;
}

void gen_require_ok(const struct gen *gen) {
    ck_assert_msg(gen->status.code == 0, "%s: %s", ft_rpc_status_name(gen->status.code),
                  gen->status.text);
}

void gen_require_same(const struct gen *got, const struct gen *expected, const char *what) {
    gen_require_ok(got);
    ck_assert_msg(got->n_ids == expected->n_ids, "%s: %zu tokens, %zu expected", what, got->n_ids,
                  expected->n_ids);
    for (size_t i = 0; i < got->n_ids; i++)
        ck_assert_msg(got->ids[i] == expected->ids[i], "%s: token %zu is %d, not %d", what, i,
                      got->ids[i], expected->ids[i]);
}

void gen_fini(struct gen *gen) {
    ft_buf_fini(&gen->text);
    ft_buf_fini(&gen->logprobs);
    ft_buf_fini(&gen->prompt_logprobs);
    ft_buf_fini(&gen->prompt_ids);
    ft_arena_destroy(&gen->arena);
}

struct ft_rpc_status cluster_admin(struct cluster *c, const char *method, struct ft_str message,
                                   struct ft_buf *out) {
    char path[96];
    struct ft_rpc_call_opts opts = {.deadline_ns = ft_clock_now_ns() + 60000000000};
    snprintf(path, sizeof path, "%s%s", FT_WIRE_ADMIN_SERVICE, method);
    return ft_rpc_client_unary_sync(c->client, path, message, &opts, out);
}

struct ft_wire_stats cluster_stats(struct cluster *c) {
    static const struct ft_str none = {NULL, 0};
    struct ft_buf out;
    struct ft_wire_stats stats;
    struct ft_err err = {0};
    struct ft_rpc_call_opts opts = {0};
    ft_buf_init(&out, 0);
    struct ft_arena *arena = ft_arena_create(4096, 0);
    struct ft_rpc_status status = ft_rpc_client_unary_sync(
        c->client, FT_WIRE_ADMIN_SERVICE "GetStats", (struct ft_str){NULL, 0}, &opts, &out);
    ck_assert_msg(status.code == 0, "GetStats: %s", status.text);
    ck_assert_msg(ft_wire_decode_stats(ft_buf_str(&out), arena, &stats, &err) == FT_OK, "%s",
                  err.text);
    stats.version = stats.speculation = stats.speculation_reason = none;
    stats.state = stats.state_reason = stats.drafter = stats.num_speculative_tokens = none;
    stats.rejection_sample_method = stats.log_level = none;
    stats.target.model = stats.target.trouble = stats.draft.model = stats.draft.trouble = none;
    for (size_t i = 0; i < stats.n_drafters; i++)
        stats.drafters[i].name = none;
    ft_arena_destroy(&arena);
    ft_buf_fini(&out);
    return stats;
}

static bool has_all_blocks(const struct ft_wire_worker_state *w) {
    return w->sequences == 0 && w->kv_blocks_free + w->kv_blocks_cached == w->kv_blocks_total;
}

void cluster_require_idle(struct cluster *c) {
    int64_t deadline_ns = ft_clock_now_ns() + 10000000000;
    for (;;) {
        struct ft_wire_stats s = cluster_stats(c);
        if (s.num_requests_running + s.num_requests_waiting == 0 && has_all_blocks(&s.target) &&
            has_all_blocks(&s.draft))
            return;
        ck_assert_msg(ft_clock_now_ns() < deadline_ns,
                      "running %u waiting %u, target holds %u sequences, draft %u",
                      s.num_requests_running, s.num_requests_waiting, s.target.sequences,
                      s.draft.sequences);
        usleep(1000);
    }
}
