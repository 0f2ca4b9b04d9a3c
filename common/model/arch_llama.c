/* Llama: biases by flag, on all four projections of attention at once; no windows. */
#include "common/model/arch.h"
#include "common/model/arch_window.h"
#include "common/model/weights.h"

#define LAYER(field) offsetof(struct ft_layer_weights, field)
#define MODEL(field) offsetof(struct ft_weights, field)

static const struct ft_arch_tensor k_layer[] = {
    {"input_layernorm.weight", LAYER(attn_norm), FT_DIM_VECTOR, FT_DIM_HIDDEN, FT_WHEN_ALWAYS},
    {"self_attn.q_proj.weight", LAYER(q), FT_DIM_Q, FT_DIM_HIDDEN, FT_WHEN_ALWAYS},
    {"self_attn.k_proj.weight", LAYER(k), FT_DIM_KV, FT_DIM_HIDDEN, FT_WHEN_ALWAYS},
    {"self_attn.v_proj.weight", LAYER(v), FT_DIM_KV, FT_DIM_HIDDEN, FT_WHEN_ALWAYS},
    {"self_attn.q_proj.bias", LAYER(q_bias), FT_DIM_VECTOR, FT_DIM_Q, FT_WHEN_QKV_BIAS},
    {"self_attn.k_proj.bias", LAYER(k_bias), FT_DIM_VECTOR, FT_DIM_KV, FT_WHEN_QKV_BIAS},
    {"self_attn.v_proj.bias", LAYER(v_bias), FT_DIM_VECTOR, FT_DIM_KV, FT_WHEN_QKV_BIAS},
    {"self_attn.q_norm.weight", LAYER(q_norm), FT_DIM_VECTOR, FT_DIM_HEAD, FT_WHEN_QK_NORM},
    {"self_attn.k_norm.weight", LAYER(k_norm), FT_DIM_VECTOR, FT_DIM_HEAD, FT_WHEN_QK_NORM},
    {"self_attn.o_proj.weight", LAYER(o), FT_DIM_HIDDEN, FT_DIM_Q, FT_WHEN_ALWAYS},
    {"self_attn.o_proj.bias", LAYER(o_bias), FT_DIM_VECTOR, FT_DIM_HIDDEN, FT_WHEN_OUT_BIAS},
    {"post_attention_layernorm.weight", LAYER(mlp_norm), FT_DIM_VECTOR, FT_DIM_HIDDEN,
     FT_WHEN_ALWAYS},
    {"mlp.gate_proj.weight", LAYER(gate), FT_DIM_INTERMEDIATE, FT_DIM_HIDDEN, FT_WHEN_ALWAYS},
    {"mlp.up_proj.weight", LAYER(up), FT_DIM_INTERMEDIATE, FT_DIM_HIDDEN, FT_WHEN_ALWAYS},
    {"mlp.down_proj.weight", LAYER(down), FT_DIM_HIDDEN, FT_DIM_INTERMEDIATE, FT_WHEN_ALWAYS},
    {"mlp.gate_proj.bias", LAYER(gate_bias), FT_DIM_VECTOR, FT_DIM_INTERMEDIATE, FT_WHEN_MLP_BIAS},
    {"mlp.up_proj.bias", LAYER(up_bias), FT_DIM_VECTOR, FT_DIM_INTERMEDIATE, FT_WHEN_MLP_BIAS},
    {"mlp.down_proj.bias", LAYER(down_bias), FT_DIM_VECTOR, FT_DIM_HIDDEN, FT_WHEN_MLP_BIAS},
};

static const struct ft_arch_tensor k_model[] = {
    {"model.embed_tokens.weight", MODEL(embed), FT_DIM_VOCAB, FT_DIM_HIDDEN, FT_WHEN_ALWAYS},
    {"model.norm.weight", MODEL(norm), FT_DIM_VECTOR, FT_DIM_HIDDEN, FT_WHEN_ALWAYS},
};

const struct ft_arch_names ft_arch_names_llama = {
    .layer_prefix = "model.layers.",
    .layer = k_layer,
    .n_layer = sizeof k_layer / sizeof k_layer[0],
    .model = k_model,
    .n_model = sizeof k_model / sizeof k_model[0],
    .head = "lm_head.weight",
};

static enum ft_code read_llama(const struct ft_config_reader *reader,
                               struct ft_model_config *config, struct ft_err *err) {
    enum ft_code code = ft_config_read_bool(reader, "attention_bias", &config->attention_bias, err);
    if (code != FT_OK)
        return code;
    config->attention_out_bias = config->attention_bias;
    code = ft_config_read_bool(reader, "mlp_bias", &config->mlp_bias, err);
    if (code != FT_OK)
        return code;
    return ft_arch_window_refuse(reader, config, err);
}

const struct ft_arch ft_arch_llama = {
    .name = "LlamaForCausalLM",
    .model_type = "llama",
    .names = &ft_arch_names_llama,
    .read = read_llama,
};
