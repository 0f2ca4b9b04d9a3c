#include "unit/naive_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "unit/ops_reference.h"

/* Tensors of a layer, in the order of enum name. */
enum name {
    ATTN_NORM,
    Q,
    K,
    V,
    Q_BIAS,
    K_BIAS,
    V_BIAS,
    Q_NORM,
    K_NORM,
    O,
    O_BIAS,
    MLP_NORM,
    GATE,
    UP,
    DOWN,
    GATE_BIAS,
    UP_BIAS,
    DOWN_BIAS,
    N_NAMES
};

struct naive_model {
    const struct ft_model_config *config;
    struct ft_weights weights;
    struct ref_stored embed, head, norm;
    struct ref_stored (*layers)[N_NAMES]; /* .values NULL: the model has none */
    uint64_t random;
    int32_t n_made;
};

static void *must_alloc(size_t bytes) {
    void *p = calloc(1, bytes);
    if (p == NULL)
        abort();
    return p;
}

static struct ft_tensor make(struct naive_model *m, struct ref_stored *stored, bool wanted,
                             int32_t rows, int32_t cols) {
    if (!wanted)
        return (struct ft_tensor){0};
    /* vectors f32 but for every third; matrices by turns */
    int32_t i = m->n_made++;
    enum ft_elem elem = (enum ft_elem)(i % 3);
    if (rows == 1 && i % 3 != 1)
        elem = FT_ELEM_F32;
    *stored = ref_store(&m->random, elem, (int64_t)rows * cols, 0);
    return (struct ft_tensor){stored->data, (enum ft_dtype)elem, rows, cols};
}

static void make_layer(struct naive_model *m, int32_t i) {
    const struct ft_model_config *c = m->config;
    struct ft_layer_weights *w = &m->weights.layers[i];
    struct ref_stored *s = m->layers[i];
    int32_t q_dim = c->n_heads * c->head_dim, kv_dim = c->n_kv_heads * c->head_dim;
    w->attn_norm = make(m, &s[ATTN_NORM], true, 1, c->hidden_size);
    w->q = make(m, &s[Q], true, q_dim, c->hidden_size);
    w->k = make(m, &s[K], true, kv_dim, c->hidden_size);
    w->v = make(m, &s[V], true, kv_dim, c->hidden_size);
    w->q_bias = make(m, &s[Q_BIAS], c->attention_bias, 1, q_dim);
    w->k_bias = make(m, &s[K_BIAS], c->attention_bias, 1, kv_dim);
    w->v_bias = make(m, &s[V_BIAS], c->attention_bias, 1, kv_dim);
    w->q_norm = make(m, &s[Q_NORM], c->qk_norm, 1, c->head_dim);
    w->k_norm = make(m, &s[K_NORM], c->qk_norm, 1, c->head_dim);
    w->o = make(m, &s[O], true, c->hidden_size, q_dim);
    w->o_bias = make(m, &s[O_BIAS], c->attention_out_bias, 1, c->hidden_size);
    w->mlp_norm = make(m, &s[MLP_NORM], true, 1, c->hidden_size);
    w->gate = make(m, &s[GATE], true, c->intermediate_size, c->hidden_size);
    w->up = make(m, &s[UP], true, c->intermediate_size, c->hidden_size);
    w->down = make(m, &s[DOWN], true, c->hidden_size, c->intermediate_size);
    w->gate_bias = make(m, &s[GATE_BIAS], c->mlp_bias, 1, c->intermediate_size);
    w->up_bias = make(m, &s[UP_BIAS], c->mlp_bias, 1, c->intermediate_size);
    w->down_bias = make(m, &s[DOWN_BIAS], c->mlp_bias, 1, c->hidden_size);
}

struct naive_model *naive_make(const struct ft_model_config *config, uint64_t seed) {
    struct naive_model *m = must_alloc(sizeof *m);
    m->config = config;
    m->random = seed;
    m->weights.layers = must_alloc((size_t)config->n_layers * sizeof *m->weights.layers);
    m->layers = must_alloc((size_t)config->n_layers * sizeof *m->layers);
    m->weights.embed = make(m, &m->embed, true, config->vocab_size, config->hidden_size);
    m->weights.head = config->tie_word_embeddings
                          ? m->weights.embed
                          : make(m, &m->head, true, config->vocab_size, config->hidden_size);
    m->weights.norm = make(m, &m->norm, true, 1, config->hidden_size);
    for (int32_t i = 0; i < config->n_layers; i++)
        make_layer(m, i);
    return m;
}

