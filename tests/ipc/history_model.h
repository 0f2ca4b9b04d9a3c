/* history_model: the hash model (support/hash_model.h) with logits that are a hash too.
 * Owns:    counters.
 * Runs in: tests of common/worker and the roles.
 * Never:   agrees with another history. */
#ifndef FT_TESTS_HISTORY_MODEL_H
#define FT_TESTS_HISTORY_MODEL_H

#include <stdbool.h>
#include <stdint.h>

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
/* Models that are opened from now on take their time: each until it is let go on. */
void history_hold_loads(void);
/* Of the models that are being opened, one. false: none is. */
bool history_end_load(void);
/* Forward passes so far, and sequences in the last one. */
int history_n_forward(void);
int history_last_n_seqs(void);

#endif
