#include "coordinator/app.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/drain.h"
#include "coordinator/metrics.h"
#include "coordinator/pair.h"
#include "coordinator/round.h"
#include "coordinator/service.h"

#define MS 1000000
/* Of an answer: log-probabilities of a long one are many times what a request may say. */
#define REPLY_MAX ((size_t)1 << 30)
/* Calls that are no requests, or are over but for a client that has yet to read. */
#define OTHER_CALLS 4096
#define RECOVERY_LOOK_MS 50
#define WAITING_FOR_TARGET "waiting for the target worker"

const char *co_app_mode(const struct co_app *app, const char **reason) {
    *reason = "";
    bool needs_model = strcmp(app->config.drafter, "model") == 0;
    if (!app->config.speculation)
        *reason = "speculation is off";
    else if (app->config.draft_length.k_max == 0)
        *reason = "num_speculative_tokens is 0";
    else if (!needs_model)
        return app->config.drafter;
    else if (app->draft == NULL)
        *reason = "no draft worker configured";
    else if (!co_peer_up(app->draft))
        *reason = co_peer_trouble(app->draft);
    return **reason == 0 ? "draft_model" : "plain";
}

int32_t co_app_calls_max(const struct co_app *app) {
    return app->config.max_num_seqs + app->config.max_queue + OTHER_CALLS;
}

static void stop_with(struct co_app *app, const char *what, const struct ft_err *err) {
    ft_error("%s reason %s", what, err->text);
    app->exit_status = ft_code_exit_status(err->code);
    ft_rpc_loop_stop(app->loop);
}

/* ---- start ---------------------------------------------------------------------------------- */

static void say_ready(struct co_app *app) {
    if (app->config.ready_fd < 0)
        return;
    if (write(app->config.ready_fd, "ready\n", 6) != 6)
        ft_warn("ready-fd fd %d reason cannot write", app->config.ready_fd);
    close(app->config.ready_fd);
}

/* Where it listens, with the port that the system chose for port 0. */
static void listen_text(const struct co_app *app, char text[FT_PARAM_STR_MAX + 16]) {
    const char *listen = app->config.listen, *colon = strrchr(listen, ':');
    if (app->port == 0)
        snprintf(text, FT_PARAM_STR_MAX + 16, "%s", listen);
    else
        snprintf(text, FT_PARAM_STR_MAX + 16, "%.*s:%d", (int)(colon - listen), listen, app->port);
}

static void start_serving(struct co_app *app) {
    char listen[FT_PARAM_STR_MAX + 16];
    listen_text(app, listen);
    ft_rpc_timer_cancel(app->loop, &app->startup_timer);
    co_readiness_serving(&app->readiness);
    const char *reason;
    const char *mode = co_app_mode(app, &reason);
    ft_info("serving listen %s speculation %s num_speculative_tokens %s drafter %s rule %s "
            "max_model_len %d max_num_seqs %d%s%s",
            listen, mode, app->config.num_speculative_tokens, app->config.drafter, app->rule->name,
            app->pair.max_model_len, app->pair.max_seqs, *reason ? " reason " : "", reason);
    if (*reason != 0 && app->config.draft_endpoint[0] != 0)
        ft_warn("speculation-off reason %s", reason);
    say_ready(app);
}

static void startup_late(void *user) {
    struct co_app *app = user;
    if (co_peer_up(app->target)) {
        start_serving(app); /* the draft is a matter of speed */
        return;
    }
    struct ft_err err = {0};
    ft_err_set(&err, FT_E_PEER_UNAVAILABLE, "start",
               "the target worker at %s is not there after %d ms: %s", app->config.target_endpoint,
               app->config.startup_timeout_ms, co_peer_trouble(app->target));
    stop_with(app, "start-failed", &err);
}

/* ---- workers -------------------------------------------------------------------------------- */

/* Before the first region is mapped: rows may then stay on the target's GPU. */
static void open_decider(struct co_app *app, const struct ft_wire_describe *d) {
    char uuid[FT_DEVICE_UUID_MAX];
    int32_t n_vocab = app->pair.vocab_size;
    snprintf(uuid, sizeof uuid, "%.*s", (int)d->device_uuid.len, d->device_uuid.ptr);
    co_decider_open(&app->decider, app->config.accept_device, uuid,
                    app->pair.target_limits.max_rows, n_vocab);
}

static enum ft_code on_described(void *user, struct co_peer *peer, struct ft_err *err) {
    struct co_app *app = user;
    bool is_target = strcmp(co_peer_role(peer), "target") == 0;
    enum ft_code code = is_target ? co_pair_target(app, co_peer_describe(peer), err)
                                  : co_pair_draft(app, co_peer_describe(peer), err);
    if (is_target && code == FT_OK)
        open_decider(app, co_peer_describe(peer));
    bool hopeless = code == FT_E_PROC_CONFIG || code == FT_E_PROC_MODEL || code == FT_E_PROC_MEMORY;
    if (hopeless && !app->readiness.serving)
        stop_with(app, "start-failed", err);
    else if (hopeless)
        ft_error("worker-refused role %s reason %s", co_peer_role(peer), err->text);
    return code;
}

