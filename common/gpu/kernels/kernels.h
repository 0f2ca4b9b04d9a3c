/* kernels: launchers of the CUDA kernels, one for each operation of ops.h.
 * Owns:    nothing.
 * Runs in: the loop thread of a worker whose device is a GPU.
 * Never:   allocates, synchronises or logs; a launcher returns before the GPU is done. */
#ifndef FT_GPU_KERNELS_H
#define FT_GPU_KERNELS_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "common/gpu/choice.h"
#include "common/gpu/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a launch goes. */
struct k_target {
    cudaStream_t stream;
    int32_t n_processors;
    int32_t n_clusters; /* of linear_many.cu, at the same time; k_linear_setup finds out */
    int32_t n_pairs;    /* clusters of two of whole.cu, likewise; k_whole_setup */
    float *scratch; /* dev; of one operation at a time, which the stream's order sees to */
    size_t scratch_bytes;
};

/* Once per process and GPU, before the first launch. */
cudaError_t k_linear_setup(struct k_target *on);
cudaError_t k_choose_setup(void);

cudaError_t k_gather(const struct k_target *on, const struct ft_op_gather *op);
cudaError_t k_angles(const struct k_target *on, const struct ft_op_angles *op);
cudaError_t k_rmsnorm(const struct k_target *on, const struct ft_op_rmsnorm *op);
cudaError_t k_linear(const struct k_target *on, const struct ft_op_linear *op);
cudaError_t k_rope(const struct k_target *on, const struct ft_op_rope *op);
cudaError_t k_attention(const struct k_target *on, const struct ft_op_attention *op);
cudaError_t k_choose(const struct k_target *on, const struct ft_op_choose *op);
cudaError_t k_read(const struct k_target *on, const struct ft_op_read *op);

#ifdef __cplusplus
}
#endif
#endif
