#include "common/rpc/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* A lock file can be unlinked between our open and our flock; each retry means that another server
 * stopped at that very moment. */
#define LOCK_TRIES 16

static bool same_file(int fd, const char *path) {
    struct stat open_file, named_file;
    return fstat(fd, &open_file) == 0 && stat(path, &named_file) == 0 &&
           open_file.st_ino == named_file.st_ino && open_file.st_dev == named_file.st_dev;
}

static void read_owner(int fd, char *out, size_t cap) {
    ssize_t n = pread(fd, out, cap - 1, 0);
    out[n > 0 ? n : 0] = '\0';
    out[strspn(out, "0123456789")] = '\0';
}

static enum ft_code take_lock_file(struct ft_rpc_socket_lock *lock, const char *path,
                                   struct ft_err *err) {
    for (int i = 0; i < LOCK_TRIES; i++) {
        int fd = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return ft_err_set_os(err, FT_E_PROC_CONFIG, errno, "rpc", "unix:%s: cannot create %s",
                                 path, lock->path);
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            int os_errno = errno;
            char owner[16];
            read_owner(fd, owner, sizeof owner);
            close(fd);
            if (os_errno != EWOULDBLOCK)
                return ft_err_set_os(err, FT_E_PROC_OS, os_errno, "rpc", "cannot lock %s",
                                     lock->path);
            return ft_err_set(err, FT_E_PROC_CONFIG, "rpc",
                              "unix:%s: another server (process %s) listens there", path,
                              owner[0] == '\0' ? "unknown" : owner);
        }
        if (same_file(fd, lock->path)) {
            lock->fd = fd;
            return FT_OK;
        }
        close(fd);
    }
    return ft_err_set(err, FT_E_PROC_CONFIG, "rpc", "unix:%s: the lock file %s keeps vanishing",
                      path, lock->path);
}

/* Servers of other programs know nothing of our lock: ask the socket itself. */
static enum ft_code check_path(const char *path, struct ft_err *err) {
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT
                   ? FT_OK
                   : ft_err_set_os(err, FT_E_PROC_CONFIG, errno, "rpc", "unix:%s", path);
    if (!S_ISSOCK(st.st_mode))
        return ft_err_set(err, FT_E_PROC_CONFIG, "rpc",
                          "unix:%s: a file that is not a socket lies there", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ft_err_set_os(err, FT_E_PROC_OS, errno, "rpc", "socket");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    int rc = connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
    close(fd);
    if (rc == ECONNREFUSED || rc == ENOENT)
        return FT_OK; /* left behind by a server that was killed */
    if (rc == 0 || rc == EAGAIN)
        return ft_err_set(err, FT_E_PROC_CONFIG, "rpc", "unix:%s: another server listens there",
                          path);
    return ft_err_set_os(err, FT_E_PROC_CONFIG, rc, "rpc", "unix:%s", path);
}

enum ft_code ft_rpc_socket_lock_take(struct ft_rpc_socket_lock *lock, const char *path,
                                     struct ft_err *err) {
    snprintf(lock->path, sizeof lock->path, "%s.lock", path);
    enum ft_code code = take_lock_file(lock, path, err);
    if (code != FT_OK)
        return code;
    code = check_path(path, err);
    if (code != FT_OK) {
        ft_rpc_socket_lock_give(lock);
        return code;
    }
    char pid[16];
    int n = snprintf(pid, sizeof pid, "%d\n", (int)getpid());
    /* The number only helps whoever reads the message of a refused server. */
    if (ftruncate(lock->fd, 0) != 0 || pwrite(lock->fd, pid, (size_t)n, 0) != n)
        return FT_OK;
    return FT_OK;
}

void ft_rpc_socket_lock_give(struct ft_rpc_socket_lock *lock) {
    unlink(lock->path);
    close(lock->fd);
}
