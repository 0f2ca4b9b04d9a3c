#include "coordinator/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/settings.h"
#include "common/rpc/secure.h"
#include "common/text/tokenizer.h"
#include "coordinator/drafting.h"
#include "coordinator/tokens.h"

#define MODULE "config"

#define ROW(name, kind, unit, min, max, def, choices, help, reach)                                 \
    FT_PARAM_ROW(struct co_config, name, kind, unit, min, max, def, choices, reach, help)
static const struct ft_param k_rows[] = {
#define X(name, type, kind, unit, min, max, def, choices, help)                                    \
    ROW(name, kind, unit, min, max, def, choices, help, FT_PARAM_FIXED)
#define LIVE(name, type, kind, unit, min, max, def, choices, help)                                 \
    ROW(name, kind, unit, min, max, def, choices, help, FT_PARAM_LIVE)
#define ARGV(name, type, kind, unit, min, max, def, choices, help)                                 \
    ROW(name, kind, unit, min, max, def, choices, help, FT_PARAM_ARGV)
#include "coordinator/params.def"
#undef X
};
static const struct ft_param_table k_table = {k_rows, sizeof k_rows / sizeof k_rows[0]};

static enum ft_code check_listen(const struct co_config *c, struct ft_err *err) {
    bool is_unix = false, is_local = false;
    enum ft_code code = ft_rpc_endpoint_check(c->listen, &is_unix, &is_local, err);
    if (code != FT_OK)
        return ft_err_prefix(err, "listen");
    bool has_cert = c->tls_cert[0] != 0, has_key = c->tls_key[0] != 0;
    if (has_cert != has_key)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "%s is set and %s is not: give both",
                          has_cert ? "tls_cert" : "tls_key", has_cert ? "tls_key" : "tls_cert");
    if (c->tls_client_ca[0] != 0 && !has_cert)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "tls_client_ca is set: it needs tls_cert and tls_key");
    if (has_cert && is_unix)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "tls_cert is set and listen is '%s': a Unix socket does not speak TLS",
                          c->listen);
    if (!is_local && !has_cert && !c->allow_insecure)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "listen is '%s': beyond loopback, and connections would not be "
                          "encrypted; set tls_cert and tls_key, or --allow_insecure",
                          c->listen);
    return FT_OK;
}

/* Where the workers are: of the right form; that they listen there is seen at the start. */
static enum ft_code check_endpoints(const struct co_config *c, struct ft_err *err) {
    bool is_unix = false, is_local = false;
    if (c->target_endpoint[0] == 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "target_endpoint is not set: give the target worker's unix:PATH");
    if (ft_rpc_endpoint_check(c->target_endpoint, &is_unix, &is_local, err) != FT_OK)
        return ft_err_prefix(err, "target_endpoint");
    if (c->draft_endpoint[0] != 0 &&
        ft_rpc_endpoint_check(c->draft_endpoint, &is_unix, &is_local, err) != FT_OK)
        return ft_err_prefix(err, "draft_endpoint");
    if (strcmp(c->draft_endpoint, c->target_endpoint) == 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "draft_endpoint is '%s': must be another than target_endpoint",
                          c->draft_endpoint);
    return FT_OK;
}

/* Metrics are served in the clear. */
static enum ft_code check_metrics_listen(const struct co_config *c, struct ft_err *err) {
    bool is_unix = false, is_local = false;
    if (c->metrics_listen[0] == 0)
        return FT_OK;
    if (ft_rpc_endpoint_check(c->metrics_listen, &is_unix, &is_local, err) != FT_OK)
        return ft_err_prefix(err, "metrics_listen");
    if (is_unix)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "metrics_listen is '%s': must be HOST:PORT, no Unix socket",
                          c->metrics_listen);
    if (!is_local && !c->allow_insecure)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "metrics_listen is '%s': beyond loopback; --allow_insecure overrides",
                          c->metrics_listen);
    return FT_OK;
}

