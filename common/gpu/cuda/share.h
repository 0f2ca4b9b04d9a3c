/* share: GPU memory between processes, by CUDA IPC.
 * Owns:    nothing: memory is the caller's, to be freed or closed by it.
 * Runs in: workers (share), coordinator (open); loop thread only.
 * Never:   shares a part of an allocation: only whole ones have handles. */
#ifndef FT_GPU_CUDA_SHARE_H
#define FT_GPU_CUDA_SHARE_H

#include "common/gpu/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* what a cudaStream_t points to */

/* "GPU-01234567-89ab-..", as nvidia-smi writes it. */
void ft_cuda_uuid_text(const char bytes[16], char text[FT_DEVICE_UUID_MAX]);

/* As share and open_shared of struct ft_device_kind. */
enum ft_code ft_cuda_share(struct CUstream_st *stream, size_t bytes, void **out,
                           struct ft_device_handle *handle, struct ft_err *err);
enum ft_code ft_cuda_open_shared(const struct ft_device_handle *handle, size_t bytes, void **out,
                                 struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
