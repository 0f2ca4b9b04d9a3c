#include "common/gpu/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/gpu/cuda/programs.h"
#include "common/gpu/cuda/share.h"
#include "common/gpu/cuda/steps.h"
#include "common/gpu/kernels/kernels.h"

#define MODULE "cuda"

/* Weights go to the GPU through two of these, one being filled while the other travels. */
#define PINNED_BYTES ((size_t)8 << 20)
#define N_PINNED 2
/* Partial results of attention: bounds the segments that are dealt out, not what can be computed;
 * 64 rows of a large model at 8,192 positions. */
#define SCRATCH_BYTES ((size_t)512 << 20)
/* Placed tensors lie this far apart at least: rows of 16-byte vectors start on a cache line. */
#define PLACE_ALIGN ((size_t)256)
/* Small tensors share an allocation of this size. */
#define SLAB_BYTES ((size_t)64 << 20)

struct slab {
    struct slab *next;
    char *memory; /* dev */
    size_t used, bytes;
};

struct cuda_device {
    struct ft_device device;
    struct k_target target;
    int number;
    char name[FT_DEVICE_TEXT_MAX];
    char uuid[FT_DEVICE_UUID_MAX];
    struct ft_cuda_programs *programs;
    struct ft_cuda_steps *steps;
    struct slab *slabs; /* of placed memory */
    void *hp_pinned[N_PINNED];
    cudaEvent_t pinned_free[N_PINNED]; /* passed when the buffer has travelled */
    int next_pinned;
    cudaError_t failed; /* first error of an operation or a copy since the last sync */
};

static struct cuda_device *of(struct ft_device *device) {
    return (struct cuda_device *)device;
}

static void note(struct ft_device *device, cudaError_t error) {
    if (of(device)->failed == cudaSuccess)
        of(device)->failed = error;
}

/* ---- operations */

static void cuda_gather(struct ft_device *device, const struct ft_op_gather *op) {
    note(device, k_gather(&of(device)->target, op));
}
static void cuda_angles(struct ft_device *device, const struct ft_op_angles *op) {
    note(device, k_angles(&of(device)->target, op));
}
static void cuda_rmsnorm(struct ft_device *device, const struct ft_op_rmsnorm *op) {
    note(device, k_rmsnorm(&of(device)->target, op));
}
static void cuda_linear(struct ft_device *device, const struct ft_op_linear *op) {
    note(device, k_linear(&of(device)->target, op));
}
static void cuda_rope(struct ft_device *device, const struct ft_op_rope *op) {
    note(device, k_rope(&of(device)->target, op));
}
static void cuda_attention(struct ft_device *device, const struct ft_op_attention *op) {
    note(device, k_attention(&of(device)->target, op));
}
static void cuda_read(struct ft_device *device, const struct ft_op_read *op) {
    note(device, k_read(&of(device)->target, op));
}

static void cuda_choose(struct ft_device *device, const struct ft_op_choose *op) {
    note(device, k_choose(&of(device)->target, op));
}

static bool cuda_step(struct ft_device *device, const struct ft_op_step *op) {
    int error = 0;
    bool is_done = ft_steps_run(of(device)->steps, &of(device)->target, op, &error);
    note(device, (cudaError_t)error);
    return is_done;
}

static const struct ft_ops cuda_ops = {cuda_gather, cuda_angles, cuda_rmsnorm,
                                       cuda_linear, cuda_rope,   cuda_attention,
                                       cuda_read,   cuda_choose, cuda_step};

/* ---- open and close */

/* "", "1", "single" or "1,single": the number of a GPU, and whether steps of few rows are done by
 * single kernels too, not as one. */
#define SINGLE "single"
static enum ft_code parse_variant(const char *variant, int *number, bool *is_single,
                                  struct ft_err *err) {
    char *end = (char *)(uintptr_t)variant;
    long n = 0;
    *is_single = strcmp(variant, SINGLE) == 0;
    if (variant[0] != '\0' && !*is_single) {
        n = strtol(variant, &end, 10);
        *is_single = end != variant && strcmp(end, "," SINGLE) == 0;
        if (end == variant || (*end != '\0' && !*is_single) || n < 0 || n > 1023)
            return ft_err_set(
                err, FT_E_PROC_CONFIG, MODULE,
                "device is \"cuda:%s\"; behind the colon comes the number of a GPU, 0 to 1023, "
                "and may end in \"," SINGLE "\"",
                variant);
    }
    *number = (int)n;
    return FT_OK;
}

