#include "unit/ops_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

float ref_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*state >> 40) / (float)(1 << 23) - 1.0f;
}

static void *must_alloc(size_t bytes) {
    void *p = malloc(bytes > 0 ? bytes : 1);
    if (p == NULL)
        abort();
    return p;
}

float *ref_random_floats(uint64_t *state, int64_t n) {
    float *p = must_alloc((size_t)n * sizeof *p);
    for (int64_t i = 0; i < n; i++)
        p[i] = ref_random(state);
    return p;
}

double ref_decode(enum ft_elem elem, uint16_t bits) {
    double sign = bits & 0x8000 ? -1.0 : 1.0;
    int mantissa_bits = elem == FT_ELEM_F16 ? 10 : 7, bias = elem == FT_ELEM_F16 ? 15 : 127;
    int exponent = (bits & 0x7FFF) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
    if (exponent == 2 * bias + 1)
        return mantissa != 0 ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

struct ref_stored ref_store(uint64_t *state, enum ft_elem elem, int64_t n, int32_t offset) {
    size_t size = elem == FT_ELEM_F32 ? 4 : 2;
    struct ref_stored s = {.memory = must_alloc((size_t)offset + (size_t)n * size),
                           .values = must_alloc((size_t)n * sizeof(double))};
    s.data = s.memory + offset;
    for (int64_t i = 0; i < n; i++) {
        float x = ref_random(state);
        if (elem == FT_ELEM_F32) {
            memcpy(s.memory + offset + i * 4, &x, 4);
            s.values[i] = (double)x;
            continue;
        }
        /* exponents around 2^-3 and random mantissas of either format */
        int mantissa_bits = elem == FT_ELEM_F16 ? 10 : 7, bias = elem == FT_ELEM_F16 ? 15 : 127;
        uint32_t random = (uint32_t)((x + 1.0f) * (1 << 20));
        uint32_t exponent = (uint32_t)bias - 5 + (random >> 16) % 5;
        uint16_t bits = (uint16_t)((random & 0x8000) | exponent << mantissa_bits |
                                   (random & ((1u << mantissa_bits) - 1)));
        memcpy(s.memory + offset + i * 2, &bits, 2);
        s.values[i] = ref_decode(elem, bits);
    }
    return s;
}

void ref_free(struct ref_stored *stored) {
    free(stored->memory);
    free(stored->values);
}

struct ref_dot ref_dot(const float *x, const double *w, int32_t n, float bias) {
    struct ref_dot dot = {(double)bias, fabs((double)bias)};
    for (int32_t i = 0; i < n; i++) {
        dot.value += (double)x[i] * w[i];
        dot.magnitude += fabs((double)x[i] * w[i]);
    }
    return dot;
}

double ref_silu(double x) {
    return x / (1.0 + exp(-x));
}

void ref_attention(const struct ref_attention *a, double *out) {
    int32_t low =
        a->window > 0 && a->position - a->window + 1 > 0 ? a->position - a->window + 1 : 0;
    double sum = 0.0, max = -(double)INFINITY;
    double *scores = must_alloc((size_t)(a->position + 1) * sizeof *scores);
    for (int32_t p = low; p <= a->position; p++) {
        double s = 0.0;
        for (int32_t d = 0; d < a->head_dim; d++)
            s += (double)a->q[d] * (double)a->k[(int64_t)p * a->head_dim + d];
        scores[p] = s * a->scale;
        max = scores[p] > max ? scores[p] : max;
    }
    for (int32_t d = 0; d < a->head_dim; d++)
        out[d] = 0.0;
    for (int32_t p = low; p <= a->position; p++) {
        double weight = exp(scores[p] - max);
        sum += weight;
        for (int32_t d = 0; d < a->head_dim; d++)
            out[d] += weight * (double)a->v[(int64_t)p * a->head_dim + d];
    }
    for (int32_t d = 0; d < a->head_dim; d++)
        out[d] /= sum;
    free(scores);
}
