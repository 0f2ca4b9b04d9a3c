#include "common/model/config_rope.h"

#include <math.h>
#include <string.h>

/* What every architecture here takes where config.json is silent. */
#define THETA_DEFAULT 10000.0f
#define THETA_MAX 1e12
#define FACTOR_MAX 1e6

/* The object that holds the scaling: rope_parameters (transformers 5) or rope_scaling (before).
 * scaling->object stays NULL when the file has neither. */
static enum ft_code find_scaling(const struct ft_config_reader *reader,
                                 struct ft_config_reader *scaling, struct ft_err *err) {
    bool has_new = ft_config_read_has(reader, "rope_parameters");
    bool has_old = ft_config_read_has(reader, "rope_scaling");
    if (has_new && has_old)
        return ft_config_read_refuse(reader, "rope_scaling", err,
                                     "beside rope_parameters: one of the two must go");
    if (has_new)
        return ft_config_read_object(reader, "rope_parameters", "rope_parameters.", scaling, err);
    if (has_old)
        return ft_config_read_object(reader, "rope_scaling", "rope_scaling.", scaling, err);
    scaling->object = NULL;
    return FT_OK;
}

/* rope_theta stands beside the scaling in old files, inside it in new ones. */
static enum ft_code read_theta(const struct ft_config_reader *reader,
                               const struct ft_config_reader *scaling, float *out,
                               struct ft_err *err) {
    bool is_inside = scaling->object != NULL && ft_config_read_has(scaling, "rope_theta");
    bool is_beside = ft_config_read_has(reader, "rope_theta");
    float inside = THETA_DEFAULT, beside = THETA_DEFAULT;
    enum ft_code code = FT_OK;
    if (is_inside)
        code = ft_config_read_f32(scaling, "rope_theta", 1, THETA_MAX, &inside, err);
    if (code == FT_OK && is_beside)
        code = ft_config_read_f32(reader, "rope_theta", 1, THETA_MAX, &beside, err);
    if (code != FT_OK)
        return code;
    if (is_inside && is_beside && (inside < beside || inside > beside))
        return ft_config_read_refuse(scaling, "rope_theta", err, "but rope_theta beside it is %g",
                                     (double)beside);
    *out = is_inside ? inside : beside;
    return FT_OK;
}

/* By kind: the keys beside those that every kind has. */
static const struct {
    const char *name;
    const char *keys[4];
} k_kinds[] = {
    [FT_ROPE_DEFAULT] = {"default", {NULL}},
    [FT_ROPE_LINEAR] = {"linear", {"factor"}},
    [FT_ROPE_LLAMA3] = {"llama3",
                        {"factor", "low_freq_factor", "high_freq_factor",
                         "original_max_position_embeddings"}},
};
#define N_KINDS (sizeof k_kinds / sizeof k_kinds[0])

static enum ft_code read_kind(const struct ft_config_reader *scaling, enum ft_rope_kind *out,
                              struct ft_err *err) {
    const char *key = ft_config_read_has(scaling, "rope_type") ? "rope_type" : "type";
    const char *name = NULL;
    enum ft_code code = ft_config_read_str(scaling, key, &name, err);
    if (code != FT_OK)
        return code;
    const char *other = json_string_value(json_object_get(scaling->object, "type"));
    if (other != NULL && strcmp(other, name) != 0)
        return ft_config_read_refuse(scaling, "type", err, "but rope_type is \"%.32s\"", name);
    for (size_t i = 0; i < N_KINDS; i++)
        if (strcmp(k_kinds[i].name, name) == 0) {
            *out = (enum ft_rope_kind)i;
            return FT_OK;
        }
    return ft_config_read_refuse(scaling, key, err, "supported are default, linear and llama3");
}

static bool knows(enum ft_rope_kind kind, const char *key) {
    static const char *const of_all[] = {"rope_type", "type", "rope_theta",
                                         "partial_rotary_factor"};
    for (size_t i = 0; i < sizeof of_all / sizeof of_all[0]; i++)
        if (strcmp(of_all[i], key) == 0)
            return true;
    for (size_t i = 0; i < sizeof k_kinds[kind].keys / sizeof k_kinds[kind].keys[0]; i++)
        if (k_kinds[kind].keys[i] != NULL && strcmp(k_kinds[kind].keys[i], key) == 0)
            return true;
    return false;
}

