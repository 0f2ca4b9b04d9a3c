#include "common/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODULE "file"

static enum ft_code open_error(const char *path, int os_errno, struct ft_err *err) {
    enum ft_code code =
        os_errno == ENOENT || os_errno == ENOTDIR ? FT_E_REQ_NOT_FOUND : FT_E_PROC_OS;
    return ft_err_set_os(err, code, os_errno, MODULE, "cannot open %s", path);
}

enum ft_code ft_file_map(const char *path, struct ft_map *out, struct ft_err *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hold us up */
    if (fd < 0)
        return open_error(path, errno, err);
    struct stat st;
    enum ft_code code = FT_OK;
    void *ptr = NULL;
    if (fstat(fd, &st) != 0) {
        code = ft_err_set_os(err, FT_E_PROC_OS, errno, MODULE, "cannot stat %s", path);
    } else if (!S_ISREG(st.st_mode)) {
        code = ft_err_set(err, FT_E_REQ_INVALID, MODULE, "%s is not a regular file", path);
    } else if (st.st_size > 0) {
        ptr = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (ptr == MAP_FAILED)
            code = ft_err_set_os(err, FT_E_PROC_OS, errno, MODULE, "cannot map %s", path);
    }
    close(fd);
    if (code != FT_OK)
        return code;
    out->ptr = ptr;
    out->len = (size_t)st.st_size;
    return FT_OK;
}

void ft_file_unmap(struct ft_map *map) {
    if (map->ptr != NULL)
        munmap((void *)(uintptr_t)map->ptr, map->len);
    *map = (struct ft_map){NULL, 0};
}

enum ft_code ft_file_read(const char *path, size_t bytes_max, struct ft_buf *buf,
                          struct ft_err *err) {
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return open_error(path, errno, err);
    enum ft_code code = FT_OK;
    size_t total = 0;
    char chunk[16384];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            code = ft_err_set_os(err, FT_E_PROC_OS, errno, MODULE, "cannot read %s", path);
        if (n <= 0)
            break;
        total += (size_t)n;
        if (total > bytes_max) {
            code = ft_err_set(err, FT_E_REQ_TOO_LARGE, MODULE,
                              "%s is larger than the limit of %zu bytes", path, bytes_max);
            break;
        }
        ft_buf_add(buf, chunk, (size_t)n);
    }
    if (!is_stdin)
        close(fd);
    if (code == FT_OK && buf->failed)
        code = ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory to read %s", path);
    return code;
}

struct ft_file_stamp ft_file_stamp_of(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0)
        return (struct ft_file_stamp){0};
    return (struct ft_file_stamp){st.st_dev, st.st_ino, st.st_size, st.st_mtim, st.st_ctim};
}

static bool same_time(struct timespec a, struct timespec b) {
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool ft_file_stamp_eq(const struct ft_file_stamp *a, const struct ft_file_stamp *b) {
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           same_time(a->modified, b->modified) && same_time(a->changed, b->changed);
}

enum ft_code ft_file_join(char *out, size_t cap, const char *dir, const char *name,
                          struct ft_err *err) {
    int n = snprintf(out, cap, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= cap)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "path %s/%s is longer than %zu bytes", dir,
                          name, cap - 1);
    return FT_OK;
}
