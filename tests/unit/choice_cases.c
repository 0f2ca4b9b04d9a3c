#include "unit/choice_cases.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/spec/gumbel.h"
#include "common/spec/residual.h"

static uint64_t number_of_draws;

static double uniform(uint64_t seed) {
    return ft_philox_uniform(seed, number_of_draws++, FT_PHILOX_PROPOSE, 77);
}

static int32_t below(uint64_t seed, int32_t n) {
    return (int32_t)(uniform(seed) * n);
}

/* Ascending, different ids. Returns how many. */
static size_t ascending(uint64_t seed, int32_t n_vocab, int32_t *ids) {
    int32_t id = -1;
    size_t n = 0;
    while (n < CASE_LIST) {
        id += 1 + below(seed, 1 + n_vocab / CASE_LIST);
        if (id >= n_vocab)
            break;
        ids[n++] = id;
    }
    return n;
}

static void make_sampling(struct choice_case *c, uint64_t seed) {
    struct ft_sampling *s = &c->sampling;
    *s = ft_sampling_default();
    s->seed = seed * 7919;
    s->temperature = uniform(seed) < 0.15 ? 0.0f : (float)(0.3 + 1.2 * uniform(seed));
    if (uniform(seed) < 0.4)
        s->top_p = uniform(seed) < 0.1 ? 0.0f : (float)uniform(seed);
    if (uniform(seed) < 0.4)
        s->top_k = 1 + below(seed, uniform(seed) < 0.8 ? 60 : c->n_vocab + 3);
    if (uniform(seed) < 0.3)
        s->min_p = (float)(0.2 * uniform(seed));
    if (uniform(seed) < 0.5) {
        s->repetition_penalty = (float)(0.8 + uniform(seed));
        s->presence_penalty = (float)(uniform(seed) - 0.4);
        s->frequency_penalty = (float)(uniform(seed) - 0.4);
    }
    s->bias = c->bias;
    int32_t ids[CASE_LIST];
    if (uniform(seed) < 0.3)
        s->n_bias = ascending(seed, c->n_vocab + 2, ids);
    for (size_t i = 0; i < s->n_bias; i++)
        c->bias[i] = (struct ft_bias){ids[i], (float)(8 * uniform(seed) - 4)};
    s->allowed = c->allowed;
    s->banned = c->banned;
    if (uniform(seed) < 0.15)
        s->n_allowed = ascending(seed, c->n_vocab, c->allowed);
    if (uniform(seed) < 0.2)
        s->n_banned = ascending(seed, c->n_vocab, c->banned);
}

/* Peaked over a noisy floor, now and then flat, with ties, or with what is no logit. */
static void make_logits(struct choice_case *c, uint64_t seed, float *row) {
    double way = uniform(seed), spread = way < 0.2 ? 0.3 : 3.0;
    for (int32_t i = 0; i < c->n_vocab; i++) {
        double x = spread * (uniform(seed) + uniform(seed) + uniform(seed) - 1.5);
        x += uniform(seed) < 0.01 ? 6 * uniform(seed) : 0;
        row[i] = (float)(way > 0.8 ? floor(x * 4) / 4 : x);
    }
    if (uniform(seed) < 0.02)
        row[below(seed, c->n_vocab)] = uniform(seed) < 0.5 ? NAN : INFINITY;
    if (uniform(seed) < 0.1)
        for (int32_t i = 0; i < c->n_vocab; i += 3)
            row[i] = -INFINITY;
}

static void make_q(struct choice_case *c, uint64_t seed, int32_t k) {
    float *q = c->rows + (CASE_DRAFTS + 1 + k) * c->stride;
    double sum = 0, aim = uniform(seed), before = 0;
    for (int32_t i = 0; i < c->n_vocab_draft; i++)
        sum += q[i] = uniform(seed) < 0.3 ? 0 : (float)exp(6 * uniform(seed));
    if (sum == 0)
        sum = q[0] = 1;
    c->draft[k] = -1;
    for (int32_t i = 0; i < c->n_vocab_draft; i++) {
        q[i] = (float)((double)q[i] / sum);
        before += (double)q[i];
        if (q[i] > 0 && (c->draft[k] < 0 || before - (double)q[i] <= aim))
            c->draft[k] = i;
    }
    if (uniform(seed) < 0.01)
        q[below(seed, c->n_vocab_draft)] = -0.5f;
    c->q_rows[k] = q;
}

