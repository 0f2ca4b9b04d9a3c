/* cuda: the device that is an NVIDIA GPU: "cuda", or "cuda:N" for its number.
 * Owns:    the registry row; see device.h for what a device owns.
 * Runs in: draft_worker, target_worker; loop thread only.
 * Never:   waits for the GPU, except in sync, place and close. */
#ifndef FT_GPU_CUDA_CUDA_H
#define FT_GPU_CUDA_CUDA_H

#include "common/gpu/device.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct ft_device_kind ft_cuda_device;

#ifdef __cplusplus
}
#endif
#endif
