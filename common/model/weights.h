/* weights: the tensors of a checkpoint, mapped from safetensors files, in their stored format.
 * Owns:    the file mappings, from open to close; tensors borrow from them.
 * Runs in: workers; at start.
 * Never:   copies a tensor; trusts a number of a header (see safetensors.h). */
#ifndef FT_MODEL_WEIGHTS_H
#define FT_MODEL_WEIGHTS_H

#include "common/model/config.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_tensor {
    const void *data; /* NULL: the model has none (an optional bias) */
    enum ft_dtype dtype;
    int32_t rows, cols; /* row-major [rows, cols]; vectors have rows 1 */
};

struct ft_layer_weights {
    struct ft_tensor attn_norm; /* [1, hidden] */
    struct ft_tensor q, k, v;   /* [heads * head_dim, hidden] */
    struct ft_tensor q_bias, k_bias, v_bias;
    struct ft_tensor q_norm, k_norm; /* [1, head_dim] */
    struct ft_tensor o;              /* [hidden, heads * head_dim] */
    struct ft_tensor o_bias;
    struct ft_tensor mlp_norm;
    struct ft_tensor gate, up; /* [intermediate, hidden] */
    struct ft_tensor down;     /* [hidden, intermediate] */
    struct ft_tensor gate_bias, up_bias, down_bias;
};

struct ft_weights {
    struct ft_tensor embed;          /* [vocab, hidden] */
    struct ft_tensor norm;           /* [1, hidden] */
    struct ft_tensor head;           /* [vocab, hidden]; the same data as embed when tied */
    struct ft_layer_weights *layers; /* [n_layers] */
    uint64_t n_parameters;           /* each stored number once */
    uint64_t bytes;
    uint64_t fingerprint; /* of names, shapes and a few numbers of each tensor; never 0 */
    enum ft_dtype dtype;  /* of the projections */
    struct ft_weights_files *files;
};

/* Map dir's checkpoint and bind every tensor that the architecture needs, by name and shape.
 * config->tie_word_embeddings is resolved: a head that is not in the files is the embeddings,
 * unless the config says false outright; a head beside "true" must equal the embeddings byte for
 * byte (versions of transformers disagree on which of two different ones counts).
 * fail FT_E_PROC_MODEL names file, tensor and reason: missing shard or tensor, a tensor that the
 * architecture does not have (stored rotary frequencies are ignored), wrong shape or dtype,
 * projections of mixed dtypes, bad header, truncated or overlong file. */
enum ft_code ft_weights_open(struct ft_weights *out, const char *dir,
                             struct ft_model_config *config, struct ft_err *err);
void ft_weights_close(struct ft_weights *weights);

#ifdef __cplusplus
}
#endif
#endif
