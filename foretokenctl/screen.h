/* screen (ctl): what stats --watch shows, from two answers of the service.
 * Owns:    nothing.
 * Runs in: foretokenctl.
 * Never:   writes to a terminal or asks a clock: the same numbers are the same text. */
#ifndef CTL_SCREEN_H
#define CTL_SCREEN_H

#include "common/base/buf.h"
#include "common/wire/admin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CTL_SCREEN_HISTORY 60
#define CTL_SCREEN_COLUMNS_MIN 40

struct ctl_screen_opts {
    int columns; /* lines are no longer */
    bool utf8;   /* bars of block characters */
    bool colour; /* escape sequences of a terminal */
};

/* What a screen needs of the answer before: rates are of the time between. */
struct ctl_screen_past {
    bool known;
    double uptime_seconds;
    uint64_t generation, prompt, rounds, drafts, drafted, accepted;
    double speeds[CTL_SCREEN_HISTORY]; /* tokens/s, the latest last */
    int n_speeds;
};

/* Append the lines, each with its end, and bring past up to date. */
void ctl_screen_add(const struct ft_wire_stats *stats, const struct ctl_screen_opts *opts,
                    struct ctl_screen_past *past, struct ft_buf *out);

#ifdef __cplusplus
}
#endif
#endif
