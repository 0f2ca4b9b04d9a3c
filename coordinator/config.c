#include "coordinator/config.h"

#include <string.h>

#define MODULE "config"

static const struct ft_param k_rows[] = {
#define X(name, type, kind, unit, min, max, def, choices, help)                                    \
    {                                                                                              \
        #name,                                                                                     \
        FT_PARAM_##kind,                                                                           \
        unit,                                                                                      \
        min,                                                                                       \
        max,                                                                                       \
        def,                                                                                       \
        choices,                                                                                   \
        false,                                                                                     \
        offsetof(struct co_config, name),                                                          \
        help},
#include "coordinator/params.def"
#undef X
};
static const struct ft_param_table k_table = {k_rows, sizeof k_rows / sizeof k_rows[0]};

static bool is_loopback(const char *address) {
    static const char *const prefixes[] = {"unix:", "127.", "[::1]:", "localhost:"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(address, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static enum ft_code check(struct co_config *c, struct ft_err *err) {
    if (co_length_parse(&c->draft_length, c->num_speculative_tokens, err) != FT_OK)
        return FT_E_PROC_CONFIG;
    if (c->prompt_lookup_min > c->prompt_lookup_max)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "prompt_lookup_min is %d: must be at most prompt_lookup_max, which is %d",
                          c->prompt_lookup_min, c->prompt_lookup_max);
    if (c->target_endpoint[0] == 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "target_endpoint is not set: give the target worker's unix:PATH");
    if (!is_loopback(c->listen) && !c->allow_insecure)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "listen is '%s': beyond loopback and the connection would be neither "
                          "encrypted nor authenticated; --allow_insecure overrides",
                          c->listen);
    for (const char *at = c->client_metadata_key; *at != 0; at++)
        if (strchr("abcdefghijklmnopqrstuvwxyz0123456789-_.", *at) == NULL)
            return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                              "client_metadata_key is '%s': must be lower-case letters, digits, "
                              "'-', '_' and '.'",
                              c->client_metadata_key);
    if (c->max_num_batched_tokens < c->max_num_seqs)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "max_num_batched_tokens is %d: must be at least max_num_seqs (%d), one "
                          "token for each running request",
                          c->max_num_batched_tokens, c->max_num_seqs);
    return FT_OK;
}

enum ft_code co_config_parse(struct co_config *config, int argc, char **argv, struct ft_err *err) {
    memset(config, 0, sizeof *config);
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        config->version = true;
        return FT_OK;
    }
    enum ft_code code = ft_param_defaults(&k_table, config, err);
    if (code != FT_OK)
        return code;
    struct ft_param_args args = {
        .argc = argc,
        .argv = argv,
        .usage = "foretoken-coordinator --target_endpoint unix:PATH [--draft_endpoint unix:PATH] "
                 "[--key value ...]",
    };
    code = ft_param_parse(&k_table, config, &args, err);
    if (code != FT_OK)
        return code;
    config->help = args.help;
    return config->help ? FT_OK : check(config, err);
}
