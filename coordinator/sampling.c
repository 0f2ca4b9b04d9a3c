/* The ranges are those of proto/foretoken/v1/inference.proto. */
#include "coordinator/sampling.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"

#define MODULE "request"
#define REJECT(...) ft_err_set(err, FT_E_REQ_INVALID, MODULE, __VA_ARGS__)

struct range {
    const char *field;
    float value, min, max;
};

static enum ft_code check_ranges(const struct range *rows, size_t n, struct ft_err *err) {
    for (size_t i = 0; i < n; i++)
        if (!(rows[i].value >= rows[i].min && rows[i].value <= rows[i].max)) /* NaN too */
            return REJECT("%s is %g: must be %g to %g", rows[i].field, (double)rows[i].value,
                          (double)rows[i].min, (double)rows[i].max);
    return FT_OK;
}
#define CHECK_RANGES(rows) check_ranges(rows, sizeof(rows) / sizeof(rows)[0], err)

static enum ft_code no_memory(const char *field, struct ft_err *err) {
    return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for %s", field);
}

/* ---- lists of ids --------------------------------------------------------------------------- */

enum ft_code co_sampling_check_ids(const struct co_request *r, const char *field,
                                   const int32_t *ids, size_t n, struct ft_err *err) {
    int32_t n_ids = r->app->pair.tokenizer_size;
    for (size_t i = 0; i < n; i++) {
        long long given = r->vllm ? (long long)(uint32_t)ids[i] : ids[i];
        if (given < 0 || given >= n_ids)
            return REJECT("%s[%zu] is %lld: must be 0 to %d", field, i, given, n_ids - 1);
    }
    return FT_OK;
}

