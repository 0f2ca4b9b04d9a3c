/* rowmath: passes over one row of f32. The order of every sum is fixed (16 lanes, blocks of 256,
 * groups of 32 blocks),
 * products and sums are not fused, exp is ours: a result has the same bits with SSE, AVX2 and
 * AVX-512, so both processes and every machine agree on it.
 * Owns:    nothing.
 * Runs in: coordinator, draft_worker; any thread.
 * Never:   needs alignment; reads past n; included outside common/spec and its tests. */
#ifndef FT_SPEC_ROWMATH_H
#define FT_SPEC_ROWMATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Before a function: it is compiled for several instruction sets, and the loader picks. The thread
 * sanitizer cannot run before the loader has done so. */
#if defined(__x86_64__) && defined(__ELF__) && !defined(__SANITIZE_THREAD__)
#define FT_ROWMATH_CLONED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FT_ROWMATH_CLONED
#endif

#define FT_ROWMATH_LANES 16u
#define FT_ROWMATH_BLOCK 256u /* a lane sums 16 values in f32, then goes on in double */
#define FT_ROWMATH_GROUP (32u * FT_ROWMATH_BLOCK) /* values; groups can be summed side by side */

/* exp(x) is zero below this: e^-87 is the last one far enough from the subnormals. */
#define FT_ROWMATH_EXP_MIN (-87.0f)

/* How many maxima a row of n has. */
static inline size_t ft_rowmath_n_maxima(size_t n) {
    return (n + FT_ROWMATH_BLOCK - 1) / FT_ROWMATH_BLOCK * FT_ROWMATH_LANES;
}

/* Largest value of each lane of each block, -inf where a lane is empty.
 * out  maxima  [ft_rowmath_n_maxima(n)], top: the largest of all
 * Returns false when x holds a NaN or +inf; then maxima and top mean nothing. */
bool ft_rowmath_maxima(const float *x, size_t n, float *maxima, float *top);

/* Lowest index of top in x, given the maxima of x. */
int32_t ft_rowmath_find(const float *x, size_t n, const float *maxima, float top);

/* Values of x that are at least bound go to out [n], in order. Returns how many. */
size_t ft_rowmath_compact(const float *x, size_t n, float bound, float *out);

struct ft_rowmath_exp {
    float max;       /* largest value of x: its exp is exactly 1 */
    float scale;     /* 1 / temperature, > 0 */
    float threshold; /* values below it give 0 */
};
/* out[i] = exp((x[i] - max) * scale), 2 ulp. out may be x. Returns the sum of out. */
double ft_rowmath_exp(const float *x, size_t n, const struct ft_rowmath_exp *how, float *out);

/* Zero what is below threshold. Returns the sum of the rest. */
double ft_rowmath_keep(float *x, size_t n, float threshold);

void ft_rowmath_scale(float *x, size_t n, float factor);
double ft_rowmath_sum(const float *x, size_t n);
double ft_rowmath_sum_min(const float *x, const float *y, size_t n); /* of min(x, y) */

/* The sum of q; NaN when a value is negative or not finite. */
double ft_rowmath_mass(const float *q, size_t n);
/* out[i] = max(0, p_scale * p[i] - q_scale * q[i]). out may be p. Returns the sum of out. */
double ft_rowmath_residual(const float *p, float p_scale, const float *q, float q_scale, size_t n,
                           float *out);

#ifdef __cplusplus
}
#endif
#endif
