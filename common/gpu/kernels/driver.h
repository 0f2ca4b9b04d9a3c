/* driver: functions of the driver that the runtime has no names for.
 * Owns:    nothing.
 * Runs in: any thread of a process with a GPU.
 * Never:   links the driver: it is asked for them when they are wanted. */
#ifndef FT_GPU_KERNELS_DRIVER_H
#define FT_GPU_KERNELS_DRIVER_H

#ifdef __cplusplus
extern "C" {
#endif

/* Of version 12.0 of its interface, to be copied into a pointer of the function's type, which ISO C
 * has no conversion to. NULL: this driver has no such function. */
void *k_driver_find(const char *name);

#ifdef __cplusplus
}
#endif
#endif
