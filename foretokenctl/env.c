#include "foretokenctl/env.h"

#include <stdlib.h>
#include <string.h>

const char *ctl_env_endpoint(void) {
    const char *endpoint = getenv("FORETOKEN_ENDPOINT");
    return endpoint == NULL || *endpoint == 0 ? "127.0.0.1:50051" : endpoint;
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
