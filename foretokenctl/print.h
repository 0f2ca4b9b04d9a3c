/* print (ctl): text of others on a terminal, and JSON.
 * Owns:    nothing.
 * Runs in: foretokenctl.
 * Never:   lets a control character but a line end or a tab through to a terminal. */
#ifndef CTL_PRINT_H
#define CTL_PRINT_H

#include <stdio.h>

#include "common/base/buf.h"
#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* s to out. On a terminal, control characters (C0 but \n and \t, DEL, C1) and bytes that are no
 * UTF-8 become \xHH; elsewhere s goes out as it is. */
void ctl_print_text(FILE *out, struct ft_str s);
/* s on one line with \n behind it; escaped wherever it goes, \n and \t too. */
void ctl_print_line(FILE *out, struct ft_str s);
/* Append s escaped as on a terminal; with one_line, \n and \t too. */
void ctl_print_escape(struct ft_buf *buf, struct ft_str s, bool one_line);
/* out is flushed, and all that was written to it has arrived.
 * fail FT_E_PROC_OS names standard output. */
enum ft_code ctl_print_flush(FILE *out, struct ft_err *err);

/* A JSON number: "null" for what JSON cannot say (NaN, infinity). */
void ctl_print_json_real(struct ft_buf *buf, double value);
void ctl_print_json_ids(struct ft_buf *buf, const int32_t *ids, size_t n);
void ctl_print_json_counts(struct ft_buf *buf, const uint64_t *counts, size_t n);

/* a / b, 0 when b is 0. */
double ctl_print_ratio(double a, double b);

#ifdef __cplusplus
}
#endif
#endif
