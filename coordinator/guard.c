#include "coordinator/guard.h"

#include <inttypes.h>
#include <stdio.h>
#include <strings.h>
#include <time.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/admin.h"
#include "coordinator/app.h"

#define MODULE "guard"
#define LOOK_NS ((int64_t)2000000000)  /* at the files */
#define WARN_NS ((int64_t)10000000000) /* between lines about callers that were turned away */
#define EXPIRY_WARN_S (14 * 86400)
#define RETRY_AFTER_MS "500" /* about the length of a short answer */
#define HEALTH_SERVICE "/grpc.health.v1.Health/"

/* ---- files ----------------------------------------------------------------------------------- */

static enum ft_code read_tokens(struct co_app *app, struct ft_err *err) {
    struct co_guard *guard = &app->guard;
    struct co_tokens made;
    guard->tokens_stamp = ft_file_stamp_of(app->config.token_file);
    enum ft_code code = co_tokens_read(&made, app->config.token_file, err);
    if (code != FT_OK)
        return code;
    co_tokens_inherit(&made, &guard->tokens);
    co_tokens_fini(&guard->tokens);
    guard->tokens = made;
    return FT_OK;
}

static void warn_expiry(const struct co_app *app) {
    int64_t left_s = ft_rpc_tls_expires_s(app->guard.tls) - (int64_t)time(NULL);
    if (left_s < EXPIRY_WARN_S)
        ft_warn("certificate-ends file %s days %" PRId64, app->config.tls_cert, left_s / 86400);
}

static void reload_certificates(struct co_app *app) {
    struct ft_err err = {0};
    bool changed = false;
    if (ft_rpc_tls_reload(app->guard.tls, &changed, &err) != FT_OK) {
        ft_error("certificates-kept reason %s", err.text);
    } else if (changed) {
        ft_info("certificates-reloaded file %s", app->config.tls_cert);
        warn_expiry(app);
    }
}

static void reload_tokens(struct co_app *app) {
    struct ft_err err = {0};
    struct ft_file_stamp now = ft_file_stamp_of(app->config.token_file);
    if (ft_file_stamp_eq(&now, &app->guard.tokens_stamp))
        return;
    if (read_tokens(app, &err) != FT_OK)
        ft_error("tokens-kept reason %s", err.text);
    else
        ft_info("tokens-reloaded file %s tokens %zu", app->config.token_file, app->guard.tokens.n);
}

void co_guard_reload(struct co_app *app) {
    if (app->guard.tls != NULL)
        reload_certificates(app);
    if (app->guard.asks_tokens)
        reload_tokens(app);
}

static void look(void *user) {
    struct co_app *app = user;
    co_guard_reload(app);
    ft_rpc_timer_set(app->loop, &app->guard.timer, ft_clock_now_ns() + LOOK_NS, look, app);
}

static void say_what_is_open(const struct co_app *app, bool is_local) {
    bool knows_clients = app->guard.asks_tokens || app->config.tls_client_ca[0] != 0;
    if (!is_local && app->guard.tls == NULL)
        ft_warn("connections-in-the-clear listen %s tokens %s", app->config.listen,
                app->guard.asks_tokens ? "sent in the clear too" : "none");
    if (!is_local && !knows_clients)
        ft_warn("callers-unknown listen %s effect \"whoever reaches the port is served\"",
                app->config.listen);
}

enum ft_code co_guard_open(struct co_app *app, struct ft_err *err) {
    struct co_guard *guard = &app->guard;
    const struct co_config *c = &app->config;
    bool is_unix, is_local;
    enum ft_code code = ft_rpc_endpoint_check(c->listen, &is_unix, &is_local, err);
    if (code == FT_OK && c->tls_cert[0] != 0) {
        struct ft_rpc_tls_files files = {c->tls_cert, c->tls_key, c->tls_client_ca};
        code = ft_rpc_tls_create(&guard->tls, &files, err);
    }
    guard->asks_tokens = c->token_file[0] != 0;
    if (code == FT_OK && guard->asks_tokens)
        code = read_tokens(app, err);
    if (code != FT_OK)
        return code;
    if (guard->tls != NULL)
        warn_expiry(app);
    say_what_is_open(app, is_local);
    if (guard->tls == NULL && !guard->asks_tokens)
        return FT_OK;
    return ft_rpc_timer_set(app->loop, &guard->timer, ft_clock_now_ns() + LOOK_NS, look, app);
}

