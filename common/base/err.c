#include "common/base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/str.h"

static const struct {
    const char *name;
    int grpc_status;
    int exit_status;
    const char *text;
} k_codes[FT_CODE_COUNT] = {
#define X(name, grpc_status, exit_status, text) {#name, grpc_status, exit_status, text},
#include "common/base/codes.def"
#undef X
};

static void sanitize(char *text) {
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            text[i] = '?';
    for (;;) {
        size_t ok = ft_utf8_valid_prefix((struct ft_str){text, len});
        if (ok == len)
            return;
        text[ok] = '?';
    }
}

static void fill(struct ft_err *err, enum ft_code code, int os_errno, const char *module,
                 const char *format, va_list args) {
    err->code = code;
    err->os_errno = os_errno;
    err->module = module;
    int n = vsnprintf(err->text, sizeof err->text, format, args);
    if (n < 0)
        err->text[0] = 0;
    if (os_errno != 0) {
        size_t len = strlen(err->text);
        snprintf(err->text + len, sizeof err->text - len, ": %s", strerror(os_errno));
    }
    sanitize(err->text);
}

enum ft_code ft_err_set(struct ft_err *err, enum ft_code code, const char *module,
                        const char *format, ...) {
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        fill(err, code, 0, module, format, args);
        va_end(args);
    }
    return code;
}

enum ft_code ft_err_set_os(struct ft_err *err, enum ft_code code, int os_errno, const char *module,
                           const char *format, ...) {
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        fill(err, code, os_errno, module, format, args);
        va_end(args);
    }
    return code;
}

enum ft_code ft_err_prefix(struct ft_err *err, const char *format, ...) {
    if (err == NULL)
        return FT_E_PROC_INTERNAL;
    char old[FT_ERR_TEXT_MAX];
    memcpy(old, err->text, sizeof old);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    size_t len = n < 0 ? 0 : strlen(err->text);
    int m = snprintf(err->text + len, sizeof err->text - len, ": %s", old);
    (void)m; /* A cut tail is what the limit asks for. */
    sanitize(err->text);
    return err->code;
}

const char *ft_code_name(enum ft_code code) {
    return (unsigned)code < FT_CODE_COUNT ? k_codes[code].name : "FT_E_UNKNOWN";
}

int ft_code_grpc_status(enum ft_code code) {
    return (unsigned)code < FT_CODE_COUNT ? k_codes[code].grpc_status : 2;
}

int ft_code_exit_status(enum ft_code code) {
    return (unsigned)code < FT_CODE_COUNT ? k_codes[code].exit_status : 70;
}

void ft_assert_fail(const char *cond, const char *file, int line) {
    fprintf(stderr, "assertion failed: %s at %s:%d\n", cond, file, line);
    abort();
}
