#include "foretokenctl/print.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <unistd.h>

/* C0, DEL, and C1, which UTF-8 has as C2 80 .. C2 9F. */
static bool is_control(const char *p, int len) {
    unsigned char first = (unsigned char)p[0];
    return len == 1 ? first < 0x20 || first == 0x7F
                    : len == 2 && first == 0xC2 && (unsigned char)p[1] < 0xA0;
}

void ctl_print_escape(struct ft_buf *buf, struct ft_str s, bool one_line) {
    for (size_t i = 0; i < s.len;) {
        const char *p = s.ptr + i;
        int step = ft_utf8_step((struct ft_str){p, s.len - i});
        int len = step > 0 ? step : 1;
        bool passes = !one_line && (*p == '\n' || *p == '\t');
        if (one_line && *p == '\n')
            ft_buf_add_c(buf, "\\n");
        else if (one_line && *p == '\t')
            ft_buf_add_c(buf, "\\t");
        else if (passes || (step > 0 && !is_control(p, step)))
            ft_buf_add(buf, p, (size_t)len);
        else
            for (int k = 0; k < len; k++)
                ft_buf_addf(buf, "\\x%02X", (unsigned)(unsigned char)p[k]);
        i += (size_t)len;
    }
}

void ctl_print_text(FILE *out, struct ft_str s) {
    if (s.len == 0)
        return;
    if (!isatty(fileno(out))) {
        fwrite(s.ptr, 1, s.len, out);
        return;
    }
    struct ft_buf safe;
    ft_buf_init(&safe, 0);
    ctl_print_escape(&safe, s, false);
    fwrite(safe.ptr, 1, safe.len, out);
    ft_buf_fini(&safe);
}

void ctl_print_line(FILE *out, struct ft_str s) {
    struct ft_buf safe;
    ft_buf_init(&safe, 0);
    ctl_print_escape(&safe, s, true);
    ft_buf_add_c(&safe, "\n");
    fwrite(safe.ptr, 1, safe.len, out);
    ft_buf_fini(&safe);
}

enum ft_code ctl_print_flush(FILE *out, struct ft_err *err) {
    errno = 0;
    if (fflush(out) == 0 && !ferror(out))
        return FT_OK;
    return ft_err_set_os(err, FT_E_PROC_OS, errno, "print", "cannot write standard output");
}

void ctl_print_json_real(struct ft_buf *buf, double value) {
    if (isfinite(value))
        ft_buf_addf(buf, "%.9g", value);
    else
        ft_buf_add_c(buf, "null");
}

void ctl_print_json_ids(struct ft_buf *buf, const int32_t *ids, size_t n) {
    ft_buf_add_c(buf, "[");
    for (size_t i = 0; i < n; i++)
        ft_buf_addf(buf, "%s%" PRId32, i == 0 ? "" : ",", ids[i]);
    ft_buf_add_c(buf, "]");
}

void ctl_print_json_counts(struct ft_buf *buf, const uint64_t *counts, size_t n) {
    ft_buf_add_c(buf, "[");
    for (size_t i = 0; i < n; i++)
        ft_buf_addf(buf, "%s%" PRIu64, i == 0 ? "" : ",", counts[i]);
    ft_buf_add_c(buf, "]");
}

double ctl_print_ratio(double a, double b) {
    return b == 0 ? 0 : a / b;
}
