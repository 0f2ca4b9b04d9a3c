/* The rule `standard`: speculative sampling, Algorithm 1 of Leviathan, Kalman, Matias 2023 ("Fast
 * Inference from Transformers via Speculative Decoding"), the same as Chen et al. 2023.
 *
 * A drafted t at row i is accepted with probability min(1, p(t) / q(t)). The first rejection draws
 * from norm(max(0, p - q)) instead; when all are accepted the last row gives one token more. What
 * is committed has the distribution p, whatever q is. At temperature 0 all of it is a comparison
 * of argmaxes. */
#include <math.h>

#include "common/spec/rowmath.h"
#include "common/spec/rules.h"

#define MODULE "rule"

/* How far the sum of a q row may be from 1: far above what rounding does to 2^18 terms, far below
 * what would show in a distribution. */
#define Q_SUM_SLACK 1e-3

static enum ft_code row_failed(struct ft_err *err, int32_t index) {
    return ft_err_prefix(err, "row %d", index);
}

static enum ft_code decide_greedy(struct ft_transform *transform, const struct ft_round *round,
                                  struct ft_verdict *out, struct ft_err *err) {
    struct ft_verdict verdict = {0};
    for (int32_t i = 0; i <= round->n_draft; i++) {
        struct ft_row_context context = ft_rule_row_context(round, i);
        int32_t best;
        if (ft_transform_argmax(transform, round->p_rows[i], round->n_vocab, &context, &best,
                                err) != FT_OK)
            return row_failed(err, i);
        verdict.tokens[verdict.n_tokens++] = best;
        if (i < round->n_draft && round->draft[i] != best) {
            verdict.residual = true;
            break;
        }
    }
    verdict.n_accepted = verdict.n_tokens - 1;
    *out = verdict;
    return FT_OK;
}

/* q(t) of the i-th draft; 1 for one-hot drafts. */
static enum ft_code read_q(const struct ft_round *round, int32_t i, double *q, struct ft_err *err) {
    int32_t token = round->draft[i];
    *q = 1.0;
    if (round->q_rows == NULL)
        return FT_OK;
    if (token < 0 || token >= round->n_vocab_draft)
        return ft_err_set(err, FT_E_PEER_PROTOCOL, MODULE,
                          "draft %d is token %d, outside the draft vocabulary of %d", i, token,
                          round->n_vocab_draft);
    *q = (double)round->q_rows[i][token];
    if (*q > 0.0 && *q <= 1.0 + Q_SUM_SLACK)
        return FT_OK;
    return ft_err_set(err, FT_E_PEER_PROTOCOL, MODULE,
                      "draft %d is token %d, whose q is %g: it was not drawn from that row", i,
                      token, *q);
}

/* The token after a rejection of the i-th draft, from norm(max(0, p - q)). p is overwritten
 * unless nothing is left of it, when the token comes from p: p <= q everywhere up to rounding. */
static enum ft_code draw_residual(struct ft_transform *transform, const struct ft_round *round,
                                  int32_t i, float *p, int32_t *out, struct ft_err *err) {
    double u = ft_philox_uniform(round->sampling->seed, round->position + (uint64_t)i,
                                 FT_PHILOX_RESIDUAL, 0);
    const int32_t token = round->draft[i];
    if (round->q_rows == NULL) {
        if (token >= 0 && token < round->n_vocab) {
            float p_token = p[token];
            p[token] = 0.0f;
            *out = ft_transform_draw(p, round->n_vocab, u);
            if (*out >= 0)
                return FT_OK;
            p[token] = p_token;
        }
        *out = ft_transform_draw(p, round->n_vocab, u);
        return FT_OK;
    }
    const float *q = round->q_rows[i];
    size_t n_p = (size_t)round->n_vocab, n_q = (size_t)round->n_vocab_draft;
    size_t n_both = n_p < n_q ? n_p : n_q;
    float *weights = ft_transform_scratch(transform, 1);
    struct ft_rowmath_residual residual = ft_rowmath_residual(p, q, n_both, weights);
    double q_sum = residual.q_sum + ft_rowmath_sum(q + n_both, n_q - n_both);
    if (!residual.valid || !(fabs(q_sum - 1.0) <= Q_SUM_SLACK))
        return ft_err_set(err, FT_E_PEER_PROTOCOL, MODULE,
                          "the q row of draft %d is no distribution: its sum is %g", i, q_sum);
    for (size_t id = n_both; id < n_p; id++)
        weights[id] = p[id];
    *out = ft_transform_draw(weights, round->n_vocab, u);
    if (*out < 0)
        *out = ft_transform_draw(p, round->n_vocab, u);
    return FT_OK;
}

static enum ft_code decide_sampled(struct ft_transform *transform, const struct ft_round *round,
                                   struct ft_verdict *out, struct ft_err *err) {
    const uint64_t seed = round->sampling->seed;
    float *p = ft_transform_scratch(transform, 0);
    struct ft_verdict verdict = {0};
    for (int32_t i = 0; i <= round->n_draft; i++) {
        const uint64_t position = round->position + (uint64_t)i;
        struct ft_row_context context = ft_rule_row_context(round, i);
        if (ft_transform_row(transform, round->p_rows[i], round->n_vocab, &context, p, err) !=
            FT_OK)
            return row_failed(err, i);
        int32_t *token = &verdict.tokens[verdict.n_tokens++];
        if (i == round->n_draft) {
            *token = ft_transform_draw(p, round->n_vocab,
                                       ft_philox_uniform(seed, position, FT_PHILOX_RESIDUAL, 0));
            break;
        }
        double q;
        enum ft_code code = read_q(round, i, &q, err);
        if (code != FT_OK)
            return code;
        const int32_t draft = round->draft[i];
        double u = ft_philox_uniform(seed, position, FT_PHILOX_ACCEPT, 0);
        if (draft >= 0 && draft < round->n_vocab && u * q < (double)p[draft]) {
            *token = draft;
            continue;
        }
        code = draw_residual(transform, round, i, p, token, err);
        if (code != FT_OK)
            return code;
        verdict.residual = true;
        break;
    }
    verdict.n_accepted = verdict.n_tokens - 1;
    *out = verdict;
    return FT_OK;
}

static enum ft_code decide(struct ft_transform *transform, const struct ft_round *round,
                           struct ft_verdict *out, struct ft_err *err) {
    FT_ASSERT(round->n_draft >= 0 && round->n_draft <= FT_DRAFT_LEN_MAX);
    if (ft_sampling_is_greedy(round->sampling))
        return decide_greedy(transform, round, out, err);
    return decide_sampled(transform, round, out, err);
}

const struct ft_rule ft_rule_standard = {.name = "standard", .lossy = false, .decide = decide};
