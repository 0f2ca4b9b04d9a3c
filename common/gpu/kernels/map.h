/* map: a matrix as the unit that copies boxes of it wants it described.
 * Owns:    nothing; the matrix is the caller's, and stays where it is.
 * Runs in: the loop thread of a worker whose device is a GPU.
 * Never:   reads the matrix. */
#ifndef FT_GPU_KERNELS_MAP_H
#define FT_GPU_KERNELS_MAP_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Made on the host, read by the card, from an address that is a multiple of 64. */
struct ft_whole_map {
    uint64_t words[16];
} __attribute__((aligned(64)));

/* Of a matrix [n_out, n_in] of bf16 in device memory, at an address that is a multiple of 16, for
 * boxes of 8 rows of n_columns; both are multiples of 64. fail: the driver has no such unit, or a
 * size beyond it */
cudaError_t k_map_make(struct ft_whole_map *map, const void *weight, int32_t n_out, int32_t n_in,
                       int32_t n_columns);
/* The same for boxes of n_chunks chunks of 32 columns of box_rows rows. */
cudaError_t k_map_make_chunks(struct ft_whole_map *map, const void *weight, int32_t n_out,
                              int32_t n_in, int32_t box_rows, int32_t n_chunks);

#ifdef __cplusplus
}
#endif
#endif
