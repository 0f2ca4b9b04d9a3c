#include "common/gpu/kernels/driver.h"

#include <cuda_runtime_api.h>
#include <stddef.h>

#define VERSION 12000

void *k_driver_find(const char *name) {
    void *found = NULL;
    enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &found, VERSION, cudaEnableDefault, &result);
    if (error == cudaSuccess && result == cudaDriverEntryPointSuccess)
        return found;
    (void)cudaGetLastError();
    return NULL;
}
