#include "common/base/param.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/str.h"

#define MODULE "param"
#define NAME_MAX_LEN 63

static void canonical(char out[NAME_MAX_LEN + 1], const char *name, size_t len) {
    if (len > NAME_MAX_LEN)
        len = NAME_MAX_LEN;
    for (size_t i = 0; i < len; i++)
        out[i] = name[i] == '-' ? '_' : name[i];
    out[len] = 0;
}

static const struct ft_param *find(const struct ft_param_table *table, const char *name) {
    for (size_t i = 0; i < table->n_rows; i++)
        if (strcmp(table->rows[i].name, name) == 0)
            return &table->rows[i];
    return NULL;
}

static enum ft_code unknown(const struct ft_param_table *table, const char *name,
                            struct ft_err *err) {
    const char *nearest = NULL;
    int best = 0;
    for (size_t i = 0; i < table->n_rows; i++) {
        int d = ft_str_distance(name, table->rows[i].name);
        if (nearest == NULL || d < best) {
            best = d;
            nearest = table->rows[i].name;
        }
    }
    if (nearest == NULL)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "unknown parameter '%s'", name);
    return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                      "unknown parameter '%s'; the nearest known one is '%s'", name, nearest);
}

static enum ft_code bad_value(const struct ft_param *row, const char *text, const char *why,
                              struct ft_err *err) {
    return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "%s is '%.80s': %s", row->name, text, why);
}

static enum ft_code out_of_range(const struct ft_param *row, const char *text, struct ft_err *err) {
    return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "%s is '%.80s': must be %.15g to %.15g%s%s",
                      row->name, text, row->min, row->max, row->unit[0] ? " " : "", row->unit);
}

static bool size_suffix(const char *s, int64_t *factor) {
    static const struct {
        const char *name;
        int64_t factor;
    } rows[] = {{"", 1},      {"K", 1000},     {"M", 1000000},    {"G", 1000000000},
                {"Ki", 1024}, {"Mi", 1048576}, {"Gi", 1073741824}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(s, rows[i].name) == 0) {
            *factor = rows[i].factor;
            return true;
        }
    }
    return false;
}

static enum ft_code set_integer(const struct ft_param *row, void *slot, const char *text,
                                struct ft_err *err) {
    char *end = NULL;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    int64_t factor = 1;
    bool is_size = row->kind == FT_PARAM_SIZE;
    if (end == text || (is_size ? !size_suffix(end, &factor) : *end != 0))
        return bad_value(row, text,
                         is_size ? "not a whole number, alone or with K, M, G, Ki, Mi or Gi"
                                 : "not a whole number",
                         err);
    if (errno == ERANGE || (double)v * (double)factor < row->min ||
        (double)v * (double)factor > row->max)
        return out_of_range(row, text, err);
    if (row->kind == FT_PARAM_I32)
        *(int32_t *)slot = (int32_t)v;
    else
        *(int64_t *)slot = (int64_t)v * factor;
    return FT_OK;
}

static enum ft_code set_bool(const struct ft_param *row, void *slot, const char *text,
                             struct ft_err *err) {
    static const char *const words[] = {"true", "false", "on", "off", "yes", "no", "1", "0"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *(bool *)slot = i % 2 == 0;
            return FT_OK;
        }
    }
    return bad_value(row, text, "must be true or false", err);
}

static bool is_choice(const char *choices, const char *text) {
    size_t len = strlen(text);
    for (const char *p = choices; *p != 0;) {
        size_t n = strcspn(p, "|");
        if (n == len && memcmp(p, text, n) == 0)
            return true;
        p += n + (p[n] == '|');
    }
    return false;
}

static enum ft_code set_row(const struct ft_param *row, void *values, const char *text,
                            struct ft_err *err) {
    void *slot = (char *)values + row->offset;
    switch (row->kind) {
    case FT_PARAM_I32:
    case FT_PARAM_I64:
    case FT_PARAM_SIZE:
        return set_integer(row, slot, text, err);
    case FT_PARAM_F64: {
        char *end = NULL;
        double v = strtod(text, &end);
        if (end == text || *end != 0 || !isfinite(v))
            return bad_value(row, text, "not a finite number", err);
        if (v < row->min || v > row->max)
            return out_of_range(row, text, err);
        *(double *)slot = v;
        return FT_OK;
    }
    case FT_PARAM_BOOL:
        return set_bool(row, slot, text, err);
    case FT_PARAM_STR:
        if (strlen(text) >= FT_PARAM_STR_MAX)
            return bad_value(row, text, "longer than 255 bytes", err);
        if (row->choices != NULL && !is_choice(row->choices, text))
            return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "%s is '%.80s': must be one of %s",
                              row->name, text, row->choices);
        memcpy(slot, text, strlen(text) + 1);
        return FT_OK;
    }
    return ft_err_set(err, FT_E_PROC_INTERNAL, MODULE, "%s has an unknown kind", row->name);
}

