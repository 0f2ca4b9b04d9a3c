#include "common/text/utf8.h"

uint32_t ft_utf8_get(struct ft_str s, size_t *n) {
    const unsigned char *p = (const unsigned char *)s.ptr;
    if (p[0] < 0x80) {
        *n = 1;
        return p[0];
    }
    *n = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    uint32_t code = p[0] & (0x7Fu >> *n);
    for (size_t i = 1; i < *n; i++)
        code = code << 6 | (p[i] & 0x3Fu);
    return code;
}

uint32_t ft_utf8_get_last(struct ft_str s, size_t *n) {
    size_t at = s.len - 1;
    while (at > 0 && ((unsigned char)s.ptr[at] & 0xC0) == 0x80)
        at--;
    return ft_utf8_get((struct ft_str){s.ptr + at, s.len - at}, n);
}

size_t ft_utf8_put(uint32_t code, char *out) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3F));
        code >>= 6;
    }
    out[0] = (char)((0xF00u >> n) | code);
    return n;
}

bool ft_utf8_is_space(uint32_t code) {
    if (code < 0x80)
        return code == ' ' || (code >= '\t' && code <= '\r');
    return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
           code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}
