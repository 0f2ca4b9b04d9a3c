#include "gpu/whole_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX FT_WHOLE_ROWS_MAX
#define SCRATCH_BYTES ((size_t)64 << 20)
/* What no test needs to know of: longer than any step, in the clock of a card. */
#define PATIENCE_NS 100000000u

struct whole_model {
    struct whole_shape shape;
    struct k_target target;
    struct ft_op_whole op;
    struct ft_whole_layer *layers; /* host; its pointers are the device's */
    const void *(*matrices)[FT_WHOLE_MATRICES], *head;
    int32_t n_blocks;  /* of KV, of all sequences */
    size_t kv_bytes;   /* of a layer */
    float **kv_before; /* host, [n_layers] */
    float *k, *v, *last, *angles;
    struct ft_span spans[ROWS_MAX];
    int32_t n_spans, table_len; /* blocks of a sequence */
    int32_t *table;             /* host */
    uint64_t random;
    void **memory; /* all that was taken */
    int32_t n_memory;
};

static void must(cudaError_t error, const char *what) {
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

static float draw(struct whole_model *m) {
    m->random = m->random * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(m->random >> 32) * 0x1p-31f;
}

static void *take(struct whole_model *m, size_t bytes) {
    void *memory = NULL;
    must(cudaMalloc(&memory, bytes), "memory");
    m->memory[m->n_memory++] = memory;
    return memory;
}
static void *put(struct whole_model *m, const void *host, size_t bytes) {
    void *memory = take(m, bytes);
    must(cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice), "copy");
    return memory;
}

/* Random up to a size, from there on the same again: large models are for the clock. */
#define DRAWN_MAX ((int64_t)1 << 20)
static void *weights(struct whole_model *m, int64_t n_out, int64_t n_in) {
    int64_t n = n_out * n_in, n_drawn = n < DRAWN_MAX ? n : DRAWN_MAX;
    uint16_t *host = malloc((size_t)n_drawn * sizeof *host);
    float size = 1.0f / sqrtf((float)n_in);
    for (int64_t i = 0; i < n_drawn; i++) {
        float w = draw(m) * size;
        uint32_t bits;
        memcpy(&bits, &w, sizeof bits);
        host[i] = (uint16_t)(bits >> 16);
    }
    uint16_t *memory = take(m, (size_t)n * sizeof *host);
    for (int64_t at = 0; at < n; at += n_drawn)
        must(cudaMemcpy(memory + at, host,
                        (size_t)(n - at < n_drawn ? n - at : n_drawn) * sizeof *host,
                        cudaMemcpyHostToDevice),
             "copy");
    free(host);
    return memory;
}
static float *floats(struct whole_model *m, int64_t n, float from) {
    float *host = malloc((size_t)n * sizeof *host);
    for (int64_t i = 0; i < n; i++)
        host[i] = from + 0.25f * draw(m);
    float *memory = put(m, host, (size_t)n * sizeof *host);
    free(host);
    return memory;
}
static float *biases(struct whole_model *m, int64_t n) {
    return m->shape.has_biases ? floats(m, n, 0.0f) : NULL;
}

static void make_layer(struct whole_model *m, int32_t i) {
    const struct whole_shape *s = &m->shape;
    int32_t q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    m->matrices[i][FT_WHOLE_Q] = weights(m, q, s->hidden);
    m->matrices[i][FT_WHOLE_K] = weights(m, kv, s->hidden);
    m->matrices[i][FT_WHOLE_V] = weights(m, kv, s->hidden);
    m->matrices[i][FT_WHOLE_O] = weights(m, s->hidden, q);
    m->matrices[i][FT_WHOLE_GATE] = weights(m, s->intermediate, s->hidden);
    m->matrices[i][FT_WHOLE_UP] = weights(m, s->intermediate, s->hidden);
    m->matrices[i][FT_WHOLE_DOWN] = weights(m, s->hidden, s->intermediate);
    m->layers[i] = (struct ft_whole_layer){
        .q_bias = biases(m, q),
        .k_bias = biases(m, kv),
        .v_bias = biases(m, kv),
        .o_bias = biases(m, s->hidden),
        .gate_bias = biases(m, s->intermediate),
        .up_bias = biases(m, s->intermediate),
        .down_bias = biases(m, s->hidden),
        .attn_norm = floats(m, s->hidden, 1.0f),
        .mlp_norm = floats(m, s->hidden, 1.0f),
        .window = s->window,
    };
    m->kv_before[i] = malloc(m->kv_bytes);
    for (size_t j = 0; j < m->kv_bytes / sizeof(float); j++)
        m->kv_before[i][j] = draw(m);
    m->layers[i].kv = take(m, m->kv_bytes);
}

