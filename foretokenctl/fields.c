#include "foretokenctl/fields.h"

#include <inttypes.h>

static void add_number(struct ft_buf *buf, enum ctl_field_kind kind, const char *at) {
    switch (kind) {
    case CTL_U32:
        ft_buf_addf(buf, "%" PRIu32, *(const uint32_t *)(const void *)at);
        break;
    case CTL_U64:
        ft_buf_addf(buf, "%" PRIu64, *(const uint64_t *)(const void *)at);
        break;
    case CTL_F64:
        ctl_print_json_real(buf, *(const double *)(const void *)at);
        break;
    case CTL_BOOL:
        ft_buf_add_c(buf, *(const bool *)at ? "true" : "false");
        break;
    case CTL_ID64:
        ft_buf_addf(buf, "%016" PRIx64, *(const uint64_t *)(const void *)at);
        break;
    case CTL_STR:
        break;
    }
}

void ctl_fields_json(struct ft_buf *buf, const struct ctl_field *fields, size_t n_fields,
                     const void *from) {
    for (size_t i = 0; i < n_fields; i++) {
        const char *at = (const char *)from + fields[i].offset;
        bool quoted = fields[i].kind == CTL_ID64;
        ft_buf_addf(buf, "%s\"%s\":%s", i == 0 ? "" : ",", fields[i].name, quoted ? "\"" : "");
        if (fields[i].kind == CTL_STR)
            ft_buf_add_json(buf, *(const struct ft_str *)(const void *)at);
        else
            add_number(buf, fields[i].kind, at);
        ft_buf_add_c(buf, quoted ? "\"" : "");
    }
}

void ctl_fields_name(struct ft_buf *buf, const char *prefix, const char *name) {
    char full[64];
    snprintf(full, sizeof full, "%s%s%s", prefix, *prefix == 0 ? "" : ".", name);
    ft_buf_addf(buf, "%-32s ", full);
}

void ctl_fields_text(struct ft_buf *buf, const char *prefix, const struct ctl_field *fields,
                     size_t n_fields, const void *from) {
    for (size_t i = 0; i < n_fields; i++) {
        const char *at = (const char *)from + fields[i].offset;
        ctl_fields_name(buf, prefix, fields[i].name);
        if (fields[i].kind == CTL_STR)
            ctl_print_escape(buf, *(const struct ft_str *)(const void *)at, true);
        else
            add_number(buf, fields[i].kind, at);
        ft_buf_add_c(buf, "\n");
    }
}
