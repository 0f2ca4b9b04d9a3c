/* region: rows of f32 that a worker writes and the coordinator reads in place, in POSIX shared
 * memory or in a GPU's. Two generations, so that a step can be written while the last one is read.
 * The header is in shared memory in any case, and says where the rows are; so is a channel.
 * Owns:    the mapping, from create or map to close; the name, until unlink.
 * Runs in: workers (create), coordinator (map).
 * Never:   holds pointers; what the header says is checked before use. */
#ifndef FT_IPC_REGION_H
#define FT_IPC_REGION_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/gpu/device.h"
#include "common/ipc/channel.h"

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

/* A GPU's memory for rows, shared by its device. It outlives the region, and everybody who has it
 * open: its owner keeps it, from one model to the next too, until it has served another region
 * since or the process ends. */
struct ft_region_memory {
    struct ft_device *device;
    void *at;
    size_t bytes; /* at least ft_region_rows_bytes */
    struct ft_device_handle handle;
};
size_t ft_region_rows_bytes(const struct ft_region_layout *layout);

/* Make a region under a fresh name, mode 0600; memory NULL: rows lie in shared memory.
 * fail FT_E_PROC_OS, FT_E_PROC_CONFIG */
enum ft_code ft_region_create_on(struct ft_region **out, const struct ft_region_layout *layout,
                                 const struct ft_region_memory *memory, struct ft_err *err);
/* Map by name, all but the channel read-only, after checking magic, version, size, layout and
 * epoch. device is what reads rows that lie on a GPU; NULL: nothing does. fail FT_E_PEER_PROTOCOL
 * names what is wrong: rows on a GPU that is not device's, or memory that cannot be opened (a stale
 * handle, a dead owner) too; FT_E_PEER_UNAVAILABLE: no such name */
enum ft_code ft_region_map_on(struct ft_region **out, const char *name, uint64_t epoch,
                              struct ft_device *device, struct ft_err *err);

static inline enum ft_code ft_region_create(struct ft_region **out,
                                            const struct ft_region_layout *layout,
                                            struct ft_err *err) {
    return ft_region_create_on(out, layout, NULL, err);
}
static inline enum ft_code ft_region_map(struct ft_region **out, const char *name, uint64_t epoch,
                                         struct ft_err *err) {
    return ft_region_map_on(out, name, epoch, NULL, err);
}
void ft_region_close(struct ft_region **region); /* the creator's close unlinks too */
void ft_region_unlink(struct ft_region *region);

const char *ft_region_name(const struct ft_region *region);
uint64_t ft_region_bytes(const struct ft_region *region);
const struct ft_region_layout *ft_region_layout(const struct ft_region *region);
int64_t ft_region_row_stride(const struct ft_region *region);   /* floats, a multiple of 16 */
struct ft_channel *ft_region_channel(struct ft_region *region); /* this process's side of it */
/* false: rows are addresses of a GPU's memory, not to be read by the host. */
bool ft_region_is_host(const struct ft_region *region);
/* Row idx of a generation, 64-byte aligned; NULL when out of range. */
float *ft_region_row_mut(struct ft_region *region, uint32_t generation, int64_t idx);
const float *ft_region_row(const struct ft_region *region, uint32_t generation, int64_t idx);

#ifdef __cplusplus
}
#endif
#endif