static int compare_ids(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

struct ids {
    const int32_t *ptr;
    size_t n;
};

/* A copy of in, ascending and each once. */
static enum ft_code take_ids(struct co_request *r, const char *field, struct ids in,
                             struct ids *out, struct ft_err *err) {
    *out = (struct ids){NULL, 0};
    if (in.n == 0)
        return FT_OK;
    if (in.n > FT_SAMPLING_LIST_MAX)
        return REJECT("%s has %zu ids: at most %d", field, in.n, FT_SAMPLING_LIST_MAX);
    enum ft_code code = co_sampling_check_ids(r, field, in.ptr, in.n, err);
    if (code != FT_OK)
        return code;
    int32_t *made = ft_arena_calloc(r->arena, in.n, sizeof *made);
    if (made == NULL)
        return no_memory(field, err);
    memcpy(made, in.ptr, in.n * sizeof *made);
    qsort(made, in.n, sizeof *made, compare_ids);
    size_t n_kept = 1;
    for (size_t i = 1; i < in.n; i++)
        if (made[i] != made[n_kept - 1])
            made[n_kept++] = made[i];
    *out = (struct ids){made, n_kept};
    return FT_OK;
}

static enum ft_code take_masks(struct co_request *r, const struct ft_wire_params *p,
                               struct ft_err *err) {
    struct ids allowed, banned;
    enum ft_code code =
        take_ids(r, "allowed_token_ids", (struct ids){p->allowed_token_ids, p->n_allowed_token_ids},
                 &allowed, err);
    if (code == FT_OK)
        code = take_ids(r, "banned_token_ids",
                        (struct ids){p->banned_token_ids, p->n_banned_token_ids}, &banned, err);
    if (code != FT_OK)
        return code;
    r->sampling.allowed = allowed.ptr;
    r->sampling.n_allowed = allowed.n;
    r->sampling.banned = banned.ptr;
    r->sampling.n_banned = banned.n;
    return FT_OK;
}

static int compare_bias(const void *a, const void *b) {
    int32_t x = ((const struct ft_bias *)a)->id, y = ((const struct ft_bias *)b)->id;
    return (x > y) - (x < y);
}

static enum ft_code take_bias(struct co_request *r, const struct ft_wire_params *p,
                              struct ft_err *err) {
    if (p->n_logit_bias == 0)
        return FT_OK;
    if (p->n_logit_bias > FT_SAMPLING_LIST_MAX)
        return REJECT("logit_bias has %zu entries: at most %d", p->n_logit_bias,
                      FT_SAMPLING_LIST_MAX);
    struct ft_bias *rows = ft_arena_calloc(r->arena, p->n_logit_bias, sizeof *rows);
    if (rows == NULL)
        return no_memory("logit_bias", err);
    for (size_t i = 0; i < p->n_logit_bias; i++) {
        rows[i] = p->logit_bias[i];
        if (rows[i].id < 0 || rows[i].id >= r->app->pair.tokenizer_size)
            return REJECT("logit_bias has the id %d: must be 0 to %d", rows[i].id,
                          r->app->pair.tokenizer_size - 1);
        if (!(rows[i].value >= -100.0f && rows[i].value <= 100.0f))
            return REJECT("logit_bias of %d is %g: must be -100 to 100", rows[i].id,
                          (double)rows[i].value);
    }
    qsort(rows, p->n_logit_bias, sizeof *rows, compare_bias);
    for (size_t i = 1; i < p->n_logit_bias; i++)
        if (rows[i].id == rows[i - 1].id)
            return REJECT("logit_bias names the id %d twice", rows[i].id);
    r->sampling.bias = rows;
    r->sampling.n_bias = p->n_logit_bias;
    return FT_OK;
}

/* ---- sampling ------------------------------------------------------------------------------- */

static enum ft_code check_params(const struct ft_wire_params *p, struct ft_err *err) {
    const struct range rows[] = {
        {"temperature", p->has_temperature ? p->temperature : 1.0f, 0.0f, 100.0f},
        {"top_p", p->has_top_p ? p->top_p : 1.0f, 0.0f, 1.0f},
        {"min_p", p->min_p, 0.0f, 1.0f},
        {"frequency_penalty", p->frequency_penalty, -2.0f, 2.0f},
        {"presence_penalty", p->presence_penalty, -2.0f, 2.0f},
        {"repetition_penalty", p->has_repetition_penalty ? p->repetition_penalty : 1.0f, 0.01f,
         100.0f},
    };
    enum ft_code code = CHECK_RANGES(rows);
    if (code != FT_OK)
        return code;
    if (p->top_k < -1)
        return REJECT("top_k is %d: must be -1 or more", p->top_k);
    if (p->has_max_tokens && p->max_tokens == 0)
        return REJECT("max_tokens is 0: must be at least 1");
    if (p->has_max_tokens && p->min_tokens > p->max_tokens)
        return REJECT("min_tokens is %u: must be at most max_tokens, which is %u", p->min_tokens,
                      p->max_tokens);
    return FT_OK;
}

static float temperature_in_force(float temperature) {
    return temperature < FT_TEMPERATURE_MIN ? 0.0f : temperature;
}

static int32_t top_k_in_force(const struct co_request *r, int32_t top_k) {
    return top_k > 0 && top_k < r->app->pair.vocab_size ? top_k : 0;
}

static enum ft_code take_params(struct co_request *r, const struct ft_wire_params *p,
                                struct ft_err *err) {
    struct ft_sampling *s = &r->sampling;
    enum ft_code code = check_params(p, err);
    if (code != FT_OK)
        return code;
    *s = ft_sampling_default();
    if (p->has_temperature)
        s->temperature = temperature_in_force(p->temperature);
    if (p->has_top_p)
        s->top_p = p->top_p;
    if (p->has_repetition_penalty)
        s->repetition_penalty = p->repetition_penalty;
    s->top_k = top_k_in_force(r, p->top_k);
    s->min_p = p->min_p;
    s->frequency_penalty = p->frequency_penalty;
    s->presence_penalty = p->presence_penalty;
    s->seed = p->has_seed ? p->seed + (uint64_t)r->index : ft_clock_random_u64();
    code = take_masks(r, p, err);
    return code != FT_OK ? code : take_bias(r, p, err);
}

/* ---- drafts --------------------------------------------------------------------------------- */

static enum ft_code take_k(struct co_request *r, const struct ft_wire_generate *in,
                           struct ft_err *err) {
    r->k = r->app->drafting.policy.k_max;
    r->drafter = r->app->drafting.drafter;
    r->drafter_own = in->drafter.len > 0;
    if (r->drafter_own && co_drafting_find(r->app, in->drafter, &r->drafter, err) != FT_OK)
        return FT_E_REQ_INVALID;
    if (in->has_num_speculative_tokens) {
        if (in->num_speculative_tokens > FT_DRAFT_LEN_MAX)
            return REJECT("num_speculative_tokens is %u: must be 0 to %d",
                          in->num_speculative_tokens, FT_DRAFT_LEN_MAX);
        r->k = (int32_t)in->num_speculative_tokens;
        r->k_own = true;
    }
    r->spec_off = in->has_spec_enabled && !in->spec_enabled;
    r->speculate = !r->spec_off && r->k > 0;
    return FT_OK;
}

static enum ft_code take_draft_sampling(struct co_request *r, const struct ft_wire_spec *in,
                                        struct ft_err *err) {
    const struct range rows[] = {
        {"draft_temperature", in->has_draft_temperature ? in->draft_temperature : 1.0f, 0.0f,
         100.0f},
        {"draft_top_p", in->has_draft_top_p ? in->draft_top_p : 1.0f, 0.0f, 1.0f},
    };
    enum ft_code code = CHECK_RANGES(rows);
    if (code != FT_OK)
        return code;
    if (in->has_draft_top_k && in->draft_top_k < -1)
        return REJECT("draft_top_k is %d: must be -1 or more", in->draft_top_k);
    r->draft_sampling = r->sampling;
    if (in->has_draft_temperature)
        r->draft_sampling.temperature = temperature_in_force(in->draft_temperature);
    if (in->has_draft_top_p)
        r->draft_sampling.top_p = in->draft_top_p;
    if (in->has_draft_top_k)
        r->draft_sampling.top_k = top_k_in_force(r, in->draft_top_k);
    return FT_OK;
}

/* ---- the rule ------------------------------------------------------------------------------- */

static enum ft_code unknown_rule(struct ft_str name, struct ft_err *err) {
    char given[40], known[160] = "";
    size_t len = 0;
    for (; len < name.len && len < sizeof given - 1; len++)
        given[len] = name.ptr[len] > 0x20 && name.ptr[len] < 0x7f ? name.ptr[len] : '?';
    given[len] = 0;
    const struct ft_rule *rule;
    for (size_t i = 0; (rule = ft_rule_at(i)) != NULL; i++) {
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", i == 0 ? "" : ", ", rule->name);
    }
    return REJECT("rejection_sample_method is '%s': must be one of %s", given, known);
}

static enum ft_code take_rule(struct co_request *r, struct ft_str name, struct ft_err *err) {
    const struct ft_rule *rule;
    r->rule = r->app->rule;
    if (name.len == 0)
        return FT_OK;
    r->rule_own = true;
    for (size_t i = 0; (rule = ft_rule_at(i)) != NULL; i++)
        if (ft_str_eq(name, ft_str_c(rule->name)))
            break;
    if (rule == NULL)
        return unknown_rule(name, err);
    if (rule->lossy && rule != r->app->rule && !r->app->config.allow_lossy)
        return REJECT("rejection_sample_method is '%s': it changes the distribution, and this "
                      "service has not set allow_lossy",
                      rule->name);
    r->rule = rule;
    return FT_OK;
}

/* A parameter of another rule would have no effect, and is refused rather than ignored. */
static enum ft_code check_of_rule(const struct co_request *r, const char *field, bool given,
                                  const char *rule, struct ft_err *err) {
    if (!given || strcmp(r->rule->name, rule) == 0)
        return FT_OK;
    return REJECT("%s is set: it is of the rule %s, and rejection_sample_method is %s", field, rule,
                  r->rule->name);
}

static enum ft_code take_lenience(struct co_request *r, const struct ft_wire_spec *in,
                                  struct ft_err *err) {
    r->lenience = in->has_lenience ? in->lenience : (float)r->app->config.lenience;
    r->lenience_own = in->has_lenience;
    r->rule_own = r->rule_own || in->has_lenience;
    const struct range rows[] = {{"lenience", r->lenience, 0.01f, 1.0f}};
    enum ft_code code = check_of_rule(r, "lenience", in->has_lenience, "lenient", err);
    if (code == FT_OK)
        code = CHECK_RANGES(rows);
    if (code == FT_OK && in->has_lenience && !r->app->config.allow_lossy &&
        r->lenience < (float)r->app->config.lenience)
        code = REJECT("lenience is %g: must be at least %g, the service's, which has not set "
                      "allow_lossy",
                      (double)r->lenience, r->app->config.lenience);
    return code;
}

double co_sampling_synthetic_rate(double length, int32_t k) {
    double low = 0.0, high = 1.0;
    if (length >= 1.0 + k)
        return 1.0;
    for (int i = 0; i < 60; i++) { /* to the last bit of a double */
        double a = (low + high) / 2, sum = 0.0;
        for (int32_t j = 0; j < k; j++)
            sum = (sum + 1.0) * a;
        if (sum < length - 1.0)
            low = a;
        else
            high = a;
    }
    return low;
}

static void set_length(struct co_request *r, double length) {
    double rate = co_sampling_synthetic_rate(length, r->k);
    r->synthetic_length = length;
    for (int32_t i = 0; i < FT_DRAFT_LEN_MAX; i++)
        r->synthetic_rates[i] = (float)rate;
}

static void set_rates(struct co_request *r, const float *rates, size_t n) {
    r->synthetic_length = 0;
    for (size_t i = 0; i < FT_DRAFT_LEN_MAX; i++)
        r->synthetic_rates[i] = rates[i < n ? i : n - 1];
}

/* What the service was configured with; false: nothing. */
static bool set_configured(struct co_request *r) {
    const struct co_config *config = &r->app->config;
    if (config->n_synthetic_rates > 0)
        set_rates(r, config->synthetic_rates, config->n_synthetic_rates);
    else if (config->synthetic_acceptance_length > 0.0)
        set_length(r, config->synthetic_acceptance_length);
    else
        return false;
    return true;
}

void co_sampling_follow(struct co_request *r) {
    if (!r->rule_own)
        r->rule = r->app->rule;
    if (!r->lenience_own)
        r->lenience = (float)r->app->config.lenience;
    /* The rule synthetic is never in force without; a length is of rounds as long as they are now.
     */
    if ((r->acceptance_own || !set_configured(r)) && r->synthetic_length > 0)
        set_length(r, r->synthetic_length);
    r->sampling.coupled = r->draft_sampling.coupled = r->rule->coupled;
}

static enum ft_code take_synthetic(struct co_request *r, const struct ft_wire_spec *in,
                                   struct ft_err *err) {
    const size_t n = in->n_synthetic_acceptance_rates;
    const bool has_length = in->has_synthetic_acceptance_length;
    enum ft_code code =
        check_of_rule(r, "synthetic_acceptance_length", has_length, "synthetic", err);
    if (code == FT_OK)
        code = check_of_rule(r, "synthetic_acceptance_rates", n > 0, "synthetic", err);
    if (code != FT_OK || strcmp(r->rule->name, "synthetic") != 0)
        return code;
    if (has_length && n > 0)
        return REJECT("synthetic_acceptance_length and synthetic_acceptance_rates are both set: "
                      "one of them at most");
    if (n > FT_DRAFT_LEN_MAX)
        return REJECT("synthetic_acceptance_rates has %zu entries: at most %d", n,
                      FT_DRAFT_LEN_MAX);
    for (size_t i = 0; i < n; i++)
        if (!(in->synthetic_acceptance_rates[i] >= 0.0f &&
              in->synthetic_acceptance_rates[i] <= 1.0f))
            return REJECT("synthetic_acceptance_rates[%zu] is %g: must be 0 to 1", i,
                          (double)in->synthetic_acceptance_rates[i]);
    if (has_length && !(in->synthetic_acceptance_length >= 1.0f &&
                        in->synthetic_acceptance_length <= (float)(1 + r->k)))
        return REJECT("synthetic_acceptance_length is %g: must be 1 to %d (1 + "
                      "num_speculative_tokens)",
                      (double)in->synthetic_acceptance_length, 1 + r->k);
    r->acceptance_own = n > 0 || has_length;
    r->rule_own = r->rule_own || r->acceptance_own;
    if (n > 0)
        set_rates(r, in->synthetic_acceptance_rates, n);
    else if (has_length)
        set_length(r, (double)in->synthetic_acceptance_length);
    else if (!set_configured(r))
        return REJECT("rejection_sample_method is synthetic: set synthetic_acceptance_length or "
                      "synthetic_acceptance_rates");
    return FT_OK;
}

enum ft_code co_sampling_take(struct co_request *r, const struct ft_wire_generate *in,
                              struct ft_err *err) {
    enum ft_code code = take_params(r, &in->params, err);
    if (code == FT_OK)
        code = take_k(r, in, err);
    if (code == FT_OK)
        code = take_rule(r, in->spec.rejection_sample_method, err);
    if (code == FT_OK)
        code = take_lenience(r, &in->spec, err);
    if (code == FT_OK)
        code = take_synthetic(r, &in->spec, err);
    if (code != FT_OK)
        return code;
    r->sampling.coupled = r->rule->coupled;
    return take_draft_sampling(r, &in->spec, err);
}
