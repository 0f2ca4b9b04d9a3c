#include "common/model/plan.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(FT_KV_BLOCK_TOKENS == FT_OPS_KV_BLOCK, "the device layer has the same blocks");
_Static_assert((int)FT_DTYPE_F32 == FT_ELEM_F32 && (int)FT_DTYPE_F16 == FT_ELEM_F16 &&
                   (int)FT_DTYPE_BF16 == FT_ELEM_BF16,
               "the device layer counts formats alike");

/* A tile holds the block tables of all its sequences; this many entries let short sequences
 * share one. */
#define TABLE_MIN 16384

/* Cuts one piece of memory into arrays; with base NULL it only adds up. */
struct carve {
    char *base;
    size_t at;
};

static void *carve(struct carve *c, int64_t count, size_t size) {
    void *p = c->base == NULL ? NULL : c->base + c->at;
    c->at += ((size_t)count * size + 63) / 64 * 64;
    return p;
}

static float *carve_floats(struct carve *c, int64_t rows, int64_t cols) {
    return carve(c, rows * cols, sizeof(float));
}

static void carve_ids(const struct ft_plan *plan, struct carve *c, struct ft_plan_ids *ids) {
    int64_t n = plan->n_tile;
    ids->tokens = carve(c, n, sizeof(int32_t));
    ids->positions = carve(c, n, sizeof(int32_t));
    ids->slots = carve(c, n, sizeof(int32_t));
    ids->picks = carve(c, n, sizeof(int32_t));
    ids->pieces = carve(c, n, sizeof(struct ft_span));
    ids->table = carve(c, plan->n_table, sizeof(int32_t));
}

static void carve_device(struct ft_plan *plan, struct carve *c, int32_t max_rows) {
    const struct ft_model_config *config = plan->config;
    int64_t n = plan->n_tile;
    int64_t q_dim = (int64_t)config->n_heads * config->head_dim;
    int64_t kv_dim = (int64_t)config->n_kv_heads * config->head_dim;
    plan->x = carve_floats(c, n, config->hidden_size);
    plan->normed = carve_floats(c, n, config->hidden_size);
    plan->q = carve_floats(c, n, q_dim);
    plan->k = carve_floats(c, n, kv_dim);
    plan->v = carve_floats(c, n, kv_dim);
    plan->attended = carve_floats(c, n, q_dim);
    plan->gate = carve_floats(c, n, config->intermediate_size);
    plan->up = carve_floats(c, n, config->intermediate_size);
    plan->angles = carve_floats(c, n, config->head_dim);
    plan->last = carve_floats(c, max_rows, config->hidden_size);
    carve_ids(plan, c, &plan->d_ids);
    plan->logits_stride = ((int64_t)config->vocab_size + 15) / 16 * 16;
    plan->logits = NULL;
    if (!plan->device->kind->is_host)
        plan->logits = carve_floats(c, max_rows, plan->logits_stride);
}

static void carve_host(struct ft_plan *plan, struct carve *c) {
    plan->layers = carve(c, plan->config->n_layers, sizeof *plan->layers);
    carve_ids(plan, c, &plan->ids);
    plan->spans = carve(c, plan->n_tile, sizeof *plan->spans);
}

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static enum ft_code check_option(const char *name, int32_t value, struct ft_err *err) {
    if (value >= 1)
        return FT_OK;
    return ft_err_set(err, FT_E_PROC_CONFIG, "model", "%s is %d, must be at least 1", name, value);
}

/* What the kernels lean on; the loader has more to say of a model. */
static enum ft_code check_model(const struct ft_model_config *config, struct ft_err *err) {
    if (config->head_dim < 2 || config->head_dim % 2 != 0 || config->head_dim > FT_OPS_HEAD_DIM_MAX)
        return ft_err_set(err, FT_E_PROC_MODEL, "model",
                          "head_dim is %d, must be even and at most %d", config->head_dim,
                          FT_OPS_HEAD_DIM_MAX);
    if (config->n_kv_heads < 1 || config->n_heads % config->n_kv_heads != 0)
        return ft_err_set(err, FT_E_PROC_MODEL, "model",
                          "num_attention_heads %d is not a multiple of num_key_value_heads %d",
                          config->n_heads, config->n_kv_heads);
    return FT_OK;
}

