/* log: one line per event on standard error: `event key value key value`.
 * Owns:    the process's level and role name.
 * Runs in: every process, any thread (one write per line).
 * Never:   prints prompt or token text above debug; common/ never logs above debug. */
#ifndef FT_BASE_LOG_H
#define FT_BASE_LOG_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* error: a human must act; warn: degraded; info: life cycle; debug: the rest. */
enum ft_log_level { FT_LOG_ERROR, FT_LOG_WARN, FT_LOG_INFO, FT_LOG_DEBUG };

/* role is printed on each line and must outlive the process's logging. */
void ft_log_init(const char *role, enum ft_log_level level);
void ft_log_set_level(enum ft_log_level level);
enum ft_log_level ft_log_level(void);
bool ft_log_parse_level(const char *name, enum ft_log_level *out);

void ft_log(enum ft_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define ft_error(...) ft_log(FT_LOG_ERROR, __VA_ARGS__)
#define ft_warn(...) ft_log(FT_LOG_WARN, __VA_ARGS__)
#define ft_info(...) ft_log(FT_LOG_INFO, __VA_ARGS__)
#define ft_debug(...) (ft_log_level() >= FT_LOG_DEBUG ? ft_log(FT_LOG_DEBUG, __VA_ARGS__) : (void)0)

#ifdef __cplusplus
}
#endif
#endif
