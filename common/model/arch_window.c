#include "common/model/arch_window.h"

#include <string.h>

/* What transformers assumes where a Qwen config does not say. */
#define QWEN_MAX_WINDOW_LAYERS 28

/* MistralConfig of transformers (models/mistral/configuration_mistral.py) where the key is absent;
 * null is no window there. */
#define MISTRAL_WINDOW 4096

/* First sliding layer of layer_types, n_layers when there is none. */
static enum ft_code read_layer_types(const struct ft_config_reader *reader, int32_t n_layers,
                                     int32_t *out, struct ft_err *err) {
    const json_t *list = json_object_get(reader->object, "layer_types");
    if (!json_is_array(list) || json_array_size(list) != (size_t)n_layers)
        return ft_config_read_refuse(reader, "layer_types", err,
                                     "must be a list of %d strings, one per layer", n_layers);
    int32_t first = n_layers;
    for (int32_t i = 0; i < n_layers; i++) {
        const char *type = json_string_value(json_array_get(list, (size_t)i));
        bool is_sliding = type != NULL && strcmp(type, "sliding_attention") == 0;
        if (!is_sliding && (type == NULL || strcmp(type, "full_attention") != 0))
            return ft_config_read_refuse(reader, "layer_types", err,
                                         "entry %d is \"%.32s\", known are \"full_attention\" and "
                                         "\"sliding_attention\"",
                                         i, type == NULL ? "no string" : type);
        if (is_sliding && first == n_layers)
            first = i;
        if (!is_sliding && first != n_layers)
            return ft_config_read_refuse(reader, "layer_types", err,
                                         "layer %d is full behind sliding layer %d: only full "
                                         "layers followed by sliding ones are supported",
                                         i, first);
    }
    *out = first;
    return FT_OK;
}

/* layer_types, which this architecture does not need, must not contradict config. */
static enum ft_code check_layer_types(const struct ft_config_reader *reader,
                                      const struct ft_model_config *config, struct ft_err *err) {
    if (!ft_config_read_has(reader, "layer_types"))
        return FT_OK;
    int32_t first = 0;
    enum ft_code code = read_layer_types(reader, config->n_layers, &first, err);
    if (code != FT_OK)
        return code;
    int32_t expected = config->sliding_window > 0 ? 0 : config->n_layers;
    if (first != expected)
        return ft_config_read_refuse(reader, "layer_types", err,
                                     "first sliding layer is %d, but sliding_window says %d", first,
                                     expected);
    return FT_OK;
}

enum ft_code ft_arch_window_refuse(const struct ft_config_reader *reader,
                                   struct ft_model_config *config, struct ft_err *err) {
    bool use = true; /* Converted Qwen models keep both keys, with this one false. */
    enum ft_code code = ft_config_read_bool(reader, "use_sliding_window", &use, err);
    if (code != FT_OK)
        return code;
    if (use && ft_config_read_has(reader, "sliding_window"))
        return ft_config_read_refuse(reader, "sliding_window", err,
                                     "but this architecture has no windows");
    config->sliding_window = 0;
    return check_layer_types(reader, config, err);
}

enum ft_code ft_arch_window_read(const struct ft_config_reader *reader,
                                 struct ft_model_config *config, struct ft_err *err) {
    int32_t window = ft_config_read_names(reader, "sliding_window") ? 0 : MISTRAL_WINDOW;
    if (ft_config_read_has(reader, "sliding_window")) {
        enum ft_code code =
            ft_config_read_i32(reader, "sliding_window", 1, INT32_MAX, &window, err);
        if (code != FT_OK)
            return code;
    }
    config->sliding_window = window;
    config->sliding_window_first_layer = 0;
    return check_layer_types(reader, config, err);
}

enum ft_code ft_arch_window_read_by_layer(const struct ft_config_reader *reader,
                                          struct ft_model_config *config, struct ft_err *err) {
    bool use = false;
    enum ft_code code = ft_config_read_bool(reader, "use_sliding_window", &use, err);
    if (code != FT_OK)
        return code;
    int32_t window = 0;
    /* null is "no window" and fine; a missing number is not guessed. */
    if (use && !json_is_null(json_object_get(reader->object, "sliding_window"))) {
        code = ft_config_read_i32(reader, "sliding_window", 1, INT32_MAX, &window, err);
        if (code != FT_OK)
            return code;
    }
    int32_t first = window > 0 ? QWEN_MAX_WINDOW_LAYERS : config->n_layers;
    if (ft_config_read_has(reader, "layer_types")) {
        code = read_layer_types(reader, config->n_layers, &first, err);
        if (code == FT_OK && first < config->n_layers && window == 0)
            code =
                ft_config_read_refuse(reader, "layer_types", err,
                                      "layer %d is sliding, but there is no sliding_window", first);
    } else if (window > 0 && ft_config_read_has(reader, "max_window_layers")) {
        code = ft_config_read_i32(reader, "max_window_layers", 0, INT32_MAX, &first, err);
    }
    if (code != FT_OK)
        return code;
    bool is_used = window > 0 && first < config->n_layers;
    config->sliding_window = is_used ? window : 0;
    config->sliding_window_first_layer = is_used ? first : 0;
    return FT_OK;
}
