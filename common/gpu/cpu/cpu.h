/* cpu: the CPU as a device: own kernels on a pool of threads.
 * Owns:    the threads and the memory given out, from open to close.
 * Runs in: draft_worker, target_worker; loop thread only.
 * Never:   copies weights: they are read where they are mapped. */
#ifndef FT_GPU_CPU_CPU_H
#define FT_GPU_CPU_CPU_H

#include "common/gpu/device.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct ft_device_kind ft_cpu_device;

#ifdef __cplusplus
}
#endif
#endif
