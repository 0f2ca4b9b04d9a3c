/* ops_reference: the operations of ops.h once more, plainly and in double precision, and random
 * inputs in every stored format.
 * Owns:    nothing; memory that it returns is freed by the caller.
 * Runs in: tests.
 * Never:   shares code with the kernels. */
#ifndef TESTS_UNIT_OPS_REFERENCE_H
#define TESTS_UNIT_OPS_REFERENCE_H

#include <stdint.h>

#include "common/gpu/ops.h"

/* Uniform in [-1, 1), the same sequence everywhere. */
float ref_random(uint64_t *state);
float *ref_random_floats(uint64_t *state, int64_t n);

/* n random numbers in a stored format; exactly as long as needed, so that a sanitizer sees a read
 * past the end. offset bytes stand before it: offset 1 makes it unaligned. */
struct ref_stored {
    char *memory;
    void *data;
    double *values; /* what is stored, exactly */
};
struct ref_stored ref_store(uint64_t *state, enum ft_elem elem, int64_t n, int32_t offset);
void ref_free(struct ref_stored *stored);
/* The number that 16 bits stand for. */
double ref_decode(enum ft_elem elem, uint16_t bits);

/* y = x w^T + bias of one row and its sum of |x w| for tolerances. */
struct ref_dot {
    double value, magnitude;
};
struct ref_dot ref_dot(const float *x, const double *w, int32_t n, float bias);

double ref_silu(double x);

/* Attention of one query at `position` over keys and values [n, head_dim]; out [head_dim]. */
struct ref_attention {
    const float *q, *k, *v;
    int32_t head_dim, position, window;
    double scale;
};
void ref_attention(const struct ref_attention *a, double *out);

#endif
