/* Every operation on every instruction set against a plain double-precision one, at odd sizes;
 * tolerances are those that ops.h states. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/gpu/cpu/isa.h"
#include "common/gpu/device.h"
#include "support/suite.h"
#include "unit/ops_reference.h"

static struct ft_device *device; /* of the instruction set under test */
static const struct ft_ops *ops;
static const char *isa_name;

static void open_device(int isa) {
    char spec[64];
    struct ft_err err = {0};
    isa_name = ft_isa_at((size_t)isa)->name;
    snprintf(spec, sizeof spec, "cpu:%s", isa_name);
    struct ft_device_opts opts = {.n_threads = 2, .idle_spin_us = 50};
    ck_assert_msg(ft_device_open(&device, spec, &opts, &err) == FT_OK, "%s", err.text);
    ops = device->kind->ops;
}

static void close_to(double got, double want, double tolerance, const char *what, int64_t at) {
    if (!(fabs(got - want) <= tolerance))
        ck_abort_msg("%s on %s: [%lld] is %.9g, not %.9g", what, isa_name, (long long)at, got,
                     want);
}

/* ---- linear */

#define GUARD 1234.5f

struct linear_case {
    enum ft_elem elem;
    int32_t n_rows, n_in, n_out, offset;
    bool bias;
    enum ft_linear_end end;
};

struct part {
    struct ref_stored weight;
    float *bias, *out, *before;
};

static void fill_parts(const struct linear_case *c, uint64_t *random, struct ft_op_linear *op,
                       struct part *parts) {
    int64_t stride = c->n_out + 3;
    for (int32_t p = 0; p < op->n_parts; p++) {
        struct part *part = &parts[p];
        part->weight = ref_store(random, c->elem, (int64_t)c->n_in * c->n_out, c->offset);
        part->bias = c->bias ? ref_random_floats(random, c->n_out) : NULL;
        part->out = ref_random_floats(random, c->n_rows * stride);
        for (int64_t i = 0; i < c->n_rows * stride; i++)
            if (i % stride >= c->n_out)
                part->out[i] = GUARD;
        part->before = malloc((size_t)(c->n_rows * stride) * sizeof(float));
        memcpy(part->before, part->out, (size_t)(c->n_rows * stride) * sizeof(float));
        op->parts[p] =
            (struct ft_matrix){part->weight.data, c->elem, c->n_out, part->bias, part->out, stride};
    }
}

static void check_row(const struct linear_case *c, const struct ft_op_linear *op,
                      const struct part *parts, int32_t p, int32_t row) {
    const float *x = op->x + (int64_t)row * c->n_in;
    for (int32_t col = 0; col < c->n_out + 3; col++) {
        int64_t at = row * op->parts[p].out_stride + col;
        if (col >= c->n_out) {
            if (parts[p].out[at] != GUARD)
                ck_abort_msg("%s wrote past row %d", isa_name, row);
            continue;
        }
        struct ref_dot y[FT_OPS_PARTS_MAX];
        for (int32_t i = 0; i < op->n_parts; i++)
            y[i] = ref_dot(x, parts[i].weight.values + (int64_t)col * c->n_in, c->n_in,
                           c->bias ? parts[i].bias[col] : 0.0f);
        double tolerance = 1e-6 * sqrt(c->n_in) * y[p].magnitude + 1e-7, want = y[p].value;
        if (c->end == FT_LINEAR_ADD)
            want += (double)parts[p].before[at];
        if (c->end == FT_LINEAR_SWIGLU) {
            want = ref_silu(y[0].value) * y[1].value;
            tolerance = 3e-6 * sqrt(c->n_in) * (1 + y[0].magnitude) * (1 + y[1].magnitude);
        }
        close_to((double)parts[p].out[at], want, tolerance, "linear", at);
    }
}

