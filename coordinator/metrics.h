/* metrics: statistics as Prometheus reads them, on a port of their own.
 * Owns:    the HTTP server and the last text; from open to destroy.
 * Runs in: coordinator; the loop thread makes texts, the server's thread reads the last one.
 * Never:   lets the server's thread see anything of the app but that text and the readiness's. */
#ifndef CO_METRICS_H
#define CO_METRICS_H

#include "coordinator/app.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CO_METRICS_PREFIX "foretoken:"
#define CO_METRICS_LISTEN_DEFAULT "127.0.0.1:9464" /* as params.def says */

struct co_metrics;

/* Serve on config.metrics_listen; *out stays NULL when it is empty, or when the default is taken by
 * somebody else, which is logged. fail FT_E_PROC_CONFIG names the endpoint */
enum ft_code co_metrics_open(struct co_metrics **out, struct co_app *app, struct ft_err *err);
/* No requests any more; before the peers close. */
void co_metrics_stop(struct co_metrics *metrics);
/* After the loop has run for the last time. */
void co_metrics_destroy(struct co_metrics **metrics);

/* The whole text. target and draft: what the workers said, all zero for one that does not answer.
 */
void co_metrics_render(const struct co_app *app, const struct ft_wire_worker_stats *target,
                       const struct ft_wire_worker_stats *draft, struct ft_buf *out);

#ifdef __cplusplus
}
#endif
#endif
