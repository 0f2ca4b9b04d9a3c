#include "coordinator/histogram.h"

#include <math.h>

const struct co_histogram_bounds co_histogram_seconds = {18,
                                                         {0.001, 0.002, 0.005, 0.01, 0.02, 0.04,
                                                          0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5,
                                                          5, 10, 30, 120}};
const struct co_histogram_bounds co_histogram_phases = {18,
                                                        {20e-6, 50e-6, 100e-6, 200e-6, 500e-6,
                                                         0.001, 0.002, 0.005, 0.01, 0.02, 0.04,
                                                         0.06, 0.1, 0.25, 0.5, 1, 2.5, 5}};
const struct co_histogram_bounds co_histogram_tokens = {
    17, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};

void co_histogram_add(struct co_histogram *histogram, const struct co_histogram_bounds *bounds,
                      double value, uint64_t times) {
    if (isnan(value) || times == 0)
        return;
    size_t i = 0;
    while (i < bounds->n && value > bounds->at[i])
        i++;
    histogram->counts[i] += times;
    histogram->count += times;
    histogram->sum += value * (double)times;
}

double co_histogram_quantile(const struct co_histogram *histogram,
                             const struct co_histogram_bounds *bounds, double q) {
    double rank = q * (double)histogram->count, below = 0;
    if (histogram->count == 0)
        return 0;
    for (size_t i = 0; i < bounds->n; i++) {
        double here = (double)histogram->counts[i];
        double low = i == 0 ? 0 : bounds->at[i - 1];
        if (here > 0 && below + here >= rank)
            return low + (bounds->at[i] - low) * (rank > below ? (rank - below) / here : 0);
        below += here;
    }
    return bounds->at[bounds->n - 1];
}
