#include "coordinator/decider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define MODULE "decider"
#define GPUS_MAX 64
#define ROW_FLOATS 16

/* The GPU of this machine that has the uuid; NULL: none that can be used. */
static struct ft_device *find_gpu(const char *uuid, struct ft_err *err) {
    struct ft_device_opts opts = {.n_threads = 1, .without_scratch = true};
    for (int i = 0; i < GPUS_MAX; i++) {
        char spec[32], found[FT_DEVICE_UUID_MAX];
        struct ft_device *device = NULL;
        snprintf(spec, sizeof spec, "cuda:%d", i);
        if (ft_device_open(&device, spec, &opts, err) != FT_OK)
            return NULL;
        device->kind->uuid(device, found);
        if (strcmp(found, uuid) == 0)
            return device;
        ft_device_close(&device);
    }
    ft_err_set(err, FT_E_PROC_OS, MODULE, "none of %d GPUs is it", GPUS_MAX);
    return NULL;
}

static enum ft_code take_memory(struct co_decider *d, int32_t n_rows, int32_t n_vocab,
                                struct ft_err *err) {
    enum ft_code code = ft_chooser_create(&d->chooser, d->device, n_rows, err);
    if (code != FT_OK)
        return code;
    d->row_stride = (n_vocab + (int64_t)ROW_FLOATS - 1) / ROW_FLOATS * ROW_FLOATS;
    size_t bytes = (size_t)CO_DECIDER_ROWS * (size_t)d->row_stride * sizeof(float);
    bytes = (bytes + 4095) / 4096 * 4096;
    d->rows = aligned_alloc(4096, bytes);
    if (d->rows == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for %d rows", CO_DECIDER_ROWS);
    memset(d->rows, 0, bytes);
    d->device->kind->pin(d->device, d->rows, bytes); /* quicker, not needed */
    return FT_OK;
}

void co_decider_open(struct co_decider *d, const char *mode, const char *uuid, int32_t n_rows,
                     int32_t n_vocab) {
    struct ft_err err = {0};
    char text[FT_DEVICE_TEXT_MAX];
    if (d->tried || uuid[0] == 0 || strcmp(mode, "cpu") == 0)
        return;
    d->tried = true;
    int64_t begin_ns = ft_clock_now_ns();
    d->device = find_gpu(uuid, &err);
    if (d->device == NULL || take_memory(d, n_rows, n_vocab, &err) != FT_OK) {
        ft_warn("accept device cpu fallback shared-memory gpu %s reason \"%s\"", uuid, err.text);
        co_decider_close(d);
        d->tried = true;
        return;
    }
    d->device->kind->describe(d->device, text);
    ft_info("accept device \"%s\" gpu %s took_ms %lld", text, uuid,
            (long long)((ft_clock_now_ns() - begin_ns) / 1000000));
    if (strstr(text, "no MPS") != NULL)
        ft_info(
            "handover mps off cost_us 150 effect \"so much more for each time that another process "
            "uses the GPU: start nvidia-cuda-mps-control -d before the workers\"");
}

void co_decider_close(struct co_decider *d) {
    ft_chooser_destroy(&d->chooser);
    if (d->rows != NULL)
        d->device->kind->unpin(d->device, d->rows);
    free(d->rows);
    ft_device_close(&d->device);
    *d = (struct co_decider){0};
}

const float *co_decider_read(struct co_decider *d, const struct ft_region *region, const float *row,
                             int32_t slot) {
    struct ft_err err = {0};
    if (row == NULL || ft_region_is_host(region))
        return row;
    FT_ASSERT(slot >= 0 && slot < CO_DECIDER_ROWS);
    float *to = d->rows + slot * d->row_stride;
    size_t bytes = (size_t)ft_region_layout(region)->n_cols * sizeof *to;
    if (bytes > (size_t)d->row_stride * sizeof *to) {
        ft_error("accept device failed reason \"rows of %d tokens, %lld are the most\"",
                 ft_region_layout(region)->n_cols, (long long)d->row_stride);
        return NULL;
    }
    d->device->kind->fetch(d->device, to, row, bytes);
    if (d->device->kind->sync(d->device, &err) == FT_OK)
        return to;
    ft_error("accept device failed reason \"%s\"", err.text);
    return NULL;
}
