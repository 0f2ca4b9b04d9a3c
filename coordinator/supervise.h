/* supervise: what systemd is told of the coordinator, and the reload that it asks for.
 * Owns:    the watchdog's timer and a listener of the readiness, from open to close.
 * Runs in: coordinator; loop thread only.
 * Never:   says READY before a token can be made. */
#ifndef CO_SUPERVISE_H
#define CO_SUPERVISE_H

#include "common/rpc/watchdog.h"
#include "coordinator/config.h"
#include "coordinator/readiness.h"

#ifdef __cplusplus
extern "C" {
#endif

struct co_app;

struct co_supervise {
    struct co_app *app;
    struct co_readiness_listener listener;
    struct ft_rpc_watchdog watchdog;
    bool said_ready;
};

/* The loop and the readiness are there, and nothing has been told yet. */
enum ft_code co_supervise_open(struct co_supervise *supervise, struct co_app *app,
                               struct ft_err *err);
void co_supervise_close(struct co_supervise *supervise);

/* Read app->sources again and take over what is reloadable; all that differs is logged. A
 * configuration that is wrong changes nothing. */
void co_supervise_reload(struct co_supervise *supervise);
/* The process is going to end: how long the drain may take. */
void co_supervise_stopping(const struct co_app *app);

#ifdef __cplusplus
}
#endif
#endif
