/* hash_model: a stand-in for common/model whose KV is a hash of the whole history, read back
 * through the block tables. Any KV that is missing, stale, overwritten or another sequence's
 * changes every row behind it. What a row says is the suite's: it defines g_hash_model. Owns: one
 * number of KV for each position of the pool. Runs in: tests of common/worker, the roles and
 * tests/sim; replaces ft_model_* at link time. Never:   looks at anybody's bookkeeping: it sees
 * block tables and tokens, as a model does. */
#ifndef FT_TESTS_HASH_MODEL_H
#define FT_TESTS_HASH_MODEL_H

#include "common/model/model.h"

struct hash_model {
    const char *backend;
    int32_t vocab, len_max;
    int32_t block_bytes; /* of kv_cache_bytes */
    int32_t poison;      /* the history behind this token is 0 */
    /* The row behind a history. */
    void (*row)(const struct ft_model_opts *opts, uint64_t history, float *row);
    /* A forward pass was computed; false: it is to fail, and what it wrote to the KV is wrong. */
    bool (*stepped)(const struct ft_model_opts *opts, int32_t n_seqs, int64_t n_tokens);
    void (*loading)(void); /* in the thread that opens a model; NULL: nothing to do */
};
extern const struct hash_model g_hash_model;

uint64_t hash_model_mix(uint64_t h);
/* History of one token more, from 1 for none. */
uint64_t hash_model_chain(uint64_t history, int32_t token);

#endif
