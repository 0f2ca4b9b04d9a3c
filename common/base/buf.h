/* buf: a growable byte buffer, for text that is put together.
 * Owns:    its memory, from first append to fini.
 * Runs in: every process; one thread at a time.
 * Never:   grows past bytes_max; after a failed append it stays failed (check once, at the end). */
#ifndef FT_BASE_BUF_H
#define FT_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_buf {
    char *ptr; /* NUL-terminated once anything was appended */
    size_t len;
    size_t cap;
    size_t bytes_max; /* 0: no limit */
    bool failed;      /* memory or the limit was reached; later appends do nothing */
};

void ft_buf_init(struct ft_buf *buf, size_t bytes_max);
void ft_buf_fini(struct ft_buf *buf);
void ft_buf_reset(struct ft_buf *buf); /* length 0, memory kept, failed cleared */
void ft_buf_add(struct ft_buf *buf, const void *ptr, size_t len);
void ft_buf_add_str(struct ft_buf *buf, struct ft_str s);
void ft_buf_add_c(struct ft_buf *buf, const char *c);
void ft_buf_addf(struct ft_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* s as a JSON string with its quotes. Bytes that are not valid UTF-8 become U+FFFD. */
void ft_buf_add_json(struct ft_buf *buf, struct ft_str s);
/* Drop the first n bytes. */
void ft_buf_drop(struct ft_buf *buf, size_t n);
struct ft_str ft_buf_str(const struct ft_buf *buf);

#ifdef __cplusplus
}
#endif
#endif
