/* bench_linear: the matrices of a layer at the shapes of a large model, by rows: microseconds, and
 * how fast the weights are read against a plain read of them in the same run. Layers have weights
 * of their own, so that they come from memory; operations of all layers are started together where
 * the device notes programs. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/gpu/device.h"

enum { LAYERS = 14, ROUNDS = 9, ROWS_MAX = 512, MATRICES = 7, NORM_WIDTH = 8192 };

static const int32_t heights[] = {1, 4, 8, 16, 32, 64, 128, 512};
#define N_HEIGHTS (sizeof heights / sizeof heights[0])

static const struct shape {
    const char *name;
    int32_t hidden, kv, intermediate;
} shapes[] = {{"1b", 2048, 512, 8192}, {"3b", 3072, 1024, 8192}, {"8b", 4096, 1024, 14336}};

/* An operation of a layer, and which of its matrices it has. */
static const struct group {
    const char *name;
    int32_t first, n;
    enum ft_linear_end end;
    bool has_norm;
} groups[] = {{"q k v", 0, 3, FT_LINEAR_STORE, true},
              {"o", 3, 1, FT_LINEAR_ADD, false},
              {"gate up", 4, 2, FT_LINEAR_SWIGLU, true},
              {"down", 6, 1, FT_LINEAR_ADD, false}};
#define N_GROUPS (sizeof groups / sizeof groups[0])

struct bench {
    struct ft_device *device;
    const struct shape *shape;
    int32_t n_layers;
    uint16_t *weights;          /* dev */
    float *x, *y, *norm, *more; /* dev; more: scratch of norms */
};

static void die(const struct ft_err *err) {
    fprintf(stderr, "bench_linear: %s\n", err->text);
    exit(ft_code_exit_status(err->code));
}

static void *must_alloc(struct bench *b, size_t bytes) {
    struct ft_err err = {0};
    void *memory = NULL;
    if (b->device->kind->alloc(b->device, bytes, &memory, &err) != FT_OK)
        die(&err);
    return memory;
}

static void must_sync(struct bench *b) {
    struct ft_err err = {0};
    if (b->device->kind->sync(b->device, &err) != FT_OK)
        die(&err);
}

static int32_t n_out_of(const struct shape *s, int32_t matrix) {
    const int32_t n_out[MATRICES] = {s->hidden,       s->kv,           s->kv,    s->hidden,
                                     s->intermediate, s->intermediate, s->hidden};
    return n_out[matrix];
}
static int32_t n_in_of(const struct shape *s, int32_t matrix) {
    return matrix == MATRICES - 1 ? s->intermediate : s->hidden;
}
/* Numbers of the matrices of a layer before one of them. */
static size_t numbers_before(const struct shape *s, int32_t matrix) {
    size_t n = 0;
    for (int32_t m = 0; m < matrix; m++)
        n += (size_t)n_out_of(s, m) * (size_t)n_in_of(s, m);
    return n;
}

/* One operation of one layer. */
static void run_group(struct bench *b, const struct group *group, int32_t layer, int32_t n_rows) {
    const struct shape *s = b->shape;
    struct ft_op_linear op = {.x = b->x,
                              .n_rows = n_rows,
                              .n_in = n_in_of(s, group->first),
                              .n_parts = group->n,
                              .end = group->end,
                              .norm = group->has_norm ? b->norm : NULL,
                              .eps = 1e-5f,
                              .normed = b->more};
    const uint16_t *weights = b->weights + (size_t)layer * numbers_before(s, MATRICES);
    for (int32_t p = 0; p < group->n; p++) {
        int32_t matrix = group->first + p;
        op.parts[p] =
            (struct ft_matrix){.weight = weights + numbers_before(s, matrix),
                               .elem = FT_ELEM_BF16,
                               .n_out = n_out_of(s, matrix),
                               .out = b->y + (size_t)p * ROWS_MAX * (size_t)s->intermediate,
                               .out_stride = n_out_of(s, matrix)};
    }
    b->device->kind->ops->linear(b->device, &op);
}

static void run_groups(struct bench *b, size_t first, size_t end, int32_t n_rows) {
    for (int32_t layer = 0; layer < b->n_layers; layer++)
        for (size_t g = first; g < end; g++)
            run_group(b, &groups[g], layer, n_rows);
}

/* The groups first .. end - 1 of all layers. */
static void run(struct bench *b, size_t first, size_t end, int32_t n_rows) {
    const struct ft_device_kind *kind = b->device->kind;
    struct ft_device_key key = {{(int64_t)first, (int64_t)end, n_rows}};
    if (kind->begin(b->device, &key))
        return;
    run_groups(b, first, end, n_rows);
    if (!kind->end(b->device))
        run_groups(b, first, end, n_rows);
}

/* Best microseconds of a layer. */
static double best_us(struct bench *b, size_t first, size_t end, int32_t n_rows) {
    int64_t best_ns = INT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t begin_ns = ft_clock_now_ns();
        run(b, first, end, n_rows);
        must_sync(b);
        int64_t ns = ft_clock_now_ns() - begin_ns;
        if (ns < best_ns)
            best_ns = ns;
    }
    return (double)best_ns / 1e3 / b->n_layers;
}

