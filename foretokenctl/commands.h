/* commands (ctl): what foretokenctl can do, one row of commands.def each.
 * Owns:    nothing.
 * Runs in: foretokenctl.
 * Never:   exits: a command returns its exit status. */
#ifndef CTL_COMMANDS_H
#define CTL_COMMANDS_H

#include "foretokenctl/flags.h"

#ifdef __cplusplus
extern "C" {
#endif

#define X(name, bit, arguments, timeout_s, summary) int ctl_##name##_run(struct ctl_options *opts);
#include "foretokenctl/commands.def"
#undef X

#ifdef __cplusplus
}
#endif
#endif
