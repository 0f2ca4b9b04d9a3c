#include "common/gpu/cuda/share.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "common/gpu/kernels/driver.h"

#define MODULE "cuda"

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(struct ft_device_handle), "one handle");

void ft_cuda_uuid_text(const char bytes[16], char text[FT_DEVICE_UUID_MAX]) {
    char *at = text;
    at += sprintf(at, "GPU-");
    for (int i = 0; i < 16; i++)
        at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                      (unsigned)(unsigned char)bytes[i]);
}

enum ft_code ft_cuda_share(struct CUstream_st *stream, size_t bytes, void **out,
                           struct ft_device_handle *handle, struct ft_err *err) {
    void *memory = NULL;
    cudaIpcMemHandle_t raw;
    cudaError_t error = cudaMalloc(&memory, bytes);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no GPU memory for %zu bytes to share: %s",
                          bytes, cudaGetErrorString(error));
    }
    error = cudaMemsetAsync(memory, 0, bytes, stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    if (error == cudaSuccess)
        error = cudaIpcGetMemHandle(&raw, memory);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        cudaFree(memory);
        return ft_err_set(err, FT_E_PROC_OS, MODULE, "%zu bytes cannot be shared: %s", bytes,
                          cudaGetErrorString(error));
    }
    memcpy(handle->bytes, &raw, sizeof raw);
    *out = memory;
    return FT_OK;
}

/* Bytes of the allocation at memory; 0: not known. The runtime has no such question. */
static size_t allocation_bytes(void *memory) {
    typedef int (*range_fn)(unsigned long long *base, size_t *bytes, unsigned long long at);
    void *symbol = k_driver_find("cuMemGetAddressRange");
    range_fn range;
    unsigned long long base = 0;
    size_t bytes = 0;
    memcpy(&range, &symbol, sizeof range);
    if (range == NULL)
        return 0;
    return range(&base, &bytes, (unsigned long long)(uintptr_t)memory) == 0 ? bytes : 0;
}

enum ft_code ft_cuda_open_shared(const struct ft_device_handle *handle, size_t bytes, void **out,
                                 struct ft_err *err) {
    cudaIpcMemHandle_t raw;
    void *memory = NULL;
    memcpy(&raw, handle->bytes, sizeof raw);
    cudaError_t error = cudaIpcOpenMemHandle(&memory, raw, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return ft_err_set(err, FT_E_PEER_PROTOCOL, MODULE,
                          "%zu bytes of another process cannot be opened (stale handle, dead owner "
                          "or another GPU): %s",
                          bytes, cudaGetErrorString(error));
    }
    size_t there = allocation_bytes(memory);
    if (there < bytes) {
        cudaIpcCloseMemHandle(memory);
        return ft_err_set(err, FT_E_PEER_PROTOCOL, MODULE,
                          "the shared memory has %zu bytes, %zu were announced", there, bytes);
    }
    *out = memory;
    return FT_OK;
}
