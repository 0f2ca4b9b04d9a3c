/* config: what config.json and generation_config.json say of a model, checked.
 * Owns:    nothing; plain data.
 * Runs in: workers, coordinator (EOS ids); at start.
 * Never:   guesses: an architecture, rope type, activation or dtype it does not know is refused. */
#ifndef FT_MODEL_CONFIG_H
#define FT_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ft_dtype { FT_DTYPE_F32, FT_DTYPE_F16, FT_DTYPE_BF16 };
const char *ft_dtype_name(enum ft_dtype dtype); /* "float32", "float16", "bfloat16" */
int32_t ft_dtype_bytes(enum ft_dtype dtype);

enum ft_rope_kind { FT_ROPE_DEFAULT, FT_ROPE_LINEAR, FT_ROPE_LLAMA3 };

#define FT_EOS_MAX 16

struct ft_model_config {
    char architecture[64]; /* "LlamaForCausalLM" */
    int32_t vocab_size;
    int32_t hidden_size;
    int32_t intermediate_size;
    int32_t n_layers;
    int32_t n_heads;
    int32_t n_kv_heads;
    int32_t head_dim;
    int32_t max_position_embeddings;
    float rms_norm_eps;
    bool tie_word_embeddings;       /* resolved against the files by ft_weights_open */
    bool tie_word_embeddings_given; /* the key is in config.json; else the files decide */
    bool attention_bias;            /* q, k, v have biases */
    bool attention_out_bias;        /* o has one */
    bool mlp_bias;
    bool qk_norm; /* RMSNorm per head on q and k before RoPE */
    enum ft_rope_kind rope_kind;
    float rope_theta;
    float rope_factor;
    float rope_low_freq_factor, rope_high_freq_factor; /* llama3 */
    int32_t rope_original_max_position;                /* llama3 */
    int32_t sliding_window;             /* positions a query sees, itself included; 0: all */
    int32_t sliding_window_first_layer; /* layers at or past it use the window (Qwen2) */
    int32_t bos_token_id;               /* -1: none */
    int32_t eos_token_ids[FT_EOS_MAX];  /* union of both files, ascending */
    int32_t n_eos;
};

/* Read dir/config.json and, where present, dir/generation_config.json; old and new key names
 * (rope_scaling / rope_parameters, torch_dtype / dtype). fail FT_E_PROC_MODEL names file, key and
 * value. */
enum ft_code ft_model_config_load(const char *dir, struct ft_model_config *out, struct ft_err *err);

/* The same from memory. generation.ptr NULL: there is no such file. */
enum ft_code ft_model_config_parse(struct ft_str config, struct ft_str generation,
                                   struct ft_model_config *out, struct ft_err *err);

/* Inverse frequency of each rotary pair, [head_dim / 2]. Source: Su et al. 2021; Llama 3.1 scaling
 * by wavelength bands. */
void ft_model_rope_frequencies(const struct ft_model_config *config, float *out);

#ifdef __cplusplus
}
#endif
#endif
