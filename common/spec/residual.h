/* residual: what is left of p where a draft took its share, and the share itself.
 * Owns:    nothing; weights lie in the transform's scratch rows.
 * Runs in: coordinator; loop thread only.
 * Never:   believes a q row: what is read of it is checked; included outside common/spec. */
#ifndef FT_SPEC_RESIDUAL_H
#define FT_SPEC_RESIDUAL_H

#include "common/spec/rule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How far the sum of a q row may be from 1: far above what rounding does to 2^18 terms, far below
 * what would show in a distribution. */
#define FT_RESIDUAL_SLACK 1e-3

/* Draft i can have been drawn from its q row, which is a distribution.
 * fail FT_E_PEER_PROTOCOL: names the draft */
enum ft_code ft_residual_check(const struct ft_round *round, int32_t i, struct ft_err *err);
/* The same of all drafts. To be asked before the first is decided: whether a round is decided again
 * without drafts may not depend on how far it came. */
enum ft_code ft_residual_check_all(const struct ft_round *round, struct ft_err *err);

/* q(t) of the i-th draft; 1 for one-hot drafts. */
double ft_residual_q(const struct ft_round *round, int32_t i);

struct ft_residual {
    const float *p;         /* the target's distribution at row i, not in scratch row 1 */
    float p_scale, q_scale; /* weights are max(0, p_scale * p - q_scale * q) */
    float *weights;         /* out: [n_vocab], scratch row 1 of the transform */
    double sum;             /* out: of the weights */
};
/* Fill weights and sum for row i. An id that q lacks keeps all of p_scale * p. */
void ft_residual_weigh(struct ft_transform *transform, const struct ft_round *round, int32_t i,
                       struct ft_residual *residual);

/* A token from the weights; from p when nothing is left of them: p <= q everywhere up to rounding.
 * lane as of ft_philox_uniform. */
int32_t ft_residual_draw(const struct ft_round *round, int32_t i, uint32_t lane,
                         const struct ft_residual *residual);

#ifdef __cplusplus
}
#endif
#endif