/* Of shapes that no map can describe, there are none; such a step is refused. */
static const struct ft_whole_map *make_maps(struct whole_model *m, int32_t n_columns) {
    const struct whole_shape *s = &m->shape;
    int32_t q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    const int32_t n_out[FT_WHOLE_MATRICES] = {
        q, kv, kv, s->hidden, s->intermediate, s->intermediate, s->hidden};
    const int32_t n_in[FT_WHOLE_MATRICES] = {s->hidden, s->hidden, s->hidden,      q,
                                             s->hidden, s->hidden, s->intermediate};
    size_t n = (size_t)s->n_layers * FT_WHOLE_MATRICES + 1;
    struct ft_whole_map *maps = calloc(n, sizeof *maps), *at = maps;
    cudaError_t error = cudaSuccess;
    for (int32_t layer = 0; layer < s->n_layers; layer++)
        for (int i = 0; i < FT_WHOLE_MATRICES && error == cudaSuccess; i++)
            error = k_map_make(at++, m->matrices[layer][i], n_out[i], n_in[i], n_columns);
    if (error == cudaSuccess)
        error = k_map_make(at, m->head, s->vocab, s->hidden, n_columns);
    must(error, "k_map_make");
    const struct ft_whole_map *made = put(m, maps, n * sizeof *maps);
    free(maps);
    return made;
}

static void make_op(struct whole_model *m) {
    const struct whole_shape *s = &m->shape;
    float inv_freq[FT_OPS_HEAD_DIM_MAX];
    for (int32_t i = 0; i < s->head_dim / 2; i++)
        inv_freq[i] = powf(10000.0f, -2.0f * (float)i / (float)s->head_dim);
    struct ft_op_whole *op = &m->op;
    size_t row = sizeof(float) * ROWS_MAX;
    size_t q_bytes = row * (size_t)(s->n_heads * s->head_dim);
    op->n_layers = s->n_layers;
    op->hidden = s->hidden;
    op->intermediate = s->intermediate;
    op->n_heads = s->n_heads;
    op->n_kv_heads = s->n_kv_heads;
    op->head_dim = s->head_dim;
    op->vocab = s->vocab;
    op->eps = 1e-5f;
    op->scale = 1.0f / sqrtf((float)s->head_dim);
    op->embed_elem = FT_ELEM_BF16;
    op->has_biases = s->has_biases;
    m->head = weights(m, s->vocab, s->hidden);
    op->embed = m->head;
    op->maps = make_maps(m, FT_WHOLE_COLUMNS);
    op->half_maps = make_maps(m, FT_WHOLE_COLUMNS / 2);
    op->norm = floats(m, s->hidden, 1.0f);
    op->inv_freq = put(m, inv_freq, sizeof(float) * (size_t)(s->head_dim / 2));
    op->layers = put(m, m->layers, sizeof *m->layers * (size_t)s->n_layers);
    op->x = take(m, row * (size_t)s->hidden);
    op->squares = take(m, row * (size_t)s->hidden / 16);
    op->q = take(m, q_bytes);
    op->normed = take(m, 2 * row * (size_t)s->hidden);
    op->attended = take(m, 2 * q_bytes);
    op->gate = take(m, 2 * row * (size_t)s->intermediate); /* up behind it, for single kernels */
    m->angles = take(m, row * (size_t)s->head_dim);
    op->row_stride = (s->vocab + 15) / 16 * 16 + 16;
    op->rows = take(m, row * (size_t)op->row_stride);
    op->state = take(m, sizeof *op->state);
    op->patience_ns = PATIENCE_NS;
    m->k = take(m, row * (size_t)(s->n_kv_heads * s->head_dim));
    m->v = take(m, row * (size_t)(s->n_kv_heads * s->head_dim));
    m->last = take(m, row * (size_t)s->hidden);
    op->tokens = take(m, row);
    op->positions = take(m, row);
    op->slots = take(m, row);
    op->picks = take(m, row);
    op->pieces = take(m, sizeof(struct ft_span) * ROWS_MAX);
    op->table = put(m, m->table, sizeof(int32_t) * (size_t)m->n_blocks);
}

