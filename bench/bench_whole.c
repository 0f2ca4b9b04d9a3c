/* bench_whole: a step of a random model on a GPU, by single kernels and as one kernel, each as a
 * graph, in turn; then where the one kernel's time goes, between which barriers.
 * usage: bench_whole 1b|3b [rounds] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "gpu/whole_model.h"

#define ROUNDS_MAX 2000
#define CONTEXT 500
#define LAYERS_MAX 64
#define BARRIERS 6 /* of a layer */

static const struct whole_shape shapes[] = {
    {2048, 8192, 32, 8, 64, 128256, 16, 0, false, 528},
    {3072, 8192, 24, 8, 128, 128256, 28, 0, false, 528},
};
static const char *const names[] = {"1b", "3b"};
static const int32_t heights[] = {1, 2, 4, 5, 8, 9, 12, 16};

static void must(cudaError_t error, const char *what) {
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "bench_whole: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

static cudaGraphExec_t note(struct whole_model *m, cudaError_t (*step)(struct whole_model *m)) {
    cudaStream_t stream = whole_model_target(m)->stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t program = NULL;
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    must(step(m), "step");
    must(cudaStreamEndCapture(stream, &graph), "capture");
    must(cudaGraphInstantiate(&program, graph, 0), "graph");
    must(cudaGraphDestroy(graph), "graph");
    return program;
}

static double run_ms(struct whole_model *m, cudaGraphExec_t program) {
    cudaStream_t stream = whole_model_target(m)->stream;
    int64_t begin_ns = ft_clock_now_ns();
    must(cudaGraphLaunch(program, stream), "launch");
    must(cudaStreamSynchronize(stream), "step");
    return (double)(ft_clock_now_ns() - begin_ns) / 1e6;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void place(struct whole_model *m, int32_t n) {
    struct whole_seq seq = {CONTEXT, n};
    whole_model_place(m, &seq, 1, n);
}

static void compare(struct whole_model *m, int32_t n, int32_t rounds) {
    static double single_ms[ROUNDS_MAX], whole_ms[ROUNDS_MAX];
    place(m, n);
    const char *refused = k_whole_refuses(whole_model_target(m), whole_model_op(m));
    if (refused != NULL) {
        printf("%6d  refused: %s\n", n, refused);
        return;
    }
    cudaGraphExec_t single = note(m, whole_model_single), whole = note(m, whole_model_whole);
    for (int32_t i = 0; i < rounds; i++) {
        single_ms[i] = run_ms(m, single);
        whole_ms[i] = run_ms(m, whole);
    }
    qsort(single_ms, (size_t)rounds, sizeof single_ms[0], by_value);
    qsort(whole_ms, (size_t)rounds, sizeof whole_ms[0], by_value);
    printf("%6d  %8.3f %8.3f  %8.3f %8.3f%s\n", n, single_ms[0], single_ms[rounds / 2], whole_ms[0],
           whole_ms[rounds / 2], whole_model_state(m).is_abandoned != 0 ? "  GAVE UP" : "");
    must(cudaGraphExecDestroy(single), "graph");
    must(cudaGraphExecDestroy(whole), "graph");
}

/* Mean us of the layers but the first: what the first block works until it comes to a barrier, and
 * how long it waits there. */
static void show_marks(struct whole_model *m, int32_t n, int32_t n_layers) {
    static const char *const stages[BARRIERS] = {"qkv", "attention", "merge",
                                                 "o",   "gate up",   "down"};
    static uint64_t marks[2 + 2 * BARRIERS * LAYERS_MAX];
    size_t bytes = sizeof marks[0] * (size_t)(2 + 2 * BARRIERS * n_layers);
    struct ft_op_whole *op = whole_model_op(m);
    void *memory = NULL;
    must(cudaMalloc(&memory, bytes), "memory");
    op->marks_ns = memory;
    place(m, n);
    for (int i = 0; i < 5; i++)
        must(whole_model_whole(m), "step");
    must(cudaDeviceSynchronize(), "step");
    must(cudaMemcpy(marks, memory, bytes, cudaMemcpyDeviceToHost), "marks");
    op->marks_ns = NULL;
    must(cudaFree(memory), "memory");
    printf("%d rows:", n);
    for (int b = 0; b < BARRIERS; b++) {
        double work = 0, wait = 0;
        for (int32_t layer = 1; layer < n_layers; layer++) {
            const uint64_t *at = marks + 2 + 2 * (layer * BARRIERS + b);
            work += (double)(at[0] - at[-1]) / 1e3;
            wait += (double)(at[1] - at[0]) / 1e3;
        }
        printf("  %s %.2f + %.2f", stages[b], work / (n_layers - 1), wait / (n_layers - 1));
    }
    printf("  all layers %.1f\n", (double)(marks[1 + 2 * BARRIERS * n_layers] - marks[1]) / 1e3);
}

int main(int argc, char **argv) {
    int shape = argc > 1 && strcmp(argv[1], names[1]) == 0;
    int32_t rounds = argc > 2 ? (int32_t)strtol(argv[2], NULL, 10) : 100;
    if (argc < 2 || strcmp(argv[1], names[shape]) != 0 || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: bench_whole 1b|3b [rounds, 1 to %d]\n", ROUNDS_MAX);
        return 64;
    }
    struct whole_model *m = whole_model_create(&shapes[shape], 1, 1);
    must(cudaStreamCreate(&whole_model_target(m)->stream), "stream");
    whole_model_reset(m);
    printf("%s, ms of a step: best and median\n  rows  single kernels     one kernel\n",
           names[shape]);
    for (size_t i = 0; i < sizeof heights / sizeof heights[0]; i++)
        compare(m, heights[i], rounds);
    printf("us until a barrier + there, first block\n");
    show_marks(m, 1, shapes[shape].n_layers);
    show_marks(m, 5, shapes[shape].n_layers);
    show_marks(m, 8, shapes[shape].n_layers);
    show_marks(m, 9, shapes[shape].n_layers);
    show_marks(m, 16, shapes[shape].n_layers);
    whole_model_destroy(m);
    return 0;
}
