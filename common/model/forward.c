#include "common/model/forward.h"

#include <math.h>
#include <string.h>

/* Where in the batch the next tile starts. */
struct cursor {
    const struct ft_batch_seq *seqs;
    int32_t n_seqs;
    int32_t seq, token;
};

/* What a tile holds. */
struct tile {
    int32_t n_rows, n_spans, n_picks, n_table;
};

/* Add up to n tokens of the cursor's sequence to the tile. */
static void add_span(struct ft_plan *plan, struct cursor *at, struct tile *tile, int32_t n) {
    const struct ft_batch_seq *seq = &at->seqs[at->seq];
    int32_t position = seq->start + at->token;
    int32_t n_blocks = (position + n - 1) / FT_KV_BLOCK_TOKENS + 1;
    memcpy(plan->table + tile->n_table, seq->blocks, (size_t)n_blocks * sizeof(int32_t));
    plan->spans[tile->n_spans++] = (struct ft_span){
        .row = tile->n_rows, .n_rows = n, .position = position, .table = tile->n_table};
    tile->n_table += n_blocks;
    int32_t first_pick = seq->n_tokens - seq->n_logits;
    for (int32_t i = 0; i < n; i++, position++, at->token++) {
        int32_t row = tile->n_rows++;
        plan->tokens[row] = seq->tokens[at->token];
        plan->positions[row] = position;
        plan->slots[row] = seq->blocks[position / FT_KV_BLOCK_TOKENS] * FT_KV_BLOCK_TOKENS +
                           position % FT_KV_BLOCK_TOKENS;
        if (at->token >= first_pick)
            plan->picks[tile->n_picks++] = row;
    }
}

/* Take as many tokens as fit, in order. A sequence that is cut goes on in the next tile, when
 * its earlier positions are in the KV memory already. */
static struct tile fill_tile(struct ft_plan *plan, struct cursor *at) {
    struct tile tile = {0};
    while (at->seq < at->n_seqs && tile.n_rows < plan->n_tile) {
        const struct ft_batch_seq *seq = &at->seqs[at->seq];
        int32_t n = seq->n_tokens - at->token;
        if (n > plan->n_tile - tile.n_rows)
            n = plan->n_tile - tile.n_rows;
        int32_t n_blocks = (seq->start + at->token + n - 1) / FT_KV_BLOCK_TOKENS + 1;
        if (n_blocks > plan->n_table - tile.n_table)
            break;
        add_span(plan, at, &tile, n);
        if (at->token == seq->n_tokens) {
            at->seq++;
            at->token = 0;
        }
    }
    return tile;
}

static void copy_ids(struct ft_plan *plan, int32_t *to, const int32_t *from, int32_t n) {
    plan->device->kind->copy(plan->device, to, from, (size_t)n * sizeof(int32_t));
}

static void linear(struct ft_plan *plan, const float *x, int32_t n_rows, int32_t n_in,
                   struct ft_matrix matrix, enum ft_linear_end end) {
    struct ft_op_linear op = {
        .x = x, .n_rows = n_rows, .n_in = n_in, .n_parts = 1, .parts = {matrix}, .end = end};
    plan->device->kind->ops->linear(plan->device, &op);
}

static struct ft_matrix into(struct ft_matrix matrix, float *out) {
    matrix.out = out;
    matrix.out_stride = matrix.n_out;
    return matrix;
}

static void norm(struct ft_plan *plan, const float *x, const float *weight, int32_t n_rows,
                 float *out) {
    struct ft_op_rmsnorm op = {.x = x,
                               .weight = weight,
                               .eps = plan->config->rms_norm_eps,
                               .n_rows = n_rows,
                               .n_cols = plan->config->hidden_size,
                               .out = out};
    plan->device->kind->ops->rmsnorm(plan->device, &op);
}

