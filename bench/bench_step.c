/* bench_step: what steps of a model cost: M rows of one sequence against one row, the share of
 * the memory bandwidth that the same threads reach in the same run, and prompt processing.
 * Rounds are interleaved, so that a busy moment of the machine hits all cases alike. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/param.h"
#include "common/gpu/device.h"
#include "common/model/model.h"

struct options {
    char device[FT_PARAM_STR_MAX];
    int32_t threads, rounds, prompt;
};

static const struct ft_param rows[] = {
    {"device", FT_PARAM_STR, "", 0, 0, "cpu", NULL, false, offsetof(struct options, device),
     "device of the model"},
    {"threads", FT_PARAM_I32, "", 0, 1024, "0", NULL, false, offsetof(struct options, threads),
     "compute threads, 0: one per core"},
    {"rounds", FT_PARAM_I32, "", 1, 10000, "15", NULL, false, offsetof(struct options, rounds),
     "times that every case is measured"},
    {"prompt", FT_PARAM_I32, "tokens", 1, 65536, "512", NULL, false,
     offsetof(struct options, prompt), "chunk of the prompt case"},
};
static const struct ft_param_table table = {rows, sizeof rows / sizeof rows[0]};

#define ROUNDS_MAX 10000
#define ROWS_MAX 64

struct bench {
    struct ft_model *model;
    struct ft_device *device; /* for the plain read */
    void *weights;            /* there, a copy of what one step reads */
    int32_t vocab;
    int64_t stride;
    float *rows;
    int32_t *tokens, *blocks;
    size_t bytes;
};

struct timing {
    int64_t ns[ROUNDS_MAX];
    int32_t n;
};

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double best_ms(struct timing *timing) {
    qsort(timing->ns, (size_t)timing->n, sizeof timing->ns[0], by_value);
    return (double)timing->ns[0] / 1e6;
}

static double median_ms(struct timing *timing) {
    qsort(timing->ns, (size_t)timing->n, sizeof timing->ns[0], by_value);
    return (double)timing->ns[timing->n / 2] / 1e6;
}

static void die(const struct ft_err *err) {
    fprintf(stderr, "bench_step: %s\n", err->text);
    exit(ft_code_exit_status(err->code));
}

/* Copy a tensor to where the plain read will find it; without memory yet, only add it up. */
static void add_tensor(struct bench *bench, const struct ft_tensor *tensor) {
    size_t n = (size_t)tensor->rows * (size_t)tensor->cols * (size_t)ft_dtype_bytes(tensor->dtype);
    if (bench->weights != NULL)
        bench->device->kind->copy(bench->device, (char *)bench->weights + bench->bytes,
                                  tensor->data, n);
    bench->bytes += n;
}

static void list_weights(struct bench *bench) {
    const struct ft_weights *weights = ft_model_weights(bench->model);
    bench->bytes = 0;
    add_tensor(bench, &weights->head);
    for (int32_t i = 0; i < ft_model_config(bench->model)->n_layers; i++) {
        const struct ft_layer_weights *layer = &weights->layers[i];
        const struct ft_tensor *tensors[] = {&layer->q,    &layer->k,  &layer->v,   &layer->o,
                                             &layer->gate, &layer->up, &layer->down};
        for (size_t t = 0; t < sizeof tensors / sizeof tensors[0]; t++)
            add_tensor(bench, tensors[t]);
    }
}

static void open_read(struct bench *bench, const struct options *options) {
    struct ft_err err = {0};
    struct ft_device_opts opts = {options->threads, 60, false};
    list_weights(bench);
    if (ft_device_open(&bench->device, options->device, &opts, &err) != FT_OK ||
        bench->device->kind->alloc(bench->device, bench->bytes, &bench->weights, &err) != FT_OK)
        die(&err);
    list_weights(bench);
}

static void time_read(struct bench *bench, struct timing *timing) {
    struct ft_err err = {0};
    struct ft_op_read op = {bench->weights, bench->bytes};
    int64_t begin_ns = ft_clock_now_ns();
    bench->device->kind->ops->read(bench->device, &op);
    if (bench->device->kind->sync(bench->device, &err) != FT_OK)
        die(&err);
    timing->ns[timing->n++] = ft_clock_now_ns() - begin_ns;
}

static void time_step(struct bench *bench, int32_t start, int32_t n_tokens, int32_t n_logits,
                      struct timing *timing) {
    struct ft_err err = {0};
    struct ft_batch_seq seq = {bench->blocks, start, bench->tokens + start, n_tokens, n_logits};
    int64_t begin_ns = ft_clock_now_ns();
    if (ft_model_forward(bench->model, &seq, 1, bench->rows, bench->stride, &err) != FT_OK)
        die(&err);
    if (timing != NULL)
        timing->ns[timing->n++] = ft_clock_now_ns() - begin_ns;
}

static const int32_t heights[] = {1, 2, 4, 5, 8, 16, 32, 64};
#define N_HEIGHTS (sizeof heights / sizeof heights[0])
static const int32_t contexts[] = {64, 500};
#define N_CONTEXTS (sizeof contexts / sizeof contexts[0])