/* A draft that may well be accepted: what the raw row likes best, or a neighbour. */
static int32_t likely(const struct choice_case *c, uint64_t seed, const float *row) {
    int32_t best = 0;
    for (int32_t i = 1; i < c->n_vocab; i++)
        best = row[i] > row[best] ? i : best;
    return uniform(seed) < 0.7 ? best : below(seed, c->n_vocab + 2);
}

static const struct ft_rule *some_rule(uint64_t seed) {
    static const char *const names[] = {"standard", "standard", "coupled", "lenient", "synthetic"};
    return ft_rule_find(names[below(seed, 5)]);
}

void choice_case_create(struct choice_case *c, uint64_t number, int32_t n_vocab_max) {
    const uint64_t seed = number;
    number_of_draws = 0;
    memset(c, 0, sizeof *c);
    c->n_vocab = 2 + below(seed, n_vocab_max - 1);
    c->n_vocab_draft = uniform(seed) < 0.6 ? c->n_vocab : 2 + below(seed, n_vocab_max - 1);
    c->stride = (n_vocab_max + 15) / 16 * 16;
    c->rows = calloc((size_t)((2 * CASE_DRAFTS + 1) * c->stride), sizeof(float));
    c->counts = ft_counts_create();
    c->rule = some_rule(seed);
    make_sampling(c, seed);
    c->sampling.coupled = c->rule->coupled;
    int32_t n_draft = below(seed, CASE_DRAFTS + 1), n_text = below(seed, 60);
    for (int32_t i = 0; i < n_text; i++) {
        int32_t id = below(seed, c->n_vocab);
        ck_assert(uniform(seed) < 0.5 ? ft_counts_add_prompt(c->counts, &id, 1)
                                      : ft_counts_add_output(c->counts, &id, 1));
    }
    bool has_q = uniform(seed) < 0.5;
    for (int32_t k = 0; k <= n_draft; k++) {
        make_logits(c, seed, c->rows + k * c->stride);
        c->p_rows[k] = c->rows + k * c->stride;
        if (k == n_draft)
            break;
        if (has_q)
            make_q(c, seed, k);
        else
            c->draft[k] = likely(c, seed, c->p_rows[k]);
        c->rates[k] = (float)uniform(seed);
        if (k > 0 && uniform(seed) < 0.2 && !has_q)
            c->draft[k] = c->draft[k - 1];
    }
    for (int i = 0; i < 3; i++)
        c->stop[i] = below(seed, c->n_vocab);
    c->round = (struct ft_round){.sampling = &c->sampling,
                                 .counts = c->counts,
                                 .position = (uint64_t)below(seed, 5000),
                                 .draft = c->draft,
                                 .n_draft = n_draft,
                                 .p_rows = c->p_rows,
                                 .n_vocab = c->n_vocab,
                                 .q_rows = has_q ? c->q_rows : NULL,
                                 .n_vocab_draft = c->n_vocab_draft,
                                 .banned = c->stop,
                                 .n_banned = 3,
                                 .n_banned_rows = uniform(seed) < 0.3 ? below(seed, 4) : 0,
                                 .lenience = (float)(0.2 + 0.8 * uniform(seed)),
                                 .synthetic_rates = c->rates};
}

void choice_case_destroy(struct choice_case *c) {
    free(c->rows);
    ft_counts_destroy(&c->counts);
}

/* ---- the device's part, on the host ---------------------------------------------------------- */

struct host_row {
    struct ft_sampling sampling;
    struct ft_bias *bias;
    struct ft_counts *counts;
    int32_t *sorted;
    struct ft_row_context context;
};

static int by_id(const void *a, const void *b) {
    int32_t x = ((const struct ft_bias *)a)->id, y = ((const struct ft_bias *)b)->id;
    return (x > y) - (x < y);
}

