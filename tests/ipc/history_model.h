/* history_model: a stand-in for common/model whose logits are a hash of the whole history, read
 * back through the block tables. Any KV that is missing, stale, overwritten or another sequence's
 * changes every logit behind it.
 * Owns:    one number of KV for each position of the pool.
 * Runs in: tests of common/worker and the roles; replaces ft_model_* at link time.
 * Never:   looks at the worker's bookkeeping: it sees block tables and tokens, as a model does. */
#ifndef FT_TESTS_HISTORY_MODEL_H
#define FT_TESTS_HISTORY_MODEL_H

#include "common/model/model.h"

enum {
    HISTORY_VOCAB = 264,
    HISTORY_LEN_MAX = 160,
    HISTORY_BLOCK_BYTES = 128, /* of kv_cache_bytes */
    HISTORY_POISON = 250       /* every row behind this token is NaN */
};

/* What the row behind tokens[0 .. n - 1] must be. */
void history_row(const int32_t *tokens, int32_t n, float row[HISTORY_VOCAB]);
int32_t history_argmax(const int32_t *tokens, int32_t n);

/* The next forward pass fails after it has written KV. */
void history_fail_next(void);
/* Forward passes so far, and sequences in the last one. */
int history_n_forward(void);
int history_last_n_seqs(void);

#endif
