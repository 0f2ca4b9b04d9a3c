/* weights_files: the safetensors files of one checkpoint, as one table of tensors.
 * Owns:    the mappings, from open to close.
 * Runs in: workers; at start.
 * Never:   opens a file that the index does not name, or one outside the checkpoint's folder.
 * A file must not be cut while it is open: the kernel answers a read past its end with SIGBUS. */
#ifndef FT_MODEL_WEIGHTS_FILES_H
#define FT_MODEL_WEIGHTS_FILES_H

#include <stdbool.h>

#include "common/model/safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_weights_tensor {
    const struct ft_safetensors_entry *entry;
    const unsigned char *data; /* entry->bytes of them */
    const char *file;          /* name, for messages */
    bool is_bound;             /* for the binder's use */
};

struct ft_weights_files {
    struct ft_safetensors *files; /* [n_files] */
    const char **names;           /* [n_files] */
    size_t n_files;
    struct ft_weights_tensor *tensors; /* [n_tensors], ascending by name, no name twice */
    size_t n_tensors;
    struct ft_arena *arena;
};

/* Map dir/model.safetensors, or the shards that dir/model.safetensors.index.json names; with both
 * in dir the index must name the single file. Every tensor must lie in the shard that the index
 * says, and the shards must hold no other. fail FT_E_PROC_MODEL names file, tensor and reason. */
enum ft_code ft_weights_files_open(struct ft_weights_files **out, const char *dir,
                                   struct ft_err *err);
void ft_weights_files_close(struct ft_weights_files **files);

/* NULL when there is none of that name. */
struct ft_weights_tensor *ft_weights_files_find(const struct ft_weights_files *files,
                                                const char *name);

#ifdef __cplusplus
}
#endif
#endif