/* The sampling that the row's fields stand for. */
static void open_row(struct host_row *h, const struct ft_choice_batch *batch,
                     const struct ft_choice_row *row) {
    *h = (struct host_row){.counts = ft_counts_create()};
    h->bias = calloc((size_t)row->n_edits + 1, sizeof *h->bias);
    size_t n_bias = 0;
    for (int32_t i = 0; i < row->n_edits; i++) {
        const struct ft_choice_edit *e = &batch->edits[row->first_edit + i];
        if (e->bias != 0.0f)
            h->bias[n_bias++] = (struct ft_bias){e->id, e->bias};
        if (e->is_counted && e->n_output == 0)
            ck_assert(ft_counts_add_prompt(h->counts, &e->id, 1));
        for (int32_t n = 0; n < e->n_output; n++)
            ck_assert(ft_counts_add_output(h->counts, &e->id, 1));
    }
    qsort(h->bias, n_bias, sizeof *h->bias, by_id);
    h->sampling = (struct ft_sampling){
        .temperature = row->kind == FT_CHOICE_GREEDY ? 0.0f : row->temperature,
        .top_p = row->top_p,
        .top_k = row->top_k,
        .min_p = row->min_p,
        .frequency_penalty = row->frequency,
        .presence_penalty = row->presence,
        .repetition_penalty = row->repetition,
        .seed = row->seed,
        .bias = h->bias,
        .n_bias = n_bias,
        .allowed = batch->ids + row->first_allowed,
        .n_allowed = (size_t)row->n_allowed,
    };
    h->context = (struct ft_row_context){.sampling = &h->sampling,
                                         .counts = h->counts,
                                         .drafted = row->drafted,
                                         .n_drafted = (size_t)row->n_drafted,
                                         .banned = batch->ids + row->first_banned,
                                         .n_banned = (size_t)row->n_banned};
}

static void speculate(struct ft_transform *t, const struct ft_choice_row *row, const float *p,
                      struct ft_choice_result *out) {
    const float *q_rows[1] = {row->q};
    struct ft_round round = {.draft = &row->draft,
                             .n_draft = 1,
                             .n_vocab = row->n_vocab,
                             .q_rows = row->q == NULL ? NULL : q_rows,
                             .n_vocab_draft = row->n_q};
    double q = ft_residual_q(&round, 0);
    if (!(q > 0.0 && q <= 1.0 + FT_RESIDUAL_SLACK)) {
        out->status = FT_CHOICE_ASK;
        return;
    }
    out->is_accepted = row->draft >= 0 && row->draft < row->n_vocab &&
                       row->u_accept * (q * (double)row->lenience) < (double)p[row->draft];
    struct ft_residual residual = {.p = p, .p_scale = 1.0f, .q_scale = row->lenience};
    if (ft_residual_check(&round, 0, NULL) != FT_OK) {
        out->status = FT_CHOICE_BAD_Q;
        return;
    }
    ft_residual_weigh(t, &round, 0, &residual);
    out->token = ft_transform_draw(residual.weights, row->n_vocab, row->u_draw);
}

static void run_row(struct ft_transform *t, const struct host_row *h,
                    const struct ft_choice_row *row, struct ft_choice_result *out) {
    float *p = ft_transform_scratch(t, 0);
    *out = (struct ft_choice_result){.token = -1};
    if (ft_transform_row(t, row->logits, row->n_vocab, &h->context, p, NULL) != FT_OK) {
        out->status = FT_CHOICE_ASK;
        return;
    }
    if (row->probs != NULL)
        memcpy(row->probs, p, (size_t)row->n_vocab * sizeof *p);
    if (row->kind == FT_CHOICE_SPECULATE)
        speculate(t, row, p, out);
    else if (row->kind == FT_CHOICE_GUMBEL)
        out->token = ft_gumbel_draw(p, row->n_vocab, row->seed, row->position);
    else
        out->token = ft_transform_draw(p, row->n_vocab, row->u_draw);
    if (out->token < 0 && out->status == FT_CHOICE_OK && !out->is_accepted)
        out->status = FT_CHOICE_ASK;
}

void choice_run_on_host(const struct ft_choice_batch *batch, struct ft_choice_result *results) {
    for (int32_t i = 0; i < batch->n_rows; i++) {
        struct ft_transform *t = ft_transform_create(batch->rows[i].n_vocab);
        struct host_row h;
        open_row(&h, batch, &batch->rows[i]);
        run_row(t, &h, &batch->rows[i], &results[i]);
        ft_counts_destroy(&h.counts);
        free(h.bias);
        ft_transform_destroy(&t);
    }
}
