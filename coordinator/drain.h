/* drain: no new requests, those that are here go on to their ends; for an operator, or to stop.
 * Owns:    nothing; its timers are the app's.
 * Runs in: coordinator; loop thread only.
 * Never:   ends a request before shutdown_timeout_ms; ends one at all for an operator's drain. */
#ifndef CO_DRAIN_H
#define CO_DRAIN_H

#include "coordinator/app.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An operator's: readiness says so first, then requests are refused. Until co_drain_resume. */
void co_drain_begin(struct co_app *app, const char *reason);
/* fail FT_E_PROC_CONFIG: the process is ending */
enum ft_code co_drain_resume(struct co_app *app, struct ft_err *err);

/* A signal's: drain, and stop the loop when the last request has ended or shutdown_timeout_ms is
 * over; at once when there is nothing to wait for, or when it is the second one. */
void co_drain_stop(struct co_app *app, int signo);

/* A request has ended: what waits for the last one looks. */
void co_drain_look(struct co_app *app);

#ifdef __cplusplus
}
#endif
#endif
