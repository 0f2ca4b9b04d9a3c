/* regex: patterns written for Oniguruma (Ruby syntax), as tokenizer.json has them, for PCRE2.
 * Owns:    nothing.
 * Runs in: coordinator, workers (tokenizer.json at open).
 * Never:   lets a construct through that the two engines read differently: it is rewritten, or
 *          refused by name. */
#ifndef FT_TEXT_REGEX_H
#define FT_TEXT_REGEX_H

#include "common/base/buf.h"
#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Append to out the PCRE2 pattern (for UTF and UCP, newline LF) that matches what pattern matches
 * in Oniguruma. Rewritten: \s \S \d \D \w \W (Unicode properties, not PCRE2's own notion), \v, \u,
 * {,n}, (?m), and \p{Script}, which is a script here and not its extensions.
 * fail FT_E_PROC_MODEL names the construct and its offset. */
enum ft_code ft_regex_translate(struct ft_str pattern, struct ft_buf *out, struct ft_err *err);

/* Append text as a pattern that matches it literally. */
void ft_regex_quote(struct ft_str text, struct ft_buf *out);

#ifdef __cplusplus
}
#endif
#endif