/* x += o(attention(rope(qkv(norm(x))))) */
static void attention_half(struct ft_plan *plan, const struct ft_plan_layer *layer,
                           const struct tile *tile) {
    const struct ft_model_config *config = plan->config;
    const struct ft_ops *ops = plan->device->kind->ops;
    norm(plan, plan->x, layer->attn_norm, tile->n_rows, plan->normed);
    struct ft_op_linear qkv = {
        .x = plan->normed,
        .n_rows = tile->n_rows,
        .n_in = config->hidden_size,
        .n_parts = 3,
        .parts = {into(layer->q, plan->q), into(layer->k, plan->k), into(layer->v, plan->v)},
        .end = FT_LINEAR_STORE};
    ops->linear(plan->device, &qkv);
    struct ft_op_rope rope = {.q = plan->q,
                              .k = plan->k,
                              .v = plan->v,
                              .n_rows = tile->n_rows,
                              .n_heads = config->n_heads,
                              .angles = plan->angles,
                              .slots = plan->d_slots,
                              .q_norm = layer->q_norm,
                              .k_norm = layer->k_norm,
                              .eps = config->rms_norm_eps,
                              .kv = layer->kv};
    ops->rope(plan->device, &rope);
    struct ft_op_attention attention = {.q = plan->q,
                                        .out = plan->attended,
                                        .n_heads = config->n_heads,
                                        .scale = 1.0f / sqrtf((float)config->head_dim),
                                        .window = layer->window,
                                        .spans = plan->spans,
                                        .n_spans = tile->n_spans,
                                        .blocks = plan->d_table,
                                        .kv = layer->kv};
    ops->attention(plan->device, &attention);
    linear(plan, plan->attended, tile->n_rows, config->n_heads * config->head_dim,
           into(layer->o, plan->x), FT_LINEAR_ADD);
}

/* x += down(silu(gate(norm(x))) * up(norm(x))) */
static void mlp_half(struct ft_plan *plan, const struct ft_plan_layer *layer,
                     const struct tile *tile) {
    const struct ft_model_config *config = plan->config;
    norm(plan, plan->x, layer->mlp_norm, tile->n_rows, plan->normed);
    struct ft_op_linear gate_up = {
        .x = plan->normed,
        .n_rows = tile->n_rows,
        .n_in = config->hidden_size,
        .n_parts = 2,
        .parts = {into(layer->gate, plan->gate), into(layer->up, plan->up)},
        .end = FT_LINEAR_SWIGLU};
    plan->device->kind->ops->linear(plan->device, &gate_up);
    linear(plan, plan->gate, tile->n_rows, config->intermediate_size, into(layer->down, plan->x),
           FT_LINEAR_ADD);
}

/* Rows of a table (the embedding, or the tile's own positions) by index. */
static void gather(struct ft_plan *plan, const void *src, enum ft_elem elem, const int32_t *idx,
                   int32_t n_rows, float *out) {
    struct ft_op_gather op = {.src = src,
                              .elem = elem,
                              .n_cols = plan->config->hidden_size,
                              .idx = idx,
                              .n_rows = n_rows,
                              .out = out};
    plan->device->kind->ops->gather(plan->device, &op);
}

static void run_tile(struct ft_plan *plan, const struct tile *tile) {
    copy_ids(plan, plan->d_tokens, plan->tokens, tile->n_rows);
    copy_ids(plan, plan->d_positions, plan->positions, tile->n_rows);
    copy_ids(plan, plan->d_slots, plan->slots, tile->n_rows);
    copy_ids(plan, plan->d_table, plan->table, tile->n_table);
    gather(plan, plan->embed.weight, plan->embed.elem, plan->d_tokens, tile->n_rows, plan->x);
    struct ft_op_angles angles = {.positions = plan->d_positions,
                                  .inv_freq = plan->inv_freq,
                                  .n_rows = tile->n_rows,
                                  .n_pairs = plan->config->head_dim / 2,
                                  .out = plan->angles};
    plan->device->kind->ops->angles(plan->device, &angles);
    for (int32_t i = 0; i < plan->config->n_layers; i++) {
        attention_half(plan, &plan->layers[i], tile);
        mlp_half(plan, &plan->layers[i], tile);
    }
}

enum ft_code ft_forward_run(struct ft_plan *plan, const struct ft_batch_seq *seqs, int32_t n_seqs,
                            float *rows, int64_t row_stride, struct ft_err *err) {
    struct cursor at = {.seqs = seqs, .n_seqs = n_seqs};
    int32_t n_last = 0, hidden = plan->config->hidden_size;
    while (at.seq < n_seqs) {
        struct tile tile = fill_tile(plan, &at);
        run_tile(plan, &tile);
        if (tile.n_picks == 0)
            continue;
        copy_ids(plan, plan->d_picks, plan->picks, tile.n_picks);
        gather(plan, plan->x, FT_ELEM_F32, plan->d_picks, tile.n_picks,
               plan->last + (int64_t)n_last * hidden);
        n_last += tile.n_picks;
    }
    if (n_last > 0) {
        norm(plan, plan->last, plan->norm, n_last, plan->last);
        struct ft_matrix head = plan->head;
        head.out = rows;
        head.out_stride = row_stride;
        linear(plan, plan->last, n_last, hidden, head, FT_LINEAR_STORE);
    }
    return plan->device->kind->sync(plan->device, err);
}