static enum ft_code set_sizes(struct ft_plan *plan, const struct ft_model_opts *opts,
                              struct ft_err *err) {
    const struct ft_model_config *config = plan->config;
    enum ft_code code = check_model(config, err);
    if (code == FT_OK)
        code = check_option("max_step_tokens", opts->max_step_tokens, err);
    if (code == FT_OK)
        code = check_option("max_step_rows", opts->max_step_rows, err);
    if (code != FT_OK)
        return code;
    if (opts->max_model_len < 0 || opts->max_model_len > config->max_position_embeddings)
        return ft_err_set(err, FT_E_PROC_CONFIG, "model",
                          "max_model_len is %d, the model has %d positions", opts->max_model_len,
                          config->max_position_embeddings);
    plan->max_len = opts->max_model_len > 0 ? opts->max_model_len : config->max_position_embeddings;

    int64_t position_floats =
        2LL * config->hidden_size + 2LL * config->intermediate_size +
        (2LL * config->n_heads + 2LL * config->n_kv_heads + 1) * config->head_dim;
    int64_t n_tile = FT_PLAN_ACTIVATION_BYTES / (position_floats * (int64_t)sizeof(float));
    n_tile = n_tile < 16 ? 16 : min64(n_tile, FT_PLAN_TILE_MAX);
    plan->n_tile = (int32_t)min64(n_tile, opts->max_step_tokens);
    plan->n_table = (plan->max_len - 1) / FT_KV_BLOCK_TOKENS + 1;
    if (plan->n_table < TABLE_MIN)
        plan->n_table = TABLE_MIN;

    int64_t block_bytes = ft_kv_block_floats(config->n_kv_heads, config->head_dim) *
                          config->n_layers * (int64_t)sizeof(float);
    if (opts->kv_bytes < block_bytes)
        return ft_err_set(err, FT_E_PROC_CONFIG, "model",
                          "kv_cache_bytes is %lld, one block of %d positions takes %lld",
                          (long long)opts->kv_bytes, FT_KV_BLOCK_TOKENS, (long long)block_bytes);
    /* slots are numbered in 32 bits */
    plan->n_blocks = (int32_t)min64(opts->kv_bytes / block_bytes, INT32_MAX / FT_KV_BLOCK_TOKENS);
    plan->kv_bytes = (size_t)(plan->n_blocks * block_bytes);
    return FT_OK;
}

static enum ft_code take_memory(struct ft_plan *plan, int32_t max_rows, struct ft_err *err) {
    struct carve c = {0};
    carve_host(plan, &c);
    plan->host = calloc(1, c.at);
    if (plan->host == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "model", "no memory for %zu bytes of tables",
                          c.at);
    c = (struct carve){.base = plan->host};
    carve_host(plan, &c);

    const struct ft_device_kind *kind = plan->device->kind;
    c = (struct carve){0};
    carve_device(plan, &c, max_rows);
    plan->steps_bytes = c.at;
    enum ft_code code = kind->alloc(plan->device, plan->steps_bytes, &plan->steps, err);
    if (code != FT_OK)
        return ft_err_prefix(err, "activations of %d positions", plan->n_tile);
    c = (struct carve){.base = plan->steps};
    carve_device(plan, &c, max_rows);

    code = kind->alloc(plan->device, plan->kv_bytes, &plan->kv, err);
    return code == FT_OK ? FT_OK
                         : ft_err_prefix(err, "kv_cache_bytes: KV of %d blocks", plan->n_blocks);
}

/* Places tensors; once something failed, does nothing more. */
struct placer {
    struct ft_plan *plan;
    struct carve floats;
    const struct ft_model_opts *opts;
    uint64_t bytes, bytes_total;
    enum ft_code code;
    struct ft_err *err;
};

static struct ft_matrix place(struct placer *placer, const struct ft_tensor *tensor) {
    struct ft_matrix matrix = {.elem = (enum ft_elem)tensor->dtype, .n_out = tensor->rows};
    struct ft_device *device = placer->plan->device;
    size_t bytes =
        (size_t)tensor->rows * (size_t)tensor->cols * (size_t)ft_dtype_bytes(tensor->dtype);
    if (placer->code == FT_OK)
        placer->code =
            device->kind->place(device, tensor->data, bytes, &matrix.weight, placer->err);
    placer->bytes += bytes;
    if (placer->code == FT_OK && placer->opts->progress != NULL)
        placer->opts->progress(placer->opts->progress_user, placer->bytes, placer->bytes_total);
    return matrix;
}

/* Norms and biases are few: they become f32, which a device does exactly. */
static const float *place_floats(struct placer *placer, const struct ft_tensor *tensor) {
    if (tensor->data == NULL)
        return NULL;
    float *out = carve_floats(&placer->floats, 1, tensor->cols);
    if (placer->floats.base == NULL)
        return NULL;
    struct ft_matrix source = place(placer, tensor);
    if (placer->code != FT_OK)
        return NULL;
    struct ft_device *device = placer->plan->device;
    /* tokens are all zeros until the first step: row 0 of the tensor */
    struct ft_op_gather op = {.src = source.weight,
                              .elem = source.elem,
                              .n_cols = tensor->cols,
                              .idx = placer->plan->d_ids.tokens,
                              .n_rows = 1,
                              .out = out};
    device->kind->ops->gather(device, &op);
    return out;
}

