/* line (ctl): one line of a batch: a JSON object that says what flags of generate say.
 * Owns:    nothing; all of it lives in the arena of the options that were made.
 * Runs in: foretokenctl; one thread.
 * Never:   checks ranges that the service checks. */
#ifndef CTL_LINE_H
#define CTL_LINE_H

#include "foretokenctl/flags.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ctl_line {
    struct ctl_options opts; /* request, with its input */
    struct ft_str custom_id; /* as JSON, .ptr NULL when there is none */
};

/* Keys: exactly one of text, token_ids and chat; custom_id, a string or a number that is sent back
 * in the result; request_id; and every flag that `batch` takes for a request, which the line
 * overrides. A null is as if it were not there.
 * in    base   the command line's options
 * in    arena  of this line
 * out   even on failure custom_id, when it was found
 * fail  FT_E_REQ_INVALID names the key; FT_E_PROC_MEMORY */
enum ft_code ctl_line_read(const struct ctl_options *base, struct ft_arena *arena,
                           struct ft_str text, struct ctl_line *out, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
