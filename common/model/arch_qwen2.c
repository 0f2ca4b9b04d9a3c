/* Qwen2: biases on q, k and v always, never on o; windows from a layer on. */
#include "common/model/arch.h"
#include "common/model/arch_window.h"

static enum ft_code read_qwen2(const struct ft_config_reader *reader,
                               struct ft_model_config *config, struct ft_err *err) {
    config->attention_bias = true;
    enum ft_code code = ft_arch_refuse_true(reader, "mlp_bias", err);
    if (code != FT_OK)
        return code;
    return ft_arch_window_read_by_layer(reader, config, err);
}

const struct ft_arch ft_arch_qwen2 = {
    .name = "Qwen2ForCausalLM",
    .model_type = "qwen2",
    .default_n_kv_heads = 32,
    .names = &ft_arch_names_llama,
    .read = read_qwen2,
};