struct results {
    struct timing steps[N_CONTEXTS][N_HEIGHTS], read, prompt;
};

static void open_bench(struct bench *bench, const char *dir, const struct options *options) {
    struct ft_err err = {0};
    struct ft_model_config config;
    if (ft_model_config_load(dir, &config, &err) != FT_OK)
        die(&err);
    int32_t len = contexts[N_CONTEXTS - 1] + ROWS_MAX;
    if (len < options->prompt)
        len = options->prompt;
    if (len > config.max_position_embeddings) {
        fprintf(stderr, "bench_step: needs %d positions, the model has %d\n", len,
                config.max_position_embeddings);
        exit(64);
    }
    int32_t n_blocks = (len - 1) / FT_KV_BLOCK_TOKENS + 1;
    struct ft_model_opts opts = {.dir = dir,
                                 .device = options->device,
                                 .n_threads = options->threads,
                                 .kv_bytes = 1LL << 30,
                                 .max_step_tokens = len,
                                 .max_step_rows = ROWS_MAX};
    if (ft_model_open(&bench->model, &opts, &err) != FT_OK)
        die(&err);
    bench->vocab = config.vocab_size;
    bench->stride = (config.vocab_size + 15) / 16 * 16;
    bench->rows = calloc((size_t)(ROWS_MAX * bench->stride), sizeof(float));
    bench->tokens = calloc((size_t)len, sizeof(int32_t));
    bench->blocks = calloc((size_t)n_blocks, sizeof(int32_t));
    if (bench->rows == NULL || bench->tokens == NULL || bench->blocks == NULL)
        abort();
    for (int32_t i = 0; i < len; i++)
        bench->tokens[i] = i * 37 % config.vocab_size;
    for (int32_t i = 0; i < n_blocks; i++)
        bench->blocks[i] = i;
    ft_model_pin(bench->model, bench->rows, (size_t)(ROWS_MAX * bench->stride) * sizeof(float));
    open_read(bench, options);
    time_step(bench, 0, len, 1, NULL); /* fills the KV that the steps look back on */
}

static void close_bench(struct bench *bench) {
    ft_model_close(&bench->model);
    bench->device->kind->give_back(bench->device, bench->weights, bench->bytes);
    ft_device_close(&bench->device);
    free(bench->rows);
    free(bench->tokens);
    free(bench->blocks);
}

static void measure(struct bench *bench, const struct options *options, struct results *results) {
    for (int32_t round = 0; round < options->rounds; round++) {
        time_read(bench, &results->read);
        for (size_t c = 0; c < N_CONTEXTS; c++)
            for (size_t h = 0; h < N_HEIGHTS; h++)
                time_step(bench, contexts[c], heights[h], heights[h], &results->steps[c][h]);
        if (round % 4 == 0)
            time_step(bench, 0, options->prompt, 1, &results->prompt);
    }
}

static void print(struct bench *bench, const struct options *options, struct results *results) {
    double read_ms = best_ms(&results->read), mb = (double)bench->bytes / 1e6;
    printf("%s, %.1f MB of weights a step\n", ft_model_backend(bench->model), mb);
    printf("plain read      %8.3f ms best %8.3f median %7.1f GB/s\n", read_ms,
           median_ms(&results->read), mb / read_ms);
    printf("context  rows   best ms  median ms  of 1 row    GB/s  of read\n");
    for (size_t c = 0; c < N_CONTEXTS; c++)
        for (size_t h = 0; h < N_HEIGHTS; h++) {
            double ms = best_ms(&results->steps[c][h]);
            printf("%7d %5d %9.3f %10.3f %9.2f %7.1f %8.2f\n", contexts[c], heights[h], ms,
                   median_ms(&results->steps[c][h]), ms / best_ms(&results->steps[c][0]), mb / ms,
                   read_ms / ms);
        }
    double prompt_ms = best_ms(&results->prompt);
    printf("prompt  %5d %9.1f %10.1f   %.0f tokens/s\n", options->prompt, prompt_ms,
           median_ms(&results->prompt), options->prompt * 1e3 / prompt_ms);
}

int main(int argc, char **argv) {
    struct ft_err err = {0};
    static struct options options;
    static struct bench bench;
    static struct results results;
    char **rest = calloc((size_t)argc, sizeof *rest);
    if (rest == NULL)
        abort();
    struct ft_param_args args = {
        .argc = argc, .argv = argv, .rest = rest, .usage = "bench_step MODEL_DIR [options]"};
    if (ft_param_defaults(&table, &options, &err) != FT_OK ||
        ft_param_parse(&table, &options, &args, &err) != FT_OK)
        die(&err);
    if (args.help)
        return 0;
    if (args.n_rest != 1) {
        fprintf(stderr, "usage: %s\n", args.usage);
        return 64;
    }
    open_bench(&bench, rest[0], &options);
    measure(&bench, &options, &results);
    print(&bench, &options, &results);
    close_bench(&bench);
    free(rest);
    return 0;
}