static void check_linear(const struct linear_case *c, uint64_t *random) {
    struct part parts[FT_OPS_PARTS_MAX];
    struct ft_op_linear op = {.n_rows = c->n_rows, .n_in = c->n_in, .end = c->end};
    op.n_parts = c->end == FT_LINEAR_SWIGLU ? 2 : c->end == FT_LINEAR_ADD ? 1 : 3;
    float *x = ref_random_floats(random, (int64_t)c->n_rows * c->n_in);
    op.x = x;
    fill_parts(c, random, &op, parts);
    ops->linear(device, &op);
    /* what becomes of up's own output is not promised */
    for (int32_t p = 0; p < (c->end == FT_LINEAR_SWIGLU ? 1 : op.n_parts); p++)
        for (int32_t row = 0; row < c->n_rows; row++)
            check_row(c, &op, parts, p, row);
    for (int32_t p = 0; p < op.n_parts; p++) {
        ref_free(&parts[p].weight);
        free(parts[p].bias);
        free(parts[p].out);
        free(parts[p].before);
    }
    free(x);
}

START_TEST(linear_of_any_shape_matches_reference) {
    static const int32_t n_ins[] = {1, 7, 16, 33, 100, 257}, n_outs[] = {1, 4, 7, 38};
    static const int32_t heights[] = {1, 2, 3, 5, 6, 7, 13};
    open_device(_i);
    uint64_t random = 1;
    for (int e = 0; e < 3; e++)
        for (size_t i = 0; i < sizeof n_ins / sizeof n_ins[0]; i++)
            for (size_t o = 0; o < sizeof n_outs / sizeof n_outs[0]; o++)
                for (size_t h = 0; h < sizeof heights / sizeof heights[0]; h++)
                    for (int end = 0; end < 3; end++) {
                        struct linear_case c = {
                            .elem = (enum ft_elem)e,
                            .n_rows = heights[h],
                            .n_in = n_ins[i],
                            .n_out = n_outs[o],
                            .offset = (int32_t)(i + o) % 3,
                            .bias = (h + (size_t)end) % 2 == 0,
                            .end = (enum ft_linear_end)end,
                        };
                        check_linear(&c, &random);
                    }
    ft_device_close(&device);
}
END_TEST

/* Wide enough to be shared between threads, tall enough for several tiles of rows. */
START_TEST(linear_of_many_rows_matches_reference) {
    open_device(_i);
    uint64_t random = 2;
    for (int end = 0; end < 3; end++)
        check_linear(
            &(struct linear_case){FT_ELEM_BF16, 150, 640, 129, 0, true, (enum ft_linear_end)end},
            &random);
    ft_device_close(&device);
}
END_TEST

/* One weight of 1: the output is silu(x) * x. */
START_TEST(silu_is_accurate_over_its_whole_range) {
    open_device(_i);
    enum { N = 4001 };
    static float x[N], gate[N], up[N];
    for (int32_t i = 0; i < N; i++)
        x[i] = (float)(i - N / 2) * 0.0601f;
    float one = 1.0f;
    struct ft_op_linear op = {
        .x = x,
        .n_rows = N,
        .n_in = 1,
        .n_parts = 2,
        .parts = {{&one, FT_ELEM_F32, 1, NULL, gate, 1}, {&one, FT_ELEM_F32, 1, NULL, up, 1}},
        .end = FT_LINEAR_SWIGLU};
    ops->linear(device, &op);
    for (int32_t i = 0; i < N; i++) {
        double want = ref_silu((double)x[i]) * (double)x[i];
        close_to((double)gate[i], want, 1e-6 * fabs(want) + 1e-30, "silu", i);
    }
    x[0] = NAN;
    x[1] = INFINITY;
    ops->linear(device, &op);
    ck_assert(isnan(gate[0]));
    ck_assert(isinf(gate[1]));
    ft_device_close(&device);
}
END_TEST

/* ---- rows */

START_TEST(gather_of_every_16_bit_number_is_exact) {
    open_device(_i);
    static uint16_t table[65536];
    static float out[65536];
    int32_t idx[64];
    for (int32_t i = 0; i < 65536; i++)
        table[i] = (uint16_t)i;
    for (int32_t i = 0; i < 64; i++)
        idx[i] = 63 - i;
    for (int e = FT_ELEM_F16; e <= FT_ELEM_BF16; e++) {
        struct ft_op_gather op = {table, (enum ft_elem)e, 1024, idx, 64, out};
        ops->gather(device, &op);
        for (int32_t i = 0; i < 65536; i++) {
            int32_t bits = (63 - i / 1024) * 1024 + i % 1024;
            double want = ref_decode((enum ft_elem)e, (uint16_t)bits);
            float got = out[i];
            bool equal = (double)got == want && !signbit(got) == !signbit(want);
            if (isnan(want) ? !isnan(got) : !equal)
                ck_abort_msg("%s: %d is %g, not %g", isa_name, i, (double)got, want);
        }
    }
    ft_device_close(&device);
}
END_TEST

