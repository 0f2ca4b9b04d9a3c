/* gumbel: the draw of the rule `coupled`: argmax(log p + Gumbel noise), where the noise is a
 * function of (seed, position, token) alone. Whoever draws from a similar distribution with the
 * same noise mostly draws the same token.
 * Owns:    nothing.
 * Runs in: coordinator, draft_worker; any thread.
 * Never:   depends on the machine: the logarithm is ours, sums have a fixed order. */
#ifndef FT_SPEC_GUMBEL_H
#define FT_SPEC_GUMBEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Lowest id among the largest log(probs) + Gumbel(seed, position, id). probs may be weights >= 0
 * with any sum; an id with weight zero is never drawn. -1 when nothing is positive.
 * cost  a Philox block for each two ids of a stretch of 32 that holds something positive */
int32_t ft_gumbel_draw(const float *probs, int32_t n_vocab, uint64_t seed, uint64_t position);

/* -log(1 - u) for u in [0, 1): an exponential variate. Within 4e-16 relative; for the tests. */
double ft_gumbel_exponential(double u);

#ifdef __cplusplus
}
#endif
#endif