/* "P,P,..." into synthetic_rates. */
static enum ft_code read_rates(struct co_config *c, struct ft_err *err) {
    const char *text = c->synthetic_acceptance_rates;
    c->n_synthetic_rates = 0;
    while (*text != 0) {
        char *end;
        double rate = strtod(text, &end);
        if (end == text || (*end != 0 && *end != ',') || !(rate >= 0.0 && rate <= 1.0))
            return ft_err_set(
                err, FT_E_PROC_CONFIG, MODULE,
                "synthetic_acceptance_rates is '%s': entry %zu must be a number, 0 to "
                "1",
                c->synthetic_acceptance_rates, c->n_synthetic_rates);
        if (c->n_synthetic_rates == FT_DRAFT_LEN_MAX)
            return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                              "synthetic_acceptance_rates is '%s': at most %d entries",
                              c->synthetic_acceptance_rates, FT_DRAFT_LEN_MAX);
        c->synthetic_rates[c->n_synthetic_rates++] = (float)rate;
        text = *end == ',' ? end + 1 : end;
    }
    return FT_OK;
}

static enum ft_code check_synthetic(struct co_config *c, struct ft_err *err) {
    const double length = c->synthetic_acceptance_length;
    enum ft_code code = read_rates(c, err);
    if (code != FT_OK)
        return code;
    if (length != 0.0 && !(length >= 1.0 && length <= 1.0 + c->draft_length.k_max))
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "synthetic_acceptance_length is %g: must be 0 or 1 to %d (1 + "
                          "num_speculative_tokens)",
                          length, 1 + c->draft_length.k_max);
    if (length != 0.0 && c->n_synthetic_rates > 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "synthetic_acceptance_length and synthetic_acceptance_rates are both "
                          "set: one of them at most");
    if (strcmp(c->rejection_sample_method, "synthetic") == 0 && length == 0.0 &&
        c->n_synthetic_rates == 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "rejection_sample_method is synthetic: set synthetic_acceptance_length "
                          "or synthetic_acceptance_rates");
    return FT_OK;
}

static enum ft_code check(struct co_config *c, struct ft_err *err) {
    if (co_length_parse(&c->draft_length, c->num_speculative_tokens, err) != FT_OK)
        return FT_E_PROC_CONFIG;
    if (c->prompt_lookup_min > c->prompt_lookup_max)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "prompt_lookup_min is %d: must be at most prompt_lookup_max, which is %d",
                          c->prompt_lookup_min, c->prompt_lookup_max);
    enum ft_code code = check_endpoints(c, err);
    if (code == FT_OK)
        code = check_listen(c, err);
    if (code == FT_OK)
        code = check_metrics_listen(c, err);
    if (code != FT_OK)
        return code;
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
    code = check_synthetic(c, err);
    return code == FT_OK ? co_drafting_check(c, err) : code;
}

enum ft_code co_config_set(struct co_config *config, const char *name, const char *text,
                           struct ft_err *err) {
    return ft_param_set(&k_table, config, name, text, err);
}

enum ft_code co_config_check(struct co_config *config, struct ft_err *err) {
    return check(config, err);
}

void co_config_text(const struct co_config *config, const char *name, char text[FT_PARAM_STR_MAX]) {
    for (size_t i = 0; i < k_table.n_rows; i++)
        if (strcmp(k_rows[i].name, name) == 0)
            ft_param_text(&k_rows[i], config, text);
}

/* Files that the coordinator itself opens later. */
static enum ft_code check_files(const struct co_config *c, struct ft_err *err) {
    char path[FT_PARAM_STR_MAX + 32];
    snprintf(path, sizeof path, "%s/tokenizer.json", c->tokenizer);
    if (c->tokenizer[0] != 0 && access(path, R_OK) != 0)
        return ft_err_set_os(err, FT_E_PROC_CONFIG, errno, MODULE,
                             "tokenizer is '%s': cannot read %s", c->tokenizer, path);
    if (c->drafter_text[0] != 0 && access(c->drafter_text, R_OK) != 0)
        return ft_err_set_os(err, FT_E_PROC_CONFIG, errno, MODULE,
                             "drafter_text is '%s': cannot be read", c->drafter_text);
    return FT_OK;
}