enum ft_code ft_param_defaults(const struct ft_param_table *table, void *values,
                               struct ft_err *err) {
    for (size_t i = 0; i < table->n_rows; i++) {
        enum ft_code code = set_row(&table->rows[i], values, table->rows[i].default_value, err);
        if (code != FT_OK)
            return code;
    }
    return FT_OK;
}

const struct ft_param *ft_param_find(const struct ft_param_table *table, const char *name) {
    char key[NAME_MAX_LEN + 1];
    canonical(key, name, strlen(name));
    return find(table, key);
}

enum ft_code ft_param_set(const struct ft_param_table *table, void *values, const char *name,
                          const char *text, struct ft_err *err) {
    char key[NAME_MAX_LEN + 1];
    canonical(key, name, strlen(name));
    const struct ft_param *row = find(table, key);
    if (row == NULL)
        return unknown(table, key, err);
    return set_row(row, values, text, err);
}

static enum ft_code set_told(const struct ft_param *row, void *values, const char *text,
                             const struct ft_param_args *args, struct ft_err *err) {
    enum ft_code code = set_row(row, values, text, err);
    if (code == FT_OK && args->on_set != NULL)
        args->on_set(args->user, row);
    return code;
}

static enum ft_code set_pair(const struct ft_param_table *table, void *values, const char *pair,
                             const struct ft_param_args *args, struct ft_err *err) {
    const char *eq = strchr(pair, '=');
    if (eq == NULL)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "--set takes key=value, got '%.80s'",
                          pair);
    char key[NAME_MAX_LEN + 1];
    canonical(key, pair, (size_t)(eq - pair));
    const struct ft_param *row = find(table, key);
    return row == NULL ? unknown(table, key, err) : set_told(row, values, eq + 1, args, err);
}

/* One option at argv[*i]; moves *i past a value taken from the next argument. */
static enum ft_code parse_option(const struct ft_param_table *table, void *values,
                                 struct ft_param_args *args, int *i, struct ft_err *err) {
    const char *option = args->argv[*i] + 2;
    const char *eq = strchr(option, '=');
    char key[NAME_MAX_LEN + 1];
    canonical(key, option, eq != NULL ? (size_t)(eq - option) : strlen(option));
    bool is_set = strcmp(key, "set") == 0;
    const struct ft_param *row = is_set ? NULL : find(table, key);
    if (!is_set && row == NULL && eq == NULL && strncmp(key, "no_", 3) == 0) {
        row = find(table, key + 3);
        if (row != NULL && row->kind == FT_PARAM_BOOL)
            return set_told(row, values, "false", args, err);
        row = NULL;
    }
    if (!is_set && row == NULL)
        return unknown(table, key, err);
    if (row != NULL && row->kind == FT_PARAM_BOOL && eq == NULL)
        return set_told(row, values, "true", args, err);
    const char *value = eq != NULL ? eq + 1 : NULL;
    if (value == NULL) {
        if (*i + 1 >= args->argc)
            return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "--%s needs a value", option);
        value = args->argv[++*i];
    }
    return is_set ? set_pair(table, values, value, args, err)
                  : set_told(row, values, value, args, err);
}

enum ft_code ft_param_parse(const struct ft_param_table *table, void *values,
                            struct ft_param_args *args, struct ft_err *err) {
    args->n_rest = 0;
    args->help = false;
    bool options = true;
    for (int i = 1; i < args->argc; i++) {
        const char *arg = args->argv[i];
        if (options && strcmp(arg, "--") == 0) {
            options = false;
        } else if (options && strcmp(arg, "--help") == 0) {
            args->help = true;
            printf("%s\n\n", args->usage);
            ft_param_print(table, stdout);
        } else if (options && strncmp(arg, "--", 2) == 0) {
            enum ft_code code = parse_option(table, values, args, &i, err);
            if (code != FT_OK)
                return code;
        } else if (args->rest != NULL) {
            args->rest[args->n_rest++] = args->argv[i];
        } else {
            return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "unexpected argument '%.80s'", arg);
        }
    }
    return FT_OK;
}

void ft_param_text(const struct ft_param *row, const void *values, char text[FT_PARAM_STR_MAX]) {
    const void *slot = (const char *)values + row->offset;
    switch (row->kind) {
    case FT_PARAM_I32:
        snprintf(text, FT_PARAM_STR_MAX, "%d", (int)*(const int32_t *)slot);
        break;
    case FT_PARAM_I64:
    case FT_PARAM_SIZE:
        snprintf(text, FT_PARAM_STR_MAX, "%lld", (long long)*(const int64_t *)slot);
        break;
    case FT_PARAM_F64:
        snprintf(text, FT_PARAM_STR_MAX, "%.15g", *(const double *)slot);
        break;
    case FT_PARAM_BOOL:
        snprintf(text, FT_PARAM_STR_MAX, "%s", *(const bool *)slot ? "true" : "false");
        break;
    case FT_PARAM_STR:
        snprintf(text, FT_PARAM_STR_MAX, "%s", (const char *)slot);
        break;
    }
}

