/* Vectors of 16 floats are written once; the compiler makes them one AVX-512 register, two AVX2
 * or four SSE ones, and the loader picks the clone for the machine. */
#include "common/spec/rowmath.h"

#include <math.h>
#include <string.h>

/* The thread sanitizer cannot run before the loader has resolved the clones. */
#if defined(__x86_64__) && defined(__ELF__) && !defined(__SANITIZE_THREAD__)
#define CLONED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONED
#endif
#define INLINE static inline __attribute__((always_inline))

#define LANES FT_ROWMATH_LANES
#define BLOCK FT_ROWMATH_BLOCK

typedef float v16f __attribute__((vector_size(64)));
typedef int32_t v16i __attribute__((vector_size(64)));
typedef uint32_t v16u __attribute__((vector_size(64)));

INLINE size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

/* The next at most 16 of n floats; lanes past them hold fill. */
INLINE void load(v16f *v, const float *x, size_t n, float fill) {
    if (n >= LANES) {
        memcpy(v, x, sizeof *v);
        return;
    }
    *v = (v16f){0} + fill;
    memcpy(v, x, n * sizeof *x);
}

INLINE void store(float *x, size_t n, const v16f *v) {
    memcpy(x, v, min_size(n, LANES) * sizeof *x);
}

/* yes where the mask is set, no elsewhere. */
INLINE void select(v16f *out, const v16i *mask, const v16f *yes, const v16f *no) {
    *out = (v16f)(((v16i)*yes & *mask) | ((v16i)*no & ~*mask));
}

INLINE void keep(v16f *v, const v16i *mask) {
    *v = (v16f)((v16i)*v & *mask);
}

INLINE bool all_set(const v16i *mask) {
    int32_t all = -1;
    for (size_t lane = 0; lane < LANES; lane++)
        all &= (*mask)[lane];
    return all != 0;
}

INLINE double lane_sum(const v16f *v) {
    double a[LANES];
    for (size_t lane = 0; lane < LANES; lane++)
        a[lane] = (double)(*v)[lane];
    for (size_t width = LANES / 2; width > 0; width /= 2)
        for (size_t lane = 0; lane < width; lane++)
            a[lane] += a[lane + width];
    return a[0];
}

CLONED bool ft_rowmath_maxima(const float *x, size_t n, float *maxima, float *top) {
    const v16f lowest = (v16f){0} - INFINITY;
    v16f best = lowest;
    v16i good = ~(v16i){0};
    for (size_t i = 0; i < n; i += BLOCK, maxima += LANES) {
        v16f max = lowest;
        size_t end = min_size(n, i + BLOCK);
        for (size_t j = i; j < end; j += LANES) {
            v16f v;
            load(&v, x + j, n - j, -INFINITY);
            v16i greater = v > max;
            select(&max, &greater, &v, &max);
            good &= v < INFINITY; /* false for a NaN too */
        }
        memcpy(maxima, &max, sizeof max);
        v16i greater = max > best;
        select(&best, &greater, &max, &best);
    }
    *top = best[0];
    for (size_t lane = 1; lane < LANES; lane++)
        *top = best[lane] > *top ? best[lane] : *top;
    return all_set(&good);
}

