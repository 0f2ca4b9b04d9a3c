/* vec_avx512: the vector vocabulary of kernels.h for AVX-512 (F, BW, DQ, VL) and F16C.
 * Owns:    nothing.
 * Runs in: any thread, after isa.h said that the machine has it.
 * Never:   is included outside isa_avx512.c. */
#ifndef FT_GPU_CPU_VEC_AVX512_H
#define FT_GPU_CPU_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define VEC_LANES 16
#define VEC_TILE_ROWS 6  /* activation rows of a tile: 24 sums, 4 weights, 1 activation of 32 */
#define VEC_SCORE_SUMS 2 /* sums per query and block of keys: hides the latency of one */
#define VEC_PV_VECS 4    /* vectors of an output that stay in registers */
#define INLINE static inline __attribute__((always_inline))

typedef __m512 vec;
typedef __m128 quad;

INLINE vec v_zero(void) {
    return _mm512_setzero_ps();
}
INLINE vec v_set1(float x) {
    return _mm512_set1_ps(x);
}
INLINE vec v_add(vec a, vec b) {
    return _mm512_add_ps(a, b);
}
INLINE vec v_sub(vec a, vec b) {
    return _mm512_sub_ps(a, b);
}
INLINE vec v_mul(vec a, vec b) {
    return _mm512_mul_ps(a, b);
}
INLINE vec v_div(vec a, vec b) {
    return _mm512_div_ps(a, b);
}
INLINE vec v_max(vec a, vec b) {
    return _mm512_max_ps(a, b);
}
INLINE vec v_fma(vec a, vec b, vec c) {
    return _mm512_fmadd_ps(a, b, c);
}
/* Both instructions give their second operand when one is NaN. */
INLINE vec v_clamp(vec x, float low, float high) {
    return _mm512_min_ps(_mm512_set1_ps(high), _mm512_max_ps(_mm512_set1_ps(low), x));
}
/* 2^n of t = n + 1.5 * 2^23, whose low bits are n. */
INLINE vec v_pow2(vec t) {
    __m512i bits = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_set1_epi32(0x3F800000)));
}

INLINE __mmask16 v_mask(int32_t n) {
    return (__mmask16)((1u << n) - 1);
}
INLINE vec v_load(const float *p) {
    return _mm512_loadu_ps(p);
}
INLINE vec v_load_n(const float *p, int32_t n) {
    return _mm512_maskz_loadu_ps(v_mask(n), p);
}
INLINE void v_store(float *p, vec a) {
    _mm512_storeu_ps(p, a);
}
INLINE void v_store_n(float *p, vec a, int32_t n) {
    _mm512_mask_storeu_ps(p, v_mask(n), a);
}
INLINE vec v_widen_bf16(__m256i h) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
INLINE vec v_load_bf16(const void *p) {
    return v_widen_bf16(_mm256_loadu_si256(p));
}
INLINE vec v_load_bf16_n(const void *p, int32_t n) {
    return v_widen_bf16(_mm256_maskz_loadu_epi16(v_mask(n), p));
}
/* Vector i of the 32 numbers in a cache line: a permutation puts each into the upper half of a
 * lane, which takes one instruction of the busiest port where widening and shifting take two. */
INLINE vec v_line_bf16(const void *p, int32_t i) {
    const __m512i pairs =
        _mm512_setr_epi32(0, 1 << 16, 2 << 16, 3 << 16, 4 << 16, 5 << 16, 6 << 16, 7 << 16, 8 << 16,
                          9 << 16, 10 << 16, 11 << 16, 12 << 16, 13 << 16, 14 << 16, 15 << 16);
    __m512i idx = _mm512_add_epi32(pairs, _mm512_set1_epi32(i * VEC_LANES << 16));
    return _mm512_castsi512_ps(
        _mm512_maskz_permutexvar_epi16(0xAAAAAAAA, idx, _mm512_loadu_si512(p)));
}
INLINE vec v_load_f16(const void *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
INLINE vec v_load_f16_n(const void *p, int32_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(v_mask(n), p));
}
INLINE vec v_load_f32(const void *p) {
    return _mm512_loadu_ps(p);
}
INLINE vec v_load_f32_n(const void *p, int32_t n) {
    return _mm512_maskz_loadu_ps(v_mask(n), p);
}

/* a where low <= base + lane <= high, other elsewhere. */
INLINE vec v_within(vec a, int32_t base, int32_t low, int32_t high, float other) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i at = _mm512_add_epi32(lanes, _mm512_set1_epi32(base));
    __mmask16 in = _mm512_cmp_epi32_mask(at, _mm512_set1_epi32(low), _MM_CMPINT_NLT) &
                   _mm512_cmp_epi32_mask(at, _mm512_set1_epi32(high), _MM_CMPINT_LE);
    return _mm512_mask_blend_ps(in, _mm512_set1_ps(other), a);
}

/* The sums of four vectors. The tree adds lanes 8 apart, then 4, 2 and 1. */
INLINE quad v_sum4(vec a, vec b, vec c, vec d) {
    /* lanes 0-7 hold half sums of the first vector, 8-15 of the second */
    vec ab = v_add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
    vec cd = v_add(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xEE));
    /* 128-bit lanes: a, b, c, d */
    vec s = v_add(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
    s = v_add(s, _mm512_permute_ps(s, 0x4E));
    s = v_add(s, _mm512_permute_ps(s, 0xB1));
    __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
    return _mm512_castps512_ps128(_mm512_permutexvar_ps(first, s));
}
INLINE float v_reduce_max(vec a) {
    return _mm512_reduce_max_ps(a);
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
