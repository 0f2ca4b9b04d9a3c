#include "common/spec/logprob.h"

#include <math.h>

#include "common/spec/rowmath.h"

#define MODULE "logprob"

/* Put (id, logit) where it belongs among the n_top largest; an equal one stays behind those there
 * already, whose ids are lower. */
static void insert(struct ft_logprobs *out, int32_t n_top, int32_t id, float logit) {
    int32_t at = out->n_top < n_top ? out->n_top++ : n_top - 1;
    for (; at > 0 && out->values[at - 1] < logit; at--) {
        out->ids[at] = out->ids[at - 1];
        out->values[at] = out->values[at - 1];
    }
    out->ids[at] = id;
    out->values[at] = logit;
}

/* The largest logit, and the n_top largest with their ids. false: a NaN or +inf. */
static bool scan(const float *logits, size_t n, int32_t n_top, struct ft_logprobs *out,
                 float *max) {
    float maxima[FT_ROWMATH_LANES], top;
    *max = -INFINITY;
    out->n_top = 0;
    for (size_t first = 0; first < n; first += FT_ROWMATH_BLOCK) {
        size_t n_here = n - first < FT_ROWMATH_BLOCK ? n - first : FT_ROWMATH_BLOCK;
        if (!ft_rowmath_maxima(logits + first, n_here, maxima, &top))
            return false;
        *max = top > *max ? top : *max;
        for (size_t i = first; n_top > 0 && i < first + n_here; i++) {
            float least = out->n_top < n_top ? -INFINITY : out->values[n_top - 1];
            if (top <= least)
                break;
            if (logits[i] > least)
                insert(out, n_top, (int32_t)i, logits[i]);
        }
    }
    return true;
}

static float logprob_of(float logit, float max, double log_sum) {
    double value = (double)logit - (double)max - log_sum;
    return value > (double)FT_LOGPROB_MIN ? (float)value : FT_LOGPROB_MIN;
}

enum ft_code ft_logprob_row(struct ft_transform *transform, const float *logits, int32_t n_vocab,
                            int32_t token, int32_t n_top, struct ft_logprobs *out,
                            struct ft_err *err) {
    struct ft_rowmath_exp how = {.scale = 1.0f, .threshold = -INFINITY};
    FT_ASSERT(token >= 0 && token < n_vocab && n_top >= 0 && n_top <= FT_LOGPROBS_MAX);
    if (!scan(logits, (size_t)n_vocab, n_top, out, &how.max) || how.max == -INFINITY)
        return ft_err_set(err, FT_E_REQ_NUMERIC, MODULE, "non-finite logits");
    double log_sum =
        log(ft_rowmath_exp(logits, (size_t)n_vocab, &how, ft_transform_scratch(transform, 0)));
    out->token_logprob = logprob_of(logits[token], how.max, log_sum);
    for (int32_t i = 0; i < out->n_top; i++)
        out->values[i] = logprob_of(out->values[i], how.max, log_sum);
    return FT_OK;
}