/* Whatever stands here changes the angles: a key that this kind does not have is refused, and so is
 * a part of a head, as beside the object. */
static enum ft_code check_keys(const struct ft_config_reader *scaling, enum ft_rope_kind kind,
                               struct ft_err *err) {
    json_t *object = (json_t *)(uintptr_t)scaling->object, *value = NULL;
    const char *key = NULL;
    float factor = 1.0f;
    json_object_foreach(object, key, value) {
        if (!json_is_null(value) && !knows(kind, key))
            return ft_config_read_refuse(scaling, key, err, "not supported with rope type \"%s\"",
                                         k_kinds[kind].name);
    }
    if (!ft_config_read_has(scaling, "partial_rotary_factor"))
        return FT_OK;
    return ft_config_read_f32(scaling, "partial_rotary_factor", 1, 1, &factor, err);
}

static enum ft_code read_llama3(const struct ft_config_reader *scaling,
                                struct ft_model_config *config, struct ft_err *err) {
    enum ft_code code = ft_config_read_f32(scaling, "low_freq_factor", 1e-3, FACTOR_MAX,
                                           &config->rope_low_freq_factor, err);
    if (code != FT_OK)
        return code;
    code = ft_config_read_f32(scaling, "high_freq_factor", 1e-3, FACTOR_MAX,
                              &config->rope_high_freq_factor, err);
    if (code != FT_OK)
        return code;
    if (config->rope_high_freq_factor <= config->rope_low_freq_factor)
        return ft_config_read_refuse(scaling, "high_freq_factor", err,
                                     "must be above low_freq_factor, which is %g",
                                     (double)config->rope_low_freq_factor);
    return ft_config_read_i32(scaling, "original_max_position_embeddings", 1,
                              config->max_position_embeddings, &config->rope_original_max_position,
                              err);
}

enum ft_code ft_config_rope_read(const struct ft_config_reader *reader,
                                 struct ft_model_config *config, struct ft_err *err) {
    struct ft_config_reader scaling = {0};
    enum ft_code code = find_scaling(reader, &scaling, err);
    if (code != FT_OK)
        return code;
    code = read_theta(reader, &scaling, &config->rope_theta, err);
    if (code != FT_OK)
        return code;
    config->rope_kind = FT_ROPE_DEFAULT;
    config->rope_factor = 1.0f;
    if (scaling.object != NULL)
        code = read_kind(&scaling, &config->rope_kind, err);
    if (code == FT_OK && scaling.object != NULL)
        code = check_keys(&scaling, config->rope_kind, err);
    if (code != FT_OK || config->rope_kind == FT_ROPE_DEFAULT)
        return code;
    code = ft_config_read_f32(&scaling, "factor", 1, FACTOR_MAX, &config->rope_factor, err);
    if (code != FT_OK || config->rope_kind == FT_ROPE_LINEAR)
        return code;
    return read_llama3(&scaling, config, err);
}

/* Llama 3.1: short waves stay, long ones are stretched by the factor, and between the two bounds
 * the share of each changes linearly in original_max_position / wavelength. */
static double scale_llama3(const struct ft_model_config *config, double frequency) {
    const double two_pi = 6.283185307179586476925;
    double low = config->rope_low_freq_factor, high = config->rope_high_freq_factor;
    double turns = config->rope_original_max_position * frequency / two_pi;
    double keep = (turns - low) / (high - low);
    keep = keep < 0 ? 0 : keep > 1 ? 1 : keep;
    return frequency * (keep + (1 - keep) / config->rope_factor);
}

void ft_model_rope_frequencies(const struct ft_model_config *config, float *out) {
    for (int32_t i = 0; i < config->head_dim / 2; i++) {
        double exponent = 2.0 * i / config->head_dim;
        double frequency = pow(config->rope_theta, -exponent);
        if (config->rope_kind == FT_ROPE_LINEAR)
            frequency /= config->rope_factor;
        if (config->rope_kind == FT_ROPE_LLAMA3)
            frequency = scale_llama3(config, frequency);
        out[i] = (float)frequency;
    }
}
