/* bench_ops: the operations of one device at the shapes of a model of some 60 M parameters, on
 * one thread and on all. The best of many runs is printed: it is what the machine can do. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/gpu/device.h"

enum { HIDDEN = 640, FFN = 1728, HEADS = 10, KV_HEADS = 5, DIM = 64, ROWS = 512, CONTEXT = 512 };

static const int32_t heights[] = {1, 5, 16, 512};
#define N_HEIGHTS (sizeof heights / sizeof heights[0])

/* Arrays are the device's. */
struct bench {
    struct ft_device *device;
    const struct ft_ops *ops;
    uint16_t *weight; /* [2 * FFN, HIDDEN] bf16, also read as other shapes */
    float *x, *y, *kv, *angles, *norm;
    int32_t *ids;                      /* 0, 1, .. */
    struct ft_span *pieces[N_HEIGHTS]; /* of the rows in hand */
    size_t idx_height;
    int32_t n_rows;
};

static void *must_malloc(size_t bytes) {
    void *memory = malloc(bytes);
    if (memory == NULL)
        abort();
    return memory;
}

static void *must_alloc(struct bench *b, size_t bytes) {
    struct ft_err err = {0};
    void *memory = NULL;
    if (b->device->kind->alloc(b->device, bytes, &memory, &err) != FT_OK) {
        fprintf(stderr, "bench_ops: %s\n", err.text);
        exit(ft_code_exit_status(err.code));
    }
    return memory;
}

static void linear(struct bench *b, int32_t n_in, int32_t n_out, enum ft_linear_end end) {
    struct ft_op_linear op = {.x = b->x, .n_rows = b->n_rows, .n_in = n_in, .end = end};
    op.n_parts = end == FT_LINEAR_SWIGLU ? 2 : 1;
    for (int32_t p = 0; p < op.n_parts; p++)
        op.parts[p] =
            (struct ft_matrix){b->weight + (size_t)p * FFN * HIDDEN, FT_ELEM_BF16, n_out, NULL,
                               b->y + (size_t)p * ROWS * FFN,        n_out};
    b->ops->linear(b->device, &op);
}

static void run_qkv(struct bench *b) {
    linear(b, HIDDEN, (HEADS + 2 * KV_HEADS) * DIM, FT_LINEAR_STORE);
}
static void run_gate_up(struct bench *b) {
    linear(b, HIDDEN, FFN, FT_LINEAR_SWIGLU);
}
static void run_down(struct bench *b) {
    linear(b, FFN, HIDDEN, FT_LINEAR_ADD);
}
static void run_rmsnorm(struct bench *b) {
    b->ops->rmsnorm(b->device,
                    &(struct ft_op_rmsnorm){b->x, b->norm, 1e-5f, b->n_rows, HIDDEN, b->y});
}
static void run_gather(struct bench *b) {
    b->ops->gather(b->device, &(struct ft_op_gather){b->weight, FT_ELEM_BF16, HIDDEN, b->ids,
                                                     b->n_rows, b->y});
}
static void run_angles(struct bench *b) {
    b->ops->angles(b->device,
                   &(struct ft_op_angles){b->ids, b->norm, b->n_rows, DIM / 2, b->angles});
}
static void run_rope(struct bench *b) {
    struct ft_op_rope op = {.q = b->x,
                            .k = b->y,
                            .v = b->y + (size_t)ROWS * KV_HEADS * DIM,
                            .n_rows = b->n_rows,
                            .n_heads = HEADS,
                            .angles = b->angles,
                            .slots = b->ids,
                            .kv = {b->kv, KV_HEADS, DIM}};
    b->ops->rope(b->device, &op);
}
/* The last n_rows positions of a context. */
static void run_attention(struct bench *b) {
    struct ft_span span = {0, b->n_rows, CONTEXT - b->n_rows, 0};
    struct ft_span *pieces = b->pieces[b->idx_height];
    struct ft_op_attention op = {.q = b->x,
                                 .out = b->y,
                                 .n_heads = HEADS,
                                 .scale = 0.125f,
                                 .spans = &span,
                                 .n_spans = 1,
                                 .pieces = pieces,
                                 .n_pieces = (b->n_rows - 1) / FT_OPS_PIECE_ROWS + 1,
                                 .n_rows = b->n_rows,
                                 .len_max = CONTEXT,
                                 .blocks = b->ids,
                                 .kv = {b->kv, KV_HEADS, DIM}};
    b->ops->attention(b->device, &op);
}

static const struct {
    const char *name;
    void (*run)(struct bench *b);
} cases[] = {{"linear qkv", run_qkv},      {"linear gate, up", run_gate_up},
             {"linear down", run_down},    {"attention", run_attention},
             {"rope, kv write", run_rope}, {"rmsnorm", run_rmsnorm},
             {"gather", run_gather},       {"angles", run_angles}};

#define TOGETHER 8 /* runs that are waited for together, as a step does */

