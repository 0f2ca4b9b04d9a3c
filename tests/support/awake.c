#include "support/awake.h"

#include <check.h>
#include <pthread.h>
#include <unistd.h>

#include "common/base/clock.h"

#define TICK_NS ((int64_t)2000000)
#define LATE_NS ((int64_t)20000000) /* a tick that comes so late: the process was held up */

/* Ticks come from a thread that only sleeps, so one that is late tells of a stall. */
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t g_ticked_ns, g_stalled_ns;
static pid_t g_owner; /* a forked process has no thread yet */

static int64_t tick(void) {
    int64_t now_ns = ft_clock_now_ns();
    int64_t gap_ns = now_ns - g_ticked_ns;
    if (gap_ns > LATE_NS)
        g_stalled_ns += gap_ns - TICK_NS;
    g_ticked_ns = now_ns;
    return now_ns - g_stalled_ns;
}

static void *tick_for_ever(void *unused) {
    (void)unused;
    for (;;) {
        usleep(TICK_NS / 1000);
        pthread_mutex_lock(&g_lock);
        tick();
        pthread_mutex_unlock(&g_lock);
    }
    return NULL;
}

static void start(void) {
    pthread_t thread;
    g_owner = getpid();
    g_ticked_ns = ft_clock_now_ns();
    ck_assert_int_eq(pthread_create(&thread, NULL, tick_for_ever, NULL), 0);
    pthread_detach(thread);
}

int64_t ft_awake_ns(void) {
    pthread_mutex_lock(&g_lock);
    if (g_owner != getpid())
        start();
    int64_t now_ns = tick();
    pthread_mutex_unlock(&g_lock);
    return now_ns;
}
