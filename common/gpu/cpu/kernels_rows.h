/* kernels_rows: what a kernel does to single rows: gather, RMSNorm, rotary embedding, SwiGLU.
 * Owns:    nothing.
 * Runs in: any thread; written in the vocabulary of a vec_*.h that is included before.
 * Never:   treats the tail of a row otherwise than its body: tails are masked vectors. */
#ifndef FT_GPU_CPU_KERNELS_ROWS_H
#define FT_GPU_CPU_KERNELS_ROWS_H

#include <math.h>
#include <string.h>

#include "common/gpu/cpu/isa.h"

INLINE int32_t i_min(int32_t a, int32_t b) {
    return a < b ? a : b;
}
INLINE int32_t i_max(int32_t a, int32_t b) {
    return a > b ? a : b;
}

INLINE size_t elem_bytes(enum ft_elem elem) {
    return elem == FT_ELEM_F32 ? 4 : 2;
}
INLINE vec load_elem(const void *p, enum ft_elem elem) {
    return elem == FT_ELEM_BF16  ? v_load_bf16(p)
           : elem == FT_ELEM_F16 ? v_load_f16(p)
                                 : v_load_f32(p);
}
INLINE vec load_elem_n(const void *p, enum ft_elem elem, int32_t n) {
    return elem == FT_ELEM_BF16  ? v_load_bf16_n(p, n)
           : elem == FT_ELEM_F16 ? v_load_f16_n(p, n)
                                 : v_load_f32_n(p, n);
}

INLINE float v_sum(vec a) {
    float s[4];
    q_store(s, v_sum4(a, v_zero(), v_zero(), v_zero()));
    return s[0];
}

/* e^x to 2 units in the last place; x past [-87, 88] counts as the bound, NaN stays.
 * x = n ln 2 + r, |r| <= ln 2 / 2: the series to r^7 / 7! is off by less than 6e-9. */
INLINE vec v_exp(vec x) {
    const float magic = 0x1.8p23f; /* adding it rounds to a whole number, in the low bits */
    x = v_clamp(x, -87.0f, 88.0f);
    vec t = v_fma(x, v_set1(0x1.715476p+0f), v_set1(magic));
    vec n = v_sub(t, v_set1(magic));
    /* ln 2 in two parts, the first with zeros enough that n times it is exact */
    vec r = v_fma(n, v_set1(-0x1.62e4p-1f), x);
    r = v_fma(n, v_set1(-0x1.7f7d1cp-20f), r);
    vec p = v_set1(1.0f / 5040);
    p = v_fma(p, r, v_set1(1.0f / 720));
    p = v_fma(p, r, v_set1(1.0f / 120));
    p = v_fma(p, r, v_set1(1.0f / 24));
    p = v_fma(p, r, v_set1(1.0f / 6));
    p = v_fma(p, r, v_set1(0.5f));
    p = v_fma(p, r, v_set1(1.0f));
    p = v_fma(p, r, v_set1(1.0f));
    return v_mul(p, v_pow2(t));
}

static void gather(const void *arg, int32_t begin, int32_t end) {
    const struct ft_op_gather *op = arg;
    size_t row_bytes = (size_t)op->n_cols * elem_bytes(op->elem);
    for (int32_t row = begin; row < end; row++) {
        const char *src = (const char *)op->src + (size_t)op->idx[row] * row_bytes;
        float *out = op->out + (int64_t)row * op->n_cols;
        for (int32_t i = 0; i < op->n_cols; i += VEC_LANES) {
            const char *p = src + (size_t)i * elem_bytes(op->elem);
            int32_t n = i_min(VEC_LANES, op->n_cols - i);
            v_store_n(out + i, load_elem_n(p, op->elem, n), n);
        }
    }
}

