/* watchdog: tells systemd that the loop still turns, from the loop itself.
 * Owns:    one timer, from open to close.
 * Runs in: every process with a loop; loop thread only.
 * Never:   feeds from another thread: a loop that hangs must be seen to hang. */
#ifndef FT_RPC_WATCHDOG_H
#define FT_RPC_WATCHDOG_H

#include "common/rpc/rpc.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_rpc_watchdog {
    struct ft_rpc_loop *loop;
    struct ft_rpc_timer timer;
    int64_t period_ns;
};

/* Zero-initialised, at a stable address until close. Does nothing where nobody watches. */
enum ft_code ft_rpc_watchdog_open(struct ft_rpc_watchdog *watchdog, struct ft_rpc_loop *loop,
                                  struct ft_err *err);
void ft_rpc_watchdog_close(struct ft_rpc_watchdog *watchdog);

#ifdef __cplusplus
}
#endif
#endif
