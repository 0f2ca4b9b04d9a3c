#include "common/model/forward.h"

#include <math.h>
#include <string.h>

/* Positions: contexts that differ by less are served by the same program. */
#define LEN_STEP 512

int32_t ft_forward_len(int32_t len) {
    return (len + LEN_STEP - 1) / LEN_STEP * LEN_STEP;
}

/* Where in the batch the next tile starts. */
struct cursor {
    const struct ft_batch_seq *seqs;
    int32_t n_seqs;
    int32_t seq, token;
};

/* What a tile holds. */
struct tile {
    int32_t n_rows, n_spans, n_pieces, n_picks, n_table;
    int32_t len_max; /* positions that its rows look back on lie below it */
};

/* Add up to n tokens of the cursor's sequence to the tile. */
static void add_span(struct ft_plan *plan, struct cursor *at, struct tile *tile, int32_t n) {
    const struct ft_batch_seq *seq = &at->seqs[at->seq];
    struct ft_plan_ids *ids = &plan->ids;
    int32_t position = seq->start + at->token;
    int32_t n_blocks = (position + n - 1) / FT_KV_BLOCK_TOKENS + 1;
    struct ft_span span = {
        .row = tile->n_rows, .n_rows = n, .position = position, .table = tile->n_table};
    memcpy(ids->table + tile->n_table, seq->blocks, (size_t)n_blocks * sizeof(int32_t));
    plan->spans[tile->n_spans++] = span;
    tile->n_pieces += ft_span_cut(&span, ids->pieces + tile->n_pieces);
    if (position + n > tile->len_max)
        tile->len_max = position + n;
    tile->n_table += n_blocks;
    int32_t first_pick = seq->n_tokens - seq->n_logits;
    for (int32_t i = 0; i < n; i++, position++, at->token++) {
        int32_t row = tile->n_rows++;
        ids->tokens[row] = seq->tokens[at->token];
        ids->positions[row] = position;
        ids->slots[row] = seq->blocks[position / FT_KV_BLOCK_TOKENS] * FT_KV_BLOCK_TOKENS +
                          position % FT_KV_BLOCK_TOKENS;
        if (at->token >= first_pick)
            ids->picks[tile->n_picks++] = row;
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

/* All that the tile's operations read of it, in one piece. */
static void copy_ids(struct ft_plan *plan, const struct tile *tile) {
    const char *from = (const char *)plan->ids.tokens;
    const char *end = (const char *)(plan->ids.table + tile->n_table);
    plan->device->kind->copy(plan->device, plan->d_ids.tokens, from, (size_t)(end - from));
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

/* x += o(attention(rope(qkv(norm(x))))) */
static void attention_half(struct ft_plan *plan, const struct ft_op_layer *layer,
                           const struct tile *tile) {
    const struct ft_model_config *config = plan->config;
    const struct ft_ops *ops = plan->device->kind->ops;
    struct ft_op_linear qkv = {
        .x = plan->x,
        .n_rows = tile->n_rows,
        .n_in = config->hidden_size,
        .n_parts = 3,
        .parts = {into(layer->q, plan->q), into(layer->k, plan->k), into(layer->v, plan->v)},
        .end = FT_LINEAR_STORE,
        .norm = layer->attn_norm,
        .eps = config->rms_norm_eps,
        .normed = plan->normed};
    ops->linear(plan->device, &qkv);
    struct ft_op_rope rope = {.q = plan->q,
                              .k = plan->k,
                              .v = plan->v,
                              .n_rows = tile->n_rows,
                              .n_heads = config->n_heads,
                              .angles = plan->angles,
                              .slots = plan->d_ids.slots,
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
                                        .pieces = plan->d_ids.pieces,
                                        .n_pieces = tile->n_pieces,
                                        .n_rows = tile->n_rows,
                                        .len_max = tile->len_max,
                                        .blocks = plan->d_ids.table,
                                        .kv = layer->kv};
    ops->attention(plan->device, &attention);
    linear(plan, plan->attended, tile->n_rows, config->n_heads * config->head_dim,
           into(layer->o, plan->x), FT_LINEAR_ADD);
}

/* x += down(silu(gate(norm(x))) * up(norm(x))) */
static void mlp_half(struct ft_plan *plan, const struct ft_op_layer *layer,
                     const struct tile *tile) {
    const struct ft_model_config *config = plan->config;
    struct ft_op_linear gate_up = {
        .x = plan->x,
        .n_rows = tile->n_rows,
        .n_in = config->hidden_size,
        .n_parts = 2,
        .parts = {into(layer->gate, plan->gate), into(layer->up, plan->up)},
        .end = FT_LINEAR_SWIGLU,
        .norm = layer->mlp_norm,
        .eps = config->rms_norm_eps,
        .normed = plan->normed};
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

static void run_layers(struct ft_plan *plan, const struct tile *tile) {
    gather(plan, plan->embed.weight, plan->embed.elem, plan->d_ids.tokens, tile->n_rows, plan->x);
    struct ft_op_angles angles = {.positions = plan->d_ids.positions,
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

/* The tile's rows whose logits are wanted, behind n_last others of the step. */
static void keep_picks(struct ft_plan *plan, const struct tile *tile, int32_t n_last) {
    if (tile->n_picks > 0)
        gather(plan, plan->x, FT_ELEM_F32, plan->d_ids.picks, tile->n_picks,
               plan->last + (int64_t)n_last * plan->config->hidden_size);
}

static bool is_pinned(const struct ft_plan *plan, const float *rows, int64_t n) {
    const char *begin = plan->pinned, *from = (const char *)rows;
    return begin != NULL && from >= begin &&
           from + n * (int64_t)sizeof(float) <= begin + plan->pinned_bytes;
}

/* Logits of the last rows, into host memory. */
static void run_head(struct ft_plan *plan, int32_t n_rows, float *rows, int64_t row_stride) {
    const struct ft_device_kind *kind = plan->device->kind;
    int32_t hidden = plan->config->hidden_size;
    if (n_rows == 0)
        return;
    struct ft_op_rmsnorm norm = {.x = plan->last,
                                 .weight = plan->norm,
                                 .eps = plan->config->rms_norm_eps,
                                 .n_rows = n_rows,
                                 .n_cols = hidden,
                                 .out = plan->last};
    kind->ops->rmsnorm(plan->device, &norm);
    struct ft_matrix head = plan->head;
    bool is_fetched =
        plan->logits != NULL && rows != plan->logits && !is_pinned(plan, rows, n_rows * row_stride);
    head.out = is_fetched ? plan->logits : rows;
    head.out_stride = is_fetched ? plan->logits_stride : row_stride;
    linear(plan, plan->last, n_rows, hidden, head, FT_LINEAR_STORE);
    for (int32_t i = 0; is_fetched && i < n_rows; i++)
        kind->fetch(plan->device, rows + i * row_stride, plan->logits + i * plan->logits_stride,
                    (size_t)plan->config->vocab_size * sizeof(float));
}

/* As one where the device can, else operation by operation: for a tile that is all of a step, and
 * rows that operations reach. */
static void run_tile(struct ft_plan *plan, const struct tile *tile, float *rows,
                     int64_t row_stride) {
    const struct ft_model_config *config = plan->config;
    struct ft_op_step op = {.layers = plan->layers,
                            .embed = &plan->embed,
                            .head = &plan->head,
                            .norm = plan->norm,
                            .inv_freq = plan->inv_freq,
                            .n_layers = config->n_layers,
                            .hidden = config->hidden_size,
                            .n_heads = config->n_heads,
                            .eps = config->rms_norm_eps,
                            .n_rows = tile->n_rows,
                            .n_spans = tile->n_spans,
                            .n_pieces = tile->n_pieces,
                            .n_picks = tile->n_picks,
                            .len_max = tile->len_max,
                            .tokens = plan->d_ids.tokens,
                            .positions = plan->d_ids.positions,
                            .slots = plan->d_ids.slots,
                            .picks = plan->d_ids.picks,
                            .pieces = plan->d_ids.pieces,
                            .table = plan->d_ids.table,
                            .rows = rows,
                            .row_stride = row_stride};
    if (plan->device->kind->ops->step(plan->device, &op))
        return;
    run_layers(plan, tile);
    keep_picks(plan, tile, 0);
    run_head(plan, tile->n_picks, rows, row_stride);
}

/* A step that is one tile and ends in memory that operations reach: the usual one. Steps alike
 * but for ids and contents are one program of the device. */
static struct ft_device_key key_of(struct tile *tile, float *rows, int64_t row_stride) {
    tile->len_max = ft_forward_len(tile->len_max);
    return (struct ft_device_key){{tile->n_rows, tile->n_pieces, tile->n_picks, tile->len_max,
                                   (int64_t)(uintptr_t)rows, row_stride, tile->n_spans}};
}

static void run_whole(struct ft_plan *plan, struct tile *tile, float *rows, int64_t row_stride) {
    const struct ft_device_kind *kind = plan->device->kind;
    struct ft_device_key key = key_of(tile, rows, row_stride);
    if (kind->begin(plan->device, &key))
        return;
    run_tile(plan, tile, rows, row_stride);
    if (!kind->end(plan->device))
        run_tile(plan, tile, rows, row_stride);
}

static bool is_direct(const struct ft_plan *plan, const struct tile *tile, const float *rows,
                      int64_t row_stride) {
    return rows == plan->logits || is_pinned(plan, rows, tile->n_picks * row_stride);
}

bool ft_forward_note(struct ft_plan *plan, const struct ft_batch_seq *seqs, int32_t n_seqs,
                     float *rows, int64_t row_stride) {
    const struct ft_device_kind *kind = plan->device->kind;
    struct cursor at = {.seqs = seqs, .n_seqs = n_seqs};
    struct tile tile = fill_tile(plan, &at);
    if (at.seq < n_seqs || !is_direct(plan, &tile, rows, row_stride))
        return false;
    struct ft_device_key key = key_of(&tile, rows, row_stride);
    if (!kind->note(plan->device, &key))
        return false;
    run_tile(plan, &tile, rows, row_stride);
    kind->end(plan->device);
    return true;
}

void ft_forward_start(struct ft_plan *plan, const struct ft_batch_seq *seqs, int32_t n_seqs,
                      float *rows, int64_t row_stride) {
    struct cursor at = {.seqs = seqs, .n_seqs = n_seqs};
    struct tile tile = fill_tile(plan, &at);
    copy_ids(plan, &tile);
    if (at.seq == n_seqs && is_direct(plan, &tile, rows, row_stride)) {
        run_whole(plan, &tile, rows, row_stride);
        return;
    }
    int32_t n_last = 0;
    for (;;) {
        run_layers(plan, &tile);
        keep_picks(plan, &tile, n_last);
        n_last += tile.n_picks;
        if (at.seq == n_seqs)
            break;
        tile = fill_tile(plan, &at);
        copy_ids(plan, &tile);
    }
    run_head(plan, n_last, rows, row_stride);
}

enum ft_code ft_forward_run(struct ft_plan *plan, const struct ft_batch_seq *seqs, int32_t n_seqs,
                            float *rows, int64_t row_stride, struct ft_err *err) {
    const struct ft_device_kind *kind = plan->device->kind;
    ft_forward_start(plan, seqs, n_seqs, rows, row_stride);
    enum ft_code code = kind->sync(plan->device, err);
    if (code != FT_OK || !kind->gave_up(plan->device))
        return code;
    ft_forward_start(plan, seqs, n_seqs, rows, row_stride);
    return kind->sync(plan->device, err);
}

void ft_forward_token(struct ft_plan *plan, const struct ft_plan_ids *ids, int32_t n_rows,
                      int32_t len_max) {
    struct ft_plan_ids own = plan->d_ids;
    struct tile tile = {.n_rows = n_rows,
                        .n_spans = n_rows,
                        .n_pieces = n_rows,
                        .n_picks = n_rows,
                        .len_max = ft_forward_len(len_max)};
    plan->d_ids = *ids;
    run_tile(plan, &tile, plan->logits, plan->logits_stride);
    plan->d_ids = own;
}
