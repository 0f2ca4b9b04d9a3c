#include "support/noting_device.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/gpu/cpu/cpu.h"
#include "common/gpu/cuda/programs.h"
#include "common/gpu/kinds.h"
#include "unit/choice_cases.h"

struct noting noting;

struct noting_device {
    struct ft_device device;
    struct ft_device *cpu;
    struct ft_cuda_programs *programs;
    cudaError_t failed;
};

static struct noting_device *of(const struct ft_device *device) {
    return (struct noting_device *)(uintptr_t)device;
}

static void fail(struct ft_device *device, int error) {
    if (of(device)->failed == cudaSuccess)
        of(device)->failed = (cudaError_t)error;
}
/* ---- operations, and lists of them */

struct item {
    enum { GATHER, ANGLES, RMSNORM, LINEAR, ROPE, ATTENTION, CHOOSE } what;
    struct ft_device *device;
    union {
        struct ft_op_gather gather;
        struct ft_op_angles angles;
        struct ft_op_rmsnorm rmsnorm;
        struct ft_op_linear linear;
        struct ft_op_rope rope;
        struct ft_op_attention attention;
        struct ft_op_choose choose;
    } op;
};

struct CUgraph_st {
    struct item *items;
    size_t n;
};
struct CUgraphExec_st {
    struct CUgraph_st graph;
};
static struct CUgraph_st *g_capture; /* NULL: operations are done */

static void choose(const struct ft_op_choose *op) {
    struct ft_choice_batch batch = {.rows = (struct ft_choice_row *)(uintptr_t)op->rows,
                                    .edits = (struct ft_choice_edit *)(uintptr_t)op->edits,
                                    .ids = (int32_t *)(uintptr_t)op->ids,
                                    .n_rows = op->n_rows};
    choice_run_on_host(&batch, op->results);
    for (int32_t i = 0; i < op->n_rows; i++) {
        op->results[i].stamp = op->stamp;
        for (int k = 0; k < 2; k++)
            if (op->rows[i].tokens[k] != NULL)
                *op->rows[i].tokens[k] = op->results[i].token;
    }
}

static void carry_out(const struct item *item) {
    struct ft_device *cpu = of(item->device)->cpu;
    const struct ft_ops *ops = cpu->kind->ops;
    struct ft_op_attention attention = item->op.attention;
    switch (item->what) {
    case GATHER:
        ops->gather(cpu, &item->op.gather);
        break;
    case ANGLES:
        ops->angles(cpu, &item->op.angles);
        break;
    case RMSNORM:
        ops->rmsnorm(cpu, &item->op.rmsnorm);
        break;
    case LINEAR:
        ops->linear(cpu, &item->op.linear);
        break;
    case ROPE:
        ops->rope(cpu, &item->op.rope);
        break;
    case ATTENTION: /* a program reads what lies on the device, and no list of the host's */
        attention.spans = attention.pieces;
        attention.n_spans = attention.n_pieces;
        ops->attention(cpu, &attention);
        break;
    case CHOOSE:
        choose(&item->op.choose);
        break;
    }
}

static void take(const struct item *item) {
    if (noting.breaks) {
        fail(item->device, cudaErrorInvalidValue);
        return;
    }
    if (g_capture == NULL) {
        noting.n_done++;
        carry_out(item);
        return;
    }
    g_capture->items = realloc(g_capture->items, (g_capture->n + 1) * sizeof *item);
    g_capture->items[g_capture->n++] = *item;
}

#define OPERATION(name, NAME)                                                                      \
    static void noting_##name(struct ft_device *device, const struct ft_op_##name *op) {           \
        take(&(struct item){.what = NAME, .device = device, .op.name = *op});                      \
    }
OPERATION(gather, GATHER)
OPERATION(angles, ANGLES)
OPERATION(rmsnorm, RMSNORM)
OPERATION(linear, LINEAR)
OPERATION(rope, ROPE)
OPERATION(attention, ATTENTION)
OPERATION(choose, CHOOSE)
static void noting_read(struct ft_device *device, const struct ft_op_read *op) {
    (void)device;
    (void)op;
}
static bool noting_step(struct ft_device *device, const struct ft_op_step *op) {
    (void)device;
    (void)op;
    return false;
}
static const struct ft_ops noting_ops = {noting_gather, noting_angles, noting_rmsnorm,
                                         noting_linear, noting_rope,   noting_attention,
                                         noting_read,   noting_choose, noting_step};

/* ---- CUDA's graphs */

static bool fails(enum noting_stage stage) {
    return noting.n_captures == noting.fail_at && noting.fail_in == stage;
}

cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    (void)stream;
    (void)mode;
    noting.n_captures++;
    if (fails(NOTING_BEGIN))
        return cudaErrorInvalidValue;
    g_capture = calloc(1, sizeof *g_capture);
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
    (void)stream;
    *out = g_capture;
    g_capture = NULL;
    if (!fails(NOTING_END))
        return cudaSuccess;
    cudaGraphDestroy(*out);
    *out = NULL;
    return cudaErrorInvalidValue;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                 unsigned long long flags) {
    (void)flags;
    if (fails(NOTING_INSTANTIATE))
        return cudaErrorInvalidValue;
    *out = calloc(1, sizeof **out);
    (*out)->graph.n = graph->n;
    (*out)->graph.items = malloc(graph->n * sizeof *graph->items);
    memcpy((*out)->graph.items, graph->items, graph->n * sizeof *graph->items);
    noting.n_graphs++;
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t program, cudaStream_t stream) {
    (void)program;
    (void)stream;
    noting.n_noted++;
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t program, cudaStream_t stream) {
    (void)stream;
    if (fails(NOTING_LAUNCH))
        return cudaErrorInvalidValue;
    for (size_t i = 0; i < program->graph.n; i++)
        carry_out(&program->graph.items[i]);
    noting.n_replayed += (int)program->graph.n;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    free(graph->items);
    free(graph);
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t program) {
    free(program->graph.items);
    free(program);
    noting.n_graphs--;
    return cudaSuccess;
}

/* ---- pinned memory, and copies of it that nobody has waited for */

enum { PINNED_MAX = 16, COPIES_MAX = 64 };
static struct {
    const char *at; /* NULL: free */
    size_t bytes;
} g_pinned[PINNED_MAX];
static struct {
    const char *from;
    size_t bytes;
    uint64_t hash;
} g_copies[COPIES_MAX];
static int g_n_copies;

static uint64_t hash_of(const char *from, size_t bytes) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (unsigned char)from[i]) * 0x100000001B3u;
    return hash;
}

bool noting_has_pinned(const void *at) {
    for (int i = 0; i < PINNED_MAX; i++)
        if (g_pinned[i].at != NULL && (const char *)at >= g_pinned[i].at &&
            (const char *)at < g_pinned[i].at + g_pinned[i].bytes)
            return true;
    return false;
}

/* A device reads it as late as now. */
static void wait_for_copies(struct ft_device *device) {
    for (int i = 0; i < g_n_copies; i++)
        if (hash_of(g_copies[i].from, g_copies[i].bytes) != g_copies[i].hash)
            fail(device, cudaErrorInvalidValue);
    g_n_copies = 0;
}

/* ---- the device */

static void noting_close(struct ft_device *device) {
    ft_programs_destroy(&of(device)->programs);
    ft_device_close(&of(device)->cpu);
    free(device);
}

static enum ft_code noting_check(const char *variant, struct ft_err *err) {
    return ft_cpu_device.check(variant, err);
}

static const struct ft_device_kind k_noting;

static enum ft_code noting_open(struct ft_device **out, const char *variant,
                                const struct ft_device_opts *opts, struct ft_err *err) {
    struct noting_device *device = calloc(1, sizeof *device);
    enum ft_code code = ft_cpu_device.open(&device->cpu, variant, opts, err);
    if (code != FT_OK) {
        free(device);
        return code;
    }
    device->device.kind = &k_noting;
    device->programs = ft_programs_create();
    *out = &device->device;
    return FT_OK;
}

static void noting_describe(const struct ft_device *device, char text[FT_DEVICE_TEXT_MAX]) {
    (void)device;
    snprintf(text, FT_DEVICE_TEXT_MAX, "noting");
}

