#include "common/spec/residual.h"

#include <math.h>

#include "common/spec/rowmath.h"

#define MODULE "rule"

double ft_residual_q(const struct ft_round *round, int32_t i) {
    return round->q_rows == NULL ? 1.0 : (double)round->q_rows[i][round->draft[i]];
}

enum ft_code ft_residual_check(const struct ft_round *round, int32_t i, struct ft_err *err) {
    int32_t token = round->draft[i];
    if (round->q_rows == NULL)
        return FT_OK;
    if (token < 0 || token >= round->n_vocab_draft)
        return ft_err_set(err, FT_E_PEER_PROTOCOL, MODULE,
                          "draft %d is token %d, outside the draft vocabulary of %d", i, token,
                          round->n_vocab_draft);
    double q = ft_residual_q(round, i);
    if (!(q > 0.0 && q <= 1.0 + FT_RESIDUAL_SLACK))
        return ft_err_set(err, FT_E_PEER_PROTOCOL, MODULE,
                          "draft %d is token %d, whose q is %g: it was not drawn from that row", i,
                          token, q);
    double sum = ft_rowmath_mass(round->q_rows[i], (size_t)round->n_vocab_draft);
    if (!(fabs(sum - 1.0) <= FT_RESIDUAL_SLACK))
        return ft_err_set(err, FT_E_PEER_PROTOCOL, MODULE,
                          "the q row of draft %d is no distribution: its sum is %g", i, sum);
    return FT_OK;
}

enum ft_code ft_residual_check_all(const struct ft_round *round, struct ft_err *err) {
    enum ft_code code = FT_OK;
    for (int32_t i = 0; code == FT_OK && i < round->n_draft; i++)
        code = ft_residual_check(round, i, err);
    return code;
}

static void weigh_one_hot(const struct ft_round *round, int32_t i, struct ft_residual *residual) {
    const size_t n = (size_t)round->n_vocab;
    const int32_t token = round->draft[i];
    float *weights = residual->weights;
    for (size_t id = 0; id < n; id++)
        weights[id] = residual->p[id] * residual->p_scale;
    if (token >= 0 && token < round->n_vocab) {
        float excess = weights[token] - residual->q_scale;
        weights[token] = excess > 0.0f ? excess : 0.0f;
    }
    residual->sum = ft_rowmath_sum(weights, n);
}

void ft_residual_weigh(struct ft_transform *transform, const struct ft_round *round, int32_t i,
                       struct ft_residual *residual) {
    residual->weights = ft_transform_scratch(transform, 1);
    if (round->q_rows == NULL) {
        weigh_one_hot(round, i, residual);
        return;
    }
    const size_t n_p = (size_t)round->n_vocab, n_q = (size_t)round->n_vocab_draft;
    const size_t n_both = n_p < n_q ? n_p : n_q;
    float *weights = residual->weights;
    double sum = ft_rowmath_residual(residual->p, residual->p_scale, round->q_rows[i],
                                     residual->q_scale, n_both, weights);
    for (size_t id = n_both; id < n_p; id++)
        weights[id] = residual->p[id] * residual->p_scale;
    residual->sum = sum + ft_rowmath_sum(weights + n_both, n_p - n_both);
}

int32_t ft_residual_draw(const struct ft_round *round, int32_t i, uint32_t lane,
                         const struct ft_residual *residual) {
    double u = ft_philox_uniform(round->sampling->seed, round->position + (uint64_t)i,
                                 FT_PHILOX_RESIDUAL, lane);
    int32_t token = ft_transform_draw(residual->weights, round->n_vocab, u);
    return token >= 0 ? token : ft_transform_draw(residual->p, round->n_vocab, u);
}
