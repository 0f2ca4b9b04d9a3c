/* vec_avx2: the vector vocabulary of kernels.h for AVX2, FMA and F16C.
 * Owns:    nothing.
 * Runs in: any thread, after isa.h said that the machine has it.
 * Never:   is included outside isa_avx2.c. */
#ifndef FT_GPU_CPU_VEC_AVX2_H
#define FT_GPU_CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define VEC_LANES 8
#define VEC_TILE_ROWS 2  /* activation rows of a tile: 8 sums, 4 weights and 1 activation of 16 */
#define VEC_SCORE_SUMS 1 /* sums per query and vector of keys */
#define VEC_PV_VECS 2    /* vectors of an output that stay in registers */
#define INLINE static inline __attribute__((always_inline))

typedef __m256 vec;
typedef __m128 quad;

INLINE vec v_zero(void) {
    return _mm256_setzero_ps();
}
INLINE vec v_set1(float x) {
    return _mm256_set1_ps(x);
}
INLINE vec v_add(vec a, vec b) {
    return _mm256_add_ps(a, b);
}
INLINE vec v_sub(vec a, vec b) {
    return _mm256_sub_ps(a, b);
}
INLINE vec v_mul(vec a, vec b) {
    return _mm256_mul_ps(a, b);
}
INLINE vec v_div(vec a, vec b) {
    return _mm256_div_ps(a, b);
}
INLINE vec v_max(vec a, vec b) {
    return _mm256_max_ps(a, b);
}
INLINE vec v_fma(vec a, vec b, vec c) {
    return _mm256_fmadd_ps(a, b, c);
}
/* Both instructions give their second operand when one is NaN. */
INLINE vec v_clamp(vec x, float low, float high) {
    return _mm256_min_ps(_mm256_set1_ps(high), _mm256_max_ps(_mm256_set1_ps(low), x));
}
/* 2^n of t = n + 1.5 * 2^23, whose low bits are n. */
INLINE vec v_pow2(vec t) {
    __m256i bits = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_set1_epi32(0x3F800000)));
}

INLINE __m256i v_lanes(void) {
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}
INLINE __m256i v_mask(int32_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), v_lanes());
}
INLINE vec v_load(const float *p) {
    return _mm256_loadu_ps(p);
}
INLINE vec v_load_n(const float *p, int32_t n) {
    return _mm256_maskload_ps(p, v_mask(n));
}
INLINE void v_store(float *p, vec a) {
    _mm256_storeu_ps(p, a);
}
INLINE void v_store_n(float *p, vec a, int32_t n) {
    _mm256_maskstore_ps(p, v_mask(n), a);
}
INLINE vec v_widen_bf16(__m128i h) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
/* n halves and zeros behind them; there is no masked load of 16 bits. */
INLINE __m128i v_halves_n(const void *p, int32_t n) {
    uint16_t h[VEC_LANES] = {0};
    memcpy(h, p, (size_t)n * sizeof h[0]);
    return _mm_loadu_si128((const __m128i *)h);
}
INLINE vec v_load_bf16(const void *p) {
    return v_widen_bf16(_mm_loadu_si128(p));
}
INLINE vec v_load_bf16_n(const void *p, int32_t n) {
    return v_widen_bf16(v_halves_n(p, n));
}
/* Vector i of a cache line. */
INLINE vec v_line_bf16(const void *p, int32_t i) {
    return v_load_bf16((const uint16_t *)p + i * VEC_LANES);
}
INLINE vec v_load_f16(const void *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}
INLINE vec v_load_f16_n(const void *p, int32_t n) {
    return _mm256_cvtph_ps(v_halves_n(p, n));
}
INLINE vec v_load_f32(const void *p) {
    return _mm256_loadu_ps(p);
}
INLINE vec v_load_f32_n(const void *p, int32_t n) {
    return _mm256_maskload_ps(p, v_mask(n));
}

/* a where low <= base + lane <= high, other elsewhere. */
INLINE vec v_within(vec a, int32_t base, int32_t low, int32_t high, float other) {
    __m256i at = _mm256_add_epi32(v_lanes(), _mm256_set1_epi32(base));
    __m256i out = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(low), at),
                                  _mm256_cmpgt_epi32(at, _mm256_set1_epi32(high)));
    return _mm256_blendv_ps(a, _mm256_set1_ps(other), _mm256_castsi256_ps(out));
}

/* The sums of four vectors. The tree adds neighbours twice, then lanes 4 apart. */
INLINE quad v_sum4(vec a, vec b, vec c, vec d) {
    vec s = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}
INLINE float v_reduce_max(vec a) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

INLINE quad q_load(const float *p) {
    return _mm_loadu_ps(p);
}
INLINE void q_store(float *p, quad a) {
    _mm_storeu_ps(p, a);
}
INLINE quad q_add(quad a, quad b) {
    return _mm_add_ps(a, b);
}

INLINE void v_prefetch(const void *p) {
    _mm_prefetch(p, _MM_HINT_T0);
}

#endif