static enum ft_code cuda_check(const char *variant, struct ft_err *err) {
    int number;
    bool is_single;
    return parse_variant(variant, &number, &is_single, err);
}

static enum ft_code find_gpu(struct cuda_device *cuda, struct ft_err *err) {
    int n = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error != cudaSuccess || n == 0)
        return ft_err_set(err, FT_E_PROC_OS, MODULE, "no GPU can be used: %s",
                          error == cudaSuccess ? "there is none" : cudaGetErrorString(error));
    if (cuda->number >= n)
        return ft_err_set(err, FT_E_PROC_OS, MODULE, "there is no GPU %d: this machine has %d",
                          cuda->number, n);
    struct cudaDeviceProp prop;
    error = cudaGetDeviceProperties(&prop, cuda->number);
    if (error != cudaSuccess)
        return ft_err_set(err, FT_E_PROC_OS, MODULE, "GPU %d: %s", cuda->number,
                          cudaGetErrorString(error));
    if (prop.major < 9)
        return ft_err_set(err, FT_E_PROC_OS, MODULE,
                          "GPU %d (%s) has compute capability %d.%d: the kernels need 9.0",
                          cuda->number, prop.name, prop.major, prop.minor);
    int has_mps = 0; /* processes share the GPU at the same time, instead of in turns */
    if (cudaDeviceGetAttribute(&has_mps, cudaDevAttrMpsEnabled, cuda->number) != cudaSuccess)
        (void)cudaGetLastError();
    snprintf(cuda->name, sizeof cuda->name, "cuda:%d %.40s%s", cuda->number, prop.name,
             has_mps != 0 ? ", MPS" : ", no MPS");
    ft_cuda_uuid_text(prop.uuid.bytes, cuda->uuid);
    cuda->target.n_processors = prop.multiProcessorCount;
    return FT_OK;
}

static cudaError_t take_resources(struct cuda_device *cuda, const struct ft_device_opts *opts) {
    cudaError_t error = cudaSetDevice(cuda->number);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&cuda->target.stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = k_linear_setup(&cuda->target);
    if (error == cudaSuccess)
        error = k_choose_setup();
    for (int i = 0; i < N_PINNED && error == cudaSuccess; i++) {
        error = cudaMallocHost(&cuda->hp_pinned[i], PINNED_BYTES);
        if (error == cudaSuccess)
            error = cudaEventCreateWithFlags(&cuda->pinned_free[i], cudaEventDisableTiming);
    }
    if (error == cudaSuccess && !opts->without_scratch) {
        void *scratch = NULL;
        error = cudaMalloc(&scratch, SCRATCH_BYTES);
        cuda->target.scratch = scratch;
        cuda->target.scratch_bytes = SCRATCH_BYTES;
    }
    return error;
}

static void cuda_close(struct ft_device *device) {
    struct cuda_device *cuda = of(device);
    if (cuda->target.stream != NULL)
        cudaStreamSynchronize(cuda->target.stream);
    ft_programs_destroy(&cuda->programs);
    ft_steps_destroy(&cuda->steps);
    for (struct slab *slab = cuda->slabs, *next; slab != NULL; slab = next) {
        next = slab->next;
        cudaFree(slab->memory);
        free(slab);
    }
    for (int i = 0; i < N_PINNED; i++) {
        if (cuda->pinned_free[i] != NULL)
            cudaEventDestroy(cuda->pinned_free[i]);
        cudaFreeHost(cuda->hp_pinned[i]);
    }
    cudaFree(cuda->target.scratch);
    if (cuda->target.stream != NULL)
        cudaStreamDestroy(cuda->target.stream);
    free(cuda);
}

static enum ft_code cuda_open(struct ft_device **out, const char *variant,
                              const struct ft_device_opts *opts, struct ft_err *err) {
    int number = 0;
    bool is_single = false;
    enum ft_code code = parse_variant(variant, &number, &is_single, err);
    if (code != FT_OK)
        return code;
    struct cuda_device *cuda = calloc(1, sizeof *cuda);
    if (cuda == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for the device");
    cuda->device.kind = &ft_cuda_device;
    cuda->number = number;
    cuda->programs = ft_programs_create();
    cuda->steps = ft_steps_create(!is_single);
    if (cuda->programs == NULL || cuda->steps == NULL)
        code = ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for programs");
    if (code == FT_OK)
        code = find_gpu(cuda, err);
    if (code == FT_OK) {
        cudaError_t error = take_resources(cuda, opts);
        if (error == cudaErrorMemoryAllocation)
            code = ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "GPU %d: no memory to start with",
                              number);
        else if (error != cudaSuccess)
            code = ft_err_set(err, FT_E_PROC_OS, MODULE, "GPU %d: %s", number,
                              cudaGetErrorString(error));
    }
    if (code != FT_OK) {
        cuda_close(&cuda->device);
        return code;
    }
    *out = &cuda->device;
    return FT_OK;
}