static void on_up(void *user, struct co_peer *peer) {
    struct co_app *app = user;
    const struct ft_wire_describe *d = co_peer_describe(peer);
    ft_info("worker-up role %s epoch %016llx model \"%.*s\" backend \"%.*s\"", co_peer_role(peer),
            (unsigned long long)d->epoch, (int)d->model_dir.len, d->model_dir.ptr,
            (int)d->backend.len, d->backend.ptr);
    if (peer == app->target) {
        ft_rpc_timer_cancel(app->loop, &app->recovery_timer);
        co_readiness_target_back(&app->readiness);
        if (app->draft != NULL)
            co_readiness_starting(&app->readiness, "waiting for the draft worker");
    }
    bool all_up = co_peer_up(app->target) && (app->draft == NULL || co_peer_up(app->draft));
    if (!app->readiness.serving && all_up)
        start_serving(app);
    co_round_kick(app);
}

/* When a request that came at arrived_ns has waited for the target as long as it may. */
static int64_t given_up_ns(const struct co_app *app, int64_t arrived_ns) {
    int64_t begin_ns = arrived_ns > app->target_lost_ns ? arrived_ns : app->target_lost_ns;
    return begin_ns + (int64_t)app->config.target_recovery_timeout_ms * MS;
}

static void recovery_late(void *user);

/* For the request that is given up first, not before begin_ns. One that comes later waits as long
 * as any. */
static void set_recovery_timer(struct co_app *app, int64_t begin_ns) {
    int64_t wake_ns = given_up_ns(app, ft_clock_now_ns());
    for (const struct co_request *r = app->first; r != NULL; r = r->next)
        if (r->state != CO_REQUEST_ENDED && given_up_ns(app, r->arrived_ns) < wake_ns)
            wake_ns = given_up_ns(app, r->arrived_ns);
    for (const struct co_encode_job *job = app->encoding.first; job != NULL; job = job->next)
        if (job->request != NULL && given_up_ns(app, job->request->arrived_ns) < wake_ns)
            wake_ns = given_up_ns(app, job->request->arrived_ns);
    if (wake_ns < begin_ns)
        wake_ns = begin_ns;
    ft_rpc_timer_set(app->loop, &app->recovery_timer, wake_ns, recovery_late, app);
}

static void recovery_late(void *user) {
    struct co_app *app = user;
    struct ft_err err = {0};
    int64_t now_ns = ft_clock_now_ns();
    ft_err_set(&err, FT_E_PEER_UNAVAILABLE, "target",
               "the target worker did not come back within %d ms",
               app->config.target_recovery_timeout_ms);
    for (struct co_request *r = app->first, *next; r != NULL; r = next) {
        next = r->next;
        if (given_up_ns(app, r->arrived_ns) <= now_ns)
            co_request_fail(r, &err);
    }
    if (!co_peer_up(app->target)) /* a prompt may still be tokenized: it is looked at again */
        set_recovery_timer(app, now_ns + RECOVERY_LOOK_MS * MS);
}

static void on_down(void *user, struct co_peer *peer, const char *why) {
    struct co_app *app = user;
    ft_warn("worker-down role %s reason %s", co_peer_role(peer), why);
    if (peer == app->draft) {
        co_round_draft_down(app);
        return;
    }
    bool lost_before = app->readiness.target_lost;
    co_readiness_starting(&app->readiness, WAITING_FOR_TARGET);
    char reason[FT_ERR_TEXT_MAX];
    snprintf(reason, sizeof reason, "the target worker is lost: %s", why);
    co_readiness_target_lost(&app->readiness, reason);
    if (!lost_before) {
        app->target_lost_ns = ft_clock_now_ns();
        set_recovery_timer(app, 0);
    }
    co_round_target_down(app);
}

static void on_reply(void *user, struct co_peer *peer, const struct ft_wire_step_reply *reply) {
    struct co_app *app = user;
    if (peer == app->target)
        co_round_target_reply(app, reply);
    else
        co_round_draft_reply(app, reply);
}

static const struct co_peer_events k_events = {
    .on_described = on_described,
    .on_up = on_up,
    .on_down = on_down,
    .on_reply = on_reply,
};

/* ---- stop ----------------------------------------------------------------------------------- */

static void on_signal(void *user, int signo) {
    struct co_app *app = user;
    if (signo != SIGHUP) {
        co_drain_stop(app, signo);
    } else if (!app->stopping) { /* what ends reloads nothing: what it would apply to may be gone */
        co_supervise_reload(&app->supervise);
        co_guard_reload(app);
    }
}