static void must_sync(struct bench *b) {
    struct ft_err err = {0};
    if (b->device->kind->sync(b->device, &err) != FT_OK) {
        fprintf(stderr, "bench_ops: %s\n", err.text);
        exit(ft_code_exit_status(err.code));
    }
}

static double best_us(struct bench *b, void (*run)(struct bench *b)) {
    int64_t best_ns = INT64_MAX, end_ns = ft_clock_now_ns() + 100 * 1000 * 1000;
    for (int64_t now_ns = 0; now_ns < end_ns;) {
        int64_t begin_ns = ft_clock_now_ns();
        for (int32_t i = 0; i < TOGETHER; i++)
            run(b);
        must_sync(b);
        now_ns = ft_clock_now_ns();
        if ((now_ns - begin_ns) / TOGETHER < best_ns)
            best_ns = (now_ns - begin_ns) / TOGETHER;
    }
    return (double)best_ns / 1e3;
}

static void put(struct bench *b, void *to, void *host, size_t bytes) {
    b->device->kind->copy(b->device, to, host, bytes);
    must_sync(b);
    free(host);
}

static void fill(struct bench *b) {
    enum { WEIGHTS = 2 * FFN * HIDDEN, XS = ROWS * FFN };
    uint16_t *weight = must_malloc(sizeof *weight * WEIGHTS);
    float *x = must_malloc(sizeof *x * XS), *norm = must_malloc(sizeof *norm * HIDDEN);
    int32_t *ids = must_malloc(sizeof *ids * ROWS);
    for (int32_t i = 0; i < WEIGHTS; i++)
        weight[i] = (uint16_t)(0x3C00 + i % 251);
    for (int32_t i = 0; i < XS; i++)
        x[i] = (float)(i % 509) / 509.0f - 0.5f;
    for (int32_t i = 0; i < HIDDEN; i++)
        norm[i] = 1.0f / (float)(1 + i);
    for (int32_t i = 0; i < ROWS; i++)
        ids[i] = i;
    put(b, b->weight, weight, sizeof *weight * WEIGHTS);
    put(b, b->x, x, sizeof *x * XS);
    put(b, b->norm, norm, sizeof *norm * HIDDEN);
    put(b, b->ids, ids, sizeof *ids * ROWS);
    for (size_t h = 0; h < N_HEIGHTS; h++) {
        struct ft_span span = {0, heights[h], CONTEXT - heights[h], 0};
        struct ft_span *pieces = must_malloc(sizeof *pieces * ROWS);
        size_t bytes = sizeof *pieces * (size_t)ft_span_cut(&span, pieces);
        b->pieces[h] = must_alloc(b, bytes);
        put(b, b->pieces[h], pieces, bytes);
    }
}

static void open_bench(struct bench *b, const char *spec, int32_t n_threads) {
    struct ft_err err = {0};
    struct ft_device_opts opts = {n_threads, FT_DEVICE_IDLE_SPIN_US, false};
    if (ft_device_open(&b->device, spec, &opts, &err) != FT_OK) {
        fprintf(stderr, "bench_ops: %s\n", err.text);
        exit(ft_code_exit_status(err.code));
    }
    b->ops = b->device->kind->ops;
    b->weight = must_alloc(b, sizeof(uint16_t) * 2 * FFN * HIDDEN);
    b->x = must_alloc(b, sizeof(float) * ROWS * FFN);
    b->y = must_alloc(b, sizeof(float) * 2 * ROWS * FFN);
    b->angles = must_alloc(b, sizeof(float) * ROWS * DIM);
    b->norm = must_alloc(b, sizeof(float) * HIDDEN);
    b->kv = must_alloc(b, sizeof(float) * ROWS * (size_t)ft_kv_block_floats(KV_HEADS, DIM));
    b->ids = must_alloc(b, sizeof(int32_t) * ROWS);
    fill(b);
}

static void bench_device(const char *spec, int32_t n_threads) {
    struct bench b = {0};
    char text[FT_DEVICE_TEXT_MAX];
    open_bench(&b, spec, n_threads);
    b.device->kind->describe(b.device, text);
    printf("%s, microseconds\n%-16s", text, "rows");
    for (size_t h = 0; h < N_HEIGHTS; h++)
        printf("%10d", heights[h]);
    putchar('\n');
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        printf("%-16s", cases[i].name);
        for (size_t h = 0; h < N_HEIGHTS; h++) {
            b.idx_height = h;
            b.n_rows = heights[h];
            printf("%10.2f", best_us(&b, cases[i].run));
        }
        putchar('\n');
    }
    ft_device_close(&b.device); /* its memory goes with the process */
}

int main(int argc, char **argv) {
    if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
        fputs("usage: bench_ops [DEVICE]\n", stderr);
        return 64;
    }
    const char *spec = argc == 2 ? argv[1] : "cpu";
    if (strncmp(spec, "cpu", 3) == 0)
        bench_device(spec, 1);
    bench_device(spec, 0);
    return 0;
}
