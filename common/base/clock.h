/* clock: monotonic time.
 * Owns:    nothing.
 * Runs in: every process, any thread.
 * Never:   uses wall-clock time for intervals. */
#ifndef FT_BASE_CLOCK_H
#define FT_BASE_CLOCK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

int64_t ft_clock_now_ns(void);  /* CLOCK_MONOTONIC */
int64_t ft_clock_unix_ms(void); /* CLOCK_REALTIME, for stamps only */
/* 64 random bits from the kernel, never 0; for epochs, seeds and request ids. */
uint64_t ft_clock_random_u64(void);

#ifdef __cplusplus
}
#endif
#endif
