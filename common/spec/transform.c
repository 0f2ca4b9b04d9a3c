#include "common/spec/transform.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/spec/counts.h"
#include "common/spec/rowmath.h"
#include "common/spec/select.h"

#define MODULE "transform"

struct ft_transform {
    int32_t n_vocab;                  /* largest row */
    float *edited;                    /* [n_vocab] a row after bias, penalties and bans */
    float *candidates;                /* [n_vocab] values that a cut may fall on */
    float *maxima;                    /* [ft_rowmath_n_maxima(n_vocab)] of the row at hand */
    float *rule[FT_TRANSFORM_N_ROWS]; /* [n_vocab] each, lent to the rules */
    struct ft_select select;
};

bool ft_sampling_has_penalties(const struct ft_sampling *sampling) {
    return sampling->repetition_penalty != 1.0f || sampling->presence_penalty != 0.0f ||
           sampling->frequency_penalty != 0.0f;
}

const struct ft_bias *ft_sampling_bias(const struct ft_sampling *sampling, int32_t id) {
    size_t low = 0, high = sampling->n_bias;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sampling->bias[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sampling->n_bias && sampling->bias[low].id == id ? &sampling->bias[low] : NULL;
}

bool ft_sampling_is_greedy(const struct ft_sampling *sampling) {
    return sampling->temperature < FT_TEMPERATURE_MIN;
}

struct ft_transform *ft_transform_create(int32_t n_vocab) {
    FT_ASSERT(n_vocab > 0);
    struct ft_transform *transform = calloc(1, sizeof *transform);
    if (transform == NULL)
        return NULL;
    size_t n = (size_t)n_vocab;
    transform->n_vocab = n_vocab;
    transform->edited = malloc(n * sizeof(float));
    transform->candidates = malloc(n * sizeof(float));
    transform->maxima = malloc(ft_rowmath_n_maxima(n) * sizeof(float));
    bool complete =
        transform->edited != NULL && transform->candidates != NULL && transform->maxima != NULL;
    for (size_t i = 0; i < FT_TRANSFORM_N_ROWS; i++) {
        transform->rule[i] = malloc(n * sizeof(float));
        complete = complete && transform->rule[i] != NULL;
    }
    if (!complete)
        ft_transform_destroy(&transform);
    return transform;
}

void ft_transform_destroy(struct ft_transform **transform) {
    if (transform == NULL || *transform == NULL)
        return;
    free((*transform)->edited);
    free((*transform)->candidates);
    free((*transform)->maxima);
    for (size_t i = 0; i < FT_TRANSFORM_N_ROWS; i++)
        free((*transform)->rule[i]);
    free(*transform);
    *transform = NULL;
}

float *ft_transform_scratch(struct ft_transform *transform, size_t index) {
    FT_ASSERT(index < FT_TRANSFORM_N_ROWS);
    return transform->rule[index];
}

/* ---- edits of single ids --------------------------------------------------------------------- */

static bool is_bad(float logit) {
    return !(logit < INFINITY); /* a NaN or +inf */
}

static enum ft_code bad_logit(int32_t id, float logit, struct ft_err *err) {
    return ft_err_set(err, FT_E_REQ_NUMERIC, MODULE, "non-finite logits: token %d has %g", id,
                      (double)logit);
}

/* Where a row holds its first NaN or +inf. */
static enum ft_code first_bad_logit(const float *row, int32_t n_vocab, struct ft_err *err) {
    int32_t id = 0;
    while (id + 1 < n_vocab && !is_bad(row[id]))
        id++;
    return bad_logit(id, row[id], err);
}

static bool has_edits(const struct ft_row_context *context) {
    const struct ft_sampling *sampling = context->sampling;
    return sampling->n_bias != 0 || context->n_banned != 0 || sampling->n_allowed != 0 ||
           sampling->n_banned != 0 ||
           (ft_sampling_has_penalties(sampling) &&
            (context->n_drafted != 0 || ft_counts_size(context->counts) != 0));
}

/* An id that is in prompt or output, n_output times in the output. */
static float penalise(const struct ft_sampling *sampling, float logit, int32_t n_output) {
    logit =
        logit > 0.0f ? logit / sampling->repetition_penalty : logit * sampling->repetition_penalty;
    if (n_output > 0)
        logit -= sampling->frequency_penalty * (float)n_output + sampling->presence_penalty;
    return logit;
}

static void edit_penalties(const struct ft_row_context *context, const float *logits,
                           int32_t n_vocab, float *row) {
    const struct ft_count *entries = ft_counts_entries(context->counts);
    size_t n_entries = ft_counts_size(context->counts);
    for (size_t i = 0; i < n_entries; i++) {
        int32_t id = entries[i].id;
        if (id >= 0 && id < n_vocab)
            row[id] = penalise(context->sampling, row[id], entries[i].output);
    }
    /* A drafted id is output as well: its value is made anew, with all its occurrences. */
    for (size_t i = 0; i < context->n_drafted; i++) {
        int32_t id = context->drafted[i];
        if (id < 0 || id >= n_vocab)
            continue;
        int32_t n_output = context->counts == NULL ? 0 : ft_counts_output(context->counts, id);
        for (size_t j = 0; j < context->n_drafted; j++)
            n_output += context->drafted[j] == id;
        const struct ft_bias *bias = ft_sampling_bias(context->sampling, id);
        float biased = logits[id] + (bias != NULL ? bias->value : 0.0f);
        row[id] = penalise(context->sampling, biased, n_output);
    }
}

/* -inf to each id of the list. A value that is no logit would be hidden by it: an error. */
static enum ft_code ban(const float *logits, int32_t n_vocab, const int32_t *ids, size_t n,
                        float *row, struct ft_err *err) {
    for (size_t i = 0; i < n; i++) {
        int32_t id = ids[i];
        if (id < 0 || id >= n_vocab)
            continue;
        if (is_bad(logits[id]))
            return bad_logit(id, logits[id], err);
        row[id] = -INFINITY;
    }
    return FT_OK;
}

/* -inf to each id that is not in the list, which ascends; the same. */
static enum ft_code ban_others(const float *logits, int32_t n_vocab, const int32_t *ids, size_t n,
                               float *row, struct ft_err *err) {
    size_t at = 0;
    for (int32_t id = 0; id < n_vocab; id++) {
        while (at < n && ids[at] < id)
            at++;
        if (at < n && ids[at] == id)
            continue;
        if (is_bad(logits[id]))
            return bad_logit(id, logits[id], err);
        row[id] = -INFINITY;
    }
    return FT_OK;
}

static bool ascending_has(const int32_t *ids, size_t n, int32_t id) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && ids[low] == id;
}

