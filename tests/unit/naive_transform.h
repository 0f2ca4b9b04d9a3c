/* naive_transform: the transforms of one row in double, by sorting, as a reference. */
#ifndef FT_TEST_NAIVE_TRANSFORM_H
#define FT_TEST_NAIVE_TRANSFORM_H

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/spec/transform.h"

#define NAIVE_N_MAX 700

struct naive_row {
    double logit[NAIVE_N_MAX], prob[NAIVE_N_MAX];
    bool ambiguous; /* a cut is so close that rounding may decide it */
};

static inline bool naive_contains(const int32_t *ids, size_t n, int32_t id) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

static inline int naive_descending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x > y ? -1 : x < y;
}

static inline void naive_softmax(struct naive_row *ref, size_t n) {
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        max = fmax(max, ref->logit[i]);
    for (size_t i = 0; i < n; i++)
        sum += ref->prob[i] = exp(ref->logit[i] - max);
    for (size_t i = 0; i < n; i++)
        ref->prob[i] /= sum;
}

static inline void naive_cut_below(struct naive_row *ref, size_t n, double logit) {
    for (size_t i = 0; i < n; i++)
        if (ref->logit[i] < logit)
            ref->logit[i] = -INFINITY;
    naive_softmax(ref, n);
}

struct naive_tokens { /* the whole history, as lists */
    int32_t prompt[40], output[60];
    size_t n_prompt, n_output;
};

static inline void naive_transform(struct naive_row *ref, const float *logits, size_t n,
                                   const struct ft_row_context *ctx,
                                   const struct naive_tokens *history) {
    const struct ft_sampling *s = ctx->sampling;
    double sorted[NAIVE_N_MAX];
    ref->ambiguous = false;
    for (size_t i = 0; i < n; i++) {
        int32_t id = (int32_t)i;
        double l = (double)logits[i];
        for (size_t j = 0; j < s->n_bias; j++)
            if (s->bias[j].id == id)
                l += (double)s->bias[j].value;
        int count = 0;
        for (size_t j = 0; j < history->n_output; j++)
            count += history->output[j] == id;
        for (size_t j = 0; j < ctx->n_drafted; j++)
            count += ctx->drafted[j] == id;
        if (count > 0 || naive_contains(history->prompt, history->n_prompt, id))
            l = l > 0 ? l / (double)s->repetition_penalty : l * (double)s->repetition_penalty;
        l -= (double)s->frequency_penalty * count + (count > 0 ? (double)s->presence_penalty : 0);
        if (naive_contains(ctx->banned, ctx->n_banned, id) ||
            naive_contains(s->banned, s->n_banned, id) ||
            (s->n_allowed != 0 && !naive_contains(s->allowed, s->n_allowed, id)))
            l = -INFINITY;
        ref->logit[i] = l / (double)s->temperature;
    }
    naive_softmax(ref, n);
    if (s->top_k > 0 && (size_t)s->top_k < n) {
        memcpy(sorted, ref->logit, n * sizeof *sorted);
        qsort(sorted, n, sizeof *sorted, naive_descending);
        /* Penalised values may differ in f32 where they are equal here, or the other way. */
        double kth = sorted[s->top_k - 1];
        for (size_t i = 0; i < n; i++)
            ref->ambiguous |= ref->logit[i] != kth && fabs(ref->logit[i] - kth) < 1e-4;
        naive_cut_below(ref, n, kth);
    }
    if (s->top_p < 1) {
        memcpy(sorted, ref->prob, n * sizeof *sorted);
        qsort(sorted, n, sizeof *sorted, naive_descending);
        double sum = 0;
        size_t last = 0;
        for (size_t i = 0; i < n; i++) {
            last = i;
            sum += sorted[i];
            ref->ambiguous |= fabs(sum - (double)s->top_p) < 1e-6;
            if (sum >= (double)s->top_p)
                break;
        }
        double least = sorted[last] * (1 - 1e-12), least_logit = INFINITY;
        for (size_t i = 0; i < n; i++) {
            ref->ambiguous |= ref->prob[i] < least && ref->prob[i] > least * (1 - 1e-4);
            if (ref->prob[i] >= least)
                least_logit = fmin(least_logit, ref->logit[i]);
        }
        naive_cut_below(ref, n, least_logit);
    }
    double max = 0;
    for (size_t i = 0; i < n; i++)
        max = fmax(max, ref->prob[i]);
    double least_logit = INFINITY;
    for (size_t i = 0; i < n; i++) {
        double ratio = ref->prob[i] / max;
        ref->ambiguous |= s->min_p > 0 && fabs(ratio - (double)s->min_p) < 1e-5;
        if (ratio >= (double)s->min_p && ref->prob[i] > 0)
            least_logit = fmin(least_logit, ref->logit[i]);
    }
    naive_cut_below(ref, n, least_logit);
}

#endif
