/* programs: sequences of operations noted as CUDA graphs, by key, and started as one.
 * Owns:    the graphs, from create to destroy.
 * Runs in: draft_worker, target_worker; loop thread only.
 * Never:   keeps more than FT_CUDA_PROGRAMS_MAX: the one used longest ago goes. */
#ifndef FT_GPU_CUDA_PROGRAMS_H
#define FT_GPU_CUDA_PROGRAMS_H

#include "common/gpu/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Batch sizes, draft lengths and context lengths in use at one time, and those noted before they
 * are; some 100 kB each where a step is many operations, so that all of them take 50 MB. */
#define FT_CUDA_PROGRAMS_MAX 512

struct ft_cuda_programs;
struct CUstream_st; /* what a cudaStream_t points to */

struct ft_cuda_programs *ft_programs_create(void); /* NULL: no memory */
void ft_programs_destroy(struct ft_cuda_programs **programs);

/* A key is noted the second time it comes: one that comes once is not worth it, nor the place of
 * one that is noted. true: started. What fails here costs speed alone, and the key is left to
 * single operations from then on; a fault of the GPU is reported by them. */
bool ft_programs_begin(struct ft_cuda_programs *programs, struct CUstream_st *stream,
                       const struct ft_device_key *key);
/* Note it now, to be started later. true: what follows is noted, up to end; false: there is
 * nothing to note, or error, a cudaError_t, says why it cannot be. */
bool ft_programs_note(struct ft_cuda_programs *programs, struct CUstream_st *stream,
                      const struct ft_device_key *key, int *error);
/* What was noted is kept, and started when begin noted it; nothing when neither did. false: what
 * begin noted could be neither kept nor started: nothing of it was done, and the key is left to
 * single operations from then on.
 * in    is_sound  false: an operation failed, so that not all of them are there: nothing is kept,
 *                 and that failure is what the caller reports
 * out   error     a cudaError_t; of what begin noted only where is_sound is false */
bool ft_programs_end(struct ft_cuda_programs *programs, struct CUstream_st *stream, bool is_sound,
                     int *error);

#ifdef __cplusplus
}
#endif
#endif
