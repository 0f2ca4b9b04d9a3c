#include "foretokenctl/exit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "foretokenctl/print.h"

const char ctl_exit_help[] =
    "exit status:\n"
    "  0   done\n"
    "  64  bad usage, or the service found the request invalid\n"
    "  65  some lines of a batch failed: each says so in its place\n"
    "  66  an input file is not there, or what was asked for is not\n"
    "  69  the service cannot be reached, is unavailable, or does not support what was asked\n"
    "  70  an error inside the service\n"
    "  71  an error of this machine: memory, a file that is there and cannot be read\n"
    "  74  the output cannot be written\n"
    "  75  try again: too much load, past the deadline, or cancelled\n"
    "  76  the service answered something else than its protocol says\n"
    "  77  not permitted\n"
    "  78  foretoken.conf cannot be used\n"
    "  130 interrupted; a signal N in general: 128 + N\n";

int ctl_exit_because(enum ctl_exit status, const char *text) {
    fputs("foretokenctl: ", stderr);
    ctl_print_line(stderr, ft_str_c(text));
    return (int)status;
}

int ctl_exit_from_err(const struct ft_err *err) {
    return ctl_exit_because((enum ctl_exit)ft_code_exit_status(err->code), err->text);
}

enum { GRPC_RESOURCE_EXHAUSTED = 8 };

enum ft_code ctl_exit_unopened(struct ft_err *err, int os_errno, const char *path) {
    bool is_absent = os_errno == ENOENT || os_errno == ENOTDIR;
    return ft_err_set_os(err, is_absent ? FT_E_REQ_NOT_FOUND : FT_E_PROC_OS, os_errno, "file",
                         "cannot open %s", path);
}

/* By grpc_status_code. */
static const enum ctl_exit exits[] = {
    CTL_EXIT_OK,          /* OK */
    CTL_EXIT_AGAIN,       /* CANCELLED */
    CTL_EXIT_INTERNAL,    /* UNKNOWN */
    CTL_EXIT_USAGE,       /* INVALID_ARGUMENT */
    CTL_EXIT_AGAIN,       /* DEADLINE_EXCEEDED */
    CTL_EXIT_NO_INPUT,    /* NOT_FOUND */
    CTL_EXIT_USAGE,       /* ALREADY_EXISTS */
    CTL_EXIT_DENIED,      /* PERMISSION_DENIED */
    CTL_EXIT_AGAIN,       /* RESOURCE_EXHAUSTED */
    CTL_EXIT_UNAVAILABLE, /* FAILED_PRECONDITION */
    CTL_EXIT_AGAIN,       /* ABORTED */
    CTL_EXIT_USAGE,       /* OUT_OF_RANGE */
    CTL_EXIT_UNAVAILABLE, /* UNIMPLEMENTED */
    CTL_EXIT_INTERNAL,    /* INTERNAL */
    CTL_EXIT_UNAVAILABLE, /* UNAVAILABLE */
    CTL_EXIT_INTERNAL,    /* DATA_LOSS */
    CTL_EXIT_DENIED,      /* UNAUTHENTICATED */
};

/* gRPC's own words for a message past its limit: the service never sees the call, so there is no
 * retry-after-ms, and waiting does not help. */
bool ctl_exit_too_large(const struct ft_rpc_status *status) {
    return status->code == GRPC_RESOURCE_EXHAUSTED &&
           strstr(status->text, "message larger than max") != NULL;
}

int ctl_exit_from_status(const struct ft_rpc_status *status) {
    char text[sizeof status->text + 32];
    bool known = status->code >= 0 && (size_t)status->code < sizeof exits / sizeof exits[0];
    if (status->code == 0)
        return CTL_EXIT_OK;
    snprintf(text, sizeof text, "%s: %s", ft_rpc_status_name(status->code), status->text);
    enum ctl_exit status_of = known ? exits[status->code] : CTL_EXIT_INTERNAL;
    return ctl_exit_because(ctl_exit_too_large(status) ? CTL_EXIT_USAGE : status_of, text);
}

int ctl_exit_with_output(const struct ft_buf *out) {
    struct ft_err err = {0};
    if (out->failed)
        return ctl_exit_because(CTL_EXIT_OS, "no memory for the answer");
    fwrite(out->ptr, 1, out->len, stdout);
    if (ctl_print_flush(stdout, &err) != FT_OK)
        return ctl_exit_because(CTL_EXIT_OUTPUT, err.text);
    return CTL_EXIT_OK;
}
