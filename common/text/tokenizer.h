/* tokenizer: Hugging Face tokenizer.json, byte-level BPE.
 * Owns:    vocabulary, merges and the compiled regex, from open to close; a fork only what
 *          encoding writes to.
 * Runs in: coordinator (text), workers (fingerprint); one thread at a time, but that each fork may
 *          encode in a thread of its own.
 * Never:   guesses: a component that it does not know is refused by name at open. */
#ifndef FT_TEXT_TOKENIZER_H
#define FT_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_tokenizer;

#define FT_TOKENIZER_FINGERPRINT_BYTES 32

/* Read dir/tokenizer.json (and add_bos_token of tokenizer_config.json where the post-processor
 * says nothing). fail FT_E_PROC_MODEL names the file, the component and its value. */
enum ft_code ft_tokenizer_open(struct ft_tokenizer **out, const char *model_dir,
                               struct ft_err *err);
void ft_tokenizer_close(struct ft_tokenizer **tokenizer);
/* The same tokenizer for another thread. Borrows what is never written: close it before the
 * original. fail FT_E_PROC_MEMORY */
enum ft_code ft_tokenizer_fork(struct ft_tokenizer **out, const struct ft_tokenizer *original,
                               struct ft_err *err);
/* From now on encode asks before each piece of text whether to go on. NULL: it goes on. */
typedef bool (*ft_tokenizer_stop_fn)(void *user);
void ft_tokenizer_set_stop(struct ft_tokenizer *tokenizer, ft_tokenizer_stop_fn fn, void *user);

/* A growing list of ids. */
struct ft_ids {
    int32_t *ptr;
    size_t len;
    size_t cap;
};
void ft_ids_fini(struct ft_ids *ids);
enum ft_code ft_ids_push(struct ft_ids *ids, const int32_t *ptr, size_t n);

struct ft_encode_opts {
    bool add_special;   /* what the post-processor adds (BOS); never doubled */
    bool parse_special; /* special tokens written out in the text become their ids */
    size_t tokens_max;  /* stop with FT_E_REQ_TOO_LARGE past it; 0: no limit */
};

/* Append the ids of text. fail FT_E_REQ_INVALID: not UTF-8 (names the byte offset);
 * FT_E_REQ_TOO_LARGE; FT_E_REQ_CANCELLED: it was told to stop.
 * cost O(n log n) in the longest pre-token, O(n) otherwise. */
enum ft_code ft_tokenizer_encode(struct ft_tokenizer *tokenizer, struct ft_str text,
                                 const struct ft_encode_opts *opts, struct ft_ids *out,
                                 struct ft_err *err);

/* Bytes that id stands for; empty for an id without a token (padding). Lives with the tokenizer. */
struct ft_str ft_tokenizer_bytes(const struct ft_tokenizer *tokenizer, int32_t id);
bool ft_tokenizer_is_special(const struct ft_tokenizer *tokenizer, int32_t id);
/* Id of a token by its content ("<|eot_id|>"), -1 when there is none. */
int32_t ft_tokenizer_find(const struct ft_tokenizer *tokenizer, struct ft_str content);
/* Largest id + 1. */
int32_t ft_tokenizer_vocab_size(const struct ft_tokenizer *tokenizer);
/* SHA-256 over (id, bytes, special) in order of id. Lives with the tokenizer. */
const unsigned char *ft_tokenizer_fingerprint(const struct ft_tokenizer *tokenizer);
/* Say in out[cap] where b first differs from a: "id 17 is 'foo' here and 'bar' there". Returns
 * false when they have the same content. */
bool ft_tokenizer_first_difference(const struct ft_tokenizer *a, const struct ft_tokenizer *b,
                                   char *out, size_t cap);

/* Append the text of ids; bytes that are not UTF-8 stay as they are (see detok.h). */
void ft_tokenizer_decode(const struct ft_tokenizer *tokenizer, const int32_t *ids, size_t n,
                         bool skip_special, struct ft_buf *out);

#ifdef __cplusplus
}
#endif
#endif
