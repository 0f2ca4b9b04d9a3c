/* parent: a process that ends with the one that started it.
 * Owns:    nothing.
 * Runs in: every process; at start, before signals are blocked.
 * Never:   ends a process otherwise than by SIGTERM. */
#ifndef FT_BASE_PARENT_H
#define FT_BASE_PARENT_H

#include <sys/types.h>

#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* SIGTERM to this process once its parent is gone: at once where that is so already. parent is
 * whom getppid() named when the process began.
 * fail FT_E_PROC_OS */
enum ft_code ft_parent_follow(pid_t parent, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
