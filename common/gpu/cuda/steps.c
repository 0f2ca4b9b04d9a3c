#include "common/gpu/cuda/steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/gpu/kernels/kernels.h"
#include "common/gpu/kernels/whole.h"

/* How long a step's blocks wait for each other's processors before they give up: many times what
 * it takes another process to end a step, little beside what nobody would notice. */
#define PATIENCE_NS 4000000u
#define ROWS_MAX FT_WHOLE_ROWS_MAX

/* What a model's steps read and write beside what an operation names. */
struct prepared {
    const struct ft_op_layer *of;          /* which model */
    bool is_refused;                       /* it cannot be prepared: formats, shapes, memory */
    void *memory;                          /* dev, all of the following */
    struct ft_whole_map *maps, *half_maps; /* beside each other */
    struct ft_whole_layer *layers;
    struct ft_whole_state *state;
    float *x, *squares, *q;
    void *normed, *attended, *gate;
    bool has_biases;
};

struct ft_cuda_steps {
    struct prepared model; /* a device has one */
    uint32_t *hp_gave_up;  /* host memory that the GPU writes to */
    bool is_wanted;
    bool is_off; /* a step was given up, and what it was part of is being done again */
};

struct ft_cuda_steps *ft_steps_create(bool is_wanted) {
    struct ft_cuda_steps *steps = calloc(1, sizeof *steps);
    if (steps != NULL)
        steps->is_wanted = is_wanted;
    return steps;
}

void ft_steps_destroy(struct ft_cuda_steps **steps) {
    struct ft_cuda_steps *s = *steps;
    if (s == NULL)
        return;
    cudaFree(s->model.memory);
    cudaFreeHost(s->hp_gave_up);
    free(s);
    *steps = NULL;
}

static bool is_fit(const struct ft_matrix *matrix) {
    return matrix->elem == FT_ELEM_BF16 && (uintptr_t)matrix->weight % 16 == 0;
}

static bool is_fit_layer(const struct ft_op_layer *layer) {
    return layer->q_norm == NULL && layer->k_norm == NULL && is_fit(&layer->q) &&
           is_fit(&layer->k) && is_fit(&layer->v) && is_fit(&layer->o) && is_fit(&layer->gate) &&
           is_fit(&layer->up) && is_fit(&layer->down);
}

static bool has_bias(const struct ft_op_layer *layer) {
    return layer->q.bias != NULL || layer->k.bias != NULL || layer->v.bias != NULL ||
           layer->o.bias != NULL || layer->gate.bias != NULL || layer->up.bias != NULL ||
           layer->down.bias != NULL;
}

static void *carve(char *base, size_t *at, size_t bytes) {
    void *p = base == NULL ? NULL : base + *at;
    *at += (bytes + 255) / 256 * 256;
    return p;
}

static size_t lay_out(struct prepared *p, char *base, const struct ft_op_step *op) {
    const struct ft_op_layer *layer = &op->layers[0];
    size_t at = 0, n = (size_t)op->n_layers;
    size_t q_dim = (size_t)layer->q.n_out, intermediate = (size_t)layer->gate.n_out;
    size_t n_maps = n * FT_WHOLE_MATRICES + 1;
    p->maps = carve(base, &at, 2 * n_maps * sizeof *p->maps);
    p->half_maps = p->maps == NULL ? NULL : p->maps + n_maps;
    p->layers = carve(base, &at, n * sizeof *p->layers);
    p->state = carve(base, &at, sizeof *p->state);
    p->x = carve(base, &at, ROWS_MAX * (size_t)op->hidden * sizeof(float));
    p->squares = carve(base, &at, ROWS_MAX * (size_t)op->hidden / 16 * sizeof(float));
    p->q = carve(base, &at, ROWS_MAX * q_dim * sizeof(float));
    p->normed = carve(base, &at, ROWS_MAX * (size_t)op->hidden * FT_WHOLE_PART_BYTES);
    p->attended = carve(base, &at, ROWS_MAX * q_dim * FT_WHOLE_PART_BYTES);
    p->gate = carve(base, &at, ROWS_MAX * intermediate * FT_WHOLE_PART_BYTES);
    return at;
}

