/* added: added and special tokens written out in a text.
 * Owns:    its list, from init to fini; contents are borrowed or in the arena of the vocabulary.
 * Runs in: coordinator, workers (at open).
 * Never:   finds anything but the leftmost, then longest token, as the tokenizers library does. */
#ifndef FT_TEXT_ADDED_H
#define FT_TEXT_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_added_token {
    struct ft_str content; /* not empty */
    int32_t id;
    bool special;
    bool lstrip, rstrip; /* white space on this side belongs to the token */
};

struct ft_added {
    struct ft_added_token *tokens; /* sorted by content once sealed */
    size_t n_tokens, cap;
    size_t first[257]; /* tokens that start with byte b: first[b] .. first[b + 1] */
};

void ft_added_fini(struct ft_added *added);
/* fail FT_E_PROC_MEMORY */
enum ft_code ft_added_add(struct ft_added *added, struct ft_added_token token);
/* After the last add, before the first find. fail FT_E_PROC_MODEL: the same content twice. */
enum ft_code ft_added_seal(struct ft_added *added, struct ft_err *err);

struct ft_added_match {
    const struct ft_added_token *token;
    size_t start, end; /* with the white space that it strips */
};

/* The next token in text at or after from. Special tokens count as text (but hide what overlaps
 * them) unless parse_special. cost O(text.len * longest token), in practice O(text.len) */
bool ft_added_find(const struct ft_added *added, struct ft_str text, size_t from,
                   bool parse_special, struct ft_added_match *out);

#ifdef __cplusplus
}
#endif
#endif
