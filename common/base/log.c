#include "common/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

void ft_log(enum ft_log_level level, const char *format, ...) {
    if ((int)level > atomic_load_explicit(&g_level, memory_order_relaxed))
        return;
    char line[1024];
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    struct tm tm;
    gmtime_r(&t.tv_sec, &tm);
    int n = snprintf(line, sizeof line, "%02d:%02d:%02d.%03ld %s %s ", tm.tm_hour, tm.tm_min,
                     tm.tm_sec, t.tv_nsec / 1000000, g_role, k_names[level]);
    size_t len = n < 0 ? 0 : (size_t)n;
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
    line[len++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, len);
    (void)written; /* A log that cannot be written has nowhere to say so. */
}
