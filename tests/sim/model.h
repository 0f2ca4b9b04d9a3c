/* model (sim): ft_model_* of a pair whose next token is a hash of the whole history, read back
 * through the block tables: KV that is missing, stale or another sequence's changes every token
 * behind it. The draft ("device" sim-draft) agrees with the target at most positions.
 * Owns:    one number of KV for each position of a pool.
 * Runs in: tests/sim; replaces common/model's forward passes at link time.
 * Never:   looks at anybody's bookkeeping. */
#ifndef SIM_MODEL_H
#define SIM_MODEL_H

#include <stdint.h>

enum {
    SIM_VOCAB = 264,
    SIM_EOS = 257,
    SIM_LEN_MAX = 1024,
    SIM_BLOCK_BYTES = 128, /* of kv_cache_bytes */
    SIM_POISON = 263       /* rows behind this token are NaN; never drafted nor chosen */
};

/* History of n tokens, from 1 for none. */
uint64_t sim_chain(uint64_t history, int32_t token);
/* The target's greedy choice behind a history. */
int32_t sim_next(uint64_t history);
/* The target's row of logits. */
void sim_row(uint64_t history, float row[SIM_VOCAB]);

struct sim_step_log { /* what the target computed last */
    uint64_t n_steps;
    int64_t n_tokens;
};
struct sim_step_log sim_target_log(void);
void sim_model_reset(void);

#endif
