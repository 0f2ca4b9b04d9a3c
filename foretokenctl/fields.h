/* fields (ctl): members of a struct as rows of a table, printed as JSON or as text.
 * Owns:    nothing.
 * Runs in: foretokenctl.
 * Never:   knows what the fields mean. */
#ifndef CTL_FIELDS_H
#define CTL_FIELDS_H

#include "foretokenctl/print.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ID64 is an uint64_t that names something: 16 hexadecimal digits, a string in JSON, whose
 * readers often lose bits past 53. */
enum ctl_field_kind { CTL_STR, CTL_U32, CTL_U64, CTL_F64, CTL_BOOL, CTL_ID64 };

struct ctl_field {
    const char *name;
    enum ctl_field_kind kind;
    size_t offset;
};

/* "name":value,"name":value without braces. */
void ctl_fields_json(struct ft_buf *buf, const struct ctl_field *fields, size_t n_fields,
                     const void *from);
/* One line per field, "prefix.name  value". prefix may be "". */
void ctl_fields_text(struct ft_buf *buf, const char *prefix, const struct ctl_field *fields,
                     size_t n_fields, const void *from);
/* One such line: ctl_fields_line(buf, "name"), then the value, then a line end. */
void ctl_fields_name(struct ft_buf *buf, const char *prefix, const char *name);

#ifdef __cplusplus
}
#endif
#endif
