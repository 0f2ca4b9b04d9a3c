/* config: the coordinator's parameters, from the table in params.def.
 * Owns:    nothing; plain data.
 * Runs in: coordinator; at start.
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
};

/* Defaults, then the command line, then checks across parameters. fail FT_E_PROC_CONFIG */
enum ft_code co_config_parse(struct co_config *config, int argc, char **argv, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
