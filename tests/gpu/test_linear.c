/* The linear operation on a GPU against double precision, within the tolerance that ops.h states,
 * and its bits against company. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/twin.h"
#include "unit/ops_reference.h"

#define ROWS_MAX 72 /* more than any kernel has in one group */
#define GUARD 1234.5f

struct linear_case {
    enum ft_elem elem;
    int32_t n_rows, n_in, n_out;
    bool bias, norm;
    enum ft_linear_end end;
};

/* A case on the host: parts of n_out, n_out + 5, .. outputs; SwiGLU has equal ones. */
struct scene {
    struct linear_case c;
    int32_t n_parts;
    int32_t n_out[FT_OPS_PARTS_MAX];
    struct ref_stored weight[FT_OPS_PARTS_MAX];
    float *bias[FT_OPS_PARTS_MAX], *before[FT_OPS_PARTS_MAX], *out[FT_OPS_PARTS_MAX];
    float *x, *norm;
    double *scale; /* of a row's norm */
};

static int64_t stride_of(const struct scene *s, int32_t p) {
    return s->n_out[p] + 3;
}

static size_t out_bytes(const struct scene *s, int32_t p) {
    return (size_t)(s->c.n_rows * stride_of(s, p)) * sizeof(float);
}

static void make_scene(struct scene *s, const struct linear_case *c, uint64_t *random) {
    *s = (struct scene){.c = *c};
    s->n_parts = c->end == FT_LINEAR_SWIGLU ? 2 : c->end == FT_LINEAR_ADD ? 1 : 3;
    s->x = ref_random_floats(random, (int64_t)c->n_rows * c->n_in);
    s->norm = c->norm ? ref_random_floats(random, c->n_in) : NULL;
    s->scale = calloc((size_t)c->n_rows, sizeof *s->scale);
    for (int32_t row = 0; row < c->n_rows; row++) {
        double sum = 0.0;
        for (int32_t k = 0; k < c->n_in; k++)
            sum += (double)s->x[row * c->n_in + k] * (double)s->x[row * c->n_in + k];
        s->scale[row] = 1.0 / sqrt(sum / c->n_in + (double)1e-5f);
    }
    for (int32_t p = 0; p < s->n_parts; p++) {
        s->n_out[p] = c->end == FT_LINEAR_STORE ? c->n_out + 5 * p : c->n_out;
        s->weight[p] = ref_store(random, c->elem, (int64_t)c->n_in * s->n_out[p], 0);
        s->bias[p] = c->bias ? ref_random_floats(random, s->n_out[p]) : NULL;
        s->before[p] = ref_random_floats(random, c->n_rows * stride_of(s, p));
        s->out[p] = malloc(out_bytes(s, p));
        for (int64_t i = 0; i < c->n_rows * stride_of(s, p); i++)
            if (i % stride_of(s, p) >= s->n_out[p])
                s->before[p][i] = GUARD;
    }
}

static void free_scene(struct scene *s) {
    for (int32_t p = 0; p < s->n_parts; p++) {
        ref_free(&s->weight[p]);
        free(s->bias[p]);
        free(s->before[p]);
        free(s->out[p]);
    }
    free(s->x);
    free(s->norm);
    free(s->scale);
}

/* Rows first .. first + n - 1 of the scene, into out. */
static void run_scene(struct twin *twin, struct scene *s, int32_t first, int32_t n) {
    const struct linear_case *c = &s->c;
    size_t elem_bytes = c->elem == FT_ELEM_F32 ? 4 : 2;
    struct ft_op_linear op = {.n_rows = n, .n_in = c->n_in, .n_parts = s->n_parts, .end = c->end};
    op.x = twin_put(twin, s->x + (int64_t)first * c->n_in, (size_t)(n * c->n_in) * sizeof(float));
    op.norm = twin_put(twin, s->norm, (size_t)c->n_in * sizeof(float));
    op.eps = 1e-5f;
    op.normed = twin_put(twin, s->x, (size_t)(n * c->n_in) * sizeof(float));
    for (int32_t p = 0; p < s->n_parts; p++) {
        size_t row_bytes = (size_t)stride_of(s, p) * sizeof(float);
        op.parts[p] = (struct ft_matrix){
            .weight = twin_put(twin, s->weight[p].data,
                               (size_t)c->n_in * (size_t)s->n_out[p] * elem_bytes),
            .elem = c->elem,
            .n_out = s->n_out[p],
            .bias = twin_put(twin, s->bias[p], (size_t)s->n_out[p] * sizeof(float)),
            .out = twin_put(twin, s->before[p] + first * stride_of(s, p), (size_t)n * row_bytes),
            .out_stride = stride_of(s, p)};
    }
    twin->gpu->kind->ops->linear(twin->gpu, &op);
    for (int32_t p = 0; p < s->n_parts; p++)
        twin_get(twin, s->out[p] + first * stride_of(s, p), op.parts[p].out,
                 (size_t)(n * stride_of(s, p)) * sizeof(float));
    twin_release(twin);
}

