/* settings: the parameters of a process, from defaults, file, environment and command line.
 * Owns:    nothing; values and all texts are the caller's.
 * Runs in: every process, at start and on reload; one thread at a time.
 * Never:   lets a later source be overruled by an earlier one: the command line is last. */
#ifndef FT_BASE_SETTINGS_H
#define FT_BASE_SETTINGS_H

#include "common/base/param.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FT_SETTINGS_MAX 128 /* rows of a table: more than any process has */

enum ft_setting_source { FT_SET_BY_DEFAULT, FT_SET_BY_FILE, FT_SET_BY_ENV, FT_SET_BY_ARGV };

struct ft_setting_origin {
    enum ft_setting_source source;
    int line; /* of the file */
};

struct ft_settings {
    /* in */
    const struct ft_param_table *table;
    void *values;
    const char *section; /* of the file: "coordinator", "draft" or "target" */
    const char *usage;
    int argc;
    char **argv; /* beside the table: --config FILE, --check-config, --version, --help */
    char **envp; /* NULL: none. FORETOKEN_<SECTION>_<KEY>=value, in capitals */
    /* NULL: the first problem ends the reading. Else all are told, and the first is returned. */
    void (*on_problem)(void *user, const struct ft_err *err);
    void *user;
    /* out */
    bool help;               /* was asked for and printed */
    bool version;            /* was asked for */
    bool check;              /* --check-config: say what would be in force, and end */
    const char *config_path; /* of --config, a text of argv; NULL: no file */
    struct ft_setting_origin origins[FT_SETTINGS_MAX]; /* by row */
};

/* --check-config is there: every problem is to be told, not the first alone. */
bool ft_settings_wants_check(int argc, char **argv);

/* Fill values. fail FT_E_PROC_CONFIG: which source (FILE:LINE), key, value and limit */
enum ft_code ft_settings_read(struct ft_settings *settings, struct ft_err *err);

/* err says "KEY is ...": put before it where the value of KEY came from. For what is found wrong
 * after ft_settings_read, when values are looked at together. Returns err's code. */
enum ft_code ft_settings_blame(const struct ft_settings *settings, struct ft_err *err);

/* The exit status of a process that was asked for help, its version or a check alone: 0, or 74 when
 * what it printed could not be written, which it says. */
int ft_settings_printed(const char *program);

/* The values in force as a section of the file, each with its source in a comment. */
void ft_settings_print(const struct ft_settings *settings, FILE *out);
/* Below them as a comment, what the sections of other processes must agree with: in hexadecimal. */
void ft_settings_print_bytes(const char *name, const unsigned char *bytes, size_t n,
                             const char *source, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
