/* cuda_runtime_api: the little of CUDA's interface that kernels and their tests use, on the host.
 * Owns:    nothing.
 * Runs in: tests.
 * Never:   is seen by a build for a card. */
#ifndef TESTS_GPU_SIM_CUDA_RUNTIME_API_H
#define TESTS_GPU_SIM_CUDA_RUNTIME_API_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    cudaSuccess,
    cudaErrorInvalidValue,
    cudaErrorLaunchTimeout,
    cudaErrorMemoryAllocation
} cudaError_t;
typedef struct CUstream_st *cudaStream_t;
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };

enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr what, int device);
cudaError_t cudaMalloc(void **out, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMemset(void *memory, int byte, size_t bytes);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaDeviceSynchronize(void);
/* Streams are what a test that has some makes of them (tests/unit/test_steps.c). */
enum { cudaHostAllocMapped = 2 };
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
const char *cudaGetErrorString(cudaError_t error);

/* Graphs are what a test that has some makes of them (tests/support/noting_device.c). */
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
cudaError_t cudaGetLastError(void);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t program, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t program, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t program);

#ifdef __cplusplus
}
#endif
#endif
