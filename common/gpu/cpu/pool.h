/* pool: the threads that compute one step together; the caller is thread 0.
 * Owns:    its threads, from create to destroy.
 * Runs in: workers; every function is called by one thread, the one that owns the device.
 * Never:   changes the caller's affinity; waits for a thread that has taken no work. */
#ifndef FT_GPU_CPU_POOL_H
#define FT_GPU_CPU_POOL_H

#include <stdint.h>

#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_pool;

#define FT_POOL_THREADS_MAX 256

/* Compute items begin .. end - 1. Items are independent, so it does not matter who takes them. */
typedef void (*ft_pool_fn)(const void *arg, int32_t begin, int32_t end);

/* n_threads  0: one per core that the process may use; at most FT_POOL_THREADS_MAX
 * spin_us    how long an idle thread looks for work before it sleeps
 * fail FT_E_PROC_CONFIG, FT_E_PROC_OS, FT_E_PROC_MEMORY */
enum ft_code ft_pool_create(struct ft_pool **out, int32_t n_threads, int32_t spin_us,
                            struct ft_err *err);
void ft_pool_destroy(struct ft_pool **pool);
int32_t ft_pool_n_threads(const struct ft_pool *pool);

/* Run fn over 0 .. n_items - 1 and return when all of it is done. Pieces hold at least grain
 * items; work of one piece is done by the caller alone. */
void ft_pool_run(struct ft_pool *pool, ft_pool_fn fn, const void *arg, int32_t n_items,
                 int32_t grain);

#ifdef __cplusplus
}
#endif
#endif
