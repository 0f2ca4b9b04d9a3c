/* trace (ctl): rounds as events of the Trace Event Format, for Perfetto and chrome://tracing.
 * Owns:    nothing.
 * Runs in: foretokenctl.
 * Never:   lets two events of one track overlap unless one lies within the other. */
#ifndef CTL_TRACE_H
#define CTL_TRACE_H

#include "common/wire/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One JSON object. Times are microseconds from the first round on; a moment that is earlier than
 * the one before it counts as that one. Tracks: rounds and messages of the coordinator, what each
 * worker computes, and one of each request. */
void ctl_trace_json(const struct ft_wire_trace *trace, struct ft_buf *out);

#ifdef __cplusplus
}
#endif
#endif
