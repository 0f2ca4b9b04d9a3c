#include "common/gpu/kernels/map.h"

#include <cuda.h>
#include <string.h>

#include "common/gpu/kernels/driver.h"

/* As ptx.cuh says of boxes. */
#define BOX_COLUMNS 64
#define BOX_ROWS 8
#define CHUNK_COLUMNS 32

typedef CUresult (*encode_fn)(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                              void *address, const cuuint64_t *dims, const cuuint64_t *strides,
                              const cuuint32_t *box, const cuuint32_t *element_strides,
                              CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                              CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

/* A matrix as three dimensions, and boxes of it. */
struct shape {
    cuuint64_t dims[3], strides[2];
    cuuint32_t box[3];
    CUtensorMapSwizzle swizzle;
};

static cudaError_t make(struct ft_whole_map *map, const void *weight, const struct shape *shape) {
    void *found = k_driver_find("cuTensorMapEncodeTiled");
    encode_fn encode = NULL;
    CUtensorMap made;
    _Static_assert(sizeof made == sizeof *map, "the driver's description of a tensor");
    const cuuint32_t ones[3] = {1, 1, 1};
    memcpy(&encode, &found, sizeof encode);
    if (encode == NULL)
        return cudaErrorNotSupported;
    CUresult result =
        encode(&made, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, (void *)(uintptr_t)weight, shape->dims,
               shape->strides, shape->box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, shape->swizzle,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        return cudaErrorInvalidValue;
    memcpy(map, &made, sizeof made);
    return cudaSuccess;
}

cudaError_t k_map_make(struct ft_whole_map *map, const void *weight, int32_t n_out, int32_t n_in,
                       int32_t n_columns) {
    if (n_in % BOX_COLUMNS != 0 || n_columns % BOX_COLUMNS != 0)
        return cudaErrorInvalidValue;
    const struct shape shape = {
        {BOX_COLUMNS, (cuuint64_t)(n_in / BOX_COLUMNS), (cuuint64_t)n_out},
        {BOX_COLUMNS * 2, (cuuint64_t)n_in * 2},
        {BOX_COLUMNS, (cuuint32_t)(n_columns / BOX_COLUMNS), BOX_ROWS},
        CU_TENSOR_MAP_SWIZZLE_128B,
    };
    return make(map, weight, &shape);
}

cudaError_t k_map_make_chunks(struct ft_whole_map *map, const void *weight, int32_t n_out,
                              int32_t n_in, int32_t box_rows, int32_t n_chunks) {
    if (n_in % BOX_COLUMNS != 0)
        return cudaErrorInvalidValue;
    const struct shape shape = {
        {CHUNK_COLUMNS, (cuuint64_t)n_out, (cuuint64_t)(n_in / CHUNK_COLUMNS)},
        {(cuuint64_t)n_in * 2, CHUNK_COLUMNS * 2},
        {CHUNK_COLUMNS, (cuuint32_t)box_rows, (cuuint32_t)n_chunks},
        CU_TENSOR_MAP_SWIZZLE_64B,
    };
    return make(map, weight, &shape);
}
