/* awake: a clock that stands still while the whole process is held up.
 * Owns:    a thread of its own in each process that asks, to that process's end.
 * Runs in: tests that bound from above what something takes: a machine that stalls for a second
 *          must not decide them. Any thread.
 * Never:   leaves out a wait: who sleeps or blocks while the process runs is counted. */
#ifndef FT_TESTS_AWAKE_H
#define FT_TESTS_AWAKE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Monotonic, ns; from an origin of its own. */
int64_t ft_awake_ns(void);

#ifdef __cplusplus
}
#endif
#endif