static void check_row(const struct scene *s, int32_t p, int32_t row) {
    const struct linear_case *c = &s->c;
    float *x = malloc((size_t)c->n_in * sizeof(float));
    for (int32_t k = 0; k < c->n_in; k++)
        x[k] = s->norm == NULL
                   ? s->x[row * c->n_in + k]
                   : (float)((double)s->x[row * c->n_in + k] * s->scale[row] * (double)s->norm[k]);
    for (int32_t col = 0; col < stride_of(s, p); col++) {
        int64_t at = row * stride_of(s, p) + col;
        if (col >= s->n_out[p]) {
            ck_assert_msg(s->out[p][at] == GUARD, "wrote past row %d", row);
            continue;
        }
        struct ref_dot y[FT_OPS_PARTS_MAX];
        bool is_pair = c->end == FT_LINEAR_SWIGLU; /* of equal parts; others may be smaller */
        for (int32_t i = is_pair ? 0 : p; i < (is_pair ? 2 : p + 1); i++)
            y[i] = ref_dot(x, s->weight[i].values + (int64_t)col * c->n_in, c->n_in,
                           c->bias ? s->bias[i][col] : 0.0f);
        double rounding = 1e-6 * sqrt(c->n_in) + (c->norm ? 1e-6 : 0.0);
        double tolerance = rounding * y[p].magnitude + 1e-7, want = y[p].value;
        if (c->end == FT_LINEAR_ADD)
            want += (double)s->before[p][at];
        if (c->end == FT_LINEAR_SWIGLU) {
            want = ref_silu(y[0].value) * y[1].value;
            tolerance = 3 * rounding * (1 + y[0].magnitude) * (1 + y[1].magnitude);
        }
        twin_close_to((double)s->out[p][at], want, tolerance, "linear", at);
    }
    free(x);
}

static void check_case(struct twin *twin, const struct linear_case *c, uint64_t *random) {
    struct scene s;
    make_scene(&s, c, random);
    run_scene(twin, &s, 0, c->n_rows);
    for (int32_t p = 0; p < (c->end == FT_LINEAR_SWIGLU ? 1 : s.n_parts); p++)
        for (int32_t row = 0; row < c->n_rows; row++)
            check_row(&s, p, row);
    free_scene(&s);
}

static const int32_t shapes[][2] = {{1, 7},      {33, 4},    {8, 16},    {40, 38},
                                    {256, 21},   {264, 5},   {1024, 48}, {2048, 17},
                                    {2056, 130}, {640, 150}, {3136, 133}};
static const int32_t heights[] = {1, 2, 5, 8, 9, 16, 17, 40, ROWS_MAX};
#define N_SHAPES ((int)(sizeof shapes / sizeof shapes[0]))
#define N_HEIGHTS ((int)(sizeof heights / sizeof heights[0]))

START_TEST(linear_of_any_shape_matches_reference) {
    struct twin twin;
    twin_open(&twin);
    uint64_t random = 1;
    for (int e = 0; e < 3; e++)
        for (int h = 0; h < N_HEIGHTS; h++)
            for (int end = 0; end < 3; end++)
                check_case(&twin,
                           &(struct linear_case){.elem = (enum ft_elem)e,
                                                 .n_rows = heights[h],
                                                 .n_in = shapes[_i][0],
                                                 .n_out = shapes[_i][1],
                                                 .bias = (h + end) % 2 == 0,
                                                 .norm = (h + end) % 3 == 0,
                                                 .end = (enum ft_linear_end)end},
                           &random);
    twin_close(&twin);
}
END_TEST

