/* vec_portable: the vector vocabulary of kernels.h in plain C, eight lanes.
 * Owns:    nothing.
 * Runs in: any thread of any machine.
 * Never:   is included outside isa_portable.c. */
#ifndef FT_GPU_CPU_VEC_PORTABLE_H
#define FT_GPU_CPU_VEC_PORTABLE_H

#include <stdint.h>
#include <string.h>

#define VEC_LANES 8
#define VEC_TILE_ROWS 2
#define VEC_SCORE_SUMS 1
#define VEC_PV_VECS 2
#define INLINE static inline __attribute__((always_inline))

typedef struct {
    float f[VEC_LANES];
} vec;
typedef struct {
    float f[4];
} quad;

#define EACH_LANE for (int32_t i = 0; i < VEC_LANES; i++)

INLINE vec v_set1(float x) {
    vec r;
    EACH_LANE r.f[i] = x;
    return r;
}
INLINE vec v_zero(void) {
    return v_set1(0.0f);
}
INLINE vec v_add(vec a, vec b) {
    EACH_LANE a.f[i] += b.f[i];
    return a;
}
INLINE vec v_sub(vec a, vec b) {
    EACH_LANE a.f[i] -= b.f[i];
    return a;
}
INLINE vec v_mul(vec a, vec b) {
    EACH_LANE a.f[i] *= b.f[i];
    return a;
}
INLINE vec v_div(vec a, vec b) {
    EACH_LANE a.f[i] /= b.f[i];
    return a;
}
INLINE vec v_max(vec a, vec b) {
    EACH_LANE a.f[i] = a.f[i] > b.f[i] ? a.f[i] : b.f[i];
    return a;
}
/* Rounded twice: a fused product without hardware for it is slow. */
INLINE vec v_fma(vec a, vec b, vec c) {
    EACH_LANE c.f[i] += a.f[i] * b.f[i];
    return c;
}
/* NaN fails both comparisons and stays. */
INLINE vec v_clamp(vec x, float low, float high) {
    EACH_LANE x.f[i] = x.f[i] < low ? low : x.f[i] > high ? high : x.f[i];
    return x;
}
INLINE float v_from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
/* 2^n of t = n + 1.5 * 2^23, whose low bits are n. */
INLINE vec v_pow2(vec t) {
    EACH_LANE {
        uint32_t bits;
        memcpy(&bits, &t.f[i], sizeof bits);
        t.f[i] = v_from_bits((bits << 23) + 0x3F800000u);
    }
    return t;
}

INLINE vec v_load_n(const float *p, int32_t n) {
    vec r = v_zero();
    memcpy(r.f, p, (size_t)n * sizeof *p);
    return r;
}
INLINE vec v_load(const float *p) {
    vec r;
    memcpy(r.f, p, sizeof r.f);
    return r;
}
INLINE void v_store_n(float *p, vec a, int32_t n) {
    memcpy(p, a.f, (size_t)n * sizeof *p);
}
INLINE void v_store(float *p, vec a) {
    memcpy(p, a.f, sizeof a.f);
}
INLINE vec v_load_bf16_n(const void *p, int32_t n) {
    uint16_t h[VEC_LANES] = {0};
    vec r;
    memcpy(h, p, (size_t)n * sizeof h[0]);
    EACH_LANE r.f[i] = v_from_bits((uint32_t)h[i] << 16);
    return r;
}
INLINE vec v_load_bf16(const void *p) {
    return v_load_bf16_n(p, VEC_LANES);
}
/* Vector i of a cache line. */
INLINE vec v_line_bf16(const void *p, int32_t i) {
    return v_load_bf16((const uint16_t *)p + i * VEC_LANES);
}
INLINE float v_from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 0x1F, mantissa = h & 0x3FF;
    if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24, exact */
        float x = (float)mantissa * 0x1p-24f;
        return sign != 0 ? -x : x;
    }
    exponent = exponent == 0x1F ? 0xFF : exponent + 112;
    return v_from_bits(sign | exponent << 23 | mantissa << 13);
}
INLINE vec v_load_f16_n(const void *p, int32_t n) {
    uint16_t h[VEC_LANES] = {0};
    vec r;
    memcpy(h, p, (size_t)n * sizeof h[0]);
    EACH_LANE r.f[i] = v_from_f16(h[i]);
    return r;
}
INLINE vec v_load_f16(const void *p) {
    return v_load_f16_n(p, VEC_LANES);
}
INLINE vec v_load_f32_n(const void *p, int32_t n) {
    vec r = v_zero();
    memcpy(r.f, p, (size_t)n * sizeof(float));
    return r;
}
INLINE vec v_load_f32(const void *p) {
    return v_load_f32_n(p, VEC_LANES);
}

/* a where low <= base + lane <= high, other elsewhere. */
INLINE vec v_within(vec a, int32_t base, int32_t low, int32_t high, float other) {
    EACH_LANE a.f[i] = base + i >= low && base + i <= high ? a.f[i] : other;
    return a;
}

/* The tree adds lanes 4 apart, then 2 and 1. */
INLINE float v_sum1(vec a) {
    float s[4];
    for (int32_t i = 0; i < 4; i++)
        s[i] = a.f[i] + a.f[i + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}
INLINE quad v_sum4(vec a, vec b, vec c, vec d) {
    return (quad){{v_sum1(a), v_sum1(b), v_sum1(c), v_sum1(d)}};
}
INLINE float v_reduce_max(vec a) {
    float m = a.f[0];
    EACH_LANE m = a.f[i] > m ? a.f[i] : m;
    return m;
}

INLINE quad q_load(const float *p) {
    quad r;
    memcpy(r.f, p, sizeof r.f);
    return r;
}
INLINE void q_store(float *p, quad a) {
    memcpy(p, a.f, sizeof a.f);
}
INLINE quad q_add(quad a, quad b) {
    for (int32_t i = 0; i < 4; i++)
        a.f[i] += b.f[i];
    return a;
}

INLINE void v_prefetch(const void *p) {
    (void)p;
}

#endif
