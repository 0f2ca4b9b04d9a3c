/* histogram: how often values fell into fixed classes, and their sum.
 * Owns:    nothing; embedded by value, zero at first; the classes belong to whoever names them.
 * Runs in: coordinator; loop thread only.
 * Never:   forgets: a reader takes differences. */
#ifndef CO_HISTOGRAM_H
#define CO_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CO_HISTOGRAM_BOUNDS_MAX 24

/* Upper ends of classes, ascending; values past the last fall into one more. */
struct co_histogram_bounds {
    size_t n;
    double at[CO_HISTOGRAM_BOUNDS_MAX];
};

extern const struct co_histogram_bounds co_histogram_seconds; /* of requests: 1 ms to 120 s */
extern const struct co_histogram_bounds co_histogram_phases;  /* of rounds: 20 us to 5 s */
extern const struct co_histogram_bounds co_histogram_tokens;  /* of one draft: 0 to 16 */

struct co_histogram {
    uint64_t counts[CO_HISTOGRAM_BOUNDS_MAX + 1]; /* by class, not cumulative */
    uint64_t count;
    double sum;
};

/* The same value so many times. NaN is not counted. */
void co_histogram_add(struct co_histogram *histogram, const struct co_histogram_bounds *bounds,
                      double value, uint64_t times);

/* The value below which a part q of all is, 0 .. 1: linear inside its class; in the last one its
 * lower end. 0 when there is none. */
double co_histogram_quantile(const struct co_histogram *histogram,
                             const struct co_histogram_bounds *bounds, double q);

#ifdef __cplusplus
}
#endif
#endif
