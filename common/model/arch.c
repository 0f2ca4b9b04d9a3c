#include "common/model/arch.h"

#include <string.h>

static const struct ft_arch *const k_rows[] = {
    &ft_arch_llama,
    &ft_arch_mistral,
    &ft_arch_qwen2,
    &ft_arch_qwen3,
};

const struct ft_arch *ft_arch_at(size_t idx) {
    return idx < sizeof k_rows / sizeof k_rows[0] ? k_rows[idx] : NULL;
}

const struct ft_arch *ft_arch_find(const char *name) {
    for (size_t i = 0; ft_arch_at(i) != NULL; i++)
        if (strcmp(k_rows[i]->name, name) == 0)
            return k_rows[i];
    return NULL;
}

int32_t ft_arch_dim_size(enum ft_arch_dim dim, const struct ft_model_config *config) {
    switch (dim) {
    case FT_DIM_VECTOR:
        return 1;
    case FT_DIM_VOCAB:
        return config->vocab_size;
    case FT_DIM_HIDDEN:
        return config->hidden_size;
    case FT_DIM_INTERMEDIATE:
        return config->intermediate_size;
    case FT_DIM_Q:
        return config->n_heads * config->head_dim;
    case FT_DIM_KV:
        return config->n_kv_heads * config->head_dim;
    case FT_DIM_HEAD:
        return config->head_dim;
    }
    return 0;
}

bool ft_arch_when_holds(enum ft_arch_when when, const struct ft_model_config *config) {
    switch (when) {
    case FT_WHEN_ALWAYS:
        return true;
    case FT_WHEN_QKV_BIAS:
        return config->attention_bias;
    case FT_WHEN_OUT_BIAS:
        return config->attention_out_bias;
    case FT_WHEN_MLP_BIAS:
        return config->mlp_bias;
    case FT_WHEN_QK_NORM:
        return config->qk_norm;
    }
    return false;
}

enum ft_code ft_arch_refuse_true(const struct ft_config_reader *reader, const char *key,
                                 struct ft_err *err) {
    bool value = false;
    enum ft_code code = ft_config_read_bool(reader, key, &value, err);
    if (code == FT_OK && value)
        return ft_config_read_refuse(reader, key, err, "which this architecture does not have");
    return code;
}