static void cuda_describe(const struct ft_device *device, char text[FT_DEVICE_TEXT_MAX]) {
    snprintf(text, FT_DEVICE_TEXT_MAX, "%s", ((const struct cuda_device *)device)->name);
}

/* ---- memory */

static enum ft_code no_memory(size_t bytes, cudaError_t error, struct ft_err *err) {
    (void)cudaGetLastError(); /* an allocation that failed harms nothing else */
    return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no GPU memory for %zu bytes: %s", bytes,
                      cudaGetErrorString(error));
}

static enum ft_code cuda_alloc(struct ft_device *device, size_t bytes, void **out,
                               struct ft_err *err) {
    void *memory = NULL;
    cudaError_t error = cudaMalloc(&memory, bytes);
    if (error != cudaSuccess)
        return no_memory(bytes, error, err);
    error = cudaMemsetAsync(memory, 0, bytes, of(device)->target.stream);
    if (error != cudaSuccess) {
        cudaFree(memory);
        return ft_err_set(err, FT_E_PROC_INTERNAL, MODULE, "clearing memory: %s",
                          cudaGetErrorString(error));
    }
    *out = memory;
    return FT_OK;
}

static void cuda_give_back(struct ft_device *device, void *memory, size_t bytes) {
    (void)device;
    (void)bytes;
    note(device, cudaFree(memory));
}

static struct slab *slab_for(struct cuda_device *cuda, size_t bytes, struct ft_err *err) {
    struct slab *slab = cuda->slabs;
    if (slab != NULL && slab->bytes - slab->used >= bytes)
        return slab;
    slab = calloc(1, sizeof *slab);
    if (slab == NULL) {
        ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for a table");
        return NULL;
    }
    slab->bytes = bytes > SLAB_BYTES / 4 ? bytes : SLAB_BYTES;
    void *memory = NULL;
    cudaError_t error = cudaMalloc(&memory, slab->bytes);
    if (error != cudaSuccess) {
        no_memory(slab->bytes, error, err);
        free(slab);
        return NULL;
    }
    slab->memory = memory;
    /* a slab that is full from the start goes behind the one with room */
    struct slab **link =
        slab->bytes == bytes && cuda->slabs != NULL ? &cuda->slabs->next : &cuda->slabs;
    slab->next = *link;
    *link = slab;
    return slab;
}

static enum ft_code cuda_place(struct ft_device *device, const void *host, size_t bytes,
                               const void **out, struct ft_err *err) {
    struct cuda_device *cuda = of(device);
    size_t rounded = (bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
    struct slab *slab = slab_for(cuda, rounded, err);
    if (slab == NULL)
        return FT_E_PROC_MEMORY;
    char *to = slab->memory + slab->used;
    cudaError_t error = cudaSuccess;
    for (size_t at = 0; at < bytes && error == cudaSuccess; at += PINNED_BYTES) {
        size_t n = bytes - at < PINNED_BYTES ? bytes - at : PINNED_BYTES;
        int i = cuda->next_pinned;
        cuda->next_pinned = (i + 1) % N_PINNED;
        error = cudaEventSynchronize(cuda->pinned_free[i]);
        if (error != cudaSuccess)
            break;
        memcpy(cuda->hp_pinned[i], (const char *)host + at, n);
        error = cudaMemcpyAsync(to + at, cuda->hp_pinned[i], n, cudaMemcpyHostToDevice,
                                cuda->target.stream);
        if (error == cudaSuccess)
            error = cudaEventRecord(cuda->pinned_free[i], cuda->target.stream);
    }
    if (error != cudaSuccess)
        return ft_err_set(err, FT_E_PROC_INTERNAL, MODULE, "placing %zu bytes: %s", bytes,
                          cudaGetErrorString(error));
    slab->used += rounded;
    *out = to;
    return FT_OK;
}

static void cuda_copy(struct ft_device *device, void *to, const void *host, size_t bytes) {
    note(device,
         cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, of(device)->target.stream));
}

