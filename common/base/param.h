/* param: parameters as rows of a table; the table makes parsing, checks, --help and the docs.
 * Owns:    nothing; values live in a struct of the caller, at the offset that the row names.
 * Runs in: every process, at start and on reload; one thread at a time.
 * Never:   accepts a key it does not know: it names the nearest one. */
#ifndef FT_BASE_PARAM_H
#define FT_BASE_PARAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* C types behind the kinds: I32 int32_t, I64 int64_t, F64 double, BOOL bool,
 * STR char[FT_PARAM_STR_MAX], SIZE int64_t bytes (accepts K, M, G, Ki, Mi, Gi suffixes). */
enum ft_param_kind {
    FT_PARAM_I32,
    FT_PARAM_I64,
    FT_PARAM_F64,
    FT_PARAM_BOOL,
    FT_PARAM_STR,
    FT_PARAM_SIZE
};

#define FT_PARAM_STR_MAX 256

/* When and where a value can be set. false and true are the first two. */
enum ft_param_reach {
    FT_PARAM_FIXED = 0, /* at start, wherever values come from */
    FT_PARAM_LIVE = 1,  /* while the process runs as well: a reload takes it over */
    FT_PARAM_ARGV = 2   /* of one start alone: refused in a file and in the environment */
};

struct ft_param {
    const char *name; /* as in vLLM where it has one; '-' and '_' are the same to a user */
    enum ft_param_kind kind;
    const char *unit;
    double min, max;           /* numbers; ignored for BOOL and STR */
    const char *default_value; /* text, parsed like any other */
    const char *choices;       /* STR: "a|b|c" or NULL for any */
    enum ft_param_reach reach;
    size_t offset; /* of the value in the caller's struct */
    const char *help;
};

/* A row of a .def file, whose value is the member of that name. */
#define FT_PARAM_ROW(type, name, kind, unit, min, max, def, choices, reach, help)                  \
    {                                                                                              \
        #name, FT_PARAM_##kind, unit, min, max, def, choices, reach, offsetof(type, name), help,   \
    },

struct ft_param_table {
    const struct ft_param *rows;
    size_t n_rows;
};

/* Set every row's default. */
enum ft_code ft_param_defaults(const struct ft_param_table *table, void *values,
                               struct ft_err *err);

/* Set one value from text. fail FT_E_PROC_CONFIG: unknown key (names the nearest), not a number,
 * out of range (names value, min, max and unit), not one of the choices. */
enum ft_code ft_param_set(const struct ft_param_table *table, void *values, const char *name,
                          const char *text, struct ft_err *err);

/* Read `--name value`, `--name=value`, `--set name=value`; a BOOL takes `--name` and `--no-name`
 * alone. Arguments that do not start with "--" are kept, in order, in rest (n_rest out, at most
 * argc); "--" ends the options. "--help" prints the table to stdout and sets *help. */
struct ft_param_args {
    int argc;
    char **argv;       /* argv[0] is skipped */
    char **rest;       /* out, [argc]; may be NULL when nothing may be left over */
    int n_rest;        /* out */
    bool help;         /* out */
    const char *usage; /* printed before the table */
    /* May be NULL: told of each row that was set. */
    void (*on_set)(void *user, const struct ft_param *row);
    void *user;
};
enum ft_code ft_param_parse(const struct ft_param_table *table, void *values,
                            struct ft_param_args *args, struct ft_err *err);

/* The row's value as ft_param_set takes it. */
void ft_param_text(const struct ft_param *row, const void *values, char text[FT_PARAM_STR_MAX]);

/* Print the table as --help shows it. */
void ft_param_print(const struct ft_param_table *table, FILE *out);
/* The same as paragraphs of a man page: "--" before each name, or keys of the file, without those
 * that it may not hold. */
enum ft_param_roff { FT_PARAM_ROFF_OPTIONS, FT_PARAM_ROFF_KEYS };
void ft_param_print_roff(const struct ft_param_table *table, enum ft_param_roff what, FILE *out);

/* The row of a name, '-' and '_' the same; NULL when there is none. */
const struct ft_param *ft_param_find(const struct ft_param_table *table, const char *name);
/* A value as text that ft_param_set reads back as the same. */
void ft_param_format(const struct ft_param *row, const void *values, char out[FT_PARAM_STR_MAX]);

/* Copy from fresh what differs and is reloadable; on_change is told of every row that differs,
 * with both values as texts, before it is copied. Returns how many differ and are not reloadable.
 */
typedef void (*ft_param_change_fn)(void *user, const struct ft_param *row, const char *now,
                                   const char *fresh);
int32_t ft_param_reload(const struct ft_param_table *table, void *values, const void *fresh,
                        ft_param_change_fn on_change, void *user);

#ifdef __cplusplus
}
#endif
#endif
