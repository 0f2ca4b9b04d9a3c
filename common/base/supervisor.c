#include "common/base/supervisor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/library.h"

#define STATE_BYTES 1024

/* The calls of libsystemd that are used: their signatures are part of its stable interface. */
static struct {
    int (*notify)(int unset_environment, const char *state);
    int (*watchdog_enabled)(int unset_environment, uint64_t *usec);
    int (*journal_sendv)(const struct iovec *iov, int n);
    bool has_journal, has_notify;
} g_systemd;

static const char *variable(char **envp, const char *name) {
    size_t len = strlen(name);
    for (char **at = envp; at != NULL && *at != NULL; at++)
        if (strncmp(*at, name, len) == 0 && (*at)[len] == '=')
            return *at + len + 1;
    return NULL;
}

/* JOURNAL_STREAM names the socket that systemd gave as standard output or error: "DEVICE:INODE".
 * A descendant may have inherited the variable and had its standard error sent elsewhere. */
static bool stderr_is(const char *stream) {
    unsigned long long device, inode;
    struct stat st;
    return stream != NULL && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
           fstat(STDERR_FILENO, &st) == 0 && st.st_dev == (dev_t)device &&
           st.st_ino == (ino_t)inode;
}

const char *ft_supervisor_open(char **envp) {
    const char *socket = variable(envp, "NOTIFY_SOCKET");
    bool wants_journal = stderr_is(variable(envp, "JOURNAL_STREAM"));
    bool wants_notify = socket != NULL && *socket != 0;
    if (!wants_journal && !wants_notify)
        return "";
    void *library = dlopen("libsystemd.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return "libsystemd.so.0 cannot be loaded: no readiness, watchdog or fields of the journal";
    if (!ft_library_find(library, "sd_notify", &g_systemd.notify) ||
        !ft_library_find(library, "sd_watchdog_enabled", &g_systemd.watchdog_enabled) ||
        !ft_library_find(library, "sd_journal_sendv", &g_systemd.journal_sendv))
        return "libsystemd.so.0 lacks sd_notify, sd_watchdog_enabled or sd_journal_sendv";
    g_systemd.has_notify = wants_notify;
    g_systemd.has_journal = wants_journal;
    return "";
}

bool ft_supervisor_notify(const char *format, ...) {
    char state[STATE_BYTES];
    if (!g_systemd.has_notify)
        return true;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(state, sizeof state, format, args);
    va_end(args);
    return n >= 0 && g_systemd.notify(0, state) > 0;
}

bool ft_supervisor_notify_reloading(void) {
    return ft_supervisor_notify("RELOADING=1\nMONOTONIC_USEC=%lld",
                                (long long)(ft_clock_now_ns() / 1000));
}

int64_t ft_supervisor_watchdog_ns(void) {
    uint64_t usec = 0;
    if (!g_systemd.has_notify || g_systemd.watchdog_enabled(0, &usec) <= 0)
        return 0;
    return usec > (uint64_t)INT64_MAX / 1000 ? 0 : (int64_t)usec * 1000;
}

bool ft_supervisor_has_journal(void) {
    return g_systemd.has_journal;
}

bool ft_supervisor_journal(const struct iovec *fields, int n_fields) {
    return g_systemd.has_journal && g_systemd.journal_sendv(fields, n_fields) >= 0;
}
