#include "coordinator/supervise.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/log.h"
#include "common/base/supervisor.h"
#include "coordinator/app.h"

#define MS 1000000

/* Beyond the drain: what ending the calls that are left may take. */
#define STOP_GRACE_MS 10000

static void tell(struct co_supervise *supervise, const char *format, const char *text) {
    if (!ft_supervisor_notify(format, text))
        ft_warn("supervisor reason systemd could not be told of %s",
                co_readiness_name(supervise->app->readiness.state));
}

static void on_readiness(void *user, const struct co_readiness *readiness) {
    struct co_supervise *supervise = user;
    switch (readiness->state) {
    case CO_READINESS_STARTING:
        tell(supervise, "STATUS=starting: %s", readiness->reason);
        return;
    case CO_READINESS_READY:
        tell(supervise,
             supervise->said_ready ? "STATUS=serving on %s" : "READY=1\nSTATUS=serving on %s",
             supervise->app->config.listen);
        supervise->said_ready = true;
        return;
    case CO_READINESS_UNAVAILABLE:
        tell(supervise, "STATUS=unavailable: %s", readiness->reason);
        return;
    case CO_READINESS_DRAINING:
        tell(supervise, "STATUS=draining: %s", readiness->reason);
        return;
    }
}

enum ft_code co_supervise_open(struct co_supervise *supervise, struct co_app *app,
                               struct ft_err *err) {
    supervise->app = app;
    co_readiness_listen(&app->readiness, &supervise->listener, on_readiness, supervise);
    on_readiness(supervise, &app->readiness);
    return ft_rpc_watchdog_open(&supervise->watchdog, app->loop, err);
}

void co_supervise_close(struct co_supervise *supervise) {
    if (supervise->app == NULL)
        return;
    ft_rpc_watchdog_close(&supervise->watchdog);
    co_readiness_unlisten(&supervise->app->readiness, &supervise->listener);
    supervise->app = NULL;
}

/* ---- reload --------------------------------------------------------------------------------- */

static void say_change(void *user, const struct ft_param *row, const char *now, const char *fresh) {
    (void)user;
    if (row->reach == FT_PARAM_LIVE)
        ft_info("reloaded key %s from \"%s\" to \"%s\"", row->name, now, fresh);
    else
        ft_warn("reload-refused key %s running \"%s\" configured \"%s\" reason it takes a restart",
                row->name, now, fresh);
}

/* What was derived from a reloadable value when the process started. */
static void apply(struct co_app *app) {
    enum ft_log_level level;
    if (ft_log_parse_level(app->config.log_level, &level))
        ft_log_set_level(level);
    ft_rpc_server_limit_calls(app->server, co_app_calls_max(app));
    co_peer_set_step_timeout(app->target, app->config.target_step_timeout_ms);
    if (app->draft != NULL)
        co_peer_set_step_timeout(app->draft, app->config.draft_step_timeout_ms);
}

void co_supervise_reload(struct co_supervise *supervise) {
    static struct co_config fresh; /* too large for a stack, and there is one loop */
    struct co_app *app = supervise->app;
    struct ft_err err = {0};
    ft_supervisor_notify_reloading();
    if (co_config_read(&fresh, &app->sources, &err) != FT_OK) {
        ft_error("reload-failed reason %s", err.text);
    } else {
        int32_t n_kept = co_config_reload(&app->config, &fresh, say_change, NULL);
        apply(app);
        ft_info("reload-done need_restart %d", (int)n_kept);
    }
    /* A reload ends with READY, but only in a service that has been ready. */
    if (supervise->said_ready)
        ft_supervisor_notify("READY=1");
}

void co_supervise_stopping(const struct co_app *app) {
    int64_t limit_us = ((int64_t)app->config.shutdown_timeout_ms + STOP_GRACE_MS) * 1000;
    ft_supervisor_notify("STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRId64, limit_us);
}
