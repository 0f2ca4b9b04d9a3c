/* Tables of steps that are one kernel, over a GPU that copies when its stream is waited for. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/gpu/cuda/steps.h"
#include "common/gpu/kernels/kernels.h"
#include "common/gpu/kernels/whole.h"
#include "support/suite.h"

enum { N_LAYERS = 2, HIDDEN = 64, QUEUE_MAX = 8 };

static struct CUstream_st *const k_stream = (struct CUstream_st *)(uintptr_t)64;
static struct k_target k_on = {.stream = (struct CUstream_st *)(uintptr_t)64};

/* What the stream has not come to. */
static struct {
    void *to;
    const void *from; /* NULL: zeros */
    size_t bytes;
} g_queue[QUEUE_MAX];
static int g_n_queued, g_n_copies, g_fail_at, g_n_steps;

static cudaError_t queue(void *to, const void *from, size_t bytes, cudaStream_t stream) {
    ck_assert_ptr_eq(stream, k_stream);
    if (++g_n_copies == g_fail_at)
        return cudaErrorInvalidValue;
    ck_assert_int_lt(g_n_queued, QUEUE_MAX);
    g_queue[g_n_queued].to = to;
    g_queue[g_n_queued].from = from;
    g_queue[g_n_queued++].bytes = bytes;
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes, cudaStream_t stream) {
    ck_assert_int_eq(byte, 0);
    return queue(memory, NULL, bytes, stream);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    ck_assert_int_eq(kind, cudaMemcpyHostToDevice);
    return queue(to, from, bytes, stream);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    ck_assert_ptr_eq(stream, k_stream);
    for (int i = 0; i < g_n_queued; i++)
        if (g_queue[i].from == NULL)
            memset(g_queue[i].to, 0, g_queue[i].bytes);
        else
            memcpy(g_queue[i].to, g_queue[i].from, g_queue[i].bytes);
    g_n_queued = 0;
    return cudaSuccess;
}

/* The stream of those that name none: nothing orders it with another. */
cudaError_t cudaMemset(void *memory, int byte, size_t bytes) {
    ck_abort_msg("%zu bytes at %p are set to %d in no order", bytes, memory, byte);
    return cudaErrorInvalidValue;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    ck_abort_msg("%zu bytes are copied from %p to %p (%d) in no order", bytes, from, to, kind);
    return cudaErrorInvalidValue;
}

cudaError_t cudaMalloc(void **out, size_t bytes) {
    *out = aligned_alloc(256, bytes);
    memset(*out, 0xA5, bytes);
    return cudaSuccess;
}
cudaError_t cudaFree(void *memory) {
    free(memory);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    ck_assert_int_eq(flags, cudaHostAllocMapped);
    *out = calloc(1, bytes);
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *memory) {
    free(memory);
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}

/* ---- the kernel */

cudaError_t k_map_make(struct ft_whole_map *map, const void *weight, int32_t n_out, int32_t n_in,
                       int32_t n_columns) {
    memset(map, 0, sizeof *map);
    map->words[0] = (uint64_t)(uintptr_t)weight;
    map->words[1] = (uint64_t)n_out << 32 | (uint32_t)n_in;
    map->words[2] = (uint64_t)n_columns;
    return cudaSuccess;
}
cudaError_t k_whole_setup(struct k_target *on) {
    (void)on;
    return cudaSuccess;
}
const char *k_whole_refuses(const struct k_target *on, const struct ft_op_whole *op) {
    (void)on;
    (void)op;
    return NULL;
}
cudaError_t k_whole(const struct k_target *on, const struct ft_op_whole *op) {
    static const struct ft_whole_state zero;
    ck_assert_ptr_eq(on, &k_on);
    ck_assert_msg(g_n_queued == 0, "host memory is read after it was freed");
    ck_assert_mem_eq(op->state, &zero, sizeof zero);
    for (int32_t i = 0; i < N_LAYERS; i++) {
        ck_assert_int_eq(op->layers[i].window, 10 + i);
        for (int k = 0; k < FT_WHOLE_MATRICES; k++) {
            const struct ft_whole_map *map = &op->maps[i * FT_WHOLE_MATRICES + k];
            const struct ft_whole_map *half = &op->half_maps[i * FT_WHOLE_MATRICES + k];
            ck_assert_uint_eq(map->words[0], 4096);
            ck_assert_uint_eq(map->words[2], FT_WHOLE_COLUMNS);
            ck_assert_uint_eq(half->words[0], 4096);
            ck_assert_uint_eq(half->words[1], map->words[1]);
            ck_assert_uint_eq(half->words[2], FT_WHOLE_COLUMNS / 2);
        }
    }
    ck_assert_uint_eq(op->maps[N_LAYERS * FT_WHOLE_MATRICES].words[0], 8192);
    g_n_steps++;
    return cudaSuccess;
}

/* ---- tests */

static struct ft_op_layer g_layers[N_LAYERS];
static struct ft_matrix g_embed, g_head;

static struct ft_op_step a_step(void) {
    struct ft_matrix matrix = {
        .weight = (const void *)(uintptr_t)4096, .elem = FT_ELEM_BF16, .n_out = HIDDEN};
    for (int32_t i = 0; i < N_LAYERS; i++)
        g_layers[i] = (struct ft_op_layer){.q = matrix,
                                           .k = matrix,
                                           .v = matrix,
                                           .o = matrix,
                                           .gate = matrix,
                                           .up = matrix,
                                           .down = matrix,
                                           .window = 10 + i};
    g_embed = g_head = matrix;
    g_head.weight = (const void *)(uintptr_t)8192;
    g_n_queued = g_n_copies = g_n_steps = g_fail_at = 0;
    return (struct ft_op_step){.layers = g_layers,
                               .embed = &g_embed,
                               .head = &g_head,
                               .n_layers = N_LAYERS,
                               .hidden = HIDDEN,
                               .n_heads = 1,
                               .n_rows = 1};
}

START_TEST(tables_are_there_when_the_kernel_starts_and_before_the_host_frees_them) {
    struct ft_op_step op = a_step();
    struct ft_cuda_steps *steps = ft_steps_create(true);
    int error = 0;
    ck_assert(ft_steps_run(steps, &k_on, &op, &error));
    int n_copies = g_n_copies;
    ck_assert(ft_steps_run(steps, &k_on, &op, &error));
    ck_assert_int_eq(g_n_copies, n_copies); /* once for all steps */
    ck_assert_int_eq(g_n_steps, 2);
    ck_assert_int_eq(error, cudaSuccess);
    ft_steps_destroy(&steps);
}
END_TEST

/* The clearing of the state, one table, the other: what is on its way is waited for. */
START_TEST(tables_that_cannot_be_sent_leave_steps_to_operations) {
    struct ft_op_step op = a_step();
    struct ft_cuda_steps *steps = ft_steps_create(true);
    int error = 0;
    g_fail_at = _i;
    for (int i = 0; i < 2; i++) {
        ck_assert(!ft_steps_run(steps, &k_on, &op, &error));
        ck_assert_int_eq(error, cudaSuccess);
        ck_assert_int_eq(g_n_queued + g_n_steps, 0);
    }
    ck_assert_int_eq(g_n_copies, _i);
    ft_steps_destroy(&steps);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("steps");
    TCase *tcase = tcase_create("tables");
    tcase_add_test(tcase, tables_are_there_when_the_kernel_starts_and_before_the_host_frees_them);
    tcase_add_loop_test(tcase, tables_that_cannot_be_sent_leave_steps_to_operations, 1, 4);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