void naive_free(struct naive_model *m) {
    ref_free(&m->embed);
    ref_free(&m->head);
    ref_free(&m->norm);
    for (int32_t i = 0; i < m->config->n_layers; i++)
        for (int n = 0; n < N_NAMES; n++)
            ref_free(&m->layers[i][n]);
    free(m->weights.layers);
    free(m->layers);
    free(m);
}

const struct ft_weights *naive_weights(const struct naive_model *m) {
    return &m->weights;
}

void naive_poison(struct naive_model *m, int32_t token) {
    float *row = (float *)m->embed.data + (int64_t)token * m->config->hidden_size;
    for (int32_t i = 0; i < m->config->hidden_size; i++)
        row[i] = NAN;
}

/* y = W x + bias */
static void apply(const struct ref_stored *w, const struct ref_stored *bias, const double *x,
                  int32_t n_in, int32_t n_out, double *y) {
    for (int32_t r = 0; r < n_out; r++) {
        y[r] = bias != NULL && bias->values != NULL ? bias->values[r] : 0.0;
        for (int32_t i = 0; i < n_in; i++)
            y[r] += w->values[(int64_t)r * n_in + i] * x[i];
    }
}

static void normalise(const double *x, const double *weight, double eps, int32_t n, double *y) {
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    double scale = 1.0 / sqrt(sum / n + eps);
    for (int32_t i = 0; i < n; i++)
        y[i] = x[i] * scale * weight[i];
}

static void rotate(const struct ft_model_config *c, double *head, int32_t position) {
    float inv_freq[128];
    ft_model_rope_frequencies(c, inv_freq);
    for (int32_t j = 0; j < c->head_dim / 2; j++) {
        double angle = position * (double)inv_freq[j], a = head[j], b = head[j + c->head_dim / 2];
        head[j] = a * cos(angle) - b * sin(angle);
        head[j + c->head_dim / 2] = b * cos(angle) + a * sin(angle);
    }
}

/* Normalise and rotate the heads of q or k of one position. */
static void place_heads(const struct naive_model *m, const struct ref_stored *norm, double *x,
                        int32_t n_heads, int32_t position) {
    const struct ft_model_config *c = m->config;
    for (int32_t h = 0; h < n_heads; h++) {
        double *head = x + (int64_t)h * c->head_dim;
        if (norm->values != NULL)
            normalise(head, norm->values, (double)c->rms_norm_eps, c->head_dim, head);
        rotate(c, head, position);
    }
}

/* One position's query over keys and values [position + 1, kv_dim]. */
struct attended {
    const double *q, *k, *v;
    int32_t position, window;
};

static void attend(const struct ft_model_config *c, const struct attended *a, double *out) {
    int32_t dim = c->head_dim, kv_dim = c->n_kv_heads * dim;
    int32_t first = a->position - a->window + 1, low = a->window > 0 && first > 0 ? first : 0;
    double *p = must_alloc((size_t)(a->position + 1) * sizeof *p);
    for (int32_t h = 0; h < c->n_heads; h++) {
        int32_t at = h / (c->n_heads / c->n_kv_heads) * dim;
        double sum = 0.0;
        for (int32_t i = low; i <= a->position; i++) {
            double score = 0.0;
            for (int32_t d = 0; d < dim; d++)
                score += a->q[h * dim + d] * a->k[(int64_t)i * kv_dim + at + d];
            p[i] = exp(score / sqrt(dim));
            sum += p[i];
        }
        for (int32_t d = 0; d < dim; d++) {
            out[h * dim + d] = 0.0;
            for (int32_t i = low; i <= a->position; i++)
                out[h * dim + d] += p[i] / sum * a->v[(int64_t)i * kv_dim + at + d];
        }
    }
    free(p);
}

/* Scratch of one position, as large as the widest vector. */
struct scratch {
    double *normed, *q, *mixed, *delta, *gate, *up;
};