/* What a start would find wrong later, by the same functions. The tokenizer to *own, NULL when it
 * is the target's. */
static enum ft_code check_start(const struct co_config *c, struct ft_tokenizer **own,
                                struct ft_err *err) {
    struct ft_rpc_socket_rule rule = {.group = c->socket_group, .users = c->socket_users};
    struct ft_rpc_tls_files files = {c->tls_cert, c->tls_key, c->tls_client_ca};
    struct ft_rpc_tls *tls = NULL;
    struct co_tokens tokens = {0};
    bool is_unix = false, is_local = false;
    enum ft_code code = ft_rpc_endpoint_check(c->listen, &is_unix, &is_local, err);
    if (code == FT_OK && is_unix)
        code = ft_rpc_socket_rule_check(&rule, err);
    if (code == FT_OK && c->tls_cert[0] != 0)
        code = ft_rpc_tls_create(&tls, &files, err);
    if (code == FT_OK && c->token_file[0] != 0)
        code = co_tokens_read(&tokens, c->token_file, err);
    if (code == FT_OK)
        code = co_drafting_check_text(c, err);
    if (code == FT_OK && c->tokenizer[0] != 0)
        code = ft_tokenizer_open(own, c->tokenizer, err);
    ft_rpc_tls_destroy(&tls);
    co_tokens_fini(&tokens);
    return code;
}

/* The values in force, and what its own tokenizer means, which must be what the workers' mean. */
static void print(const struct ft_settings *settings, const struct co_config *c,
                  const struct ft_tokenizer *own) {
    ft_settings_print(settings, stdout);
    if (own != NULL)
        ft_settings_print_bytes("tokenizer_fingerprint", ft_tokenizer_fingerprint(own),
                                FT_TOKENIZER_FINGERPRINT_BYTES, c->tokenizer, stdout);
}

/* Values that are right one by one may not be so together. */
static enum ft_code check_all(struct co_config *config, const struct ft_settings *settings,
                              struct ft_tokenizer **own, struct ft_err *err) {
    enum ft_code code = check(config, err);
    if (code == FT_OK)
        code = check_files(config, err);
    if (code == FT_OK && settings->check)
        code = check_start(config, own, err);
    if (code == FT_OK)
        return FT_OK;
    ft_settings_blame(settings, err);
    if (settings->on_problem != NULL)
        settings->on_problem(settings->user, err);
    return code;
}

enum ft_code co_config_read(struct co_config *config, const struct co_config_sources *sources,
                            struct ft_err *err) {
    struct ft_settings settings = {
        .table = &k_table,
        .values = config,
        .section = "coordinator",
        .usage = "foretoken-coordinator --target_endpoint unix:PATH [--draft_endpoint unix:PATH] "
                 "[--key value ...]",
        .argc = sources->argc,
        .argv = sources->argv,
        .envp = sources->envp,
        .on_problem = sources->on_problem,
        .user = sources->user,
    };
    struct ft_tokenizer *own = NULL;
    memset(config, 0, sizeof *config);
    enum ft_code code = ft_settings_read(&settings, err);
    config->help = settings.help;
    config->version = settings.version;
    config->checked = settings.check;
    if (code != FT_OK || settings.help || settings.version)
        return code;
    code = check_all(config, &settings, &own, err);
    if (code == FT_OK && settings.check)
        print(&settings, config, own);
    ft_tokenizer_close(&own);
    return code;
}

enum ft_code co_config_parse(struct co_config *config, int argc, char **argv, struct ft_err *err) {
    return co_config_read(config, &(struct co_config_sources){.argc = argc, .argv = argv}, err);
}

int32_t co_config_reload(struct co_config *config, const struct co_config *fresh,
                         ft_param_change_fn on_change, void *user) {
    return ft_param_reload(&k_table, config, fresh, on_change, user);
}
