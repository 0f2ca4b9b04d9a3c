#include "common/base/settings.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/conf.h"

#define MODULE "settings"
#define NAME_BYTES 96

/* The file is one for all processes; each reads its own section of it. */
static const char *const k_sections[] = {"coordinator", "draft", "target"};
#define N_SECTIONS (sizeof k_sections / sizeof k_sections[0])

static size_t index_of(const struct ft_settings *settings, const struct ft_param *row) {
    return (size_t)(row - settings->table->rows);
}

static void set_origin(struct ft_settings *settings, const struct ft_param *row,
                       enum ft_setting_source source, int line) {
    settings->origins[index_of(settings, row)] = (struct ft_setting_origin){source, line};
}

static enum ft_code set(struct ft_settings *settings, const char *key, const char *value,
                        struct ft_err *err) {
    const struct ft_param *row = ft_param_find(settings->table, key);
    if (row != NULL && row->reach == FT_PARAM_ARGV)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "%s is '%.80s': can be set on the command line only", row->name, value);
    return ft_param_set(settings->table, settings->values, key, value, err);
}

/* ---- the file ------------------------------------------------------------------------------- */

struct file_reading {
    struct ft_settings *settings;
    struct ft_conf_reader reader;
};

static enum ft_code on_section(void *user, const char *section, struct ft_err *err) {
    (void)user;
    const char *nearest = k_sections[0];
    for (size_t i = 0; i < N_SECTIONS; i++) {
        if (strcmp(section, k_sections[i]) == 0)
            return FT_OK;
        if (ft_str_distance(section, k_sections[i]) < ft_str_distance(section, nearest))
            nearest = k_sections[i];
    }
    return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                      "unknown section '%s'; the nearest known one is '%s'", section, nearest);
}

static enum ft_code on_key(void *user, const char *section, const char *key, const char *value,
                           struct ft_err *err) {
    struct file_reading *reading = user;
    struct ft_settings *settings = reading->settings;
    if (strcmp(section, settings->section) != 0)
        return FT_OK;
    const struct ft_param *row = ft_param_find(settings->table, key);
    if (row != NULL && settings->origins[index_of(settings, row)].source == FT_SET_BY_FILE)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "%s is '%.80s': is set in line %d already",
                          row->name, value, settings->origins[index_of(settings, row)].line);
    enum ft_code code = set(settings, key, value, err);
    if (code == FT_OK)
        set_origin(settings, row, FT_SET_BY_FILE, reading->reader.line);
    return code;
}

static void on_file_problem(void *user, const struct ft_err *err) {
    struct file_reading *reading = user;
    reading->settings->on_problem(reading->settings->user, err);
}

static enum ft_code read_file(struct ft_settings *settings, struct ft_err *err) {
    struct file_reading reading = {.settings = settings};
    if (settings->config_path == NULL)
        return FT_OK;
    reading.reader = (struct ft_conf_reader){
        .name = settings->config_path,
        .on_key = on_key,
        .on_section = on_section,
        .on_problem = settings->on_problem == NULL ? NULL : on_file_problem,
        .user = &reading,
    };
    return ft_conf_read_file(&reading.reader, err);
}

/* ---- the environment ------------------------------------------------------------------------ */

/* "FORETOKEN_TARGET_" */
static void env_prefix(const struct ft_settings *settings, char out[NAME_BYTES]) {
    snprintf(out, NAME_BYTES, "FORETOKEN_%s_", settings->section);
    for (char *at = out; *at != 0; at++)
        *at = (char)toupper((unsigned char)*at);
}