static cudaError_t make_maps(struct ft_whole_map *maps, const struct ft_op_step *op,
                             int32_t n_columns) {
    cudaError_t error = cudaSuccess;
    for (int32_t i = 0; i < op->n_layers && error == cudaSuccess; i++) {
        const struct ft_op_layer *layer = &op->layers[i];
        const struct ft_matrix *matrices[FT_WHOLE_MATRICES] = {
            &layer->q, &layer->k, &layer->v, &layer->o, &layer->gate, &layer->up, &layer->down};
        const int32_t n_in[FT_WHOLE_MATRICES] = {op->hidden,       op->hidden, op->hidden,
                                                 layer->q.n_out,   op->hidden, op->hidden,
                                                 layer->gate.n_out};
        for (int k = 0; k < FT_WHOLE_MATRICES && error == cudaSuccess; k++)
            error = k_map_make(maps++, matrices[k]->weight, matrices[k]->n_out, n_in[k], n_columns);
    }
    return error == cudaSuccess
               ? k_map_make(maps, op->head->weight, op->head->n_out, op->hidden, n_columns)
               : error;
}

static void describe_layers(struct ft_whole_layer *layers, const struct ft_op_step *op) {
    for (int32_t i = 0; i < op->n_layers; i++) {
        const struct ft_op_layer *from = &op->layers[i];
        layers[i] = (struct ft_whole_layer){.q_bias = from->q.bias,
                                            .k_bias = from->k.bias,
                                            .v_bias = from->v.bias,
                                            .o_bias = from->o.bias,
                                            .gate_bias = from->gate.bias,
                                            .up_bias = from->up.bias,
                                            .down_bias = from->down.bias,
                                            .attn_norm = from->attn_norm,
                                            .mlp_norm = from->mlp_norm,
                                            .kv = from->kv.base,
                                            .window = from->window};
    }
}

/* Tables of a model, made here and taken over to the GPU, in order with the steps that read them:
 * the stream waits for no other. */
static cudaError_t send_tables(struct prepared *p, const struct k_target *on,
                               const struct ft_op_step *op) {
    size_t n_maps = (size_t)op->n_layers * FT_WHOLE_MATRICES + 1;
    struct ft_whole_map *maps = calloc(2 * n_maps, sizeof *maps);
    struct ft_whole_layer *layers = calloc((size_t)op->n_layers, sizeof *layers);
    cudaError_t error = cudaErrorMemoryAllocation;
    if (maps != NULL && layers != NULL)
        error = make_maps(maps, op, FT_WHOLE_COLUMNS);
    if (error == cudaSuccess)
        error = make_maps(maps + n_maps, op, FT_WHOLE_COLUMNS / 2);
    if (error == cudaSuccess) {
        describe_layers(layers, op);
        error = cudaMemsetAsync(p->state, 0, sizeof *p->state, on->stream);
    }
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(p->maps, maps, 2 * n_maps * sizeof *maps, cudaMemcpyHostToDevice,
                                on->stream);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(p->layers, layers, (size_t)op->n_layers * sizeof *layers,
                                cudaMemcpyHostToDevice, on->stream);
    cudaError_t waited = cudaStreamSynchronize(on->stream); /* what travels is read until then */
    free(maps);
    free(layers);
    return error == cudaSuccess ? waited : error;
}

static cudaError_t prepare(struct ft_cuda_steps *steps, struct k_target *on,
                           const struct ft_op_step *op) {
    struct prepared *p = &steps->model;
    cudaError_t error = k_whole_setup(on);
    if (error == cudaSuccess)
        error = cudaHostAlloc((void **)&steps->hp_gave_up, sizeof *steps->hp_gave_up,
                              cudaHostAllocMapped);
    if (error != cudaSuccess)
        return error;
    *steps->hp_gave_up = 0;
    error = cudaMalloc(&p->memory, lay_out(p, NULL, op));
    if (error != cudaSuccess)
        return error;
    lay_out(p, p->memory, op);
    return send_tables(p, on, op);
}

