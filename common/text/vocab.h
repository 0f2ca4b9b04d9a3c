/* vocab: what each id stands for, and back.
 * Owns:    the strings of all tokens, from init to fini.
 * Runs in: coordinator, workers; one thread at a time.
 * Never:   changes an id once it has one meaning: a second meaning is refused. */
#ifndef FT_TEXT_VOCAB_H
#define FT_TEXT_VOCAB_H

#include <stdbool.h>

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/text/strmap.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bounds the table by id, so that one absurd id cannot ask for gigabytes. */
#define FT_VOCAB_ID_MAX ((1 << 22) - 1)
/* Real tokens have at most a few hundred bytes. */
#define FT_VOCAB_TOKEN_BYTES_MAX 65536

struct ft_token {
    struct ft_str content; /* as the file writes it; .ptr is NULL for an id without a token */
    struct ft_str bytes;
    bool special;
};

struct ft_vocab {
    struct ft_arena *arena;
    struct ft_token *tokens; /* [n_ids] */
    int32_t n_ids;           /* largest id + 1 */
    int32_t cap;
    struct ft_strmap contents; /* every token by its content */
    struct ft_strmap pieces;   /* tokens of the model that text can become, by their bytes */
};

enum ft_code ft_vocab_init(struct ft_vocab *vocab, struct ft_err *err);
void ft_vocab_fini(struct ft_vocab *vocab);

/* A token of the model, written in the characters of bytemap.h.
 * fail FT_E_PROC_MODEL: id out of range or taken, content empty, too long or taken. */
enum ft_code ft_vocab_add(struct ft_vocab *vocab, struct ft_str content, int64_t id,
                          struct ft_err *err);
/* An added token: its content is its text. One that the model has too must have the same id. */
enum ft_code ft_vocab_add_text(struct ft_vocab *vocab, struct ft_str content, int64_t id,
                               bool special, struct ft_err *err);

/* NULL for an id without a token. */
const struct ft_token *ft_vocab_token(const struct ft_vocab *vocab, int32_t id);

#define FT_VOCAB_FINGERPRINT_BYTES 32
/* SHA-256 over (id, length, bytes, special) of every token, numbers as 4 bytes little-endian. */
enum ft_code ft_vocab_fingerprint(const struct ft_vocab *vocab, unsigned char *out,
                                  struct ft_err *err);
/* See ft_tokenizer_first_difference. */
bool ft_vocab_first_difference(const struct ft_vocab *a, const struct ft_vocab *b, char *out,
                               size_t cap);

#ifdef __cplusplus
}
#endif
#endif