static enum ft_code read_variable(struct ft_settings *settings, const char *text, size_t skip,
                                  struct ft_err *err) {
    char key[NAME_BYTES];
    size_t len = strcspn(text + skip, "=");
    if (len >= sizeof key)
        len = sizeof key - 1;
    for (size_t i = 0; i < len; i++)
        key[i] = (char)tolower((unsigned char)text[skip + i]);
    key[len] = 0;
    const char *value = strchr(text, '=');
    enum ft_code code = set(settings, key, value == NULL ? "" : value + 1, err);
    if (code != FT_OK)
        return ft_err_prefix(err, "environment %.*s", (int)(skip + len), text);
    set_origin(settings, ft_param_find(settings->table, key), FT_SET_BY_ENV, 0);
    return FT_OK;
}

static enum ft_code read_environment(struct ft_settings *settings, struct ft_err *err) {
    char prefix[NAME_BYTES];
    enum ft_code first = FT_OK;
    env_prefix(settings, prefix);
    for (char **at = settings->envp; at != NULL && *at != NULL; at++) {
        struct ft_err own = {0};
        if (strncmp(*at, prefix, strlen(prefix)) != 0 ||
            read_variable(settings, *at, strlen(prefix), &own) == FT_OK)
            continue;
        if (first == FT_OK && err != NULL)
            *err = own;
        first = first == FT_OK ? own.code : first;
        if (settings->on_problem == NULL)
            break;
        settings->on_problem(settings->user, &own);
    }
    return first;
}

/* ---- the command line ----------------------------------------------------------------------- */

static void on_argv_set(void *user, const struct ft_param *row) {
    set_origin(user, row, FT_SET_BY_ARGV, 0);
}

/* One of our own options at argv[*i]; moves *i past its value. false: it is the table's. */
static bool take_own(struct ft_settings *settings, int *i, struct ft_err *err) {
    const char *arg = settings->argv[*i];
    if (strcmp(arg, "--version") == 0) {
        settings->version = true;
    } else if (strcmp(arg, "--check-config") == 0 || strcmp(arg, "--check_config") == 0) {
        settings->check = true;
    } else if (strcmp(arg, "--help=options.roff") == 0 || strcmp(arg, "--help=keys.roff") == 0) {
        settings->help = true;
        ft_param_print_roff(settings->table,
                            arg[7] == 'k' ? FT_PARAM_ROFF_KEYS : FT_PARAM_ROFF_OPTIONS, stdout);
    } else if (strncmp(arg, "--config=", 9) == 0) {
        settings->config_path = arg + 9;
    } else if (strcmp(arg, "--config") == 0) {
        if (*i + 1 < settings->argc)
            settings->config_path = settings->argv[++*i];
        else
            ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "--config needs a value");
    } else {
        return false;
    }
    return true;
}