START_TEST(rmsnorm_matches_reference) {
    open_device(_i);
    uint64_t random = 3;
    for (int32_t n = 1; n < 300; n = n * 2 + n % 3) {
        int32_t n_rows = 9;
        float *x = ref_random_floats(&random, (int64_t)n_rows * n);
        float *weight = ref_random_floats(&random, n);
        float *out = ref_random_floats(&random, (int64_t)n_rows * n);
        struct ft_op_rmsnorm op = {x, weight, 1e-5f, n_rows, n, out};
        ops->rmsnorm(device, &op);
        for (int32_t row = 0; row < n_rows; row++) {
            double sum = 0.0;
            for (int32_t i = 0; i < n; i++)
                sum += (double)x[row * n + i] * (double)x[row * n + i];
            for (int32_t i = 0; i < n; i++) {
                double want =
                    (double)x[row * n + i] / sqrt(sum / n + (double)1e-5f) * (double)weight[i];
                close_to((double)out[row * n + i], want, 2e-6 * fabs(want), "rmsnorm", i);
            }
        }
        op.out = x; /* in place */
        ops->rmsnorm(device, &op);
        ck_assert_mem_eq(x, out, (size_t)(n_rows * n) * sizeof(float));
        free(x);
        free(weight);
        free(out);
    }
    ft_device_close(&device);
}
END_TEST

START_TEST(angles_match_reference) {
    open_device(_i);
    enum { ROWS = 40, PAIRS = 33 };
    static float out[ROWS * 2 * PAIRS], inv_freq[PAIRS];
    int32_t positions[ROWS];
    for (int32_t i = 0; i < ROWS; i++)
        positions[i] = i * i * 83;
    for (int32_t j = 0; j < PAIRS; j++)
        inv_freq[j] = powf(10000.0f, -(float)j / PAIRS);
    struct ft_op_angles op = {positions, inv_freq, ROWS, PAIRS, out};
    ops->angles(device, &op);
    for (int32_t i = 0; i < ROWS; i++)
        for (int32_t j = 0; j < PAIRS; j++) {
            float angle = (float)positions[i] * inv_freq[j];
            close_to((double)out[i * 2 * PAIRS + j], cos((double)angle), 2e-7, "cos", j);
            close_to((double)out[(i * 2 + 1) * PAIRS + j], sin((double)angle), 2e-7, "sin", j);
        }
    ft_device_close(&device);
}
END_TEST

/* ---- rope */

/* x of one head, normalised and rotated, in double precision. */
static void ref_rope(const float *x, const float *norm, float eps, const float *angles, int32_t dim,
                     double *out) {
    double scale = 1.0, sum = 0.0;
    for (int32_t d = 0; d < dim; d++)
        sum += (double)x[d] * (double)x[d];
    if (norm != NULL)
        scale = 1.0 / sqrt(sum / dim + (double)eps);
    for (int32_t d = 0; d < dim; d++) {
        int32_t pair = d % (dim / 2), other = d < dim / 2 ? d + dim / 2 : d - dim / 2;
        double a = (double)x[d] * scale * (norm != NULL ? (double)norm[d] : 1.0);
        double b = (double)x[other] * scale * (norm != NULL ? (double)norm[other] : 1.0);
        double c = (double)angles[pair], s = (double)angles[dim / 2 + pair];
        out[d] = d < dim / 2 ? a * c - b * s : a * c + b * s;
    }
}

