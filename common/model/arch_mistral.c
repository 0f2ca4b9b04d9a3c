/* Mistral: Llama without biases, with one window for all layers. */
#include "common/model/arch.h"
#include "common/model/arch_window.h"

static enum ft_code read_mistral(const struct ft_config_reader *reader,
                                 struct ft_model_config *config, struct ft_err *err) {
    enum ft_code code = ft_arch_refuse_true(reader, "attention_bias", err);
    if (code != FT_OK)
        return code;
    code = ft_arch_refuse_true(reader, "mlp_bias", err);
    if (code != FT_OK)
        return code;
    return ft_arch_window_read(reader, config, err);
}

const struct ft_arch ft_arch_mistral = {
    .name = "MistralForCausalLM",
    .model_type = "mistral",
    .default_n_kv_heads = 8,
    .names = &ft_arch_names_llama,
    .read = read_mistral,
};