void ft_param_print(const struct ft_param_table *table, FILE *out) {
    for (size_t i = 0; i < table->n_rows; i++) {
        const struct ft_param *row = &table->rows[i];
        fprintf(out, "  --%-28s %s", row->name, row->help);
        bool number = row->kind != FT_PARAM_BOOL && row->kind != FT_PARAM_STR;
        fprintf(out, " [");
        if (row->choices != NULL)
            fprintf(out, "%s; ", row->choices);
        if (number)
            fprintf(out, "%.15g..%.15g%s%s; ", row->min, row->max, row->unit[0] ? " " : "",
                    row->unit);
        fprintf(out, "default %s]\n", row->default_value[0] ? row->default_value : "none");
    }
}

/* A text of ours for roff: nothing in it may be taken for a request or an escape. */
static void print_roff_text(const char *text, FILE *out) {
    for (const char *at = text; *at != 0; at++) {
        if (*at == '\\')
            fputs("\\e", out);
        else if (*at == '-')
            fputs("\\-", out);
        else if ((*at == '.' || *at == '\'') && at == text)
            fprintf(out, "\\&%c", *at);
        else
            fputc(*at, out);
    }
}

static const char *roff_value(const struct ft_param *row) {
    static const char *const names[] = {"N", "N", "X", "true|false", "TEXT", "BYTES"};
    return row->choices != NULL ? row->choices : names[row->kind];
}

static void print_roff_row(const struct ft_param *row, enum ft_param_roff what, FILE *out) {
    bool number = row->kind != FT_PARAM_BOOL && row->kind != FT_PARAM_STR;
    fputs(".TP\n\\fB", out);
    print_roff_text(what == FT_PARAM_ROFF_OPTIONS ? "--" : "", out);
    print_roff_text(row->name, out);
    fputs(what == FT_PARAM_ROFF_OPTIONS ? "\\fR \\fI" : "\\fR = \\fI", out);
    print_roff_text(roff_value(row), out);
    fputs("\\fR\n", out);
    print_roff_text(row->help, out);
    fputs(".\n", out);
    if (number)
        fprintf(out, "From %.15g to %.15g%s%s.\n", row->min, row->max, row->unit[0] ? " " : "",
                row->unit);
    fputs("Default: ", out);
    print_roff_text(row->default_value[0] ? row->default_value : "none", out);
    fprintf(out, ".%s\n", row->reach == FT_PARAM_LIVE ? " Reloadable." : "");
}

void ft_param_print_roff(const struct ft_param_table *table, enum ft_param_roff what, FILE *out) {
    for (size_t i = 0; i < table->n_rows; i++)
        if (what == FT_PARAM_ROFF_OPTIONS || table->rows[i].reach != FT_PARAM_ARGV)
            print_roff_row(&table->rows[i], what, out);
}

void ft_param_format(const struct ft_param *row, const void *values, char out[FT_PARAM_STR_MAX]) {
    const void *slot = (const char *)values + row->offset;
    switch (row->kind) {
    case FT_PARAM_I32:
        snprintf(out, FT_PARAM_STR_MAX, "%" PRId32, *(const int32_t *)slot);
        return;
    case FT_PARAM_I64:
    case FT_PARAM_SIZE:
        snprintf(out, FT_PARAM_STR_MAX, "%" PRId64, *(const int64_t *)slot);
        return;
    case FT_PARAM_F64: {
        double value = *(const double *)slot;
        snprintf(out, FT_PARAM_STR_MAX, "%.15g", value);
        if (strtod(out, NULL) != value)
            snprintf(out, FT_PARAM_STR_MAX, "%.17g", value);
        return;
    }
    case FT_PARAM_BOOL:
        snprintf(out, FT_PARAM_STR_MAX, "%s", *(const bool *)slot ? "true" : "false");
        return;
    case FT_PARAM_STR:
        snprintf(out, FT_PARAM_STR_MAX, "%s", (const char *)slot);
        return;
    }
}

int32_t ft_param_reload(const struct ft_param_table *table, void *values, const void *fresh,
                        ft_param_change_fn on_change, void *user) {
    int32_t n_kept = 0;
    for (size_t i = 0; i < table->n_rows; i++) {
        const struct ft_param *row = &table->rows[i];
        char before[FT_PARAM_STR_MAX], after[FT_PARAM_STR_MAX];
        struct ft_err err;
        ft_param_format(row, values, before);
        ft_param_format(row, fresh, after);
        if (strcmp(before, after) == 0)
            continue;
        on_change(user, row, before, after);
        if (row->reach != FT_PARAM_LIVE)
            n_kept++;
        else
            FT_ASSERT(set_row(row, values, after, &err) == FT_OK); /* it was read from a text */
    }
    return n_kept;
}