bool ft_row_allows(const struct ft_row_context *context, int32_t id) {
    const struct ft_sampling *sampling = context->sampling;
    for (size_t i = 0; i < context->n_banned; i++)
        if (context->banned[i] == id)
            return false;
    if (sampling->n_allowed != 0 && !ascending_has(sampling->allowed, sampling->n_allowed, id))
        return false;
    return !ascending_has(sampling->banned, sampling->n_banned, id);
}

/* The row after bias, penalties and masks, in *row: logits itself when none apply. Masks come
 * last, which is the same as first, since -inf stays -inf. */
static enum ft_code edit(struct ft_transform *transform, const float *logits, int32_t n_vocab,
                         const struct ft_row_context *context, const float **row,
                         struct ft_err *err) {
    FT_ASSERT(n_vocab > 0 && n_vocab <= transform->n_vocab);
    *row = logits;
    if (!has_edits(context))
        return FT_OK;
    const struct ft_sampling *sampling = context->sampling;
    float *edited = transform->edited;
    memcpy(edited, logits, (size_t)n_vocab * sizeof *edited);
    for (size_t i = 0; i < sampling->n_bias; i++) {
        int32_t id = sampling->bias[i].id;
        if (id >= 0 && id < n_vocab)
            edited[id] += sampling->bias[i].value;
    }
    if (ft_sampling_has_penalties(sampling))
        edit_penalties(context, logits, n_vocab, edited);
    enum ft_code code = ban(logits, n_vocab, context->banned, context->n_banned, edited, err);
    if (code == FT_OK)
        code = ban(logits, n_vocab, sampling->banned, sampling->n_banned, edited, err);
    if (code == FT_OK && sampling->n_allowed != 0)
        code = ban_others(logits, n_vocab, sampling->allowed, sampling->n_allowed, edited, err);
    if (code == FT_OK)
        *row = edited;
    return code;
}

