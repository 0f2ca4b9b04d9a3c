#include "common/text/norm.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "common/text/utf8.h"

/* utf8proc_map sorts combining marks by insertion, which is quadratic in a long run of them. So
 * the characters are decomposed one by one here and each run is sorted by counting. */

struct points {
    utf8proc_int32_t *ptr;
    size_t len, cap;
};

#define CCC_COUNT 256 /* canonical combining classes */

bool ft_norm_parse(const char *name, enum ft_norm_form *out) {
    static const char *const names[] = {"NFC", "NFD", "NFKC", "NFKD"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum ft_norm_form)i;
            return true;
        }
    }
    return false;
}

static bool reserve(struct points *points, size_t more) {
    if (points->len + more <= points->cap)
        return true;
    size_t cap = points->cap * 2 + more;
    utf8proc_int32_t *grown = realloc(points->ptr, cap * sizeof *grown);
    if (grown == NULL)
        return false;
    points->ptr = grown;
    points->cap = cap;
    return true;
}

static bool decompose(struct ft_str text, utf8proc_option_t options, struct points *points) {
    enum { most = 32 }; /* U+FDFA has the longest decomposition, 18 */
    for (size_t i = 0; i < text.len;) {
        size_t n;
        uint32_t code = ft_utf8_get((struct ft_str){text.ptr + i, text.len - i}, &n);
        if (!reserve(points, most))
            return false;
        int boundclass = 0;
        utf8proc_ssize_t got = utf8proc_decompose_char(
            (utf8proc_int32_t)code, points->ptr + points->len, most, options, &boundclass);
        FT_ASSERT(got >= 0 && got <= most);
        points->len += (size_t)got;
        i += n;
    }
    return true;
}

static unsigned ccc(utf8proc_int32_t code) {
    return (unsigned)utf8proc_get_property(code)->combining_class % CCC_COUNT;
}

/* Stable counting sort of one run of marks; scratch has room for it. */
static void sort_run(utf8proc_int32_t *run, size_t n, utf8proc_int32_t *scratch) {
    size_t start[CCC_COUNT + 1] = {0};
    for (size_t i = 0; i < n; i++)
        start[ccc(run[i]) + 1]++;
    for (size_t c = 1; c <= CCC_COUNT; c++)
        start[c] += start[c - 1];
    for (size_t i = 0; i < n; i++)
        scratch[start[ccc(run[i])]++] = run[i];
    memcpy(run, scratch, n * sizeof *run);
}

static bool order_marks(struct points *points) {
    struct points scratch = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < points->len;) {
        size_t end = i;
        while (end < points->len && ccc(points->ptr[end]) != 0)
            end++;
        if (end - i > 1 && (ok = reserve(&scratch, end - i)))
            sort_run(points->ptr + i, end - i, scratch.ptr);
        i = end + 1;
    }
    free(scratch.ptr);
    return ok;
}

enum ft_code ft_norm_apply(enum ft_norm_form form, struct ft_str text, struct ft_buf *out) {
    bool compose = form == FT_NORM_NFC || form == FT_NORM_NFKC;
    bool compat = form == FT_NORM_NFKC || form == FT_NORM_NFKD;
    utf8proc_option_t options =
        (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0));
    size_t ascii = 0;
    while (ascii < text.len && (unsigned char)text.ptr[ascii] < 0x80)
        ascii++;
    if (ascii == text.len) {
        ft_buf_add_str(out, text);
        return out->failed ? FT_E_PROC_MEMORY : FT_OK;
    }
    struct points points = {0};
    bool ok = decompose(text, options, &points) && order_marks(&points);
    if (ok && compose) {
        utf8proc_ssize_t n =
            utf8proc_normalize_utf32(points.ptr, (utf8proc_ssize_t)points.len,
                                     (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        FT_ASSERT(n >= 0);
        points.len = (size_t)n;
    }
    for (size_t i = 0; ok && i < points.len; i++) {
        char bytes[4];
        ft_buf_add(out, bytes, ft_utf8_put((uint32_t)points.ptr[i], bytes));
    }
    free(points.ptr);
    return ok && !out->failed ? FT_OK : FT_E_PROC_MEMORY;
}