struct whole_model *whole_model_create(const struct whole_shape *shape, int32_t n_rows_max,
                                       uint64_t seed) {
    struct whole_model *m = calloc(1, sizeof *m);
    m->shape = *shape;
    m->random = seed;
    m->memory = calloc((size_t)(64 + 32 * shape->n_layers), sizeof *m->memory);
    m->table_len = (shape->len_max + FT_OPS_KV_BLOCK - 1) / FT_OPS_KV_BLOCK;
    m->n_blocks = m->table_len * n_rows_max;
    m->kv_bytes = sizeof(float) * (size_t)m->n_blocks *
                  (size_t)ft_kv_block_floats(shape->n_kv_heads, shape->head_dim);
    m->table = malloc(sizeof(int32_t) * (size_t)m->n_blocks);
    int32_t step = 7; /* blocks lie scattered */
    while (m->n_blocks % step == 0)
        step += 4;
    for (int32_t i = 0; i < m->n_blocks; i++)
        m->table[i] = (int32_t)((int64_t)i * step % m->n_blocks);
    m->layers = calloc((size_t)shape->n_layers, sizeof *m->layers);
    m->matrices = calloc((size_t)shape->n_layers, sizeof *m->matrices);
    m->kv_before = calloc((size_t)shape->n_layers, sizeof *m->kv_before);
    for (int32_t i = 0; i < shape->n_layers; i++)
        make_layer(m, i);
    make_op(m);
    int n_processors = 0;
    must(cudaDeviceGetAttribute(&n_processors, cudaDevAttrMultiProcessorCount, 0), "device");
    m->target = (struct k_target){.n_processors = n_processors,
                                  .scratch = take(m, SCRATCH_BYTES),
                                  .scratch_bytes = SCRATCH_BYTES};
    must(k_linear_setup(&m->target), "k_linear_setup");
    must(k_whole_setup(&m->target), "k_whole_setup");
    whole_model_clear(m);
    return m;
}

void whole_model_destroy(struct whole_model *m) {
    while (m->n_memory > 0)
        cudaFree(m->memory[--m->n_memory]);
    for (int32_t i = 0; i < m->shape.n_layers; i++)
        free(m->kv_before[i]);
    free(m->kv_before);
    free(m->layers);
    free(m->matrices);
    free(m->table);
    free(m->memory);
    free(m);
}

struct k_target *whole_model_target(struct whole_model *m) {
    return &m->target;
}
struct ft_op_whole *whole_model_op(struct whole_model *m) {
    return &m->op;
}

static void copy_in(const void *to, const void *from, size_t bytes) {
    must(cudaMemcpy((void *)(uintptr_t)to, from, bytes, cudaMemcpyHostToDevice), "copy");
}

void whole_model_place(struct whole_model *m, const struct whole_seq *seqs, int32_t n_seqs,
                       int32_t n_picks) {
    int32_t tokens[ROWS_MAX], positions[ROWS_MAX], slots[ROWS_MAX], picks[ROWS_MAX], n = 0;
    struct ft_span pieces[ROWS_MAX];
    m->op.n_pieces = m->op.len_max = 0;
    m->op.n_spans = m->n_spans = n_seqs;
    for (int32_t i = 0; i < n_seqs; i++) {
        struct whole_seq seq = seqs[i];
        m->spans[i] = (struct ft_span){n, seq.n_rows, seq.position, i * m->table_len};
        m->op.n_pieces += ft_span_cut(&m->spans[i], pieces + m->op.n_pieces);
        if (seq.position + seq.n_rows > m->op.len_max)
            m->op.len_max = seq.position + seq.n_rows;
        for (int32_t p = seq.position; p < seq.position + seq.n_rows; p++, n++) {
            tokens[n] = (n * 37 + p * 11 + i) % m->shape.vocab;
            positions[n] = p;
            slots[n] = m->table[i * m->table_len + p / FT_OPS_KV_BLOCK] * FT_OPS_KV_BLOCK +
                       p % FT_OPS_KV_BLOCK;
        }
    }
    for (int32_t i = 0; i < n_picks; i++)
        picks[i] = n - n_picks + i;
    m->op.n_rows = n;
    m->op.n_picks = n_picks;
    size_t bytes = sizeof(int32_t) * (size_t)n;
    copy_in(m->op.tokens, tokens, bytes);
    copy_in(m->op.positions, positions, bytes);
    copy_in(m->op.slots, slots, bytes);
    copy_in(m->op.picks, picks, sizeof(int32_t) * (size_t)n_picks);
    copy_in(m->op.pieces, pieces, sizeof *pieces * (size_t)m->op.n_pieces);
}

