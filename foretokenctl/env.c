#include "foretokenctl/env.h"

#include <stdlib.h>

const char *ctl_env_endpoint(void) {
    const char *endpoint = getenv("FORETOKEN_ENDPOINT");
    return endpoint == NULL || *endpoint == 0 ? "127.0.0.1:50051" : endpoint;
}