static enum ft_code noting_alloc(struct ft_device *device, size_t bytes, void **out,
                                 struct ft_err *err) {
    if (++noting.n_allocs == noting.alloc_fails_at)
        return ft_err_set(err, FT_E_PROC_MEMORY, "noting", "%zu bytes: it was told to", bytes);
    return ft_cpu_device.alloc(of(device)->cpu, bytes, out, err);
}
static enum ft_code noting_place(struct ft_device *device, const void *host, size_t bytes,
                                 const void **out, struct ft_err *err) {
    return ft_cpu_device.place(of(device)->cpu, host, bytes, out, err);
}
static void noting_give_back(struct ft_device *device, void *memory, size_t bytes) {
    ft_cpu_device.give_back(of(device)->cpu, memory, bytes);
}
static void noting_copy(struct ft_device *device, void *to, const void *host, size_t bytes) {
    (void)device;
    memcpy(to, host, bytes);
    if (!noting_has_pinned(host))
        return;
    FT_ASSERT(g_n_copies < COPIES_MAX);
    g_copies[g_n_copies].from = host;
    g_copies[g_n_copies].bytes = bytes;
    g_copies[g_n_copies++].hash = hash_of(host, bytes);
}
static void noting_fetch(struct ft_device *device, void *host, const void *from, size_t bytes) {
    (void)device;
    memcpy(host, from, bytes);
}
static bool noting_pin(struct ft_device *device, void *host, size_t bytes) {
    int i = 0;
    (void)device;
    while (i < PINNED_MAX && g_pinned[i].at != NULL)
        i++;
    FT_ASSERT(i < PINNED_MAX);
    g_pinned[i].at = host;
    g_pinned[i].bytes = bytes;
    noting.n_pinned++;
    return true;
}
static void noting_unpin(struct ft_device *device, void *host) {
    int i = 0;
    while (i < PINNED_MAX && g_pinned[i].at != host)
        i++;
    FT_ASSERT(i < PINNED_MAX);
    wait_for_copies(device);
    g_pinned[i].at = NULL;
    noting.n_pinned--;
}

static void dawdle(void) {
    if (noting.slow_ns > 0)
        nanosleep(&(struct timespec){.tv_nsec = (long)noting.slow_ns}, NULL);
}

/* As those of "cuda". */
static bool noting_begin(struct ft_device *device, const struct ft_device_key *key) {
    dawdle();
    bool is_found = ft_programs_begin(of(device)->programs, NULL, key);
    noting.n_begun++;
    noting.n_found += is_found;
    return is_found;
}
static bool noting_end(struct ft_device *device) {
    int error = 0;
    bool is_sound = of(device)->failed == cudaSuccess;
    bool is_done = ft_programs_end(of(device)->programs, NULL, is_sound, &error);
    fail(device, error);
    return is_done;
}
static bool noting_note(struct ft_device *device, const struct ft_device_key *key) {
    int error = 0;
    dawdle();
    bool is_noting = ft_programs_note(of(device)->programs, NULL, key, &error);
    fail(device, error);
    return is_noting;
}

static void noting_uuid(const struct ft_device *device, char text[FT_DEVICE_UUID_MAX]) {
    (void)device;
    snprintf(text, FT_DEVICE_UUID_MAX, "GPU-noting");
}
static enum ft_code noting_share(struct ft_device *device, size_t bytes, void **out,
                                 struct ft_device_handle *handle, struct ft_err *err) {
    memset(handle, 0, sizeof *handle);
    return noting_alloc(device, bytes, out, err);
}
static enum ft_code noting_open_shared(struct ft_device *device,
                                       const struct ft_device_handle *handle, size_t bytes,
                                       void **out, struct ft_err *err) {
    (void)device;
    (void)handle;
    (void)out;
    return ft_err_set(err, FT_E_PEER_PROTOCOL, "noting", "%zu bytes of nobody", bytes);
}
static void noting_close_shared(struct ft_device *device, void *memory) {
    (void)device;
    (void)memory;
}
static enum ft_code noting_sync(struct ft_device *device, struct ft_err *err) {
    wait_for_copies(device);
    cudaError_t failed = of(device)->failed;
    of(device)->failed = cudaSuccess;
    return failed == cudaSuccess ? FT_OK
                                 : ft_err_set(err, FT_E_PROC_INTERNAL, "noting", "it was told to");
}
static bool noting_gave_up(struct ft_device *device) {
    (void)device;
    return false;
}

static const struct ft_device_kind k_noting = {
    .name = "noting",
    .is_host = false,
    .n_programs_max = FT_CUDA_PROGRAMS_MAX,
    .ops = &noting_ops,
    .check = noting_check,
    .open = noting_open,
    .close = noting_close,
    .describe = noting_describe,
    .alloc = noting_alloc,
    .place = noting_place,
    .give_back = noting_give_back,
    .copy = noting_copy,
    .fetch = noting_fetch,
    .pin = noting_pin,
    .unpin = noting_unpin,
    .begin = noting_begin,
    .end = noting_end,
    .note = noting_note,
    .uuid = noting_uuid,
    .share = noting_share,
    .open_shared = noting_open_shared,
    .close_shared = noting_close_shared,
    .sync = noting_sync,
    .gave_up = noting_gave_up,
};
const struct ft_device_kind *const ft_device_kinds[] = {&ft_cpu_device, &k_noting, NULL};
