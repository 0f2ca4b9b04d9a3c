/* kinds: the devices of this build; CMake picks the file that lists them.
 * Owns:    nothing.
 * Runs in: draft_worker, target_worker.
 * Never:   changes. */
#ifndef FT_GPU_KINDS_H
#define FT_GPU_KINDS_H

#include "common/gpu/device.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct ft_device_kind *const ft_device_kinds[]; /* NULL behind the last */

#ifdef __cplusplus
}
#endif
#endif