static void check_rope(int32_t dim, bool norms, uint64_t *random) {
    enum { ROWS = 11, HEADS = 6, KV_HEADS = 2, BLOCKS = 3 };
    struct ft_kv kv = {calloc((size_t)(BLOCKS * ft_kv_block_floats(KV_HEADS, dim)), 4), KV_HEADS,
                       dim};
    float *q = ref_random_floats(random, ROWS * HEADS * dim);
    float *q_before = malloc((size_t)(ROWS * HEADS * dim) * 4);
    memcpy(q_before, q, (size_t)(ROWS * HEADS * dim) * 4);
    float *k = ref_random_floats(random, ROWS * KV_HEADS * dim);
    float *k_before = malloc((size_t)(ROWS * KV_HEADS * dim) * 4);
    memcpy(k_before, k, (size_t)(ROWS * KV_HEADS * dim) * 4);
    float *v = ref_random_floats(random, ROWS * KV_HEADS * dim);
    float *angles = ref_random_floats(random, ROWS * dim);
    float *q_norm = ref_random_floats(random, dim), *k_norm = ref_random_floats(random, dim);
    int32_t slots[ROWS];
    for (int32_t i = 0; i < ROWS; i++)
        slots[i] = (i * 13 + 5) % (BLOCKS * FT_OPS_KV_BLOCK);
    struct ft_op_rope op = {
        q,     k, v, ROWS, HEADS, angles, slots, norms ? q_norm : NULL, norms ? k_norm : NULL,
        1e-6f, kv};
    ops->rope(device, &op);
    double want[FT_OPS_HEAD_DIM_MAX];
    for (int32_t i = 0; i < ROWS * HEADS; i++) {
        ref_rope(q_before + i * dim, op.q_norm, op.eps, angles + i / HEADS * dim, dim, want);
        for (int32_t d = 0; d < dim; d++)
            close_to((double)q[i * dim + d], want[d], 1e-5, "rope of q", d);
    }
    int64_t padded = ft_kv_padded_dim(dim);
    for (int32_t i = 0; i < ROWS * KV_HEADS; i++) {
        int32_t row = i / KV_HEADS, slot = slots[row];
        const float *head = kv.base + slot / FT_OPS_KV_BLOCK * ft_kv_block_floats(KV_HEADS, dim) +
                            i % KV_HEADS * ft_kv_head_floats(dim);
        ref_rope(k_before + i * dim, op.k_norm, op.eps, angles + row * dim, dim, want);
        for (int32_t d = 0; d < padded; d++) {
            int32_t at = slot % FT_OPS_KV_BLOCK;
            close_to((double)head[d * FT_OPS_KV_BLOCK + at], d < dim ? want[d] : 0.0, 1e-5,
                     "stored key", d);
            close_to((double)head[(FT_OPS_KV_BLOCK + at) * padded + d],
                     d < dim ? (double)v[i * dim + d] : 0.0, 0.0, "stored value", d);
        }
    }
    free(kv.base);
    free(q);
    free(q_before);
    free(k);
    free(k_before);
    free(v);
    free(angles);
    free(q_norm);
    free(k_norm);
}

START_TEST(rope_and_kv_write_match_reference) {
    static const int32_t dims[] = {2, 10, 16, 64, 80, 128, 256};
    open_device(_i);
    uint64_t random = 4;
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        check_rope(dims[i], false, &random);
        check_rope(dims[i], true, &random);
    }
    ft_device_close(&device);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ops");
    TCase *tcase = tcase_create("reference");
    int n_isas = 0;
    while (ft_isa_at((size_t)n_isas) != NULL)
        n_isas++;
    tcase_add_loop_test(tcase, linear_of_any_shape_matches_reference, 0, n_isas);
    tcase_add_loop_test(tcase, linear_of_many_rows_matches_reference, 0, n_isas);
    tcase_add_loop_test(tcase, silu_is_accurate_over_its_whole_range, 0, n_isas);
    tcase_add_loop_test(tcase, gather_of_every_16_bit_number_is_exact, 0, n_isas);
    tcase_add_loop_test(tcase, rmsnorm_matches_reference, 0, n_isas);
    tcase_add_loop_test(tcase, angles_match_reference, 0, n_isas);
    tcase_add_loop_test(tcase, rope_and_kv_write_match_reference, 0, n_isas);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
