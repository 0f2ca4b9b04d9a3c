/* config.json, and after a NUL byte generation_config.json. */
#include "common/model/config.h"
#include "fuzz/target.h"

static void check_promises(const struct ft_model_config *c) {
    static float frequencies[512];
    MUST(c->vocab_size > 0 && c->hidden_size > 0 && c->intermediate_size > 0);
    MUST(c->n_layers > 0 && c->n_heads > 0 && c->n_kv_heads > 0);
    MUST(c->n_heads % c->n_kv_heads == 0);
    MUST(c->head_dim >= 2 && c->head_dim % 2 == 0 && c->head_dim <= 1024);
    MUST(c->max_position_embeddings > 0 && c->rms_norm_eps > 0);
    MUST(c->n_eos >= 0 && c->n_eos <= FT_EOS_MAX);
    for (int32_t i = 0; i < c->n_eos; i++)
        MUST(c->eos_token_ids[i] >= 0 && c->eos_token_ids[i] < c->vocab_size);
    ft_model_rope_frequencies(c, frequencies);
    for (int32_t i = 0; i < c->head_dim / 2; i++)
        MUST(frequencies[i] >= 0 && frequencies[i] <= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct ft_model_config config;
    const uint8_t *nul = size > 0 ? memchr(data, 0, size) : NULL;
    size_t n = nul != NULL ? (size_t)(nul - data) : size;
    size_t n_generation = nul != NULL ? size - n - 1 : 0;
    char *text = exact_copy(data, n);
    char *generation = exact_copy(data + n + (nul != NULL), n_generation);
    struct ft_err err = {0};
    enum ft_code code = ft_model_config_parse(
        (struct ft_str){text, n}, (struct ft_str){generation, n_generation}, &config, &err);
    if (code == FT_OK)
        check_promises(&config);
    else
        must_refuse_well(code, &err);
    free(text);
    free(generation);
    return 0;
}
