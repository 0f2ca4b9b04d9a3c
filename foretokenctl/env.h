/* env (ctl): the environment.
 * Owns:    nothing.
 * Runs in: foretokenctl.
 * Never:   is read anywhere else: getenv stands in env.c alone. */
#ifndef CTL_ENV_H
#define CTL_ENV_H

#include <stdbool.h>

#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* $FORETOKEN_ENDPOINT, or 127.0.0.1:50051 when it is unset or empty. */
const char *ctl_env_endpoint(void);
/* The terminal shows UTF-8, as LC_ALL, LC_CTYPE or LANG says. */
bool ctl_env_utf8(void);
/* What stands in for a flag that was not given; "" when unset. */
const char *ctl_env_cacert(void);     /* $FORETOKEN_CACERT */
const char *ctl_env_cert(void);       /* $FORETOKEN_CERT */
const char *ctl_env_key(void);        /* $FORETOKEN_KEY */
const char *ctl_env_token(void);      /* $FORETOKEN_TOKEN */
const char *ctl_env_token_file(void); /* $FORETOKEN_TOKEN_FILE */
/* $FORETOKEN_TLS: 1 or true; 0, false or unset. fail FT_E_REQ_INVALID: anything else */
enum ft_code ctl_env_tls(bool *out, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
