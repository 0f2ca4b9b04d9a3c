#include "common/spec/select.h"

#include <stdint.h>
#include <string.h>

/* Bits of x such that unsigned order is the order of floats; both zeros give the same. */
static inline uint32_t key_of(float x) {
    float normal = x + 0.0f;
    uint32_t bits;
    memcpy(&bits, &normal, sizeof bits);
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

/* Bucket where the weight, summed from the top, reaches want; what lies above it is taken off. */
static uint32_t find_bucket(const uint64_t *weights, uint64_t *want) {
    uint32_t last = 0;
    for (uint32_t b = FT_SELECT_BUCKETS; b-- > 0;) {
        if (weights[b] == 0)
            continue;
        if (weights[b] >= *want)
            return b;
        *want -= weights[b];
        last = b;
    }
    /* Rounding left a little unreached: the lowest bucket holds the smallest value, and no
     * weight above it may be asked for again. */
    *want = weights[last];
    return last;
}

static inline uint64_t fixed_point(double x) {
    return (uint64_t)(x * FT_SELECT_SCALE + 0.5);
}

float ft_select_cut(struct ft_select *scratch, float *values, size_t n, double aim,
                    enum ft_select_by by) {
    uint64_t want = by == FT_SELECT_COUNT ? (uint64_t)aim : fixed_point(aim);
    static const unsigned shifts[] = {21, 10, 0};
    for (size_t level = 0; level < sizeof shifts / sizeof shifts[0] && n > 1; level++) {
        unsigned shift = shifts[level];
        uint32_t mask = level == 2 ? 0x3FF : 0x7FF;
        memset(scratch->weights, 0, sizeof scratch->weights);
        for (size_t i = 0; i < n; i++)
            scratch->weights[key_of(values[i]) >> shift & mask] +=
                by == FT_SELECT_COUNT ? 1 : fixed_point((double)values[i]);
        uint32_t bucket = find_bucket(scratch->weights, &want);
        size_t n_kept = 0;
        for (size_t i = 0; i < n; i++) {
            float value = values[i];
            values[n_kept] = value;
            n_kept += (key_of(value) >> shift & mask) == bucket;
        }
        n = n_kept;
    }
    return values[0];
}
