#include "coordinator/drain.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#define MODULE "drain"
#define MS 1000000
#define DEFAULT_REASON "the service is draining"

/* A process that stops takes with it what clients have not read of answers that are complete. */
static int32_t n_left(const struct co_app *app) {
    return app->n_queued + app->n_running + app->encoding.n_requests +
           (app->stopping ? app->n_calls : 0);
}

void co_drain_begin(struct co_app *app, const char *reason) {
    if (app->stopping)
        return; /* it says so already, and for good */
    co_readiness_drain(&app->readiness, reason[0] != 0 ? reason : DEFAULT_REASON);
    ft_info("draining running %d waiting %d reason %s", app->n_running, app->n_queued,
            app->readiness.reason);
    app->drained_said = false;
    co_drain_look(app);
}

enum ft_code co_drain_resume(struct co_app *app, struct ft_err *err) {
    if (app->stopping)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "the service is shutting down: it takes no requests any more");
    if (app->readiness.draining)
        ft_info("resumed");
    co_readiness_resume(&app->readiness);
    return FT_OK;
}

static void time_over(void *user) {
    struct co_app *app = user;
    ft_warn("drain-late running %d waiting %d timeout_ms %d effect \"they end unavailable\"",
            app->n_running, app->n_queued, app->config.shutdown_timeout_ms);
    ft_rpc_loop_stop(app->loop);
}

/* From the loop, not from whatever ended the last request. */
static void stop_now(void *user) {
    struct co_app *app = user;
    ft_rpc_loop_stop(app->loop);
}

void co_drain_look(struct co_app *app) {
    if (!app->readiness.draining || n_left(app) > 0)
        return;
    if (app->stopping)
        ft_rpc_timer_set(app->loop, &app->shutdown_timer, ft_clock_now_ns(), stop_now, app);
    else if (!app->drained_said)
        ft_info("drained");
    app->drained_said = true;
}

void co_drain_stop(struct co_app *app, int signo) {
    if (app->stopping || !app->readiness.serving) { /* the second one means now */
        co_supervise_stopping(app);
        ft_rpc_loop_stop(app->loop);
        return;
    }
    app->stopping = true;
    co_supervise_stopping(app);
    co_readiness_drain(&app->readiness, "the service is shutting down");
    ft_info("stopping signal %d running %d waiting %d timeout_ms %d", signo, app->n_running,
            app->n_queued, app->config.shutdown_timeout_ms);
    ft_rpc_timer_set(app->loop, &app->shutdown_timer,
                     ft_clock_now_ns() + (int64_t)app->config.shutdown_timeout_ms * MS, time_over,
                     app);
    co_drain_look(app);
}