int32_t ft_rowmath_find(const float *x, size_t n, const float *maxima, float top) {
    for (size_t i = 0; i < n; i += BLOCK, maxima += LANES) {
        bool here = false;
        for (size_t lane = 0; lane < LANES; lane++)
            here |= maxima[lane] == top;
        if (!here)
            continue;
        size_t end = min_size(n, i + BLOCK);
        for (size_t j = i; j < end; j++)
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

/* z becomes exp(z) for z in [FT_ROWMATH_EXP_MIN, 0]: exp(k ln 2 + r) = 2^k exp(r), |r| <= ln 2 / 2,
 * with exp(r) by its Taylor series, whose remainder r^8/8! is below 6e-9. */
INLINE void exp_in_range(v16f *z) {
    const float round_bias = 0x1.8p23f; /* adding it leaves the nearest integer in the low bits */
    const float ln2_high = 0x1.63p-1f, ln2_low = -0x1.bd0106p-13f;
    v16f biased = *z * 0x1.715476p0f + round_bias;
    v16f k = biased - round_bias;
    v16f r = (*z - k * ln2_high) - k * ln2_low;
    v16f y = r * (1.0f / 5040) + 1.0f / 720;
    y = y * r + 1.0f / 120;
    y = y * r + 1.0f / 24;
    y = y * r + 1.0f / 6;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    v16u power = ((v16u)biased + 127u) << 23; /* the bits of round_bias fall out at the top */
    *z = y * (v16f)power;
}

CLONED double ft_rowmath_exp(const float *x, size_t n, const struct ft_rowmath_exp *how,
                             float *out) {
    const v16f lowest = (v16f){0} + FT_ROWMATH_EXP_MIN;
    const float max = how->max, scale = how->scale, threshold = how->threshold;
    double sum = 0.0;
    for (size_t i = 0; i < n; i += BLOCK) {
        v16f block_sum = {0};
        size_t end = min_size(n, i + BLOCK);
        for (size_t j = i; j < end; j += LANES) {
            v16f v;
            load(&v, x + j, n - j, -INFINITY);
            v16f z = (v - max) * scale;
            v16i in_range = z >= lowest;
            select(&z, &in_range, &z, &lowest);
            exp_in_range(&z);
            in_range &= v >= threshold;
            keep(&z, &in_range);
            block_sum += z;
            store(out + j, n - j, &z);
        }
        sum += lane_sum(&block_sum);
    }
    return sum;
}

CLONED double ft_rowmath_keep(float *x, size_t n, float threshold) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i += BLOCK) {
        v16f block_sum = {0};
        size_t end = min_size(n, i + BLOCK);
        for (size_t j = i; j < end; j += LANES) {
            v16f v;
            load(&v, x + j, n - j, 0.0f);
            v16i kept = v >= threshold;
            keep(&v, &kept);
            block_sum += v;
            store(x + j, n - j, &v);
        }
        sum += lane_sum(&block_sum);
    }
    return sum;
}

CLONED void ft_rowmath_scale(float *x, size_t n, float factor) {
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
}

CLONED double ft_rowmath_sum(const float *x, size_t n) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i += BLOCK) {
        v16f block_sum = {0};
        size_t end = min_size(n, i + BLOCK);
        for (size_t j = i; j < end; j += LANES) {
            v16f v;
            load(&v, x + j, n - j, 0.0f);
            block_sum += v;
        }
        sum += lane_sum(&block_sum);
    }
    return sum;
}

CLONED double ft_rowmath_sum_min(const float *x, const float *y, size_t n) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i += BLOCK) {
        v16f block_sum = {0};
        size_t end = min_size(n, i + BLOCK);
        for (size_t j = i; j < end; j += LANES) {
            v16f a, b;
            load(&a, x + j, n - j, 0.0f);
            load(&b, y + j, n - j, 0.0f);
            v16i less = a < b;
            select(&a, &less, &a, &b);
            block_sum += a;
        }
        sum += lane_sum(&block_sum);
    }
    return sum;
}

CLONED struct ft_rowmath_residual ft_rowmath_residual(const float *p, const float *q, size_t n,
                                                      float *out) {
    struct ft_rowmath_residual result = {0};
    v16i good = ~(v16i){0};
    for (size_t i = 0; i < n; i += BLOCK) {
        v16f block_sum = {0}, block_q_sum = {0};
        size_t end = min_size(n, i + BLOCK);
        for (size_t j = i; j < end; j += LANES) {
            v16f a, b;
            load(&a, p + j, n - j, 0.0f);
            load(&b, q + j, n - j, 0.0f);
            good &= (b >= 0.0f) & (b < INFINITY);
            block_q_sum += b;
            v16i greater = a > b;
            a -= b;
            keep(&a, &greater);
            block_sum += a;
            store(out + j, n - j, &a);
        }
        result.sum += lane_sum(&block_sum);
        result.q_sum += lane_sum(&block_q_sum);
    }
    result.valid = all_set(&good);
    return result;
}
