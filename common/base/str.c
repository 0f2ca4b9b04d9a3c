#include "common/base/str.h"

int ft_utf8_step(struct ft_str s) {
    const unsigned char *p = (const unsigned char *)s.ptr;
    unsigned char c = p[0];
    if (c < 0x80)
        return 1;
    if (c < 0xC2 || c > 0xF4)
        return -1;
    size_t need = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    unsigned char lo = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
    unsigned char hi = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    for (size_t i = 1; i < need; i++) {
        if (i >= s.len)
            return 0;
        if (p[i] < lo || p[i] > hi)
            return -1;
        lo = 0x80;
        hi = 0xBF;
    }
    return (int)need;
}

size_t ft_utf8_valid_prefix(struct ft_str s) {
    size_t i = 0;
    while (i < s.len) {
        if ((unsigned char)s.ptr[i] < 0x80) {
            i++;
            continue;
        }
        int n = ft_utf8_step((struct ft_str){s.ptr + i, s.len - i});
        if (n <= 0)
            break;
        i += (size_t)n;
    }
    return i;
}

struct ft_str ft_str_base_name(struct ft_str path) {
    while (path.len > 1 && path.ptr[path.len - 1] == '/')
        path.len--;
    for (size_t i = path.len; i > 0; i--)
        if (path.ptr[i - 1] == '/' && i < path.len)
            return (struct ft_str){path.ptr + i, path.len - i};
    return path;
}

int ft_str_distance(const char *a, const char *b) {
    enum { max = 63 };
    size_t na = strnlen(a, max), nb = strnlen(b, max);
    int row[max + 1];
    for (size_t j = 0; j <= nb; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int up = row[j];
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (up + 1 < best)
                best = up + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
            diagonal = up;
        }
    }
    return row[nb];
}
