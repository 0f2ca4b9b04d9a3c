/* watch (ctl): stats --watch: asks again and again, and shows it.
 * Owns:    the terminal's modes while it runs.
 * Runs in: foretokenctl; one thread.
 * Never:   leaves a terminal as it must not be; writes escape sequences to what is none. */
#ifndef CTL_WATCH_H
#define CTL_WATCH_H

#include "foretokenctl/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* line: one answer as a line of JSON, for --json. Exit status: 0 when it was ended by q, SIGINT or
 * SIGTERM. */
int ctl_watch(struct ctl_options *opts, ctl_session_render_fn *line);

#ifdef __cplusplus
}
#endif
#endif
