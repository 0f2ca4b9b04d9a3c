/* Attention over paged KV on every instruction set against a plain double-precision one, and the
 * bits of its rows against each other. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/gpu/cpu/isa.h"
#include "common/gpu/device.h"
#include "support/suite.h"
#include "unit/ops_reference.h"

#define SEQS 4
#define LEN 420
#define TABLE ((LEN + FT_OPS_KV_BLOCK - 1) / FT_OPS_KV_BLOCK)

struct shape {
    int32_t n_heads, n_kv_heads, head_dim, window;
};

/* Sequences with keys and values [LEN, n_kv_heads, head_dim] and the same in paged form, where
 * all that no row sees is NaN, as the KV of a poisoned sequence would be. */
struct scene {
    struct shape shape;
    struct ft_kv kv;
    float *k[SEQS], *v[SEQS];
    int32_t blocks[SEQS * TABLE];
    struct ft_span spans[SEQS];
    int32_t n_rows;
    float *q, *out;
};

static const struct {
    int32_t position, n_rows;
} places[SEQS] = {{0, 5}, {127, 1}, {109, 40}, {399, 6}};

static void write_kv(struct scene *s, int32_t seq, int32_t position) {
    int32_t dim = s->shape.head_dim, n_kv = s->shape.n_kv_heads;
    int64_t padded = ft_kv_padded_dim(dim);
    int32_t block = s->blocks[seq * TABLE + position / FT_OPS_KV_BLOCK];
    int32_t at = position % FT_OPS_KV_BLOCK;
    for (int32_t h = 0; h < n_kv; h++) {
        float *head =
            s->kv.base + block * ft_kv_block_floats(n_kv, dim) + h * ft_kv_head_floats(dim);
        for (int32_t d = 0; d < padded; d++) {
            int64_t from = ((int64_t)position * n_kv + h) * dim + d;
            head[d * FT_OPS_KV_BLOCK + at] = d < dim ? s->k[seq][from] : 0.0f;
            head[(FT_OPS_KV_BLOCK + at) * padded + d] = d < dim ? s->v[seq][from] : 0.0f;
        }
    }
}

static void make_scene(struct scene *s, struct shape shape, uint64_t *random) {
    *s = (struct scene){.shape = shape};
    int64_t kv_floats = SEQS * TABLE * ft_kv_block_floats(shape.n_kv_heads, shape.head_dim);
    s->kv =
        (struct ft_kv){malloc((size_t)kv_floats * sizeof(float)), shape.n_kv_heads, shape.head_dim};
    for (int64_t i = 0; i < kv_floats; i++)
        s->kv.base[i] = NAN;
    for (int32_t seq = 0; seq < SEQS; seq++) {
        int64_t n = (int64_t)LEN * shape.n_kv_heads * shape.head_dim;
        s->k[seq] = ref_random_floats(random, n);
        s->v[seq] = ref_random_floats(random, n);
        s->spans[seq] =
            (struct ft_span){s->n_rows, places[seq].n_rows, places[seq].position, seq * TABLE};
        s->n_rows += places[seq].n_rows;
        for (int32_t b = 0; b < TABLE; b++)
            s->blocks[seq * TABLE + b] = (b * SEQS + seq) * 5 % (SEQS * TABLE);
        int32_t last = places[seq].position + places[seq].n_rows - 1;
        int32_t first = shape.window > 0 ? places[seq].position - shape.window + 1 : 0;
        for (int32_t p = first > 0 ? first : 0; p <= last; p++)
            write_kv(s, seq, p);
    }
    s->q = ref_random_floats(random, (int64_t)s->n_rows * shape.n_heads * shape.head_dim);
    s->out = ref_random_floats(random, (int64_t)s->n_rows * shape.n_heads * shape.head_dim);
}

static void free_scene(struct scene *s) {
    for (int32_t seq = 0; seq < SEQS; seq++) {
        free(s->k[seq]);
        free(s->v[seq]);
    }
    free(s->kv.base);
    free(s->q);
    free(s->out);
}

/* Keys of one KV head as [LEN, head_dim]. */
static void take_head(const float *all, const struct shape *shape, int32_t kv_head, float *out) {
    for (int32_t p = 0; p < LEN; p++)
        for (int32_t d = 0; d < shape->head_dim; d++)
            out[p * shape->head_dim + d] =
                all[((int64_t)p * shape->n_kv_heads + kv_head) * shape->head_dim + d];
}

static void check_scene(const struct scene *s, float scale, const char *isa) {
    const struct shape *shape = &s->shape;
    static float k[LEN * FT_OPS_HEAD_DIM_MAX], v[LEN * FT_OPS_HEAD_DIM_MAX];
    for (int32_t seq = 0; seq < SEQS; seq++)
        for (int32_t h = 0; h < shape->n_heads; h++) {
            int32_t kv_head = h / (shape->n_heads / shape->n_kv_heads);
            take_head(s->k[seq], shape, kv_head, k);
            take_head(s->v[seq], shape, kv_head, v);
            for (int32_t i = 0; i < places[seq].n_rows; i++) {
                int64_t at =
                    ((int64_t)(s->spans[seq].row + i) * shape->n_heads + h) * shape->head_dim;
                struct ref_attention a = {
                    s->q + at,    k, v, shape->head_dim, places[seq].position + i, shape->window,
                    (double)scale};
                double want[FT_OPS_HEAD_DIM_MAX];
                ref_attention(&a, want);
                for (int32_t d = 0; d < shape->head_dim; d++)
                    if (!(fabs((double)s->out[at + d] - want[d]) < 2e-5))
                        ck_abort_msg("%s, %d/%d heads of %d, window %d: sequence %d row %d head %d "
                                     "[%d] is %g, not %g",
                                     isa, shape->n_heads, shape->n_kv_heads, shape->head_dim,
                                     shape->window, seq, i, h, d, (double)s->out[at + d], want[d]);
            }
        }
}