static void norm_row(const float *x, const float *weight, float eps, int32_t n_cols, float *out) {
    vec sum = v_zero();
    for (int32_t i = 0; i < n_cols; i += VEC_LANES) {
        vec a = v_load_n(x + i, i_min(VEC_LANES, n_cols - i));
        sum = v_fma(a, a, sum);
    }
    vec scale = v_set1(1.0f / sqrtf(v_sum(sum) / (float)n_cols + eps));
    for (int32_t i = 0; i < n_cols; i += VEC_LANES) {
        int32_t n = i_min(VEC_LANES, n_cols - i);
        vec a = v_mul(v_load_n(x + i, n), scale);
        v_store_n(out + i, v_mul(a, v_load_n(weight + i, n)), n);
    }
}

static void rmsnorm(const void *arg, int32_t begin, int32_t end) {
    const struct ft_op_rmsnorm *op = arg;
    for (int32_t row = begin; row < end; row++) {
        int64_t at = (int64_t)row * op->n_cols;
        norm_row(op->x + at, op->weight, op->eps, op->n_cols, op->out + at);
    }
}

/* Rotate (x[j], x[j + n_pairs]) by the j-th angle. */
INLINE void rotate(float *x, const float *angles, int32_t n_pairs) {
    const float *cosines = angles, *sines = angles + n_pairs;
    for (int32_t j = 0; j < n_pairs; j += VEC_LANES) {
        int32_t n = i_min(VEC_LANES, n_pairs - j);
        vec a = v_load_n(x + j, n), b = v_load_n(x + n_pairs + j, n);
        vec c = v_load_n(cosines + j, n), s = v_load_n(sines + j, n);
        v_store_n(x + j, v_sub(v_mul(a, c), v_mul(b, s)), n);
        v_store_n(x + n_pairs + j, v_add(v_mul(b, c), v_mul(a, s)), n);
    }
}

static void rope(const void *arg, int32_t begin, int32_t end) {
    const struct ft_op_rope *op = arg;
    int32_t dim = op->kv.head_dim, n_kv = op->kv.n_heads;
    int64_t padded = ft_kv_padded_dim(dim), head_floats = ft_kv_head_floats(dim);
    for (int32_t row = begin; row < end; row++) {
        const float *angles = op->angles + (int64_t)row * dim;
        for (int32_t h = 0; h < op->n_heads; h++) {
            float *q = op->q + ((int64_t)row * op->n_heads + h) * dim;
            if (op->q_norm != NULL)
                norm_row(q, op->q_norm, op->eps, dim, q);
            rotate(q, angles, dim / 2);
        }
        int32_t block = op->slots[row] / FT_OPS_KV_BLOCK, at = op->slots[row] % FT_OPS_KV_BLOCK;
        float *kv = op->kv.base + block * ft_kv_block_floats(n_kv, dim);
        for (int32_t h = 0; h < n_kv; h++, kv += head_floats) {
            float *k = op->k + ((int64_t)row * n_kv + h) * dim;
            if (op->k_norm != NULL)
                norm_row(k, op->k_norm, op->eps, dim, k);
            rotate(k, angles, dim / 2);
            for (int32_t d = 0; d < dim; d++)
                kv[(int64_t)d * FT_OPS_KV_BLOCK + at] = k[d];
            memcpy(kv + FT_OPS_KV_BLOCK * padded + at * padded,
                   op->v + ((int64_t)row * n_kv + h) * dim, (size_t)dim * sizeof(float));
        }
    }
}

/* gate = gate / (1 + e^-gate) * up */
INLINE void silu_mul_row(float *gate, const float *up, int32_t n_cols) {
    for (int32_t i = 0; i < n_cols; i += VEC_LANES) {
        int32_t n = i_min(VEC_LANES, n_cols - i);
        vec g = v_load_n(gate + i, n);
        vec e = v_exp(v_sub(v_zero(), g));
        g = v_div(g, v_add(v_set1(1.0f), e));
        v_store_n(gate + i, v_mul(g, v_load_n(up + i, n)), n);
    }
}

#endif
