/* programs: sequences of operations noted as CUDA graphs, by key, and started as one.
 * Owns:    the graphs, from create to destroy.
 * Runs in: draft_worker, target_worker; loop thread only.
 * Never:   keeps more than PROGRAMS_MAX: the one used longest ago goes. */
#ifndef FT_GPU_CUDA_PROGRAMS_H
#define FT_GPU_CUDA_PROGRAMS_H

#include "common/gpu/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_cuda_programs;
struct CUstream_st; /* what a cudaStream_t points to */

struct ft_cuda_programs *ft_programs_create(void); /* NULL: no memory */
void ft_programs_destroy(struct ft_cuda_programs **programs);

/* A key is noted the second time it comes: one that comes once is not worth it. true: started.
 * out   error  a cudaError_t: of starting or of beginning to note */
bool ft_programs_begin(struct ft_cuda_programs *programs, struct CUstream_st *stream,
                       const struct ft_device_key *key, int *error);
/* What was noted since begin is kept and started; nothing when begin did not note. Returns a
 * cudaError_t. */
int ft_programs_end(struct ft_cuda_programs *programs, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif
