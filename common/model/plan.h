/* plan: what a model needs on its device to run: placed weights, KV memory, activations.
 * Owns:    the device, its memory and the host tables of one step, from create to destroy.
 * Runs in: draft_worker, target_worker; loop thread only.
 * Never:   allocates after create. */
#ifndef FT_MODEL_PLAN_H
#define FT_MODEL_PLAN_H

#include "common/gpu/device.h"
#include "common/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Positions computed together at most; longer steps run as several tiles, which bounds the
 * activations. Larger tiles would not make the matrices any quicker. */
#define FT_PLAN_TILE_MAX 512
#define FT_PLAN_ACTIVATION_BYTES (32 << 20)

struct ft_plan {
    const struct ft_model_config *config;
    struct ft_device *device;
    struct ft_op_layer *layers; /* [config->n_layers] */
    struct ft_matrix embed;     /* a table of rows, used by gather */
    struct ft_matrix head;
    const float *norm;
    const float *inv_freq; /* [head_dim / 2] */

    int32_t max_len;
    int32_t n_blocks;
    int32_t n_tile;  /* positions computed together */
    int32_t n_table; /* entries of a tile's block tables; one sequence always fits */

    /* device, f32, a row per position of a tile */
    float *x, *normed, *q, *k, *v, *attended, *gate, *up, *angles;
    float *last;   /* the same for positions whose logits are wanted, of the whole step */
    float *logits; /* [max_step_rows, logits_stride] where operations cannot write to the host */
    int64_t logits_stride;
    /* Where operations can write rows: host memory that the device reaches, or its own that is
     * lent.
     */
    void *pinned;
    size_t pinned_bytes;
    bool is_lent;

    /* What a tile holds, on the device and on the host, laid out alike: one copy takes it over. */
    struct ft_plan_ids {
        int32_t *tokens, *positions, *slots, *picks;
        struct ft_span *pieces;
        int32_t *table; /* last: of varying length */
    } d_ids, ids;
    struct ft_span *spans; /* host */

    void *steps, *floats, *kv; /* device memory: of steps, of norms and biases, of KV */
    size_t steps_bytes, floats_bytes, kv_bytes;
    void *host;
};

/* What create finds wrong before it takes anything. fail FT_E_PROC_CONFIG, FT_E_PROC_MODEL */
enum ft_code ft_plan_check(const struct ft_model_config *config, const struct ft_model_opts *opts,
                           struct ft_model_sizes *sizes, struct ft_err *err);
/* weights and config must outlive the plan. fail FT_E_PROC_CONFIG, FT_E_PROC_MODEL,
 * FT_E_PROC_MEMORY, FT_E_PROC_OS */
enum ft_code ft_plan_create(struct ft_plan **out, const struct ft_model_config *config,
                            const struct ft_weights *weights, const struct ft_model_opts *opts,
                            struct ft_err *err);
void ft_plan_destroy(struct ft_plan **plan);

#ifdef __cplusplus
}
#endif
#endif