/* A row after its edits; transform->maxima is of it. */
struct edited_row {
    const float *logits;
    float max; /* finite */
};

static enum ft_code prepare(struct ft_transform *transform, const float *logits, int32_t n_vocab,
                            const struct ft_row_context *context, struct edited_row *row,
                            struct ft_err *err) {
    enum ft_code code = edit(transform, logits, n_vocab, context, &row->logits, err);
    if (code != FT_OK)
        return code;
    if (!ft_rowmath_maxima(row->logits, (size_t)n_vocab, transform->maxima, &row->max))
        return first_bad_logit(row->logits, n_vocab, err);
    if (row->max > -INFINITY)
        return FT_OK;
    for (int32_t id = 0; row->logits != logits && id < n_vocab; id++)
        if (logits[id] > -INFINITY)
            return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                              "every token is banned: bias and masks leave none of %d", n_vocab);
    return ft_err_set(err, FT_E_REQ_NUMERIC, MODULE,
                      "non-finite logits: none of %d tokens has a finite one", n_vocab);
}

enum ft_code ft_transform_argmax(struct ft_transform *transform, const float *logits,
                                 int32_t n_vocab, const struct ft_row_context *context,
                                 int32_t *out, struct ft_err *err) {
    struct edited_row row;
    enum ft_code code = prepare(transform, logits, n_vocab, context, &row, err);
    if (code != FT_OK)
        return code;
    *out = ft_rowmath_find(row.logits, (size_t)n_vocab, transform->maxima, row.max);
    return FT_OK;
}

/* ---- cuts ------------------------------------------------------------------------------------ */

/* The k-th largest value of row. At least k values reach the k-th largest of the maxima (each
 * maximum is one of them), so that usually few are left to select from. */
static float top_k_threshold(struct ft_transform *transform, const float *row, size_t n, size_t k) {
    size_t n_maxima = ft_rowmath_n_maxima(n);
    float bound = -INFINITY;
    if (k <= n_maxima)
        bound = ft_select_cut(&transform->select, transform->maxima, n_maxima, (double)k,
                              FT_SELECT_COUNT);
    size_t n_left = ft_rowmath_compact(row, n, bound, transform->candidates);
    return ft_select_cut(&transform->select, transform->candidates, n_left, (double)k,
                         FT_SELECT_COUNT);
}

/* The smallest weight in the nucleus. Weights below (1 - top_p) * sum / n cannot be in it, because
 * all of them together weigh less than what it leaves out. */
static float top_p_threshold(struct ft_transform *transform, const float *weights, size_t n,
                             double sum, double top_p) {
    const double rounding = 0.999;
    double bound = (1.0 - top_p) * sum / (double)n * rounding;
    float least = bound > (double)FLT_MIN ? (float)bound : FLT_MIN;
    size_t n_left = ft_rowmath_compact(weights, n, least, transform->candidates);
    return ft_select_cut(&transform->select, transform->candidates, n_left, top_p * sum,
                         FT_SELECT_VALUE);
}