void whole_model_reset(struct whole_model *m) {
    for (int32_t i = 0; i < m->shape.n_layers; i++)
        copy_in(m->layers[i].kv, m->kv_before[i], m->kv_bytes);
    size_t row = sizeof(float) * ROWS_MAX;
    must(cudaMemset(m->op.rows, 0xFF, row * (size_t)m->op.row_stride), "clear");
    must(cudaMemset(m->op.x, 0xFF, row * (size_t)m->shape.hidden), "clear");
    must(cudaMemset(m->op.attended, 0xFF, row * (size_t)(m->shape.n_heads * m->shape.head_dim)),
         "clear");
}

void whole_model_spoil(struct whole_model *m, int32_t position) {
    int32_t dim = m->shape.head_dim, n_kv = m->shape.n_kv_heads, at = position % FT_OPS_KV_BLOCK;
    int32_t padded = (int32_t)ft_kv_padded_dim(dim);
    float *kv = malloc(m->kv_bytes);
    memcpy(kv, m->kv_before[0], m->kv_bytes);
    for (int32_t h = 0; h < n_kv; h++) {
        float *head = kv + m->table[position / FT_OPS_KV_BLOCK] * ft_kv_block_floats(n_kv, dim) +
                      h * ft_kv_head_floats(dim);
        for (int32_t d = 0; d < dim; d++) {
            head[d * FT_OPS_KV_BLOCK + at] = NAN;
            head[(FT_OPS_KV_BLOCK + at) * padded + d] = INFINITY;
        }
    }
    copy_in(m->layers[0].kv, kv, m->kv_bytes);
    free(kv);
}

static struct ft_matrix matrix(const void *weight, int32_t n_out, const float *bias, float *out,
                               int64_t stride) {
    return (struct ft_matrix){weight, FT_ELEM_BF16, n_out, bias, out, stride};
}

static void note(cudaError_t *first, cudaError_t error) {
    if (*first == cudaSuccess)
        *first = error;
}

static cudaError_t single_qkv(struct whole_model *m, int32_t i) {
    const struct ft_whole_layer *layer = &m->layers[i];
    const void *const *w = m->matrices[i];
    const struct whole_shape *s = &m->shape;
    struct ft_op_whole *op = &m->op;
    int32_t q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    struct ft_op_linear qkv = {.x = op->x,
                               .n_rows = op->n_rows,
                               .n_in = s->hidden,
                               .n_parts = 3,
                               .parts = {matrix(w[FT_WHOLE_Q], q, layer->q_bias, op->q, q),
                                         matrix(w[FT_WHOLE_K], kv, layer->k_bias, m->k, kv),
                                         matrix(w[FT_WHOLE_V], kv, layer->v_bias, m->v, kv)},
                               .norm = layer->attn_norm,
                               .eps = op->eps};
    return k_linear(&m->target, &qkv);
}