static void place_all_floats(struct placer *placer, const struct ft_weights *weights) {
    struct ft_plan *plan = placer->plan;
    plan->norm = place_floats(placer, &weights->norm);
    for (int32_t i = 0; i < plan->config->n_layers; i++) {
        const struct ft_layer_weights *from = &weights->layers[i];
        struct ft_op_layer *layer = &plan->layers[i];
        layer->attn_norm = place_floats(placer, &from->attn_norm);
        layer->mlp_norm = place_floats(placer, &from->mlp_norm);
        layer->q_norm = place_floats(placer, &from->q_norm);
        layer->k_norm = place_floats(placer, &from->k_norm);
        layer->q.bias = place_floats(placer, &from->q_bias);
        layer->k.bias = place_floats(placer, &from->k_bias);
        layer->v.bias = place_floats(placer, &from->v_bias);
        layer->o.bias = place_floats(placer, &from->o_bias);
        layer->gate.bias = place_floats(placer, &from->gate_bias);
        layer->up.bias = place_floats(placer, &from->up_bias);
        layer->down.bias = place_floats(placer, &from->down_bias);
    }
    plan->inv_freq = carve_floats(&placer->floats, 1, plan->config->head_dim / 2);
}

static void place_matrices(struct placer *placer, const struct ft_weights *weights) {
    struct ft_plan *plan = placer->plan;
    const struct ft_model_config *config = plan->config;
    plan->embed = place(placer, &weights->embed);
    bool tied = weights->head.data == weights->embed.data;
    plan->head = tied ? plan->embed : place(placer, &weights->head);
    int64_t layer_floats =
        plan->n_blocks * ft_kv_block_floats(config->n_kv_heads, config->head_dim);
    for (int32_t i = 0; i < config->n_layers; i++) {
        const struct ft_layer_weights *from = &weights->layers[i];
        struct ft_op_layer *layer = &plan->layers[i];
        layer->q = place(placer, &from->q);
        layer->k = place(placer, &from->k);
        layer->v = place(placer, &from->v);
        layer->o = place(placer, &from->o);
        layer->gate = place(placer, &from->gate);
        layer->up = place(placer, &from->up);
        layer->down = place(placer, &from->down);
        layer->kv = (struct ft_kv){.base = (float *)plan->kv + i * layer_floats,
                                   .n_heads = config->n_kv_heads,
                                   .head_dim = config->head_dim};
        layer->window = i >= config->sliding_window_first_layer ? config->sliding_window : 0;
    }
}

static enum ft_code place_weights(struct ft_plan *plan, const struct ft_weights *weights,
                                  const struct ft_model_opts *opts, struct ft_err *err) {
    struct placer placer = {
        .plan = plan, .opts = opts, .bytes_total = weights->bytes, .code = FT_OK, .err = err};
    struct ft_device *device = plan->device;
    place_matrices(&placer, weights); /* first: it sets whole matrices, biases are added */
    if (placer.code != FT_OK)
        return placer.code;
    place_all_floats(&placer, weights);
    plan->floats_bytes = placer.floats.at;
    enum ft_code code = device->kind->alloc(device, plan->floats_bytes, &plan->floats, err);
    if (code != FT_OK)
        return code;
    placer.floats = (struct carve){.base = plan->floats};
    place_all_floats(&placer, weights);
    if (placer.code != FT_OK)
        return placer.code;

    float inv_freq[FT_OPS_HEAD_DIM_MAX / 2];
    ft_model_rope_frequencies(plan->config, inv_freq);
    device->kind->copy(device, (float *)plan->inv_freq, inv_freq,
                       (size_t)(plan->config->head_dim / 2) * sizeof(float));
    return device->kind->sync(device, err);
}

enum ft_code ft_plan_check(const struct ft_model_config *config, const struct ft_model_opts *opts,
                           struct ft_model_sizes *sizes, struct ft_err *err) {
    struct ft_plan plan = {.config = config};
    enum ft_code code = set_sizes(&plan, opts, err);
    if (code == FT_OK)
        code = ft_device_check(opts->device, err);
    if (code == FT_OK)
        *sizes = (struct ft_model_sizes){.max_len = plan.max_len, .kv_blocks = plan.n_blocks};
    return code;
}

enum ft_code ft_plan_create(struct ft_plan **out, const struct ft_model_config *config,
                            const struct ft_weights *weights, const struct ft_model_opts *opts,
                            struct ft_err *err) {
    struct ft_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "model", "no memory for %zu bytes", sizeof *plan);
    plan->config = config;
    struct ft_device_opts device_opts = {.n_threads = opts->n_threads,
                                         .idle_spin_us = FT_DEVICE_IDLE_SPIN_US};
    enum ft_code code = set_sizes(plan, opts, err);
    if (code == FT_OK)
        code = ft_device_open(&plan->device, opts->device, &device_opts, err);
    if (code == FT_OK)
        code = take_memory(plan, opts->max_step_rows, err);
    if (code == FT_OK)
        code = place_weights(plan, weights, opts, err);
    if (code != FT_OK) {
        ft_plan_destroy(&plan);
        return code;
    }
    *out = plan;
    return FT_OK;
}

void ft_plan_destroy(struct ft_plan **plan) {
    struct ft_plan *p = *plan;
    if (p == NULL)
        return;
    if (p->device != NULL) {
        p->device->kind->give_back(p->device, p->steps, p->steps_bytes);
        p->device->kind->give_back(p->device, p->floats, p->floats_bytes);
        p->device->kind->give_back(p->device, p->kv, p->kv_bytes);
        ft_device_close(&p->device);
    }
    free(p->host);
    free(p);
    *plan = NULL;
}
