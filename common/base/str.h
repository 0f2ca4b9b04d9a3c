/* str: byte strings that carry their length; text from users may hold NUL bytes.
 * Owns:    nothing; struct ft_str borrows.
 * Runs in: every process, any thread.
 * Never:   assumes a terminating NUL. */
#ifndef FT_BASE_STR_H
#define FT_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ft_str {
    const char *ptr; /* may be NULL when len is 0 */
    size_t len;      /* bytes */
};

static inline struct ft_str ft_str_c(const char *c) {
    return (struct ft_str){c, c == NULL ? 0 : strlen(c)};
}

static inline bool ft_str_eq(struct ft_str a, struct ft_str b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

/* Length of the longest prefix that is whole, well-formed UTF-8 (RFC 3629: no surrogates, no
 * overlong forms, at most U+10FFFF). Equals s.len when all of s is valid. */
size_t ft_utf8_valid_prefix(struct ft_str s);

/* What the bytes at the start of s are: the length 1..4 of a well-formed character; 0 when s is
 * a proper prefix of one (more bytes may complete it); -1 when the first byte can start none or
 * what follows cannot continue it. s.len must be at least 1. */
int ft_utf8_step(struct ft_str s);

/* The last part of a path, without slashes behind it; of "/" all. */
struct ft_str ft_str_base_name(struct ft_str path);

/* Edit distance, for "did you mean" messages. Strings are cut to 63 bytes. */
int ft_str_distance(const char *a, const char *b);

#ifdef __cplusplus
}
#endif
#endif
