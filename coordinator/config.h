/* config: the coordinator's parameters, from the table in params.def.
 * Owns:    nothing; plain data.
 * Runs in: coordinator; at start and on reload.
 * Never:   accepts an unknown key or a value out of range. */
#ifndef CO_CONFIG_H
#define CO_CONFIG_H

#include "common/base/param.h"
#include "common/base/sampling.h"
#include "coordinator/length.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef char co_field_str[FT_PARAM_STR_MAX];
typedef int32_t co_field_i32;
typedef double co_field_f64;
typedef int64_t co_field_size;
typedef bool co_field_bool;

struct co_config {
#define X(name, type, kind, unit, min, max, def, choices, help) co_field_##type name;
#include "coordinator/params.def"
#undef X
    struct co_length_policy draft_length;    /* num_speculative_tokens, read */
    float synthetic_rates[FT_DRAFT_LEN_MAX]; /* [n_synthetic_rates] of synthetic_acceptance_rates */
    size_t n_synthetic_rates;
    bool help; /* --help was given and answered */
    bool version;
    bool checked; /* --check-config was given and answered */
};

/* Where the parameters come from: common/base/settings.h. */
struct co_config_sources {
    int argc;
    char **argv, **envp; /* envp NULL: no environment */
    /* NULL, or told of each problem while the reading goes on to the next */
    void (*on_problem)(void *user, const struct ft_err *err);
    void *user;
};

/* Defaults, file, environment and command line, then checks across parameters, then that the files
 * which they name are there. With --check-config prints what is in force.
 * fail FT_E_PROC_CONFIG */
enum ft_code co_config_read(struct co_config *config, const struct co_config_sources *sources,
                            struct ft_err *err);
/* The same of a command line alone. */
enum ft_code co_config_parse(struct co_config *config, int argc, char **argv, struct ft_err *err);

/* Copy what is reloadable and differs from fresh, which co_config_read has filled; on_change is
 * told of all that differs. Returns how many keep their value until a restart. */
int32_t co_config_reload(struct co_config *config, const struct co_config *fresh,
                         ft_param_change_fn on_change, void *user);

/* One value from text, by its row of params.def. The checks across parameters are
 * co_config_check's, to be made once all are set. fail FT_E_PROC_CONFIG */
enum ft_code co_config_set(struct co_config *config, const char *name, const char *text,
                           struct ft_err *err);
enum ft_code co_config_check(struct co_config *config, struct ft_err *err);
/* The value of a known name as co_config_set takes it. */
void co_config_text(const struct co_config *config, const char *name, char text[FT_PARAM_STR_MAX]);

#ifdef __cplusplus
}
#endif
#endif