static cudaError_t single_layer(struct whole_model *m, int32_t i) {
    const struct ft_whole_layer *layer = &m->layers[i];
    const void *const *w = m->matrices[i];
    const struct whole_shape *s = &m->shape;
    struct ft_op_whole *op = &m->op;
    int32_t q_dim = s->n_heads * s->head_dim;
    struct ft_kv kv = {layer->kv, s->n_kv_heads, s->head_dim};
    cudaError_t error = cudaSuccess;
    note(&error, single_qkv(m, i));
    struct ft_op_rope rope = {.q = op->q,
                              .k = m->k,
                              .v = m->v,
                              .n_rows = op->n_rows,
                              .n_heads = s->n_heads,
                              .angles = m->angles,
                              .slots = op->slots,
                              .eps = op->eps,
                              .kv = kv};
    note(&error, k_rope(&m->target, &rope));
    struct ft_op_attention attention = {.q = op->q,
                                        .out = op->attended,
                                        .n_heads = s->n_heads,
                                        .scale = op->scale,
                                        .window = layer->window,
                                        .spans = m->spans,
                                        .n_spans = m->n_spans,
                                        .pieces = op->pieces,
                                        .n_pieces = op->n_pieces,
                                        .n_rows = op->n_rows,
                                        .len_max = op->len_max,
                                        .blocks = op->table,
                                        .kv = kv};
    note(&error, k_attention(&m->target, &attention));
    struct ft_op_linear o = {
        .x = op->attended,
        .n_rows = op->n_rows,
        .n_in = q_dim,
        .n_parts = 1,
        .parts = {matrix(w[FT_WHOLE_O], s->hidden, layer->o_bias, op->x, s->hidden)},
        .end = FT_LINEAR_ADD};
    note(&error, k_linear(&m->target, &o));
    float *up = (float *)op->gate + (int64_t)ROWS_MAX * s->intermediate;
    struct ft_op_linear gate_up = {
        .x = op->x,
        .n_rows = op->n_rows,
        .n_in = s->hidden,
        .n_parts = 2,
        .parts = {matrix(w[FT_WHOLE_GATE], s->intermediate, layer->gate_bias, op->gate,
                         s->intermediate),
                  matrix(w[FT_WHOLE_UP], s->intermediate, layer->up_bias, up, s->intermediate)},
        .end = FT_LINEAR_SWIGLU,
        .norm = layer->mlp_norm,
        .eps = op->eps};
    note(&error, k_linear(&m->target, &gate_up));
    struct ft_op_linear down = {
        .x = op->gate,
        .n_rows = op->n_rows,
        .n_in = s->intermediate,
        .n_parts = 1,
        .parts = {matrix(w[FT_WHOLE_DOWN], s->hidden, layer->down_bias, op->x, s->hidden)},
        .end = FT_LINEAR_ADD};
    note(&error, k_linear(&m->target, &down));
    return error;
}

cudaError_t whole_model_single(struct whole_model *m) {
    struct ft_op_whole *op = &m->op;
    int32_t hidden = m->shape.hidden;
    cudaError_t error = cudaSuccess;
    struct ft_op_gather embed = {op->embed, op->embed_elem, hidden, op->tokens, op->n_rows, op->x};
    note(&error, k_gather(&m->target, &embed));
    struct ft_op_angles angles = {op->positions, op->inv_freq, op->n_rows, m->shape.head_dim / 2,
                                  m->angles};
    note(&error, k_angles(&m->target, &angles));
    for (int32_t i = 0; i < m->shape.n_layers; i++)
        note(&error, single_layer(m, i));
    if (op->n_picks == 0)
        return error;
    struct ft_op_gather picks = {op->x, FT_ELEM_F32, hidden, op->picks, op->n_picks, m->last};
    note(&error, k_gather(&m->target, &picks));
    struct ft_op_rmsnorm norm = {m->last, op->norm, op->eps, op->n_picks, hidden, m->last};
    note(&error, k_rmsnorm(&m->target, &norm));
    struct ft_op_linear head = {
        .x = m->last,
        .n_rows = op->n_picks,
        .n_in = hidden,
        .n_parts = 1,
        .parts = {matrix(m->head, m->shape.vocab, NULL, op->rows, op->row_stride)}};
    note(&error, k_linear(&m->target, &head));
    return error;
}

cudaError_t whole_model_whole(struct whole_model *m) {
    const char *why = k_whole_refuses(&m->target, &m->op);
    if (why != NULL) {
        fprintf(stderr, "refused: %s\n", why);
        exit(1);
    }
    return k_whole(&m->target, &m->op);
}

float *whole_model_results(struct whole_model *m, int64_t *n) {
    must(cudaDeviceSynchronize(), "sync");
    int64_t rows = m->op.n_picks * m->op.row_stride;
    int64_t kv = (int64_t)(m->kv_bytes / sizeof(float));
    *n = rows + kv * m->shape.n_layers;
    float *out = malloc(sizeof(float) * (size_t)*n);
    must(cudaMemcpy(out, m->op.rows, sizeof(float) * (size_t)rows, cudaMemcpyDeviceToHost), "get");
    for (int32_t i = 0; i < m->shape.n_layers; i++)
        must(cudaMemcpy(out + rows + i * kv, m->layers[i].kv, m->kv_bytes, cudaMemcpyDeviceToHost),
             "get");
    return out;
}

struct ft_whole_state whole_model_state(struct whole_model *m) {
    struct ft_whole_state state;
    must(cudaDeviceSynchronize(), "sync");
    must(cudaMemcpy(&state, m->op.state, sizeof state, cudaMemcpyDeviceToHost), "get");
    return state;
}

void whole_model_clear(struct whole_model *m) {
    must(cudaMemset(m->op.state, 0, sizeof *m->op.state), "clear");
}
