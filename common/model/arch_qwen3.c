/* Qwen3: RMSNorm on the heads of q and k, biases of attention by flag, windows as Qwen2. */
#include "common/model/arch.h"
#include "common/model/arch_window.h"

static enum ft_code read_qwen3(const struct ft_config_reader *reader,
                               struct ft_model_config *config, struct ft_err *err) {
    config->qk_norm = true;
    enum ft_code code = ft_config_read_bool(reader, "attention_bias", &config->attention_bias, err);
    if (code != FT_OK)
        return code;
    config->attention_out_bias = config->attention_bias;
    code = ft_arch_refuse_true(reader, "mlp_bias", err);
    if (code != FT_OK)
        return code;
    return ft_arch_window_read_by_layer(reader, config, err);
}

const struct ft_arch ft_arch_qwen3 = {
    .name = "Qwen3ForCausalLM",
    .model_type = "qwen3",
    .default_head_dim = 128,
    .default_n_kv_heads = 32,
    .names = &ft_arch_names_llama,
    .read = read_qwen3,
};