/* The model's tables; NULL when its steps cannot be done as one. */
static const struct prepared *find(struct ft_cuda_steps *steps, struct k_target *on,
                                   const struct ft_op_step *op) {
    struct prepared *p = &steps->model;
    if (p->of == NULL) {
        p->of = op->layers;
        p->is_refused = !is_fit(op->head);
        for (int32_t i = 0; i < op->n_layers; i++) {
            p->is_refused = p->is_refused || !is_fit_layer(&op->layers[i]);
            p->has_biases = p->has_biases || has_bias(&op->layers[i]);
        }
        if (!p->is_refused && prepare(steps, on, op) != cudaSuccess) {
            (void)cudaGetLastError(); /* nothing else is harmed: steps are done by operations */
            p->is_refused = true;
        }
    }
    return p->of == op->layers && !p->is_refused ? p : NULL;
}

bool ft_steps_run(struct ft_cuda_steps *steps, struct k_target *on, const struct ft_op_step *op,
                  int *error) {
    *error = cudaSuccess;
    if (!steps->is_wanted || steps->is_off || op->n_rows > ROWS_MAX)
        return false;
    const struct prepared *p = find(steps, on, op);
    if (p == NULL)
        return false;
    const struct ft_op_layer *layer = &op->layers[0];
    int32_t head_dim = layer->kv.head_dim;
    struct ft_op_whole whole = {.maps = p->maps,
                                .half_maps = p->half_maps,
                                .layers = p->layers,
                                .n_layers = op->n_layers,
                                .hidden = op->hidden,
                                .intermediate = layer->gate.n_out,
                                .n_heads = op->n_heads,
                                .n_kv_heads = layer->kv.n_heads,
                                .head_dim = head_dim,
                                .vocab = op->head->n_out,
                                .eps = op->eps,
                                .scale = 1.0f / sqrtf((float)head_dim),
                                .embed = op->embed->weight,
                                .embed_elem = op->embed->elem,
                                .has_biases = p->has_biases,
                                .norm = op->norm,
                                .inv_freq = op->inv_freq,
                                .n_rows = op->n_rows,
                                .n_spans = op->n_spans,
                                .n_pieces = op->n_pieces,
                                .n_picks = op->n_picks,
                                .len_max = op->len_max,
                                .tokens = op->tokens,
                                .positions = op->positions,
                                .slots = op->slots,
                                .picks = op->picks,
                                .pieces = op->pieces,
                                .table = op->table,
                                .x = p->x,
                                .squares = p->squares,
                                .q = p->q,
                                .normed = p->normed,
                                .attended = p->attended,
                                .gate = p->gate,
                                .rows = op->rows,
                                .row_stride = op->row_stride,
                                .state = p->state,
                                .gave_up = steps->hp_gave_up,
                                .patience_ns = PATIENCE_NS};
    if (op->head->bias != NULL || k_whole_refuses(on, &whole) != NULL)
        return false;
    *error = k_whole(on, &whole);
    return true;
}

bool ft_steps_gave_up(struct ft_cuda_steps *steps, const struct k_target *on, int *error) {
    *error = cudaSuccess;
    if (steps->hp_gave_up == NULL || *(volatile uint32_t *)steps->hp_gave_up == 0)
        return false;
    *steps->hp_gave_up = 0;
    steps->is_off = true;
    *error = cudaMemsetAsync(steps->model.state, 0, sizeof *steps->model.state, on->stream);
    return true;
}

void ft_steps_again(struct ft_cuda_steps *steps) {
    steps->is_off = false;
}

bool ft_steps_are_off(const struct ft_cuda_steps *steps) {
    return steps->is_off;
}
