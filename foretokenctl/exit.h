/* exit (ctl): exit statuses, after sysexits.h.
 * Owns:    nothing.
 * Runs in: foretokenctl.
 * Never:   exits. */
#ifndef CTL_EXIT_H
#define CTL_EXIT_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/rpc/rpc.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ctl_exit {
    CTL_EXIT_OK = 0,
    CTL_EXIT_USAGE = 64,
    CTL_EXIT_DATA = 65, /* some lines of a batch failed, each said so in its place */
    CTL_EXIT_NO_INPUT = 66,
    CTL_EXIT_UNAVAILABLE = 69,
    CTL_EXIT_INTERNAL = 70,
    CTL_EXIT_OS = 71,
    CTL_EXIT_OUTPUT = 74,
    CTL_EXIT_AGAIN = 75,
    CTL_EXIT_PROTOCOL = 76,
    CTL_EXIT_DENIED = 77,
    CTL_EXIT_CONFIG = 78,
    CTL_EXIT_SIGNAL = 128 /* + the signal */
};

/* What the exit statuses mean, for --help. */
extern const char ctl_exit_help[];

/* "foretokenctl: text" on standard error, one line; return status. */
int ctl_exit_because(enum ctl_exit status, const char *text);
/* The same of an error of ours, and of a status of the service, 0 when that is OK. */
int ctl_exit_from_err(const struct ft_err *err);
int ctl_exit_from_status(const struct ft_rpc_status *status);
/* Why an input file could not be opened, as ft_file_read says it: FT_E_REQ_NOT_FOUND where it is
 * not there, else FT_E_PROC_OS. */
enum ft_code ctl_exit_unopened(struct ft_err *err, int os_errno, const char *path);
/* A request that is larger than the service takes, which it would be again. */
bool ctl_exit_too_large(const struct ft_rpc_status *status);
/* Write out to standard output; the exit status that its arrival makes. */
int ctl_exit_with_output(const struct ft_buf *out);

#ifdef __cplusplus
}
#endif
#endif
