/* arch: what differs between transformer architectures, one const struct for each.
 * Owns:    nothing; the rows are constants.
 * Runs in: workers, coordinator; at start. Hot code sees struct ft_model_config only.
 * Never:   computes: everything here is names, shapes and the meaning of config keys.
 * A new architecture is one file arch_<name>.c and one row of the table in arch.c. */
#ifndef FT_MODEL_ARCH_H
#define FT_MODEL_ARCH_H

#include <stddef.h>

#include "common/model/config.h"
#include "common/model/config_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One side of a tensor's shape, as the config gives it. */
enum ft_arch_dim {
    FT_DIM_VECTOR, /* rows of a one-dimensional tensor */
    FT_DIM_VOCAB,
    FT_DIM_HIDDEN,
    FT_DIM_INTERMEDIATE,
    FT_DIM_Q,  /* n_heads * head_dim */
    FT_DIM_KV, /* n_kv_heads * head_dim */
    FT_DIM_HEAD
};
int32_t ft_arch_dim_size(enum ft_arch_dim dim, const struct ft_model_config *config);

/* When the model has a tensor. */
enum ft_arch_when {
    FT_WHEN_ALWAYS,
    FT_WHEN_QKV_BIAS,
    FT_WHEN_OUT_BIAS,
    FT_WHEN_MLP_BIAS,
    FT_WHEN_QK_NORM
};
bool ft_arch_when_holds(enum ft_arch_when when, const struct ft_model_config *config);

struct ft_arch_tensor {
    const char *name; /* behind the layer's prefix where it belongs to a layer */
    size_t offset;    /* of its struct ft_tensor in struct ft_layer_weights or struct ft_weights */
    enum ft_arch_dim rows, cols;
    enum ft_arch_when when;
};

struct ft_arch_names {
    const char *layer_prefix; /* the layer's number and a dot follow */
    const struct ft_arch_tensor *layer;
    size_t n_layer;
    const struct ft_arch_tensor *model; /* without the head */
    size_t n_model;
    const char *head; /* absent from the files of a tied model */
};
/* The names that Llama gave and most later models kept. */
extern const struct ft_arch_names ft_arch_names_llama;

struct ft_arch {
    const char *name;       /* in config.json's architectures */
    const char *model_type; /* in config.json */
    /* Where config.json is silent, as the configuration class of transformers has it. */
    int32_t default_head_dim;   /* 0: hidden_size / heads */
    int32_t default_n_kv_heads; /* 0: as many as heads, which null says everywhere */
    const struct ft_arch_names *names;
    /* Biases, norms and windows. The general keys, n_layers and max_position_embeddings among
     * them, are in config already. fail FT_E_PROC_MODEL */
    enum ft_code (*read)(const struct ft_config_reader *reader, struct ft_model_config *config,
                         struct ft_err *err);
};

/* NULL when there is none of that name. */
const struct ft_arch *ft_arch_find(const char *name);
/* Row idx of the table, NULL past its end; for messages that list them. */
const struct ft_arch *ft_arch_at(size_t idx);

/* Refuse key when it is there and neither null nor false: this architecture has no such thing. */
enum ft_code ft_arch_refuse_true(const struct ft_config_reader *reader, const char *key,
                                 struct ft_err *err);

extern const struct ft_arch ft_arch_llama;
extern const struct ft_arch ft_arch_mistral;
extern const struct ft_arch ft_arch_qwen2;
extern const struct ft_arch ft_arch_qwen3;

#ifdef __cplusplus
}
#endif
#endif
