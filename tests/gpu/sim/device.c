/* The device "cuda", simulated: the same kernels, memory of the host. For suites that were written
 * for a card. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/gpu/cpu/cpu.h"
#include "common/gpu/cuda/cuda.h"
#include "common/gpu/kernels/kernels.h"
#include "common/gpu/kinds.h"

#define N_PROCESSORS 3
/* Less than what 72 of the widest rows of test_linear.c take, more than what 64 do. */
#define SCRATCH_BYTES ((size_t)24 << 20)

struct sim_device {
    struct ft_device device;
    struct k_target target;
    cudaError_t failed;
};

const struct ft_device_kind *const ft_device_kinds[] = {&ft_cpu_device, &ft_cuda_device, NULL};

static struct sim_device *of(struct ft_device *device) {
    return (struct sim_device *)device;
}
static void note(struct ft_device *device, cudaError_t error) {
    if (of(device)->failed == cudaSuccess)
        of(device)->failed = error;
}

static void sim_gather(struct ft_device *device, const struct ft_op_gather *op) {
    note(device, k_gather(&of(device)->target, op));
}
static void sim_angles(struct ft_device *device, const struct ft_op_angles *op) {
    note(device, k_angles(&of(device)->target, op));
}
static void sim_rmsnorm(struct ft_device *device, const struct ft_op_rmsnorm *op) {
    note(device, k_rmsnorm(&of(device)->target, op));
}
static void sim_linear(struct ft_device *device, const struct ft_op_linear *op) {
    note(device, k_linear(&of(device)->target, op));
}
static void sim_rope(struct ft_device *device, const struct ft_op_rope *op) {
    note(device, k_rope(&of(device)->target, op));
}
static void sim_attention(struct ft_device *device, const struct ft_op_attention *op) {
    note(device, k_attention(&of(device)->target, op));
}
static void sim_read(struct ft_device *device, const struct ft_op_read *op) {
    note(device, k_read(&of(device)->target, op));
}
static void sim_choose(struct ft_device *device, const struct ft_op_choose *op) {
    note(device, k_choose(&of(device)->target, op));
}
/* Steps as one have suites of their own, which call the kernel. */
static bool sim_step(struct ft_device *device, const struct ft_op_step *op) {
    (void)device;
    (void)op;
    return false;
}
static const struct ft_ops sim_ops = {sim_gather,    sim_angles, sim_rmsnorm, sim_linear, sim_rope,
                                      sim_attention, sim_read,   sim_choose,  sim_step};

static void sim_close(struct ft_device *device) {
    free(of(device)->target.scratch);
    free(device);
}

static enum ft_code sim_check(const char *variant, struct ft_err *err) {
    if (variant[0] == '\0')
        return FT_OK;
    return ft_err_set(err, FT_E_PROC_CONFIG, "sim", "no such device: cuda:%s", variant);
}

static enum ft_code sim_open(struct ft_device **out, const char *variant,
                             const struct ft_device_opts *opts, struct ft_err *err) {
    (void)opts;
    struct sim_device *sim = calloc(1, sizeof *sim);
    float *scratch = aligned_alloc(64, SCRATCH_BYTES);
    enum ft_code code = sim_check(variant, err);
    if (code == FT_OK && (sim == NULL || scratch == NULL))
        code = ft_err_set(err, FT_E_PROC_MEMORY, "sim", "no memory for the device");
    if (code != FT_OK) {
        free(sim);
        free(scratch);
        return code;
    }
    sim->device.kind = &ft_cuda_device;
    sim->target = (struct k_target){
        .n_processors = N_PROCESSORS, .scratch = scratch, .scratch_bytes = SCRATCH_BYTES};
    note(&sim->device, k_linear_setup(&sim->target));
    *out = &sim->device;
    return FT_OK;
}

static void sim_describe(const struct ft_device *device, char text[FT_DEVICE_TEXT_MAX]) {
    (void)device;
    snprintf(text, FT_DEVICE_TEXT_MAX, "cuda, simulated");
}

static enum ft_code sim_alloc(struct ft_device *device, size_t bytes, void **out,
                              struct ft_err *err) {
    (void)device;
    *out = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    if (*out == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "sim", "no memory for %zu bytes", bytes);
    memset(*out, 0, bytes);
    return FT_OK;
}
static enum ft_code sim_place(struct ft_device *device, const void *host, size_t bytes,
                              const void **out, struct ft_err *err) {
    (void)device;
    (void)bytes;
    (void)err;
    *out = host;
    return FT_OK;
}
static void sim_give_back(struct ft_device *device, void *memory, size_t bytes) {
    (void)device;
    (void)bytes;
    free(memory);
}
static void sim_copy(struct ft_device *device, void *to, const void *host, size_t bytes) {
    (void)device;
    memcpy(to, host, bytes);
}
static void sim_fetch(struct ft_device *device, void *host, const void *from, size_t bytes) {
    (void)device;
    memcpy(host, from, bytes);
}
static bool sim_pin(struct ft_device *device, void *host, size_t bytes) {
    (void)device;
    (void)host;
    (void)bytes;
    return true;
}
static void sim_unpin(struct ft_device *device, void *host) {
    (void)device;
    (void)host;
}
static bool sim_begin(struct ft_device *device, const struct ft_device_key *key) {
    (void)device;
    (void)key;
    return false;
}
static bool sim_note(struct ft_device *device, const struct ft_device_key *key) {
    (void)device;
    (void)key;
    return false;
}
static bool sim_gave_up(struct ft_device *device) {
    (void)device;
    return false;
}
static bool sim_end(struct ft_device *device) {
    (void)device;
    return true;
}
static void sim_uuid(const struct ft_device *device, char text[FT_DEVICE_UUID_MAX]) {
    (void)device;
    text[0] = '\0';
}
static enum ft_code sim_share(struct ft_device *device, size_t bytes, void **out,
                              struct ft_device_handle *handle, struct ft_err *err) {
    (void)device;
    (void)bytes;
    (void)out;
    (void)handle;
    return ft_err_set(err, FT_E_PROC_OS, "sim", "nothing to share");
}
static enum ft_code sim_open_shared(struct ft_device *device, const struct ft_device_handle *handle,
                                    size_t bytes, void **out, struct ft_err *err) {
    (void)device;
    (void)handle;
    (void)bytes;
    (void)out;
    return ft_err_set(err, FT_E_PEER_PROTOCOL, "sim", "nothing is shared");
}
static void sim_close_shared(struct ft_device *device, void *memory) {
    (void)device;
    (void)memory;
}
static enum ft_code sim_sync(struct ft_device *device, struct ft_err *err) {
    cudaError_t error = of(device)->failed;
    of(device)->failed = cudaSuccess;
    if (error == cudaSuccess)
        return FT_OK;
    return ft_err_set(err, FT_E_PROC_INTERNAL, "sim", "%s", cudaGetErrorString(error));
}

const struct ft_device_kind ft_cuda_device = {
    .name = "cuda",
    .is_host = false,
    .ops = &sim_ops,
    .check = sim_check,
    .open = sim_open,
    .close = sim_close,
    .describe = sim_describe,
    .alloc = sim_alloc,
    .place = sim_place,
    .give_back = sim_give_back,
    .copy = sim_copy,
    .fetch = sim_fetch,
    .pin = sim_pin,
    .unpin = sim_unpin,
    .begin = sim_begin,
    .end = sim_end,
    .note = sim_note,
    .gave_up = sim_gave_up,
    .uuid = sim_uuid,
    .share = sim_share,
    .open_shared = sim_open_shared,
    .close_shared = sim_close_shared,
    .sync = sim_sync,
};
