/* bpe: byte-pair merges over one pre-token.
 * Owns:    the merge table, the cache of pieces and its scratch, from init to fini.
 * Runs in: coordinator, workers; one thread at a time.
 * Never:   takes more than O(n log n) for a piece of n bytes. */
#ifndef FT_TEXT_BPE_H
#define FT_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/text/tokenizer.h"
#include "common/text/vocab.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_bpe {
    const struct ft_vocab *vocab; /* borrowed */
    bool ignore_merges;           /* a piece that is a token is that token, whatever the merges */
    int32_t byte_ids[256];        /* -1: a byte that no UTF-8 text has */
    struct ft_bpe_merge *merges;  /* hash table by pair */
    size_t n_slots;               /* a power of two */
    bool is_fork;                 /* merges are another's */
    struct ft_bpe_cached *cache;  /* made at the first encode: workers never need it */
    struct ft_bpe_symbol *symbols;
    uint64_t *heap;
    size_t n_symbols_cap;
};

/* n_merges sizes the table. fail FT_E_PROC_MODEL: a byte of UTF-8 has no token; FT_E_PROC_MEMORY */
enum ft_code ft_bpe_init(struct ft_bpe *bpe, const struct ft_vocab *vocab, size_t n_merges,
                         struct ft_err *err);
/* The same merges with a cache and scratch of its own, for another thread. It borrows the merges:
 * fini it before the original, to which nothing is added any more. */
void ft_bpe_fork(struct ft_bpe *bpe, const struct ft_bpe *original);
void ft_bpe_fini(struct ft_bpe *bpe);

/* Tokens left and right side by side become result; lower ranks go first. Of two merges of one
 * pair the later holds, as in the tokenizers library. At most n_merges of init are added. */
void ft_bpe_add(struct ft_bpe *bpe, int32_t left, int32_t right, int32_t rank, int32_t result);

/* Append the ids of piece, which is not empty and below 2^30 bytes. fail FT_E_PROC_MEMORY */
enum ft_code ft_bpe_encode(struct ft_bpe *bpe, struct ft_str piece, struct ft_ids *out);

#ifdef __cplusplus
}
#endif
#endif
