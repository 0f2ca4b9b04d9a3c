/* clockjump: preloaded into a process, its wall clock is off by as many seconds as the file named
 * by FORETOKEN_TEST_CLOCK says; the monotonic clock is not touched. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *out);
int gettimeofday(struct timeval *restrict out, void *restrict zone);
time_t time(time_t *out);

static volatile int64_t *g_offset_s;

__attribute__((constructor)) static void map(void) {
    const char *path = getenv("FORETOKEN_TEST_CLOCK");
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *page = mmap(NULL, sizeof *g_offset_s, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED)
        g_offset_s = page;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    long failed = syscall(SYS_clock_gettime, clock, out);
    if (failed == 0 && g_offset_s != NULL &&
        (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        out->tv_sec += *g_offset_s;
    return (int)failed;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL)
        *out = now.tv_sec;
    return now.tv_sec;
}
