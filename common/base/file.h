/* file: whole files, read or mapped, with checked sizes.
 * Owns:    the mapping of struct ft_map, from map to unmap.
 * Runs in: every process, any thread.
 * Never:   follows a size that the file system does not confirm. */
#ifndef FT_BASE_FILE_H
#define FT_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#include "common/base/buf.h"
#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_map {
    const unsigned char *ptr; /* NULL for an empty file */
    size_t len;
};

/* Map a regular file read-only. fail FT_E_REQ_NOT_FOUND when it is not there, FT_E_PROC_OS. */
enum ft_code ft_file_map(const char *path, struct ft_map *out, struct ft_err *err);
void ft_file_unmap(struct ft_map *map);

/* Append the whole of path ("-" is standard input) to buf, at most bytes_max.
 * fail FT_E_REQ_NOT_FOUND, FT_E_REQ_TOO_LARGE, FT_E_PROC_OS, FT_E_PROC_MEMORY */
enum ft_code ft_file_read(const char *path, size_t bytes_max, struct ft_buf *buf,
                          struct ft_err *err);

/* What tells that a file has changed, in place or by renaming another over it. All zero for a file
 * that is not there. */
struct ft_file_stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified, changed;
};
struct ft_file_stamp ft_file_stamp_of(const char *path);
bool ft_file_stamp_eq(const struct ft_file_stamp *a, const struct ft_file_stamp *b);

/* dir + "/" + name into out[cap]; FT_E_REQ_INVALID when it does not fit. */
enum ft_code ft_file_join(char *out, size_t cap, const char *dir, const char *name,
                          struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
