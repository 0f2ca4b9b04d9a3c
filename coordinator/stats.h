/* stats: counters of the coordinator and medians of where a round's time goes.
 * Owns:    nothing; embedded by value.
 * Runs in: coordinator; loop thread only.
 * Never:   decreases a counter. */
#ifndef CO_STATS_H
#define CO_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/sampling.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CO_STATS_ROUNDS 1024 /* rounds that the medians look back on: a few seconds of decoding */

struct co_round_times { /* microseconds */
    float round, draft, target, host, accept;
};

/* Acceptance, of one request or of all. Invariant: accepted <= drafted, position by position. */
struct co_spec_stats {
    uint64_t drafts;       /* rounds with at least one drafted token */
    uint64_t drafted;      /* drafted tokens that were verified */
    uint64_t accepted;     /* of these, committed */
    uint64_t target_steps; /* verifications and plain steps */
    uint64_t plain_steps;
    uint64_t residual_draws;
    uint64_t drafted_per_pos[FT_DRAFT_LEN_MAX];
    uint64_t accepted_per_pos[FT_DRAFT_LEN_MAX];
};

struct co_stats {
    uint64_t finished, failed, cancelled;
    uint64_t prompt_tokens, generation_tokens;
    uint64_t rounds;
    uint64_t nan_rows;
    uint64_t preemptions;
    struct co_spec_stats spec;
    struct co_round_times times[CO_STATS_ROUNDS];
    uint64_t n_times;
};

/* Count one verification of n_draft tokens of which n_committed drafts were committed. */
void co_stats_verified(struct co_spec_stats *stats, int32_t n_draft, int32_t n_committed,
                       int residual);
void co_stats_round(struct co_stats *stats, const struct co_round_times *times);
/* Medians over the last CO_STATS_ROUNDS rounds; zeros before the first. */
struct co_round_times co_stats_medians(const struct co_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
