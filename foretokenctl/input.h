/* input (ctl): the prompt of generate and tokenize, from flags, arguments, files or stdin.
 * Owns:    nothing; all of it lives in the arena of the options.
 * Runs in: foretokenctl.
 * Never:   guesses: exactly one source must be given. */
#ifndef CTL_INPUT_H
#define CTL_INPUT_H

#include "foretokenctl/flags.h"

#ifdef __cplusplus
extern "C" {
#endif

/* fail FT_E_REQ_INVALID: none or several sources, a chat that is none (names message and key).
 *      FT_E_REQ_NOT_FOUND, FT_E_REQ_TOO_LARGE, FT_E_PROC_OS, FT_E_PROC_MEMORY: a file. */
enum ft_code ctl_input_read(struct ctl_options *opts, struct ft_wire_prompt *out,
                            struct ft_err *err);

/* The text behind the mark that some editors put before UTF-8; JSON has none. */
struct ft_str ctl_input_unmarked(struct ft_str text);

#ifdef __cplusplus
}
#endif
#endif