static void cuda_fetch(struct ft_device *device, void *host, const void *from, size_t bytes) {
    note(device,
         cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, of(device)->target.stream));
}

static bool cuda_pin(struct ft_device *device, void *host, size_t bytes) {
    void *seen = NULL;
    (void)device;
    cudaError_t error = cudaHostRegister(host, bytes, cudaHostRegisterMapped);
    if (error == cudaSuccess) {
        error = cudaHostGetDevicePointer(&seen, host, 0);
        if (error == cudaSuccess && seen == host) /* kernels use the host's addresses */
            return true;
        cudaHostUnregister(host);
    }
    (void)cudaGetLastError();
    return false;
}

static void cuda_unpin(struct ft_device *device, void *host) {
    cudaStreamSynchronize(of(device)->target.stream);
    note(device, cudaHostUnregister(host));
}

static bool cuda_begin(struct ft_device *device, const struct ft_device_key *key) {
    if (ft_steps_are_off(of(device)->steps)) /* programs may hold what must not be done now */
        return false;
    return ft_programs_begin(of(device)->programs, of(device)->target.stream, key);
}

static bool cuda_end(struct ft_device *device) {
    int error = 0;
    bool is_sound = of(device)->failed == cudaSuccess;
    bool is_done =
        ft_programs_end(of(device)->programs, of(device)->target.stream, is_sound, &error);
    note(device, (cudaError_t)error);
    return is_done;
}

static bool cuda_note(struct ft_device *device, const struct ft_device_key *key) {
    int error = 0;
    if (ft_steps_are_off(of(device)->steps) || of(device)->failed != cudaSuccess)
        return false;
    bool is_noting = ft_programs_note(of(device)->programs, of(device)->target.stream, key, &error);
    note(device, (cudaError_t)error);
    return is_noting;
}

static void cuda_uuid(const struct ft_device *device, char text[FT_DEVICE_UUID_MAX]) {
    memcpy(text, ((const struct cuda_device *)device)->uuid, FT_DEVICE_UUID_MAX);
}

static enum ft_code cuda_share(struct ft_device *device, size_t bytes, void **out,
                               struct ft_device_handle *handle, struct ft_err *err) {
    return ft_cuda_share(of(device)->target.stream, bytes, out, handle, err);
}

static enum ft_code cuda_open_shared(struct ft_device *device,
                                     const struct ft_device_handle *handle, size_t bytes,
                                     void **out, struct ft_err *err) {
    (void)device;
    return ft_cuda_open_shared(handle, bytes, out, err);
}

static void cuda_close_shared(struct ft_device *device, void *memory) {
    if (memory == NULL)
        return;
    cudaStreamSynchronize(of(device)->target.stream);
    note(device, cudaIpcCloseMemHandle(memory));
}

static enum ft_code cuda_sync(struct ft_device *device, struct ft_err *err) {
    struct cuda_device *cuda = of(device);
    cudaError_t error = cudaStreamSynchronize(cuda->target.stream);
    if (cuda->failed != cudaSuccess)
        error = cuda->failed;
    cuda->failed = cudaSuccess;
    ft_steps_again(cuda->steps);
    if (error == cudaSuccess)
        return FT_OK;
    return ft_err_set(err, FT_E_PROC_INTERNAL, MODULE, "%s: %s", cuda->name,
                      cudaGetErrorString(error));
}

static bool cuda_gave_up(struct ft_device *device) {
    int error = 0;
    bool gave_up = ft_steps_gave_up(of(device)->steps, &of(device)->target, &error);
    note(device, (cudaError_t)error);
    return gave_up;
}

const struct ft_device_kind ft_cuda_device = {
    .name = "cuda",
    .is_host = false,
    .n_programs_max = FT_CUDA_PROGRAMS_MAX,
    .ops = &cuda_ops,
    .check = cuda_check,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .alloc = cuda_alloc,
    .place = cuda_place,
    .give_back = cuda_give_back,
    .copy = cuda_copy,
    .fetch = cuda_fetch,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .begin = cuda_begin,
    .end = cuda_end,
    .note = cuda_note,
    .uuid = cuda_uuid,
    .share = cuda_share,
    .open_shared = cuda_open_shared,
    .close_shared = cuda_close_shared,
    .sync = cuda_sync,
    .gave_up = cuda_gave_up,
};