enum ft_code ft_transform_row(struct ft_transform *transform, const float *logits, int32_t n_vocab,
                              const struct ft_row_context *context, float *probs,
                              struct ft_err *err) {
    const struct ft_sampling *sampling = context->sampling;
    const size_t n = (size_t)n_vocab;
    struct edited_row row;
    enum ft_code code = prepare(transform, logits, n_vocab, context, &row, err);
    if (code != FT_OK)
        return code;
    if (ft_sampling_is_greedy(sampling)) {
        int32_t best = ft_rowmath_find(row.logits, n, transform->maxima, row.max);
        memset(probs, 0, n * sizeof *probs);
        probs[best] = 1.0f;
        return FT_OK;
    }
    struct ft_rowmath_exp how = {
        .max = row.max, .scale = 1.0f / sampling->temperature, .threshold = -INFINITY};
    if (sampling->top_k > 0 && sampling->top_k < n_vocab)
        how.threshold = top_k_threshold(transform, row.logits, n, (size_t)sampling->top_k);
    double sum = ft_rowmath_exp(row.logits, n, &how, probs);
    float threshold = sampling->min_p; /* the largest weight is 1 */
    if (sampling->top_p < 1.0f) {
        float nucleus = top_p_threshold(transform, probs, n, sum, (double)sampling->top_p);
        threshold = nucleus > threshold ? nucleus : threshold;
    }
    if (threshold > 0.0f)
        sum = ft_rowmath_keep(probs, n, threshold);
    ft_rowmath_scale(probs, n, (float)(1.0 / sum));
    return FT_OK;
}

/* ---- drawing --------------------------------------------------------------------------------- */

#define RUN 16 /* tokens that are passed together */

/* In a block of at most FT_ROWMATH_BLOCK: the first that takes before past aim; the last with a
 * probability when rounding ends the walk there, -1 when none has one. */
static int32_t walk_block(const float *probs, size_t n, double before, double aim) {
    int32_t last = -1;
    for (size_t i = 0; i < n; i += RUN) {
        size_t end = n - i < RUN ? n : i + RUN;
        double run = 0.0;
        for (size_t j = i; j < end; j++)
            run += (double)probs[j];
        bool is_here = before + run > aim;
        for (size_t j = i; j < end; j++) {
            if (!(probs[j] > 0.0f))
                continue;
            last = (int32_t)j;
            if (!is_here)
                continue;
            before += (double)probs[j];
            if (before > aim)
                return last;
        }
        if (is_here)
            return last;
        before += run;
    }
    return last;
}

/* In a group of blocks that takes before past aim. */
static int32_t walk_group(const float *probs, size_t n, double before, double aim) {
    double inside = 0.0;
    for (size_t i = 0; i < n; i += FT_ROWMATH_BLOCK) {
        size_t n_block = n - i < FT_ROWMATH_BLOCK ? n - i : FT_ROWMATH_BLOCK;
        double block = ft_rowmath_sum(probs + i, n_block);
        if (before + (inside + block) <= aim) {
            inside += block;
            continue;
        }
        int32_t at = walk_block(probs + i, n_block, before + inside, aim);
        return at < 0 ? at : (int32_t)i + at;
    }
    return -1;
}

int32_t ft_transform_draw(const float *probs, int32_t n_vocab, double u) {
    const size_t n = (size_t)n_vocab;
    double total = ft_rowmath_sum(probs, n);
    if (!(total > 0.0) || total > DBL_MAX)
        return -1;
    double aim = u * total, before = 0.0;
    for (size_t i = 0; i < n; i += FT_ROWMATH_GROUP) {
        size_t n_group = n - i < FT_ROWMATH_GROUP ? n - i : FT_ROWMATH_GROUP;
        double group = ft_rowmath_sum(probs + i, n_group);
        if (before + group <= aim) {
            before += group;
            continue;
        }
        int32_t at = walk_group(probs + i, n_group, before, aim);
        return at < 0 ? at : (int32_t)i + at;
    }
    return -1;
}
