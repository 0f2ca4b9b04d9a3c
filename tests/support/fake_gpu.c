#include "support/fake_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/choice_cases.h"

static struct fake_gpu *of(const struct ft_device *device) {
    return (struct fake_gpu *)(uintptr_t)device;
}

static void fake_choose(struct ft_device *device, const struct ft_op_choose *op) {
    struct ft_choice_batch batch = {.rows = (struct ft_choice_row *)(uintptr_t)op->rows,
                                    .edits = (struct ft_choice_edit *)(uintptr_t)op->edits,
                                    .ids = (int32_t *)(uintptr_t)op->ids,
                                    .n_rows = op->n_rows};
    if (of(device)->is_broken)
        return;
    if (op->lists != NULL)
        memcpy((void *)(uintptr_t)op->lists_at, op->lists, op->lists_bytes);
    choice_run_on_host(&batch, op->results);
    for (int32_t i = 0; i < op->n_rows; i++)
        op->results[i].stamp = op->stamp;
}

static enum ft_code fake_alloc(struct ft_device *device, size_t bytes, void **out,
                               struct ft_err *err) {
    (void)device;
    (void)err;
    *out = calloc(1, bytes);
    return FT_OK;
}

static void fake_give_back(struct ft_device *device, void *memory, size_t bytes) {
    (void)device;
    (void)bytes;
    free(memory);
}

static void fake_copy(struct ft_device *device, void *to, const void *host, size_t bytes) {
    (void)device;
    memcpy(to, host, bytes);
}

static bool fake_pin(struct ft_device *device, void *host, size_t bytes) {
    (void)device;
    (void)host;
    (void)bytes;
    return true;
}

static void fake_unpin(struct ft_device *device, void *host) {
    (void)device;
    (void)host;
}

static void fake_uuid(const struct ft_device *device, char text[FT_DEVICE_UUID_MAX]) {
    memset(text, 0, FT_DEVICE_UUID_MAX);
    snprintf(text, FT_DEVICE_UUID_MAX, "%s", of(device)->uuid);
}

/* The handle is the address. */
static enum ft_code fake_share(struct ft_device *device, size_t bytes, void **out,
                               struct ft_device_handle *handle, struct ft_err *err) {
    enum ft_code code = fake_alloc(device, bytes, out, err);
    memset(handle, 0, sizeof *handle);
    memcpy(handle->bytes, out, sizeof *out);
    return code;
}

static enum ft_code fake_open_shared(struct ft_device *device,
                                     const struct ft_device_handle *handle, size_t bytes,
                                     void **out, struct ft_err *err) {
    if (of(device)->is_stale)
        return ft_err_set(err, FT_E_PEER_PROTOCOL, "fake", "%zu bytes: stale handle", bytes);
    memcpy(out, handle->bytes, sizeof *out);
    of(device)->n_open++;
    return FT_OK;
}

static void fake_close_shared(struct ft_device *device, void *memory) {
    of(device)->n_open -= memory != NULL;
}

static enum ft_code fake_sync(struct ft_device *device, struct ft_err *err) {
    return of(device)->is_broken ? ft_err_set(err, FT_E_PROC_INTERNAL, "fake", "it is broken")
                                 : FT_OK;
}

static const struct ft_ops k_ops = {.choose = fake_choose};
static const struct ft_device_kind k_kind = {
    .name = "fake",
    .is_host = false,
    .ops = &k_ops,
    .alloc = fake_alloc,
    .give_back = fake_give_back,
    .copy = fake_copy,
    .fetch = fake_copy,
    .pin = fake_pin,
    .unpin = fake_unpin,
    .uuid = fake_uuid,
    .share = fake_share,
    .open_shared = fake_open_shared,
    .close_shared = fake_close_shared,
    .sync = fake_sync,
};

void fake_gpu_init(struct fake_gpu *fake, const char *uuid) {
    *fake = (struct fake_gpu){.device = {&k_kind}, .uuid = uuid};
}
