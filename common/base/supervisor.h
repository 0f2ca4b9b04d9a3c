/* supervisor: systemd, where it started this process: notifications, watchdog, journal.
 * Owns:    the handle of libsystemd, looked up at run time so that programs run where there is
 *          none; one per process, to its end.
 * Runs in: every process; open at start, the rest from any thread.
 * Never:   loads libsystemd in a process that systemd did not start. */
#ifndef FT_BASE_SUPERVISOR_H
#define FT_BASE_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Look at NOTIFY_SOCKET, WATCHDOG_USEC and JOURNAL_STREAM of the environment. Returns "", or why
 * systemd cannot be spoken to although it asks for it. */
const char *ft_supervisor_open(char **envp);

/* Lines as sd_notify(3) has them: "READY=1\nSTATUS=serving". Does nothing where none listens;
 * false: it was meant to arrive and did not. */
bool ft_supervisor_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A reload begins; it ends with the next READY=1. */
bool ft_supervisor_notify_reloading(void);
/* Longest time between two WATCHDOG=1; 0: nobody watches. */
int64_t ft_supervisor_watchdog_ns(void);

/* Standard error is the journal, which takes fields "NAME=value". */
bool ft_supervisor_has_journal(void);
bool ft_supervisor_journal(const struct iovec *fields, int n_fields);

#ifdef __cplusplus
}
#endif
#endif
