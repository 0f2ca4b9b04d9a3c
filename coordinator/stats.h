/* stats: counters of the coordinator and medians of where a round's time goes.
 * Owns:    nothing; embedded by value.
 * Runs in: coordinator; loop thread only.
 * Never:   decreases a counter. */
#ifndef CO_STATS_H
#define CO_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/sampling.h"
#include "coordinator/histogram.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CO_STATS_FINISHES 8  /* finish reasons, by number */
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

enum co_stats_histogram {
#define X(id, name, bounds, help) CO_HISTOGRAM_##id,
#include "coordinator/histograms.def"
#undef X
    CO_HISTOGRAMS
};

struct co_stats {
    uint64_t finished, failed, cancelled;
    uint64_t finished_by[CO_STATS_FINISHES]; /* of finished, by enum ft_wire_finish */
    uint64_t refused;                        /* never became a request */
    uint64_t prefix_queries, prefix_hits; /* prompt tokens; of them, found in the target's cache */
    uint64_t fallbacks;                   /* plain steps of requests that wanted a draft */
    struct co_histogram histograms[CO_HISTOGRAMS];
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
/* The same value so many times, to one of the histograms. */
void co_stats_saw(struct co_stats *stats, enum co_stats_histogram which, double value,
                  uint64_t times);
const struct co_histogram_bounds *co_stats_bounds(enum co_stats_histogram which);
double co_stats_quantile(const struct co_stats *stats, enum co_stats_histogram which, double q);
void co_stats_round(struct co_stats *stats, const struct co_round_times *times);
/* Medians over the last CO_STATS_ROUNDS rounds; zeros before the first. */
struct co_round_times co_stats_medians(const struct co_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
