/* operate: what an operator does through foretoken.v1.Admin; each answers at once but ReloadDraft,
 * which waits for the draft worker. */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/admin.h"
#include "coordinator/answer.h"
#include "coordinator/drain.h"
#include "coordinator/group.h"
#include "coordinator/round.h"
#include "coordinator/service.h"
#include "coordinator/tune.h"

#define MODULE "operate"

#define ARENA_CHUNK 4096
#define ARENA_MAX ((size_t)1 << 20)
/* The longest load of a draft model that is waited for: tens of GB from a slow disk. */
#define RELOAD_TIMEOUT_MS 900000

static void answer(struct ft_rpc_call *call, struct co_app *app, struct ft_str message,
                   co_answer_fn fn) {
    co_answer(call, app, message, ARENA_MAX, fn);
}

/* ---- health, drain, resume ------------------------------------------------------------------- */

static void add_health(const struct co_app *app, struct ft_buf *out) {
    const struct co_readiness *readiness = &app->readiness;
    struct ft_wire_service_health health = {
        .state = ft_str_c(co_readiness_name(readiness->state)),
        .reason = ft_str_c(readiness->reason),
        .state_seconds = (double)(ft_clock_now_ns() - readiness->since_ns) * 1e-9,
        .num_requests_running = (uint32_t)app->n_running,
        .num_requests_waiting = (uint32_t)(app->n_queued + app->encoding.n_requests),
        .target_up = co_peer_up(app->target),
        .target_trouble = ft_str_c(co_peer_trouble(app->target)),
        .has_draft = app->draft != NULL,
        .draft_up = co_peer_up(app->draft),
        .draft_trouble = ft_str_c(app->draft != NULL ? co_peer_trouble(app->draft) : ""),
    };
    ft_wire_encode_service_health(&health, out);
}

static enum ft_code health(struct co_app *app, struct ft_str message, struct ft_arena *arena,
                           struct ft_buf *out, struct ft_err *err) {
    (void)message;
    (void)arena;
    (void)err;
    add_health(app, out);
    return FT_OK;
}

/* It goes into statuses, logs and screens: one line of printable ASCII. */
static enum ft_code take_reason(struct ft_str reason, char text[FT_ERR_TEXT_MAX],
                                struct ft_err *err) {
    if (reason.len > 200)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "reason has %zu bytes: at most 200",
                          reason.len);
    for (size_t i = 0; i < reason.len; i++)
        if (reason.ptr[i] < 0x20 || reason.ptr[i] > 0x7e)
            return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                              "reason has a byte 0x%02x at %zu: must be printable ASCII",
                              (unsigned char)reason.ptr[i], i);
    memcpy(text, reason.ptr != NULL ? reason.ptr : "", reason.len);
    text[reason.len] = 0;
    return FT_OK;
}

static enum ft_code drain(struct co_app *app, struct ft_str message, struct ft_arena *arena,
                          struct ft_buf *out, struct ft_err *err) {
    struct ft_str reason;
    char text[FT_ERR_TEXT_MAX];
    enum ft_code code = ft_wire_decode_drain(message, arena, &reason, err);
    if (code == FT_OK)
        code = take_reason(reason, text, err);
    if (code != FT_OK)
        return code;
    co_drain_begin(app, text);
    add_health(app, out);
    return FT_OK;
}

static enum ft_code resume(struct co_app *app, struct ft_str message, struct ft_arena *arena,
                           struct ft_buf *out, struct ft_err *err) {
    (void)message;
    (void)arena;
    enum ft_code code = co_drain_resume(app, err);
    if (code == FT_OK)
        add_health(app, out);
    return code;
}

/* ---- requests -------------------------------------------------------------------------------- */

static const char *state_of(const struct co_request *r) {
    if (co_request_paused(r))
        return "paused";
    return r->state == CO_REQUEST_RUNNING ? "running" : "waiting";
}

/* Most that it drafts in a round, as things are. */
static int32_t k_of(const struct co_app *app, const struct co_request *r) {
    if (!r->speculate || !app->config.speculation)
        return 0;
    return r->k_own ? r->k : co_length_policy_k(&app->drafting.policy, app->n_running);
}