void co_guard_close(struct co_app *app) {
    ft_rpc_timer_cancel(app->loop, &app->guard.timer);
    ft_rpc_tls_destroy(&app->guard.tls);
    co_tokens_fini(&app->guard.tokens);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void warn_refused(struct co_guard *guard, const char *what, const char *who) {
    int64_t now_ns = ft_clock_now_ns();
    guard->n_refused++;
    if (guard->warned_ns != 0 && now_ns - guard->warned_ns < WARN_NS)
        return;
    ft_warn("%s peer %s refused %" PRIu64, what, who, guard->n_refused);
    guard->warned_ns = now_ns;
    guard->n_refused = 0;
}

void co_guard_peer_refused(void *service, uint32_t uid) {
    struct co_app *app = service;
    char who[32];
    snprintf(who, sizeof who, "unix:uid=%u", (unsigned)uid);
    warn_refused(&app->guard, "peer-not-allowed", who);
}

struct co_token *co_guard_token(const struct co_app *app, const struct ft_rpc_call *call) {
    static const char scheme[] = "Bearer ";
    size_t n = sizeof scheme - 1;
    if (!app->guard.asks_tokens)
        return NULL;
    struct ft_str value = ft_rpc_call_metadata(call, "authorization");
    if (value.len <= n || strncasecmp(value.ptr, scheme, n) != 0)
        return NULL;
    return co_tokens_find(&app->guard.tokens, (struct ft_str){value.ptr + n, value.len - n});
}

static bool is_of(const char *path, const char *service) {
    return strncmp(path, service, strlen(service)) == 0;
}

enum ft_code co_guard_admit(struct ft_rpc_call *call, void *service, struct ft_err *err) {
    struct co_app *app = service;
    const char *path = ft_rpc_call_path(call);
    if (!app->guard.asks_tokens || is_of(path, HEALTH_SERVICE))
        return FT_OK;
    const struct co_token *token = co_guard_token(app, call);
    if (token == NULL) {
        warn_refused(&app->guard, "caller-unauthenticated", ft_rpc_call_peer(call));
        return ft_err_set(err, FT_E_REQ_UNAUTHENTICATED, MODULE,
                          ft_rpc_call_metadata(call, "authorization").ptr == NULL
                              ? "the service wants a token: metadata 'authorization', value "
                                "'Bearer TOKEN'"
                              : "the token in the metadata 'authorization' is none that the "
                                "service knows");
    }
    if (is_of(path, FT_WIRE_ADMIN_SERVICE) && !token->admin)
        return ft_err_set(err, FT_E_REQ_DENIED, MODULE, "%s: the token '%s' has no right 'admin'",
                          path, token->name);
    return FT_OK;
}

static enum ft_code refuse(struct ft_rpc_call *call, int64_t wait_ms, struct ft_err *err) {
    char text[24] = RETRY_AFTER_MS;
    if (wait_ms > 0)
        snprintf(text, sizeof text, "%" PRId64, wait_ms);
    if (wait_ms >= 0)
        ft_rpc_call_trailer(call, "retry-after-ms", text);
    return err->code;
}

enum ft_code co_guard_take(struct co_app *app, struct ft_rpc_call *call, int32_t n,
                           int32_t priority, struct ft_err *err) {
    struct co_token *token = co_guard_token(app, call);
    int64_t wait_ms = 0;
    int32_t n_own = 0;
    if (token == NULL && app->guard.asks_tokens) /* taken from the file since the call came */
        return ft_err_set(err, FT_E_REQ_UNAUTHENTICATED, MODULE, "the token is no longer known");
    if (token == NULL)
        return FT_OK;
    if (priority < token->min_priority)
        return ft_err_set(err, FT_E_REQ_DENIED, MODULE,
                          "priority is %d: the token '%s' may ask for %d and up", priority,
                          token->name, token->min_priority);
    for (struct co_request *r = app->first; token->max_requests > 0 && r != NULL; r = r->next)
        n_own += r->state != CO_REQUEST_ENDED && ft_str_eq(r->token, ft_str_c(token->name));
    for (const struct co_encode_job *job = app->encoding.first; job != NULL; job = job->next)
        n_own += ft_str_eq(job->token, ft_str_c(token->name)) ? job->n_requests : 0;
    if (token->max_requests > 0 && n > token->max_requests - n_own) {
        ft_err_set(err, FT_E_REQ_EXHAUSTED, MODULE,
                   "the token '%s' has %d requests and %d come: its limit is %d (max_requests)",
                   token->name, n_own, n, token->max_requests);
        return refuse(call, n > token->max_requests ? -1 : 0, err);
    }
    if (!co_token_take(token, n, ft_clock_now_ns(), &wait_ms)) {
        ft_err_set(err, FT_E_REQ_EXHAUSTED, MODULE,
                   "the token '%s' has made its %d requests of this minute "
                   "(requests_per_minute), and %d come",
                   token->name, token->requests_per_minute, n);
        return refuse(call, wait_ms, err);
    }
    return FT_OK;
}
