/* region: rows of f32 that a worker writes and the coordinator reads in place, in POSIX shared
 * memory. Two generations, so that a step can be written while the last one is read.
 * Owns:    the mapping, from create or map to close; the name, until unlink.
 * Runs in: workers (create), coordinator (map).
 * Never:   holds pointers; what the header says is checked before use. */
#ifndef FT_IPC_REGION_H
#define FT_IPC_REGION_H

#include <stdint.h>

#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FT_REGION_GENERATIONS 2
#define FT_REGION_NAME_MAX 64

struct ft_region;

struct ft_region_layout {
    uint64_t epoch; /* of the worker */
    int32_t n_rows; /* per generation, 1 .. 65536 */
    int32_t n_cols; /* floats of a row that mean something: the vocabulary */
};

/* Make a region under a fresh name, mode 0600. fail FT_E_PROC_OS, FT_E_PROC_CONFIG */
enum ft_code ft_region_create(struct ft_region **out, const struct ft_region_layout *layout,
                              struct ft_err *err);
/* Map by name, read-only, after checking magic, version, size, layout and epoch.
 * fail FT_E_PEER_PROTOCOL names what is wrong; FT_E_PEER_UNAVAILABLE: no such name */
enum ft_code ft_region_map(struct ft_region **out, const char *name, uint64_t epoch,
                           struct ft_err *err);
void ft_region_close(struct ft_region **region); /* the creator's close unlinks too */
void ft_region_unlink(struct ft_region *region);

const char *ft_region_name(const struct ft_region *region);
uint64_t ft_region_bytes(const struct ft_region *region);
const struct ft_region_layout *ft_region_layout(const struct ft_region *region);
int64_t ft_region_row_stride(const struct ft_region *region); /* floats, a multiple of 16 */
/* Row idx of a generation, 64-byte aligned; NULL when out of range. */
float *ft_region_row_mut(struct ft_region *region, uint32_t generation, int64_t idx);
const float *ft_region_row(const struct ft_region *region, uint32_t generation, int64_t idx);

#ifdef __cplusplus
}
#endif
#endif
