/* env (ctl): the environment.
 * Owns:    nothing.
 * Runs in: foretokenctl.
 * Never:   is read anywhere else: getenv stands in env.c alone. */
#ifndef CTL_ENV_H
#define CTL_ENV_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* $FORETOKEN_ENDPOINT, or 127.0.0.1:50051 when it is unset or empty. */
const char *ctl_env_endpoint(void);
/* The terminal shows UTF-8, as LC_ALL, LC_CTYPE or LANG says. */
bool ctl_env_utf8(void);

#ifdef __cplusplus
}
#endif
#endif
