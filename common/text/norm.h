/* norm: Unicode normalisation of text before it is split (NFC, NFD, NFKC, NFKD).
 * Owns:    nothing.
 * Runs in: coordinator.
 * Never:   takes more than O(n log n), even on a megabyte of combining marks. */
#ifndef FT_TEXT_NORM_H
#define FT_TEXT_NORM_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ft_norm_form { FT_NORM_NFC, FT_NORM_NFD, FT_NORM_NFKC, FT_NORM_NFKD };

bool ft_norm_parse(const char *name, enum ft_norm_form *out);

/* Append text (valid UTF-8) in the given form. fail FT_E_PROC_MEMORY */
enum ft_code ft_norm_apply(enum ft_norm_form form, struct ft_str text, struct ft_buf *out);

#ifdef __cplusplus
}
#endif
#endif
