#include "common/base/clock.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

int64_t ft_clock_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t ft_clock_unix_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

uint64_t ft_clock_random_u64(void) {
    uint64_t v = 0;
    if (getrandom(&v, sizeof v, 0) != (ssize_t)sizeof v)
        v = (uint64_t)ft_clock_now_ns() * 0x9E3779B97F4A7C15u ^ (uint64_t)getpid();
    return v == 0 ? 1 : v;
}
