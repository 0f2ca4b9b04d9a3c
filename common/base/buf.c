#include "common/base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

void ft_buf_init(struct ft_buf *buf, size_t bytes_max) {
    *buf = (struct ft_buf){.bytes_max = bytes_max};
}

void ft_buf_fini(struct ft_buf *buf) {
    free(buf->ptr);
    *buf = (struct ft_buf){.bytes_max = buf->bytes_max};
}

void ft_buf_reset(struct ft_buf *buf) {
    buf->len = 0;
    buf->failed = false;
    if (buf->ptr != NULL)
        buf->ptr[0] = 0;
}

static bool reserve(struct ft_buf *buf, size_t more) {
    if (buf->failed)
        return false;
    if (more >= SIZE_MAX / 2 - buf->len ||
        (buf->bytes_max != 0 && more > buf->bytes_max - buf->len)) {
        buf->failed = true;
        return false;
    }
    size_t need = buf->len + more + 1;
    if (need <= buf->cap)
        return true;
    size_t cap = buf->cap < 64 ? 64 : buf->cap * 2;
    if (cap < need)
        cap = need;
    char *ptr = realloc(buf->ptr, cap);
    if (ptr == NULL) {
        buf->failed = true;
        return false;
    }
    buf->ptr = ptr;
    buf->cap = cap;
    return true;
}

void ft_buf_add(struct ft_buf *buf, const void *ptr, size_t len) {
    if (!reserve(buf, len))
        return;
    if (len != 0)
        memcpy(buf->ptr + buf->len, ptr, len);
    buf->len += len;
    buf->ptr[buf->len] = 0;
}

void ft_buf_add_str(struct ft_buf *buf, struct ft_str s) {
    ft_buf_add(buf, s.ptr, s.len);
}

void ft_buf_add_c(struct ft_buf *buf, const char *c) {
    ft_buf_add(buf, c, strlen(c));
}

void ft_buf_addf(struct ft_buf *buf, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !reserve(buf, (size_t)n))
        return;
    va_start(args, format);
    vsnprintf(buf->ptr + buf->len, (size_t)n + 1, format, args);
    va_end(args);
    buf->len += (size_t)n;
}

void ft_buf_add_json(struct ft_buf *buf, struct ft_str s) {
    ft_buf_add_c(buf, "\"");
    for (size_t i = 0; i < s.len;) {
        int n = ft_utf8_step((struct ft_str){s.ptr + i, s.len - i});
        unsigned char c = (unsigned char)s.ptr[i];
        if (n <= 0) {
            ft_buf_add_c(buf, "\xEF\xBF\xBD");
            i++;
            continue;
        }
        if (c == '"' || c == '\\')
            ft_buf_addf(buf, "\\%c", c);
        else if (c == '\n')
            ft_buf_add_c(buf, "\\n");
        else if (c == '\t')
            ft_buf_add_c(buf, "\\t");
        else if (c == '\r')
            ft_buf_add_c(buf, "\\r");
        else if (c < 0x20 || c == 0x7f)
            ft_buf_addf(buf, "\\u%04x", c);
        else
            ft_buf_add(buf, s.ptr + i, (size_t)n);
        i += (size_t)n;
    }
    ft_buf_add_c(buf, "\"");
}

void ft_buf_drop(struct ft_buf *buf, size_t n) {
    if (n > buf->len)
        n = buf->len;
    if (n == 0)
        return;
    memmove(buf->ptr, buf->ptr + n, buf->len - n);
    buf->len -= n;
    buf->ptr[buf->len] = 0;
}

struct ft_str ft_buf_str(const struct ft_buf *buf) {
    return (struct ft_str){buf->ptr, buf->len};
}
