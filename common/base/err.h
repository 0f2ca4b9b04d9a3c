/* err: error codes and the error record that travels up the call chain.
 * Owns:    nothing; struct ft_err is embedded by value and holds no pointers to free.
 * Runs in: every process, any thread.
 * Never:   logs or exits. */
#ifndef FT_BASE_ERR_H
#define FT_BASE_ERR_H

#include <stdarg.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Codes say what is lost: FT_E_REQ_* this request, FT_E_SEQ_* a sequence's state (redo by
 * prefill), FT_E_PEER_* a worker (reconnect), FT_E_PROC_* this process (exit, be restarted). */
enum ft_code {
#define X(name, grpc_status, exit_status, text) name,
#include "common/base/codes.def"
#undef X
    FT_CODE_COUNT
};

#define FT_ERR_TEXT_MAX 384

struct ft_err {
    enum ft_code code;
    int os_errno;               /* errno of the failing call, 0 when none */
    const char *module;         /* static string: the first detector */
    char text[FT_ERR_TEXT_MAX]; /* one line of valid UTF-8, names the field or file, value, limit */
};

/* Fill err (NULL is allowed) and return code, so that callers write
 * `return ft_err_set(err, FT_E_REQ_INVALID, "sampling", "top_k is %d, ...", k);`.
 * A text past FT_ERR_TEXT_MAX is cut; control bytes and invalid UTF-8 become '?'. */
enum ft_code ft_err_set(struct ft_err *err, enum ft_code code, const char *module,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The same, with os_errno recorded and ": <strerror>" appended. */
enum ft_code ft_err_set_os(struct ft_err *err, enum ft_code code, int os_errno, const char *module,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Put "prefix: " before the text that err holds already, and return its code. */
enum ft_code ft_err_prefix(struct ft_err *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

const char *ft_code_name(enum ft_code code);
int ft_code_grpc_status(enum ft_code code); /* grpc_status_code as a number */
int ft_code_exit_status(enum ft_code code); /* sysexits-like, 0 for FT_OK */

/* Programmer errors only: never for input, peers, memory or the device. Stays on in release. */
#define FT_ASSERT(cond) ((cond) ? (void)0 : ft_assert_fail(#cond, __FILE__, __LINE__))
void ft_assert_fail(const char *cond, const char *file, int line) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif
#endif