void co_app_close(struct co_app *app) {
    if (app->loop == NULL)
        return;
    struct ft_err err = {0};
    app->stopping = true;
    ft_err_set(&err, FT_E_PEER_UNAVAILABLE, "stop", "the service is shutting down");
    app->round.phase = CO_ROUND_IDLE; /* late replies find no round */
    app->round.n_entries = 0;
    for (struct co_request *r = app->first, *next; r != NULL; r = next) {
        next = r->next;
        r->in_step = false;
        if (r->state == CO_REQUEST_ENDED)
            co_request_collect(r);
        else
            co_request_fail(r, &err);
    }
    co_encode_fail_all(app, &err);
    ft_rpc_timer_cancel(app->loop, &app->startup_timer);
    ft_rpc_timer_cancel(app->loop, &app->recovery_timer);
    ft_rpc_timer_cancel(app->loop, &app->shutdown_timer);
    ft_rpc_timer_cancel(app->loop, &app->backoff_timer);
    co_supervise_close(&app->supervise);
    co_metrics_stop(app->metrics);
    co_health_close(app);
    ft_rpc_server_close(&app->server, 200 * MS);
    co_guard_close(app);
    co_peer_close(&app->target);
    co_peer_close(&app->draft);
    co_encode_fini(app);
    co_decider_close(&app->decider);
    co_round_fini(app);
    co_drafting_fini(app);
    co_pair_fini(app);
    ft_rpc_loop_destroy(&app->loop);
    co_metrics_destroy(&app->metrics);
}

/* ---- open and close -------------------------------------------------------------------------- */

static enum ft_code open_peer(struct co_app *app, const char *role, struct co_peer **out,
                              struct ft_err *err) {
    bool is_target = strcmp(role, "target") == 0;
    struct co_peer_opts opts = {
        .loop = app->loop,
        .role = role,
        .endpoint = is_target ? app->config.target_endpoint : app->config.draft_endpoint,
        .step_timeout_ms =
            is_target ? app->config.target_step_timeout_ms : app->config.draft_step_timeout_ms,
        .coordinator_epoch = app->epoch,
        .device = &app->decider.device,
        .events = &k_events,
        .user = app,
    };
    return co_peer_open(out, &opts, err);
}

enum ft_code co_app_open(struct co_app *app, struct ft_err *err) {
    app->epoch = ft_clock_random_u64();
    app->started_ns = ft_clock_now_ns();
    co_readiness_init(&app->readiness);
    co_readiness_starting(&app->readiness, WAITING_FOR_TARGET);
    app->next_seq_id = 1;
    app->rule = ft_rule_find(app->config.rejection_sample_method);
    FT_ASSERT(app->rule != NULL); /* the parameter's choices are the rules that exist */
    enum ft_code code = ft_rpc_loop_create(&app->loop, (int64_t)app->config.spin_us * 1000, err);
    if (code == FT_OK)
        code = ft_rpc_loop_on_signal(app->loop, on_signal, app, err);
    if (code == FT_OK)
        code = co_supervise_open(&app->supervise, app, err);
    if (code != FT_OK)
        return code;
    code = co_guard_open(app, err);
    if (code != FT_OK)
        return code;
    struct ft_rpc_server_opts opts = {
        .service = app,
        .message_max = (size_t)app->config.max_message_bytes,
        .reply_max = REPLY_MAX,
        .calls_max = co_app_calls_max(app),
        .tls = app->guard.tls,
        .socket = {.mode = (unsigned)strtoul(app->config.socket_mode, NULL, 8),
                   .group = app->config.socket_group,
                   .users = app->config.socket_users},
        .on_peer_refused = co_guard_peer_refused,
        .admit = co_guard_admit,
    };
    opts.methods = co_service_methods(&opts.n_methods);
    code = ft_rpc_server_create(&app->server, app->loop, &opts, err);
    if (code == FT_OK)
        code = ft_rpc_server_listen(app->server, app->config.listen, &app->port, err);
    if (code == FT_OK)
        code = co_metrics_open(&app->metrics, app, err);
    if (code == FT_OK)
        code = open_peer(app, "target", &app->target, err);
    if (code == FT_OK && app->config.draft_endpoint[0] != 0)
        code = open_peer(app, "draft", &app->draft, err);
    co_health_open(app);
    if (code == FT_OK) /* health is told, and callers are, while the workers are awaited */
        code = ft_rpc_server_start(app->server, err);
    if (code == FT_OK)
        code = ft_rpc_timer_set(app->loop, &app->startup_timer,
                                ft_clock_now_ns() + (int64_t)app->config.startup_timeout_ms * MS,
                                startup_late, app);
    return code;
}