/* Take out our own options: what is left is for the table. args->argv is the caller's to free. */
static enum ft_code split_argv(struct ft_settings *settings, struct ft_param_args *args,
                               struct ft_err *err) {
    args->argv = calloc((size_t)settings->argc + 1, sizeof args->argv[0]);
    if (args->argv == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for the command line");
    struct ft_err own = {0};
    bool options = true;
    for (int i = 0; i < settings->argc && own.code == FT_OK; i++) {
        options = options && strcmp(settings->argv[i], "--") != 0;
        if (i == 0 || !options || !take_own(settings, &i, &own))
            args->argv[args->argc++] = settings->argv[i];
    }
    if (own.code != FT_OK && err != NULL)
        *err = own;
    return own.code;
}

static const char k_own_help[] =
    "  --config FILE                  read the section [%s] of FILE; see foretoken.conf(5)\n"
    "  --check-config                 say what would be in force, or what is wrong, and end\n"
    "  --set KEY=VALUE                the same as --KEY=VALUE\n"
    "  --version                      print the version\n"
    "  --help                         print this\n\n"
    "The command line overrules the environment (FORETOKEN_<SECTION>_<KEY>), which overrules\n"
    "the file, which overrules the defaults.\n";

static enum ft_code read_argv(struct ft_settings *settings, struct ft_param_args *args,
                              struct ft_err *err) {
    args->usage = settings->usage;
    args->on_set = on_argv_set;
    args->user = settings;
    enum ft_code code = ft_param_parse(settings->table, settings->values, args, err);
    if (args->help) {
        printf(k_own_help, settings->section);
        settings->help = true;
    }
    if (code != FT_OK && settings->on_problem != NULL)
        settings->on_problem(settings->user, err);
    return code;
}

bool ft_settings_wants_check(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--check-config") == 0 || strcmp(argv[i], "--check_config") == 0)
            return true;
    return false;
}

/* Help must not fail for what is wrong in a file. */
static bool wants_help(const struct ft_param_args *args) {
    for (int i = 1; i < args->argc && strcmp(args->argv[i], "--") != 0; i++)
        if (strcmp(args->argv[i], "--help") == 0)
            return true;
    return false;
}

enum ft_code ft_settings_read(struct ft_settings *settings, struct ft_err *err) {
    struct ft_param_args args = {.rest = NULL};
    struct ft_err later = {0};
    FT_ASSERT(settings->table->n_rows <= FT_SETTINGS_MAX);
    memset(settings->origins, 0, sizeof settings->origins);
    enum ft_code code = split_argv(settings, &args, err);
    if (code == FT_OK)
        code = ft_param_defaults(settings->table, settings->values, err);
    if (code != FT_OK || settings->version || settings->help)
        goto done;
    bool all = settings->on_problem != NULL;
    bool asks_help = wants_help(&args);
    if (!asks_help)
        code = read_file(settings, err);
    if (!asks_help && (code == FT_OK || all)) {
        enum ft_code next = read_environment(settings, code == FT_OK ? err : &later);
        code = code == FT_OK ? next : code;
    }
    if (code == FT_OK || all) {
        enum ft_code next = read_argv(settings, &args, code == FT_OK ? err : &later);
        code = code == FT_OK ? next : code;
    }
done:
    free(args.argv);
    return code;
}

int ft_settings_printed(const char *program) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "%s: cannot write standard output: %s\n", program, strerror(errno));
    return EX_IOERR;
}

/* ---- where a value came from ---------------------------------------------------------------- */

enum ft_code ft_settings_blame(const struct ft_settings *settings, struct ft_err *err) {
    char key[NAME_BYTES], prefix[NAME_BYTES];
    size_t len = strcspn(err->text, " :");
    if (len >= sizeof key)
        return err->code;
    memcpy(key, err->text, len);
    key[len] = 0;
    const struct ft_param *row = ft_param_find(settings->table, key);
    if (row == NULL)
        return err->code;
    const struct ft_setting_origin *origin = &settings->origins[index_of(settings, row)];
    if (origin->source == FT_SET_BY_FILE)
        return ft_err_prefix(err, "%s:%d", settings->config_path, origin->line);
    if (origin->source == FT_SET_BY_ENV) {
        env_prefix(settings, prefix);
        return ft_err_prefix(err, "environment %s*", prefix);
    }
    return err->code;
}

void ft_settings_print(const struct ft_settings *settings, FILE *out) {
    static const char *const sources[] = {"default", "file", "environment", "command line"};
    fprintf(out, "[%s]\n", settings->section);
    for (size_t i = 0; i < settings->table->n_rows; i++) {
        const struct ft_param *row = &settings->table->rows[i];
        const struct ft_setting_origin *origin = &settings->origins[i];
        char value[FT_PARAM_STR_MAX];
        if (row->reach == FT_PARAM_ARGV)
            continue;
        ft_param_format(row, settings->values, value);
        fprintf(out, "%s = %s ; %s", row->name, value, sources[origin->source]);
        if (origin->source == FT_SET_BY_FILE)
            fprintf(out, " %s:%d", settings->config_path, origin->line);
        fputc('\n', out);
    }
}

void ft_settings_print_bytes(const char *name, const unsigned char *bytes, size_t n,
                             const char *source, FILE *out) {
    fprintf(out, "# %s = ", name);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%02x", bytes[i]);
    fprintf(out, " ; of %s\n", source);
}
