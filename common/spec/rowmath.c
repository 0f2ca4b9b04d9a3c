/* Plain loops that the compiler vectorises; the loader picks the clone for the machine. Elementwise
 * work and sums are separate passes over what is then in L1, which costs less than what a loop
 * that does both loses when it no longer vectorises. */
#include "common/spec/rowmath.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#define LANES FT_ROWMATH_LANES
#define BLOCK FT_ROWMATH_BLOCK

/* The block at x; when fewer than a block's n floats are left, a copy with fill behind them. */
INLINE const float *whole_block(const float *x, size_t n, float fill, float copy[BLOCK]) {
    if (n >= BLOCK)
        return x;
    memcpy(copy, x, n * sizeof *x);
    for (size_t i = n; i < BLOCK; i++)
        copy[i] = fill;
    return copy;
}

FT_ROWMATH_CLONED bool ft_rowmath_maxima(const float *x, size_t n, float *maxima, float *top) {
    float copy[BLOCK], best[LANES];
    int32_t bad[LANES] = {0};
    for (size_t lane = 0; lane < LANES; lane++)
        best[lane] = -INFINITY;
    for (size_t i = 0; i < n; i += BLOCK, maxima += LANES) {
        const float *block = whole_block(x + i, n - i, -INFINITY, copy);
        for (size_t lane = 0; lane < LANES; lane++) {
            float max = block[lane];
            int32_t any_bad = !(max < INFINITY); /* true for a NaN too */
            for (size_t j = LANES; j < BLOCK; j += LANES) {
                float v = block[j + lane];
                max = v > max ? v : max;
                any_bad |= !(v < INFINITY);
            }
            maxima[lane] = max;
            best[lane] = max > best[lane] ? max : best[lane];
            bad[lane] |= any_bad;
        }
    }
    float max = best[0];
    int32_t any_bad = 0;
    for (size_t lane = 0; lane < LANES; lane++) {
        max = best[lane] > max ? best[lane] : max;
        any_bad |= bad[lane];
    }
    *top = max;
    return any_bad == 0;
}

int32_t ft_rowmath_find(const float *x, size_t n, const float *maxima, float top) {
    for (size_t i = 0; i < n; i += BLOCK, maxima += LANES) {
        bool here = false;
        for (size_t lane = 0; lane < LANES; lane++)
            here |= maxima[lane] == top;
        if (!here)
            continue;
        for (size_t j = i; j < n; j++)
            if (x[j] == top)
                return (int32_t)j;
    }
    return -1;
}

size_t ft_rowmath_compact(const float *x, size_t n, float bound, float *out) {
    size_t n_out = 0;
    for (size_t i = 0; i < n; i++) {
        out[n_out] = x[i]; /* no branch: which values pass is not predictable */
        n_out += x[i] >= bound;
    }
    return n_out;
}

/* exp(z) for z in [FT_ROWMATH_EXP_MIN, 0]: exp(k ln 2 + r) = 2^k exp(r) with |r| <= ln 2 / 2, and
 * exp(r) by its Taylor series, whose remainder r^8/8! is below 6e-9. */
INLINE float exp_in_range(float z) {
    const float round_bias = 0x1.8p23f; /* adding it leaves the nearest integer in the low bits */
    const float ln2_high = 0x1.63p-1f, ln2_low = -0x1.bd0106p-13f; /* k * ln2_high is exact */
    float biased = z * 0x1.715476p0f + round_bias;
    float k = biased - round_bias;
    float r = (z - k * ln2_high) - k * ln2_low;
    float y = r * (1.0f / 5040) + 1.0f / 720;
    y = y * r + 1.0f / 120;
    y = y * r + 1.0f / 24;
    y = y * r + 1.0f / 6;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &biased, sizeof bits);
    bits = (bits + 127u) << 23; /* 2^k: the bits of round_bias fall out at the top */
    float power;
    memcpy(&power, &bits, sizeof power);
    return y * power;
}

FT_ROWMATH_CLONED double ft_rowmath_exp(const float *x, size_t n, const struct ft_rowmath_exp *how,
                                        float *out) {
    const float max = how->max, scale = how->scale, threshold = how->threshold;
    for (size_t i = 0; i < n; i++) {
        float v = x[i];
        float z = (v - max) * scale;
        float e = exp_in_range(z >= FT_ROWMATH_EXP_MIN ? z : FT_ROWMATH_EXP_MIN);
        uint32_t bits; /* masks instead of ?:, which would be a branch around all the above */
        memcpy(&bits, &e, sizeof bits);
        bits &= 0u - (uint32_t)(z >= FT_ROWMATH_EXP_MIN);
        bits &= 0u - (uint32_t)(v >= threshold);
        memcpy(&e, &bits, sizeof e);
        out[i] = e;
    }
    return ft_rowmath_sum(out, n);
}

FT_ROWMATH_CLONED double ft_rowmath_keep(float *x, size_t n, float threshold) {
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] >= threshold ? x[i] : 0.0f;
    return ft_rowmath_sum(x, n);
}

FT_ROWMATH_CLONED void ft_rowmath_scale(float *x, size_t n, float factor) {
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
}

/* The lanes of one block, added as a tree. */
INLINE double sum_lanes(const float lanes[LANES]) {
    double sums[LANES];
    for (size_t lane = 0; lane < LANES; lane++)
        sums[lane] = (double)lanes[lane];
    for (size_t width = LANES / 2; width > 0; width /= 2)
        for (size_t lane = 0; lane < width; lane++)
            sums[lane] += sums[lane + width];
    return sums[0];
}

FT_ROWMATH_CLONED double ft_rowmath_sum(const float *x, size_t n) {
    float copy[BLOCK], lanes[LANES];
    double sum = 0.0, group = 0.0;
    for (size_t i = 0; i < n; i += BLOCK) {
        const float *block = whole_block(x + i, n - i, 0.0f, copy);
        for (size_t lane = 0; lane < LANES; lane++) {
            float lane_sum = block[lane];
            for (size_t j = LANES; j < BLOCK; j += LANES)
                lane_sum += block[j + lane];
            lanes[lane] = lane_sum;
        }
        group += sum_lanes(lanes);
        if ((i + BLOCK) % FT_ROWMATH_GROUP == 0) {
            sum += group;
            group = 0.0;
        }
    }
    return sum + group;
}

FT_ROWMATH_CLONED double ft_rowmath_sum_min(const float *x, const float *y, size_t n) {
    float smaller[BLOCK];
    double sum = 0.0;
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t n_block = n - i < BLOCK ? n - i : BLOCK;
        for (size_t j = 0; j < n_block; j++)
            smaller[j] = x[i + j] < y[i + j] ? x[i + j] : y[i + j];
        sum += ft_rowmath_sum(smaller, n_block);
    }
    return sum;
}

FT_ROWMATH_CLONED double ft_rowmath_mass(const float *q, size_t n) {
    int32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        bad |= !(q[i] >= 0.0f); /* true for a NaN too */
        bad |= !(q[i] < INFINITY);
    }
    return bad == 0 ? ft_rowmath_sum(q, n) : (double)NAN;
}

FT_ROWMATH_CLONED double ft_rowmath_residual(const float *p, float p_scale, const float *q,
                                             float q_scale, size_t n, float *out) {
    for (size_t i = 0; i < n; i++) {
        float excess = p[i] * p_scale - q[i] * q_scale;
        out[i] = excess > 0.0f ? excess : 0.0f;
    }
    return ft_rowmath_sum(out, n);
}
