#include "coordinator/stats.h"

#include <stdlib.h>

void co_stats_verified(struct co_spec_stats *stats, int32_t n_draft, int32_t n_committed,
                       int residual) {
    stats->target_steps++;
    stats->residual_draws += residual != 0;
    if (n_draft == 0) {
        stats->plain_steps++;
        return;
    }
    stats->drafts++;
    stats->drafted += (uint64_t)n_draft;
    stats->accepted += (uint64_t)n_committed;
    for (int32_t i = 0; i < n_draft; i++) {
        stats->drafted_per_pos[i]++;
        stats->accepted_per_pos[i] += i < n_committed;
    }
}

void co_stats_round(struct co_stats *stats, const struct co_round_times *times) {
    stats->rounds++;
    stats->times[stats->n_times % CO_STATS_ROUNDS] = *times;
    stats->n_times++;
}

static int compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static float median(const struct co_stats *stats, size_t n, size_t offset) {
    float values[CO_STATS_ROUNDS];
    for (size_t i = 0; i < n; i++)
        values[i] = *(const float *)((const char *)&stats->times[i] + offset);
    qsort(values, n, sizeof values[0], compare);
    return n == 0 ? 0.0f : values[n / 2];
}

struct co_round_times co_stats_medians(const struct co_stats *stats) {
    size_t n = stats->n_times < CO_STATS_ROUNDS ? (size_t)stats->n_times : CO_STATS_ROUNDS;
    return (struct co_round_times){
        .round = median(stats, n, offsetof(struct co_round_times, round)),
        .draft = median(stats, n, offsetof(struct co_round_times, draft)),
        .target = median(stats, n, offsetof(struct co_round_times, target)),
        .host = median(stats, n, offsetof(struct co_round_times, host)),
        .accept = median(stats, n, offsetof(struct co_round_times, accept)),
    };
}
