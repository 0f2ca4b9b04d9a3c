/* bytemap: the printable characters that byte-level BPE files write for the 256 bytes.
 * Owns:    nothing.
 * Runs in: coordinator, workers (tokenizer.json at open).
 * Never:   touches text of users: that stays bytes throughout. */
#ifndef FT_TEXT_BYTEMAP_H
#define FT_TEXT_BYTEMAP_H

#include <stdbool.h>

#include "common/base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Turn content, as written in the file ("Ġhello"), into its bytes (" hello").
 * in    content  valid UTF-8
 * out   bytes    [content.len]; *n_bytes of them are written
 * Returns false when a character stands for no byte; such a token is plain text. */
bool ft_bytemap_decode(struct ft_str content, char *bytes, size_t *n_bytes);

#ifdef __cplusplus
}
#endif
#endif