/* Rows alone and in company of every size: the same bits. */
START_TEST(dev50_linear_row_does_not_depend_on_company) {
    struct twin twin;
    twin_open(&twin);
    uint64_t random = 2;
    for (int e = 0; e < 3; e++)
        for (int end = 0; end < 3; end++) {
            struct scene s;
            struct linear_case c = {.elem = (enum ft_elem)e,
                                    .n_rows = ROWS_MAX,
                                    .n_in = shapes[_i][0],
                                    .n_out = shapes[_i][1],
                                    .bias = end == 1,
                                    .norm = end != 1,
                                    .end = (enum ft_linear_end)end};
            make_scene(&s, &c, &random);
            run_scene(&twin, &s, 0, ROWS_MAX);
            float *together = malloc(out_bytes(&s, 0));
            memcpy(together, s.out[0], out_bytes(&s, 0));
            for (int32_t first = 0, n = 1; first < ROWS_MAX; first += n, n++) {
                if (n > ROWS_MAX - first)
                    n = ROWS_MAX - first;
                run_scene(&twin, &s, first, n);
            }
            ck_assert_mem_eq(together, s.out[0], out_bytes(&s, 0));
            free(together);
            free_scene(&s);
        }
    twin_close(&twin);
}
END_TEST

/* What is infinite or not a number stays so in its own row, and in no other. */
START_TEST(linear_of_a_poisoned_row_leaves_its_neighbours_alone) {
    struct twin twin;
    twin_open(&twin);
    uint64_t random = 3;
    struct linear_case c = {
        .elem = (enum ft_elem)_i, .n_rows = 3, .n_in = 512, .n_out = 24, .end = FT_LINEAR_ADD};
    struct scene s;
    make_scene(&s, &c, &random);
    s.x[512 + 77] = NAN;
    s.x[2 * 512 + 300] = INFINITY;
    run_scene(&twin, &s, 0, 3);
    check_row(&s, 0, 0);
    for (int32_t col = 0; col < 24; col++) {
        ck_assert(isnan(s.out[0][stride_of(&s, 0) + col]));
        ck_assert(!isfinite(s.out[0][2 * stride_of(&s, 0) + col]));
    }
    free_scene(&s);
    twin_close(&twin);
}
END_TEST

/* Every kernel once: formats, a pair and a single matrix, more rows than one pass has. */
START_TEST(linear_of_each_kind_matches_reference) {
    struct twin twin;
    twin_open(&twin);
    uint64_t random = 4;
    for (int e = 0; e < 3; e++)
        for (int end = 0; end < 3; end += 2)
            check_case(&twin,
                       &(struct linear_case){.elem = (enum ft_elem)e,
                                             .n_rows = 9,
                                             .n_in = 1024,
                                             .n_out = 24,
                                             .norm = true,
                                             .end = (enum ft_linear_end)end},
                       &random);
    twin_close(&twin);
}
END_TEST

/* Many rows at a time, in groups of each size that there are kernels for, and in two groups: the
 * bits of each row alone. Several times: blocks meet at other moments. */
START_TEST(linear_of_many_rows_has_the_bits_of_each_alone) {
    static const int32_t n_rows[] = {12, 24, 50, 72};
    struct twin twin;
    twin_open(&twin);
    uint64_t random = 5;
    for (int end = 0; end < 3; end++) {
        struct scene s;
        struct linear_case c = {.elem = FT_ELEM_BF16,
                                .n_rows = n_rows[_i],
                                .n_in = 640,
                                .n_out = 280,
                                .bias = end == 1,
                                .norm = end != 1,
                                .end = (enum ft_linear_end)end};
        make_scene(&s, &c, &random);
        for (int32_t row = 0, n; row < c.n_rows; row += n) { /* as alone: see above */
            n = c.n_rows - row < 4 ? c.n_rows - row : 4;
            run_scene(&twin, &s, row, n);
        }
        float *alone = malloc(out_bytes(&s, 0));
        memcpy(alone, s.out[0], out_bytes(&s, 0));
        for (int time = 0; time < 3; time++) {
            memset(s.out[0], 0xFF, out_bytes(&s, 0));
            run_scene(&twin, &s, 0, c.n_rows);
            ck_assert_mem_eq(alone, s.out[0], out_bytes(&s, 0));
        }
        free(alone);
        free_scene(&s);
    }
    twin_close(&twin);
}
END_TEST