static void add_info(const struct co_app *app, const struct co_request *r, int32_t index,
                     const char *state, const struct ft_rpc_call *call, struct ft_buf *out) {
    struct ft_wire_request_info info = {
        .request_id = ft_str_c(r->id),
        .index = (uint32_t)index,
        .state = ft_str_c(state),
        .age_seconds = (double)(ft_clock_now_ns() - r->arrived_ns) * 1e-9,
        .prompt_tokens = (uint32_t)r->n_prompt,
        .output_tokens = (uint32_t)(r->n - r->n_prompt),
        .max_tokens = (uint32_t)r->max_new,
        .num_speculative_tokens = (uint32_t)k_of(app, r),
        .drafter = ft_str_c(r->drafter->name),
        .rejection_sample_method = ft_str_c(r->rule->name),
        .num_draft_tokens = r->spec.drafted,
        .num_accepted_tokens = r->spec.accepted,
        .priority = r->turn.priority,
        .fallback_reason = ft_str_c(r->fallback_reason),
    };
    if (call != NULL)
        info.client = co_service_client(app, call);
    ft_wire_encode_listed_request(&info, out);
}

/* The latest stands first among the jobs. */
static const struct co_encode_job *earliest(const struct co_app *app) {
    const struct co_encode_job *job = app->encoding.first;
    while (job != NULL && job->next != NULL)
        job = job->next;
    return job;
}

/* Waits for its tokenizer, and somebody waits for it. */
static bool is_asked(const struct co_encode_job *job) {
    return job->call != NULL && job->request != NULL;
}

static enum ft_code list(struct co_app *app, struct ft_str message, struct ft_arena *arena,
                         struct ft_buf *out, struct ft_err *err) {
    (void)message;
    (void)arena;
    (void)err;
    for (const struct co_request *r = app->first; r != NULL; r = r->next)
        if (r->state != CO_REQUEST_ENDED)
            add_info(app, r, r->index, state_of(r), r->call, out);
    for (const struct co_encode_job *job = earliest(app); job != NULL; job = job->prev)
        for (int32_t i = 0; is_asked(job) && i < job->n_requests; i++)
            add_info(app, job->request, i, "tokenizing", job->call, out);
    return FT_OK;
}

static uint32_t cancel_queued(struct co_app *app, struct ft_str id) {
    uint32_t n = 0;
    for (struct co_request *r = app->first, *next; r != NULL; r = next) {
        next = r->next;
        if (r->state == CO_REQUEST_ENDED || !ft_str_eq(id, ft_str_c(r->id)))
            continue;
        ft_info("request-aborted request %s tokens %d", r->id, r->n - r->n_prompt);
        co_request_event(r, CO_EVENT_ABORT); /* frees r alone */
        n++;
    }
    return n;
}

/* They have nothing to end with, not even a prompt. */
static uint32_t cancel_tokenizing(struct co_app *app, struct ft_str id) {
    uint32_t n = 0;
    for (struct co_encode_job *job = app->encoding.first, *next; job != NULL; job = next) {
        next = job->next;
        if (!is_asked(job) || !ft_str_eq(id, job->request_id))
            continue;
        ft_info("request-aborted request %s tokens 0", job->request->id);
        ft_rpc_call_finish(job->call, ft_code_grpc_status(FT_E_REQ_CANCELLED), "aborted");
        co_encode_call_gone(app, job->call);
        n += (uint32_t)job->n_requests;
    }
    return n;
}

