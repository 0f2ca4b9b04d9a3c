#include "coordinator/tune.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "coordinator/round.h"
#include "coordinator/sampling.h"

#define MODULE "tune"

/* Everything else is fixed in memory, files or sockets at start. */
static const char *const k_names[] = {
    "speculation",
    "num_speculative_tokens",
    "drafter",
    "rejection_sample_method",
    "lenience",
    "synthetic_acceptance_length",
    "synthetic_acceptance_rates",
    "log_level",
};
#define N_NAMES (sizeof k_names / sizeof k_names[0])

static bool is_tunable(struct ft_str name, const char **out) {
    for (size_t i = 0; i < N_NAMES; i++) {
        const char *known = k_names[i];
        bool same = strlen(known) == name.len;
        for (size_t j = 0; same && j < name.len; j++)
            same = known[j] == (name.ptr[j] == '-' ? '_' : name.ptr[j]);
        if (same) {
            *out = known;
            return true;
        }
    }
    return false;
}

static enum ft_code not_tunable(struct ft_str name, struct ft_err *err) {
    char known[320] = "";
    for (size_t i = 0; i < N_NAMES; i++) {
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", i == 0 ? "" : ", ", k_names[i]);
    }
    return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                      "'%.*s' cannot be set while the service runs: %s can",
                      name.len < 64 ? (int)name.len : 64, name.ptr, known);
}

static enum ft_code set_one(struct co_config *config, const struct ft_wire_parameter *parameter,
                            struct ft_err *err) {
    const char *name;
    char text[FT_PARAM_STR_MAX];
    if (!is_tunable(parameter->name, &name))
        return not_tunable(parameter->name, err);
    if (parameter->value.len >= sizeof text ||
        (parameter->value.len > 0 && memchr(parameter->value.ptr, 0, parameter->value.len)))
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "%s: the value has %zu bytes, or a NUL",
                          name, parameter->value.len);
    snprintf(text, sizeof text, "%.*s", (int)parameter->value.len, parameter->value.ptr);
    return co_config_set(config, name, text, err);
}

/* Values that a start would end with are no more than a bad request here. */
static enum ft_code set_all(struct co_config *config, const struct ft_wire_parameter *list,
                            size_t n, struct ft_err *err) {
    enum ft_code code = FT_OK;
    for (size_t i = 0; i < n && code == FT_OK; i++)
        code = set_one(config, &list[i], err);
    if (code == FT_OK)
        code = co_config_check(config, err);
    if (code == FT_E_PROC_CONFIG)
        err->code = code = FT_E_REQ_INVALID;
    return code;
}

enum ft_code co_tune_set(struct co_app *app, const struct ft_wire_parameter *list, size_t n,
                         struct ft_err *err) {
    struct co_config config = app->config;
    const struct co_drafter *drafter = NULL;
    enum ft_code code = set_all(&config, list, n, err);
    if (code == FT_OK && n > 0 && !app->pair.known)
        code = ft_err_set(err, FT_E_PEER_UNAVAILABLE, MODULE, "the service is starting: %s",
                          app->readiness.reason);
    if (code == FT_OK && n > 0)
        code = co_drafting_find(app, ft_str_c(config.drafter), &drafter, err);
    if (code != FT_OK || n == 0)
        return code;
    enum ft_log_level level = ft_log_level();
    ft_log_parse_level(config.log_level, &level);
    ft_log_set_level(level);
    app->config = config;
    app->rule = ft_rule_find(config.rejection_sample_method);
    app->drafting.policy = config.draft_length;
    app->drafting.drafter = drafter;
    app->tuned = true;
    for (size_t i = 0; i < n; i++)
        ft_info("parameter-set name %.*s value %.*s", (int)list[i].name.len, list[i].name.ptr,
                (int)list[i].value.len, list[i].value.ptr);
    co_round_kick(app);
    return FT_OK;
}

size_t co_tune_show(const struct co_app *app, const char *names[CO_TUNABLES_MAX],
                    char texts[CO_TUNABLES_MAX][CO_TUNABLE_TEXT_MAX]) {
    _Static_assert(N_NAMES <= CO_TUNABLES_MAX, "every name has its place");
    for (size_t i = 0; i < N_NAMES; i++) {
        names[i] = k_names[i];
        co_config_text(&app->config, k_names[i], texts[i]);
    }
    return N_NAMES;
}

void co_tune_follow(struct co_app *app) {
    if (!app->tuned)
        return;
    app->tuned = false;
    for (struct co_request *r = app->first; r != NULL; r = r->next) {
        if (r->state == CO_REQUEST_ENDED)
            continue;
        co_drafting_follow(r);
        co_sampling_follow(r);
    }
}