static const struct shape shapes[] = {
    {1, 1, 2, 0},    {4, 2, 64, 0},   {6, 2, 16, 0},   {8, 1, 80, 0},   {40, 1, 10, 0},
    {3, 3, 256, 0},  {10, 5, 64, 1},  {4, 2, 32, 5},   {4, 2, 64, 130}, {2, 1, 24, 200},
    {4, 4, 128, 33}, {5, 1, 48, 128}, {5, 1, 64, 256},
};

START_TEST(attention_of_any_shape_matches_reference) {
    uint64_t random = 5;
    const struct ft_isa *isa;
    for (size_t i = 0; (isa = ft_isa_at(i)) != NULL; i++) {
        char spec[64];
        struct ft_err err = {0};
        struct ft_device *device = NULL;
        snprintf(spec, sizeof spec, "cpu:%s", isa->name);
        ck_assert_msg(ft_device_open(&device, spec,
                                     &(struct ft_device_opts){.n_threads = 2, .idle_spin_us = 50},
                                     &err) == FT_OK,
                      "%s", err.text);
        struct scene scene;
        make_scene(&scene, shapes[_i], &random);
        /* large enough that softmax is far from flat */
        float scale = 4.0f / sqrtf((float)scene.shape.head_dim);
        struct ft_op_attention op = {.q = scene.q,
                                     .out = scene.out,
                                     .n_heads = scene.shape.n_heads,
                                     .scale = scale,
                                     .window = scene.shape.window,
                                     .spans = scene.spans,
                                     .n_spans = SEQS,
                                     .blocks = scene.blocks,
                                     .kv = scene.kv};
        device->kind->ops->attention(device, &op);
        check_scene(&scene, scale, isa->name);
        free_scene(&scene);
        ft_device_close(&device);
    }
}
END_TEST

/* Run the scene's spans, or each of its rows as a span of its own in an operation of its own, and
 * give the bits of all outputs. */
static void run_scene(struct scene *s, const char *isa, int32_t n_threads, bool alone, float *out) {
    char spec[64];
    struct ft_err err = {0};
    struct ft_device *device = NULL;
    snprintf(spec, sizeof spec, "cpu:%s", isa);
    ck_assert_msg(
        ft_device_open(&device, spec,
                       &(struct ft_device_opts){.n_threads = n_threads, .idle_spin_us = 50},
                       &err) == FT_OK,
        "%s", err.text);
    struct ft_op_attention op = {.q = s->q,
                                 .out = out,
                                 .n_heads = s->shape.n_heads,
                                 .scale = 0.5f,
                                 .window = s->shape.window,
                                 .spans = s->spans,
                                 .n_spans = SEQS,
                                 .blocks = s->blocks,
                                 .kv = s->kv};
    if (!alone)
        device->kind->ops->attention(device, &op);
    for (int32_t seq = 0; alone && seq < SEQS; seq++)
        for (int32_t i = 0; i < s->spans[seq].n_rows; i++) {
            struct ft_span span = {s->spans[seq].row + i, 1, s->spans[seq].position + i,
                                   s->spans[seq].table};
            op.spans = &span;
            op.n_spans = 1;
            device->kind->ops->attention(device, &op);
        }
    ft_device_close(&device);
}

/* One thread takes positions as they come; several share them out in pieces that are merged, and
 * many also get fewer queries each. */
START_TEST(dev50_attention_of_a_row_has_the_same_bits_however_it_is_cut) {
    uint64_t random = 11;
    const struct ft_isa *isa;
    for (size_t i = 0; (isa = ft_isa_at(i)) != NULL; i++) {
        struct scene scene;
        make_scene(&scene, shapes[_i], &random);
        size_t n = (size_t)scene.n_rows * (size_t)(scene.shape.n_heads * scene.shape.head_dim);
        float *whole = calloc(n, sizeof *whole), *cut = calloc(n, sizeof *cut);
        ck_assert(whole != NULL && cut != NULL);
        run_scene(&scene, isa->name, 1, false, whole);
        for (int32_t n_threads = 1; n_threads <= 16; n_threads *= 4)
            for (int alone = 0; alone < 2; alone++) {
                memset(cut, 0xFF, n * sizeof *cut);
                run_scene(&scene, isa->name, n_threads, alone != 0, cut);
                ck_assert_msg(memcmp(whole, cut, n * sizeof *cut) == 0,
                              "%s, shape %d: %d threads, rows %s", isa->name, _i, n_threads,
                              alone != 0 ? "alone" : "together");
            }
        free(whole);
        free(cut);
        free_scene(&scene);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ops_attention");
    TCase *tcase = tcase_create("reference");
    tcase_add_loop_test(tcase, attention_of_any_shape_matches_reference, 0,
                        sizeof shapes / sizeof shapes[0]);
    tcase_add_loop_test(tcase, dev50_attention_of_a_row_has_the_same_bits_however_it_is_cut, 0,
                        sizeof shapes / sizeof shapes[0]);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
