#include "foretokenctl/env.h"

#include <stdlib.h>
#include <string.h>

static const char *read_or(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value == NULL || *value == 0 ? otherwise : value;
}

const char *ctl_env_endpoint(void) {
    return read_or("FORETOKEN_ENDPOINT", "127.0.0.1:50051");
}

const char *ctl_env_cacert(void) {
    return read_or("FORETOKEN_CACERT", "");
}

const char *ctl_env_cert(void) {
    return read_or("FORETOKEN_CERT", "");
}

const char *ctl_env_key(void) {
    return read_or("FORETOKEN_KEY", "");
}

const char *ctl_env_token(void) {
    return read_or("FORETOKEN_TOKEN", "");
}

const char *ctl_env_token_file(void) {
    return read_or("FORETOKEN_TOKEN_FILE", "");
}

enum ft_code ctl_env_tls(bool *out, struct ft_err *err) {
    const char *value = read_or("FORETOKEN_TLS", "0");
    *out = strcmp(value, "1") == 0 || strcmp(value, "true") == 0;
    if (*out || strcmp(value, "0") == 0 || strcmp(value, "false") == 0)
        return FT_OK;
    return ft_err_set(err, FT_E_REQ_INVALID, "env",
                      "FORETOKEN_TLS is '%.80s': must be 1 or true, or 0 or false", value);
}

bool ctl_env_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE",
                                        "LANG"}; /* the first set one counts */
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && *value != 0)
            return strcasestr(value, "UTF-8") != NULL || strcasestr(value, "UTF8") != NULL;
    }
    return false;
}
