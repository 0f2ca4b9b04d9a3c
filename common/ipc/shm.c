#include "common/ipc/shm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"

#define DIRECTORY "/dev/shm" /* where shm_open keeps them */
#define DIGITS 16
#define NAME_TRIES 8
#define SWEEP_MAX 4096 /* entries looked at: others may have made as many as they like */

int ft_shm_open_fresh(char name[FT_REGION_NAME_MAX]) {
    for (int i = 0; i < NAME_TRIES; i++) {
        struct stat st;
        snprintf(name, FT_REGION_NAME_MAX, FT_SHM_PREFIX "%0*" PRIx64, DIGITS,
                 ft_clock_random_u64());
        int fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
        if (fd < 0 && errno == EEXIST)
            continue;
        if (fd < 0)
            return -1;
        if (flock(fd, LOCK_EX) != 0 || fstat(fd, &st) != 0) {
            int os_errno = errno;
            shm_unlink(name);
            close(fd);
            errno = os_errno;
            return -1;
        }
        if (st.st_nlink > 0)
            return fd;
        close(fd); /* somebody swept between the two calls */
    }
    errno = EEXIST;
    return -1;
}

static bool is_ours(const char *entry) {
    size_t n = sizeof FT_SHM_PREFIX - 2; /* no slash */
    return strncmp(entry, &FT_SHM_PREFIX[1], n) == 0 && strlen(entry) == n + DIGITS &&
           strspn(entry + n, "0123456789abcdef") == DIGITS;
}

/* The kernel lets go of a lock with the last descriptor of its holder, however that one ended. */
static void remove_unless_held(int dir_fd, const char *entry) {
    struct stat st;
    int fd = openat(dir_fd, entry, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(dir_fd, entry, 0);
    close(fd);
}

void ft_shm_sweep(void) {
    DIR *dir = opendir(DIRECTORY);
    if (dir == NULL)
        return;
    struct dirent *entry;
    for (int i = 0; i < SWEEP_MAX && (entry = readdir(dir)) != NULL; i++)
        if (is_ours(entry->d_name))
            remove_unless_held(dirfd(dir), entry->d_name);
    closedir(dir);
}
