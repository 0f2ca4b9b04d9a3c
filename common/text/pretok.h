/* pretok: the pre_tokenizer of tokenizer.json, from text to the pieces that BPE sees.
 * Owns:    its compiled splits, from init to fini.
 * Runs in: coordinator, workers (at open).
 * Never:   accepts a kind that it does not run exactly. */
#ifndef FT_TEXT_PRETOK_H
#define FT_TEXT_PRETOK_H

#include <jansson.h>

#include "common/base/buf.h"
#include "common/text/split.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FT_PRETOK_SPLITS_MAX 16

struct ft_pretok {
    struct ft_split splits[FT_PRETOK_SPLITS_MAX]; /* each cuts the pieces of the one before */
    size_t n_splits;
    size_t prefix_at; /* a space is put before pieces that enter this split, if add_prefix */
    bool add_prefix;
    bool has_byte_level; /* it comes last */
    struct ft_buf prefixed;
};

/* in    json  Split, Digits, ByteLevel or a Sequence of them that ends with ByteLevel
 * fail FT_E_PROC_MODEL names the component */
enum ft_code ft_pretok_init(struct ft_pretok *pretok, const json_t *json, struct ft_err *err);
/* For another thread; fini it before the original. fail FT_E_PROC_MEMORY */
enum ft_code ft_pretok_fork(struct ft_pretok *pretok, const struct ft_pretok *original,
                            struct ft_err *err);
void ft_pretok_fini(struct ft_pretok *pretok);

/* fail as ft_split_run */
enum ft_code ft_pretok_run(struct ft_pretok *pretok, struct ft_str text,
                           const struct ft_split_sink *sink, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
