/* utf8: single code points out of and into text that is known to be valid UTF-8.
 * Owns:    nothing.
 * Runs in: coordinator, workers (tokenizer.json at open).
 * Never:   validates; ft_utf8_valid_prefix of common/base/str.h does. */
#ifndef FT_TEXT_UTF8_H
#define FT_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The code point at the start of s (valid, not empty); *n is its length in bytes. */
uint32_t ft_utf8_get(struct ft_str s, size_t *n);
/* The code point at the end of s (valid, not empty); *n is its length in bytes. */
uint32_t ft_utf8_get_last(struct ft_str s, size_t *n);
/* Write code (a Unicode scalar value) to out[4]; returns its length. */
size_t ft_utf8_put(uint32_t code, char *out);

/* Unicode property White_Space: what \s means to the tokenizers library. */
bool ft_utf8_is_space(uint32_t code);

#ifdef __cplusplus
}
#endif
#endif