static double gigabytes(const struct shape *s, size_t first, size_t end) {
    int32_t from = groups[first].first, to = groups[end - 1].first + groups[end - 1].n;
    return 2e-9 * (double)(numbers_before(s, to) - numbers_before(s, from));
}

/* Best microseconds of reading a layer's weights, all of them one behind the other. */
static double read_us(struct bench *b) {
    size_t bytes = numbers_before(b->shape, MATRICES) * sizeof(uint16_t) * (size_t)b->n_layers;
    struct ft_op_read op = {b->weights, bytes};
    int64_t best_ns = INT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t begin_ns = ft_clock_now_ns();
        b->device->kind->ops->read(b->device, &op);
        must_sync(b);
        int64_t ns = ft_clock_now_ns() - begin_ns;
        if (ns < best_ns)
            best_ns = ns;
    }
    return (double)best_ns / 1e3 / b->n_layers;
}

static void print_row(struct bench *b, int32_t n_rows, double floor_us) {
    double all_gb = gigabytes(b->shape, 0, N_GROUPS);
    printf("%5d", n_rows);
    for (size_t g = 0; g < N_GROUPS; g++) {
        double us = best_us(b, g, g + 1, n_rows);
        double own_us = floor_us * gigabytes(b->shape, g, g + 1) / all_gb;
        printf(" %9.1f %6.2f", us, own_us / us);
    }
    double us = best_us(b, 0, N_GROUPS, n_rows);
    printf(" %9.1f %6.2f %8.2f\n", us, floor_us / us, all_gb * n_rows / us * 1e3);
    fflush(stdout);
}

/* Small weights, all bits in use. */
static void fill(struct bench *b) {
    size_t n = numbers_before(b->shape, MATRICES), n_x = (size_t)ROWS_MAX * NORM_WIDTH * 2;
    uint16_t *weights = malloc(n * sizeof *weights);
    float *x = malloc(n_x * sizeof *x);
    uint32_t random = 1;
    if (weights == NULL || x == NULL)
        abort();
    for (size_t i = 0; i < n; i++) {
        random = random * 1664525u + 1013904223u;
        weights[i] = (uint16_t)((random >> 31 << 15) | (0x3C00 + (random >> 16) % 512));
    }
    for (size_t i = 0; i < n_x; i++) {
        random = random * 1664525u + 1013904223u;
        x[i] = (float)(random >> 8) * 0x1p-23f - 1.0f;
    }
    const struct ft_device_kind *kind = b->device->kind;
    for (int32_t layer = 0; layer < b->n_layers; layer++) {
        kind->copy(b->device, b->weights + (size_t)layer * n, weights, n * sizeof *weights);
        must_sync(b);
    }
    kind->copy(b->device, b->x, x, (size_t)ROWS_MAX * (size_t)b->shape->intermediate * sizeof *x);
    kind->copy(b->device, b->norm, x, (size_t)b->shape->hidden * sizeof *x);
    must_sync(b);
    free(weights);
    free(x);
}

static void open_bench(struct bench *b, const char *spec) {
    struct ft_err err = {0};
    struct ft_device_opts opts = {0, FT_DEVICE_IDLE_SPIN_US, false};
    if (ft_device_open(&b->device, spec, &opts, &err) != FT_OK)
        die(&err);
    b->n_layers = b->device->kind->is_host ? 1 : LAYERS;
    size_t layer_bytes = numbers_before(b->shape, MATRICES) * sizeof(uint16_t);
    size_t wide = (size_t)ROWS_MAX * (size_t)b->shape->intermediate * sizeof(float);
    b->weights = must_alloc(b, layer_bytes * (size_t)b->n_layers);
    b->x = must_alloc(b, wide);
    b->y = must_alloc(b, wide * FT_OPS_PARTS_MAX);
    b->more = must_alloc(b, wide);
    b->norm = must_alloc(b, (size_t)b->shape->hidden * sizeof(float));
    fill(b);
}

int main(int argc, char **argv) {
    struct bench b = {0};
    for (size_t i = 0; argc > 1 && i < sizeof shapes / sizeof shapes[0]; i++)
        if (strcmp(argv[1], shapes[i].name) == 0)
            b.shape = &shapes[i];
    if (argc > 3 || b.shape == NULL) {
        fputs("usage: bench_linear 1b|3b|8b [DEVICE]\n", stderr);
        return 64;
    }
    open_bench(&b, argc == 3 ? argv[2] : "cuda");
    char text[FT_DEVICE_TEXT_MAX];
    b.device->kind->describe(b.device, text);
    double floor_us = read_us(&b);
    printf("%s, %s: us of a layer, and how much of that a plain read of the weights takes\n"
           "plain read %.1f us, %.0f GB/s\n rows",
           text, b.shape->name, floor_us, gigabytes(b.shape, 0, N_GROUPS) / floor_us * 1e6);
    for (size_t g = 0; g < N_GROUPS; g++)
        printf(" %9s %6s", groups[g].name, "read");
    printf(" %9s %6s %8s\n", "all", "read", "TFLOP/s");
    int32_t rows_max = b.device->kind->is_host ? 16 : ROWS_MAX; /* a processor has all day */
    for (size_t h = 0; h < N_HEIGHTS && heights[h] <= rows_max; h++)
        print_row(&b, heights[h], floor_us);
    ft_device_close(&b.device); /* its memory goes with the process */
    return 0;
}