static void attention_half(const struct naive_model *m, int32_t layer, int32_t n, double *x,
                           struct scratch *t) {
    const struct ft_model_config *c = m->config;
    const struct ref_stored *s = m->layers[layer];
    int32_t hidden = c->hidden_size, q_dim = c->n_heads * c->head_dim;
    int32_t kv_dim = c->n_kv_heads * c->head_dim;
    int32_t window = layer >= c->sliding_window_first_layer ? c->sliding_window : 0;
    double *k = must_alloc((size_t)n * (size_t)kv_dim * sizeof *k);
    double *v = must_alloc((size_t)n * (size_t)kv_dim * sizeof *v);
    for (int32_t i = 0; i < n; i++) {
        double *row = x + (int64_t)i * hidden;
        normalise(row, s[ATTN_NORM].values, (double)c->rms_norm_eps, hidden, t->normed);
        apply(&s[Q], &s[Q_BIAS], t->normed, hidden, q_dim, t->q);
        apply(&s[K], &s[K_BIAS], t->normed, hidden, kv_dim, k + (int64_t)i * kv_dim);
        apply(&s[V], &s[V_BIAS], t->normed, hidden, kv_dim, v + (int64_t)i * kv_dim);
        place_heads(m, &s[Q_NORM], t->q, c->n_heads, i);
        place_heads(m, &s[K_NORM], k + (int64_t)i * kv_dim, c->n_kv_heads, i);
        attend(c, &(struct attended){t->q, k, v, i, window}, t->mixed);
        apply(&s[O], &s[O_BIAS], t->mixed, q_dim, hidden, t->delta);
        for (int32_t d = 0; d < hidden; d++)
            row[d] += t->delta[d];
    }
    free(k);
    free(v);
}

static void mlp_half(const struct naive_model *m, int32_t layer, int32_t n, double *x,
                     struct scratch *t) {
    const struct ft_model_config *c = m->config;
    const struct ref_stored *s = m->layers[layer];
    for (int32_t i = 0; i < n; i++) {
        double *row = x + (int64_t)i * c->hidden_size;
        normalise(row, s[MLP_NORM].values, (double)c->rms_norm_eps, c->hidden_size, t->normed);
        apply(&s[GATE], &s[GATE_BIAS], t->normed, c->hidden_size, c->intermediate_size, t->gate);
        apply(&s[UP], &s[UP_BIAS], t->normed, c->hidden_size, c->intermediate_size, t->up);
        for (int32_t d = 0; d < c->intermediate_size; d++)
            t->gate[d] = ref_silu(t->gate[d]) * t->up[d];
        apply(&s[DOWN], &s[DOWN_BIAS], t->gate, c->intermediate_size, c->hidden_size, t->delta);
        for (int32_t d = 0; d < c->hidden_size; d++)
            row[d] += t->delta[d];
    }
}

double *naive_logits(const struct naive_model *m, const int32_t *tokens, int32_t n) {
    const struct ft_model_config *c = m->config;
    size_t width = (size_t)(c->hidden_size + c->intermediate_size + c->n_heads * c->head_dim);
    double *memory = must_alloc(6 * width * sizeof *memory);
    struct scratch t = {memory,
                        memory + width,
                        memory + 2 * width,
                        memory + 3 * width,
                        memory + 4 * width,
                        memory + 5 * width};
    double *x = must_alloc((size_t)n * (size_t)c->hidden_size * sizeof *x);
    for (int32_t i = 0; i < n; i++)
        memcpy(x + (int64_t)i * c->hidden_size,
               m->embed.values + (int64_t)tokens[i] * c->hidden_size,
               (size_t)c->hidden_size * sizeof *x);
    for (int32_t layer = 0; layer < c->n_layers; layer++) {
        attention_half(m, layer, n, x, &t);
        mlp_half(m, layer, n, x, &t);
    }
    double *logits = must_alloc((size_t)n * (size_t)c->vocab_size * sizeof *logits);
    const struct ref_stored *head = c->tie_word_embeddings ? &m->embed : &m->head;
    for (int32_t i = 0; i < n; i++) {
        normalise(x + (int64_t)i * c->hidden_size, m->norm.values, (double)c->rms_norm_eps,
                  c->hidden_size, t.normed);
        apply(head, NULL, t.normed, c->hidden_size, c->vocab_size,
              logits + (int64_t)i * c->vocab_size);
    }
    free(x);
    free(memory);
    return logits;
}
