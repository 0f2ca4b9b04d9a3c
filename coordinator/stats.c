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

const struct co_histogram_bounds *co_stats_bounds(enum co_stats_histogram which) {
    static const struct co_histogram_bounds *const rows[] = {
#define X(id, name, bounds, help) &bounds,
#include "coordinator/histograms.def"
#undef X
    };
    return rows[which];
}

void co_stats_saw(struct co_stats *stats, enum co_stats_histogram which, double value,
                  uint64_t times) {
    co_histogram_add(&stats->histograms[which], co_stats_bounds(which), value, times);
}

double co_stats_quantile(const struct co_stats *stats, enum co_stats_histogram which, double q) {
    return co_histogram_quantile(&stats->histograms[which], co_stats_bounds(which), q);
}

void co_stats_round(struct co_stats *stats, const struct co_round_times *times) {
    stats->rounds++;
    co_stats_saw(stats, CO_HISTOGRAM_ROUND, (double)times->round * 1e-6, 1);
    if (times->draft > 0)
        co_stats_saw(stats, CO_HISTOGRAM_DRAFT, (double)times->draft * 1e-6, 1);
    co_stats_saw(stats, CO_HISTOGRAM_VERIFY, (double)times->target * 1e-6, 1);
    co_stats_saw(stats, CO_HISTOGRAM_ACCEPT, (double)times->accept * 1e-6, 1);
    co_stats_saw(stats, CO_HISTOGRAM_IPC_WAIT, (double)(times->host - times->accept) * 1e-6, 1);
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
