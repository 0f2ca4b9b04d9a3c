/* safetensors: the header of one safetensors file, every number of it checked.
 * Owns:    the mapping and the table of entries, from open to close.
 * Runs in: workers; at start.
 * Never:   trusts a number of the file: sizes, shapes and offsets must agree with each other and
 *          with the file's size before an address is made of them.
 * Layout: u64 little-endian n, n bytes of JSON {name: {dtype, shape, data_offsets}}, tensor data.
 * Source: https://github.com/huggingface/safetensors, README, "Format". */
#ifndef FT_MODEL_SAFETENSORS_H
#define FT_MODEL_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/base/file.h"
#include "common/model/config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The format allows 100 MB. The largest model that config.h allows needs 4 MB, and a broken file
 * must be refused within a second. */
#define FT_SAFETENSORS_HEADER_MAX (16u << 20)
/* 1024 layers of 18 tensors stay below it. */
#define FT_SAFETENSORS_TENSORS_MAX 32768u
#define FT_SAFETENSORS_DIMS_MAX 4
#define FT_SAFETENSORS_NAME_MAX 255

struct ft_safetensors_entry {
    const char *name;
    enum ft_dtype dtype;
    int32_t n_dims;
    int64_t dims[FT_SAFETENSORS_DIMS_MAX];
    uint64_t begin; /* byte offset from the start of the file */
    uint64_t bytes;
};

struct ft_safetensors {
    struct ft_safetensors_entry *entries; /* ascending by begin */
    size_t n_entries;
    struct ft_map map;
    struct ft_arena *arena; /* entries and names */
};

/* Read the header that is in the first len bytes of a file of file_bytes. Pure: touches no file;
 * label names the file in messages. fail FT_E_PROC_MODEL names file, tensor and reason;
 * FT_E_PROC_MEMORY. The caller destroys out->arena; out->map is left empty. */
enum ft_code ft_safetensors_parse(struct ft_safetensors *out, const char *label,
                                  const unsigned char *bytes, size_t len, uint64_t file_bytes,
                                  struct ft_err *err);

/* Map dir/name and read its header. fail as above; FT_E_REQ_NOT_FOUND, FT_E_PROC_OS */
enum ft_code ft_safetensors_open(struct ft_safetensors *out, const char *dir, const char *name,
                                 struct ft_err *err);
void ft_safetensors_close(struct ft_safetensors *file);

#ifdef __cplusplus
}
#endif
#endif
