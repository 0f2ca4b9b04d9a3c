#include "common/rpc/rpc_internal.h"

static const char *const k_names[] = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

const char *ft_rpc_status_name(int code) {
    size_t n = sizeof k_names / sizeof k_names[0];
    return code >= 0 && (size_t)code < n ? k_names[code] : "UNKNOWN";
}

void ft_rpc_status_set(struct ft_rpc_status *status, int code, struct ft_str text) {
    /* A peer may send any number; what has no name is UNKNOWN. */
    size_t n_names = sizeof k_names / sizeof k_names[0];
    status->code = code >= 0 && (size_t)code < n_names ? code : GRPC_STATUS_UNKNOWN;
    status->retry_after_ms = 0;
    size_t len = 0;
    while (text.len > 0) {
        int step = ft_utf8_step(text);
        size_t n = step > 0 ? (size_t)step : 1;
        if (len + n >= sizeof status->text)
            break;
        if (step > 0)
            memcpy(status->text + len, text.ptr, n);
        else
            status->text[len] = '?';
        if (status->text[len] == '\0')
            status->text[len] = '?';
        len += n;
        text.ptr += n;
        text.len -= n;
    }
    status->text[len] = '\0';
}

struct ft_rpc_status ft_rpc_status_from_err(const struct ft_err *err) {
    struct ft_rpc_status status;
    ft_rpc_status_set(&status, ft_code_grpc_status(err->code), ft_str_c(err->text));
    return status;
}
