#include "common/rpc/watchdog.h"

#include "common/base/clock.h"
#include "common/base/supervisor.h"

/* Of the time that the watchdog grants: late by one is no alarm. */
#define FEEDS_PER_LIMIT 3

static void feed(void *user) {
    struct ft_rpc_watchdog *watchdog = user;
    ft_supervisor_notify("WATCHDOG=1");
    ft_rpc_timer_set(watchdog->loop, &watchdog->timer, ft_clock_now_ns() + watchdog->period_ns,
                     feed, watchdog);
}

enum ft_code ft_rpc_watchdog_open(struct ft_rpc_watchdog *watchdog, struct ft_rpc_loop *loop,
                                  struct ft_err *err) {
    watchdog->loop = loop;
    watchdog->period_ns = ft_supervisor_watchdog_ns() / FEEDS_PER_LIMIT;
    if (watchdog->period_ns == 0)
        return FT_OK;
    enum ft_code code = ft_rpc_timer_set(loop, &watchdog->timer, ft_clock_now_ns(), feed, watchdog);
    return code == FT_OK ? code
                         : ft_err_set(err, code, "rpc", "no memory for the watchdog's timer");
}

void ft_rpc_watchdog_close(struct ft_rpc_watchdog *watchdog) {
    if (watchdog->loop != NULL)
        ft_rpc_timer_cancel(watchdog->loop, &watchdog->timer);
}
