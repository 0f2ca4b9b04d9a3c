#include "common/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/logfields.h"
#include "common/base/supervisor.h"

#define LINE_BYTES 1024
#define FIELDS_MAX 24 /* of one line in the journal; lines have fewer */

static const char *g_role = "foretoken";
static _Atomic int g_level = FT_LOG_INFO;
static const char *const k_names[] = {"error", "warn", "info", "debug"};

void ft_log_init(const char *role, enum ft_log_level level) {
    g_role = role;
    atomic_store(&g_level, (int)level);
}

void ft_log_set_level(enum ft_log_level level) {
    atomic_store(&g_level, (int)level);
}

enum ft_log_level ft_log_level(void) {
    return (enum ft_log_level)atomic_load_explicit(&g_level, memory_order_relaxed);
}

bool ft_log_parse_level(const char *name, enum ft_log_level *out) {
    for (int i = 0; i < 4; i++) {
        if (strcmp(name, k_names[i]) == 0) {
            *out = (enum ft_log_level)i;
            return true;
        }
    }
    return false;
}

/* FORETOKEN_<KEY>=value, in capitals, appended at *at. */
static size_t put_field(char *at, size_t cap, const struct ft_log_field *field) {
    int n = snprintf(at, cap, "FORETOKEN_%.*s=%.*s", (int)field->key.len, field->key.ptr,
                     (int)field->value.len, field->value.ptr);
    if (n < 0 || (size_t)n >= cap)
        return 0;
    for (size_t i = 0; at[i] != '='; i++)
        at[i] = at[i] == '-' ? '_' : (char)(at[i] >= 'a' && at[i] <= 'z' ? at[i] - 32 : at[i]);
    return (size_t)n;
}

static bool to_journal(enum ft_log_level level, const char *message, size_t len) {
    char text[3 * LINE_BYTES];
    struct iovec iov[FIELDS_MAX + 4];
    struct ft_log_field fields[FIELDS_MAX];
    size_t n_fields = ft_log_fields((struct ft_str){message, len}, fields, FIELDS_MAX);
    int n_iov = 0;
    size_t used = 0;
    const struct {
        const char *name, *value;
        size_t len;
    } fixed[] = {{"MESSAGE=", message, len},
                 {"PRIORITY=", &"3467"[level], 1}, /* of syslog(3) */
                 {"SYSLOG_IDENTIFIER=foretoken-", g_role, strlen(g_role)},
                 {"FORETOKEN_ROLE=", g_role, strlen(g_role)}};
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        int n = snprintf(text + used, sizeof text - used, "%s%.*s", fixed[i].name,
                         (int)fixed[i].len, fixed[i].value);
        iov[n_iov++] = (struct iovec){text + used, (size_t)n};
        used += (size_t)n + 1;
    }
    for (size_t i = 0; i < n_fields; i++) {
        size_t n = put_field(text + used, sizeof text - used, &fields[i]);
        if (n == 0)
            break;
        iov[n_iov++] = (struct iovec){text + used, n};
        used += n + 1;
    }
    return ft_supervisor_journal(iov, n_iov);
}

void ft_log(enum ft_log_level level, const char *format, ...) {
    if ((int)level > atomic_load_explicit(&g_level, memory_order_relaxed))
        return;
    char line[LINE_BYTES];
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    struct tm tm;
    gmtime_r(&t.tv_sec, &tm);
    int n = snprintf(line, sizeof line, "%02d:%02d:%02d.%03ld %s %s ", tm.tm_hour, tm.tm_min,
                     tm.tm_sec, t.tv_nsec / 1000000, g_role, k_names[level]);
    size_t len = n < 0 ? 0 : (size_t)n, head = len;
    va_list args;
    va_start(args, format);
    n = vsnprintf(line + len, sizeof line - len - 1, format, args);
    va_end(args);
    if (n > 0)
        len += (size_t)n;
    if (len > sizeof line - 2)
        len = sizeof line - 2;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)line[i] < 0x20)
            line[i] = '?';
    if (ft_supervisor_has_journal() && to_journal(level, line + head, len - head))
        return;
    line[len++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, len);
    (void)written; /* A log that cannot be written has nowhere to say so. */
}