static enum ft_code cancel(struct co_app *app, struct ft_str message, struct ft_arena *arena,
                           struct ft_buf *out, struct ft_err *err) {
    struct ft_str id;
    enum ft_code code = ft_wire_decode_cancel(message, arena, &id, err);
    if (code != FT_OK)
        return code;
    uint32_t n = cancel_queued(app, id) + cancel_tokenizing(app, id);
    if (n == 0)
        return ft_err_set(err, FT_E_REQ_NOT_FOUND, MODULE, "no request has the id '%.*s'",
                          id.len < CO_REQUEST_ID_MAX ? (int)id.len : CO_REQUEST_ID_MAX, id.ptr);
    ft_wire_encode_cancelled(n, out);
    co_round_kick(app);
    return FT_OK;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static enum ft_code set(struct co_app *app, struct ft_str message, struct ft_arena *arena,
                        struct ft_buf *out, struct ft_err *err) {
    struct ft_wire_parameter given[FT_WIRE_PARAMETERS_MAX];
    size_t n_given;
    enum ft_code code = ft_wire_decode_parameters(message, arena, given, &n_given, err);
    if (code == FT_OK)
        code = co_tune_set(app, given, n_given, err);
    if (code != FT_OK)
        return code;
    const char *names[CO_TUNABLES_MAX];
    char texts[CO_TUNABLES_MAX][CO_TUNABLE_TEXT_MAX];
    size_t n = co_tune_show(app, names, texts);
    for (size_t i = 0; i < n; i++)
        ft_wire_encode_parameter(
            &(struct ft_wire_parameter){ft_str_c(names[i]), ft_str_c(texts[i])}, out);
    return FT_OK;
}

/* ---- another draft model --------------------------------------------------------------------- */

struct reload {
    struct co_app *app;
    struct ft_rpc_call *call; /* NULL once gone; the draft worker goes on all the same */
};

static void reloaded(void *user, const struct ft_rpc_status *status, struct ft_str message) {
    struct reload *reload = user;
    struct co_app *app = reload->app;
    struct ft_rpc_call *call = reload->call;
    struct ft_wire_reloaded done = {0};
    struct ft_err err = {0};
    struct ft_arena *arena = ft_arena_create(ARENA_CHUNK, ARENA_MAX);
    free(reload);
    app->reloading = false;
    enum ft_code code = FT_OK;
    if (arena == NULL)
        code = ft_err_set(&err, FT_E_PROC_MEMORY, MODULE, "no memory");
    else if (status->code == 0)
        code = ft_wire_decode_reloaded(message, arena, &done, &err);
    if (call != NULL) {
        ft_rpc_call_set_user(call, NULL);
        struct ft_buf out;
        ft_buf_init(&out, 0);
        ft_wire_encode_draft_reloaded(
            &(struct ft_wire_draft_reloaded){done.epoch, (double)done.load_nanos * 1e-9}, &out);
        if (status->code != 0)
            ft_rpc_call_finish(call, status->code, status->text);
        else if (code != FT_OK)
            ft_rpc_call_fail(call, &err);
        else
            co_answer_with(call, &out);
        ft_buf_fini(&out);
    }
    if (status->code != 0)
        ft_warn("draft-reload-failed reason %s", status->text);
    ft_arena_destroy(&arena);
}

static enum ft_code check_reload(const struct co_app *app, struct ft_str dir, struct ft_err *err) {
    if (app->draft == NULL)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "no draft worker configured");
    if (!co_peer_up(app->draft))
        return ft_err_set(err, FT_E_PEER_UNAVAILABLE, MODULE, "the draft worker is down: %s",
                          co_peer_trouble(app->draft));
    if (app->reloading)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "another reload is under way");
    if (dir.len == 0 || dir.len >= FT_PARAM_STR_MAX || memchr(dir.ptr, 0, dir.len) != NULL)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "model_dir has %zu bytes: must be a path of 1 to %d", dir.len,
                          FT_PARAM_STR_MAX - 1);
    return FT_OK;
}

void co_operate_reload_draft(struct ft_rpc_call *call, void *service, struct ft_str message) {
    struct co_app *app = service;
    struct ft_str dir;
    struct ft_err err = {0};
    struct ft_buf out;
    ft_buf_init(&out, 0);
    struct reload *reload = malloc(sizeof *reload);
    struct ft_arena *arena = ft_arena_create(ARENA_CHUNK, ARENA_MAX);
    enum ft_code code = FT_OK;
    if (arena == NULL || reload == NULL)
        code = ft_err_set(&err, FT_E_PROC_MEMORY, MODULE, "no memory");
    if (code == FT_OK)
        code = ft_wire_decode_reload_draft(message, arena, &dir, &err);
    if (code == FT_OK)
        code = check_reload(app, dir, &err);
    if (code == FT_OK) {
        *reload = (struct reload){app, call};
        ft_rpc_call_set_user(call, reload);
        app->reloading = true;
        ft_info("draft-reload model %.*s", (int)dir.len, dir.ptr);
        ft_wire_encode_reload(dir, &out);
        co_peer_call(app->draft, "Reload", ft_buf_str(&out), RELOAD_TIMEOUT_MS, reloaded, reload);
    } else {
        free(reload);
        ft_rpc_call_fail(call, &err);
    }
    ft_buf_fini(&out);
    ft_arena_destroy(&arena);
}

void co_operate_reload_gone(struct ft_rpc_call *call, void *service) {
    (void)service;
    struct reload *reload = ft_rpc_call_user(call);
    if (reload != NULL)
        reload->call = NULL;
}

/* ---- methods --------------------------------------------------------------------------------- */

void co_operate_health(struct ft_rpc_call *call, void *service, struct ft_str message) {
    answer(call, service, message, health);
}

void co_operate_list(struct ft_rpc_call *call, void *service, struct ft_str message) {
    answer(call, service, message, list);
}

void co_operate_cancel(struct ft_rpc_call *call, void *service, struct ft_str message) {
    answer(call, service, message, cancel);
}

void co_operate_drain(struct ft_rpc_call *call, void *service, struct ft_str message) {
    answer(call, service, message, drain);
}

void co_operate_resume(struct ft_rpc_call *call, void *service, struct ft_str message) {
    answer(call, service, message, resume);
}

void co_operate_set(struct ft_rpc_call *call, void *service, struct ft_str message) {
    answer(call, service, message, set);
}