/* A large matrix, again and again: blocks that overtook each other would show in some bit. */
START_TEST(linear_of_many_rows_stays_the_same) {
    static const int32_t n_rows[] = {16, 32, 64, 130};
    struct twin twin;
    twin_open(&twin);
    uint64_t random = 6;
    char text[FT_DEVICE_TEXT_MAX];
    twin.gpu->kind->describe(twin.gpu, text);
    bool is_slow = strstr(text, "simulated") != NULL;
    struct linear_case c = {.elem = FT_ELEM_BF16,
                            .n_rows = n_rows[_i / 3],
                            .n_in = is_slow ? 192 : 3072,
                            .n_out = is_slow ? 70 : 2050,
                            .norm = _i % 3 != 1,
                            .end = (enum ft_linear_end)(_i % 3)};
    struct scene s;
    make_scene(&s, &c, &random);
    run_scene(&twin, &s, 0, c.n_rows);
    float *first = malloc(out_bytes(&s, 0));
    memcpy(first, s.out[0], out_bytes(&s, 0));
    for (int time = 0; time < (is_slow ? 2 : 100); time++) {
        memset(s.out[0], 0xFF, out_bytes(&s, 0));
        run_scene(&twin, &s, 0, c.n_rows);
        ck_assert_mem_eq(first, s.out[0], out_bytes(&s, 0));
    }
    free(first);
    free_scene(&s);
    twin_close(&twin);
}
END_TEST

/* Rows wider than a block has room for, more of them than scratch may have room for: right, and a
 * row alone has the bits that it has in company. */
START_TEST(linear_of_rows_that_no_block_holds_matches_reference) {
    static const struct linear_case cases[] = {
        {.elem = FT_ELEM_F32, .n_rows = 3, .n_in = 47104, .n_out = 3, .norm = true},
        {.elem = FT_ELEM_F16, .n_rows = 3, .n_in = 47080, .n_out = 5, .bias = true},
        {.elem = FT_ELEM_F16, .n_rows = 2, .n_in = 47104, .n_out = 5, .end = FT_LINEAR_SWIGLU},
        {.elem = FT_ELEM_BF16, .n_rows = 9, .n_in = 47080, .n_out = 3, .end = FT_LINEAR_ADD},
        {.elem = FT_ELEM_BF16, .n_rows = 2, .n_in = 47104, .n_out = 3, .end = FT_LINEAR_ADD},
        {.elem = FT_ELEM_F32, .n_rows = 3, .n_in = 47072, .n_out = 3, .norm = true},
        {.elem = FT_ELEM_BF16,
         .n_rows = ROWS_MAX,
         .n_in = 47104,
         .n_out = 3,
         .norm = true,
         .end = FT_LINEAR_ADD},
    };
    struct twin twin;
    twin_open(&twin);
    uint64_t random = 7;
    struct scene s;
    make_scene(&s, &cases[_i], &random);
    run_scene(&twin, &s, 0, s.c.n_rows);
    for (int32_t p = 0; p < (s.c.end == FT_LINEAR_SWIGLU ? 1 : s.n_parts); p++)
        for (int32_t row = 0; row < s.c.n_rows; row++)
            check_row(&s, p, row);
    float *together = malloc(out_bytes(&s, 0));
    memcpy(together, s.out[0], out_bytes(&s, 0));
    run_scene(&twin, &s, 0, 1);
    run_scene(&twin, &s, s.c.n_rows - 1, 1);
    ck_assert_mem_eq(together, s.out[0], out_bytes(&s, 0));
    free(together);
    free_scene(&s);
    twin_close(&twin);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("linear");
    TCase *tcase = tcase_create("gpu");
    tcase_add_loop_test(tcase, linear_of_any_shape_matches_reference, 0, N_SHAPES);
    tcase_add_loop_test(tcase, dev50_linear_row_does_not_depend_on_company, 0, N_SHAPES);
    tcase_add_loop_test(tcase, linear_of_a_poisoned_row_leaves_its_neighbours_alone, 0, 3);
    tcase_add_loop_test(tcase, linear_of_many_rows_stays_the_same, 0, 12);
    tcase_add_loop_test(tcase, linear_of_rows_that_no_block_holds_matches_reference, 6, 7);
    suite_add_tcase(suite, tcase);
    TCase *small = tcase_create("small"); /* for tools that slow the GPU down a thousandfold */
    tcase_add_test(small, linear_of_each_kind_matches_reference);
    tcase_add_loop_test(small, linear_of_many_rows_has_the_bits_of_each_alone, 0, 4);
    tcase_add_loop_test(small, linear_of_rows_that_no_block_holds_matches_reference, 0, 6);
    suite_add_tcase(suite, small);
    return twin_main(suite);
}
