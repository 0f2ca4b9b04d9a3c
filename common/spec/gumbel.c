/* With E exponential, -log E is Gumbel: argmax(log p - log E) = argmin(E / p), a race that needs a
 * logarithm only for ids that may win it. */
#include "common/spec/gumbel.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/spec/philox.h"

#define IDS FT_PHILOX_UNIFORMS /* of a stretch */

double ft_gumbel_exponential(double u) {
    const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    int exponent;
    double m = frexp(1.0 - u, &exponent); /* exact: u is a multiple of 2^-53 */
    if (m < 0x1.6a09e667f3bcdp-1) {       /* m in [sqrt(1/2), sqrt(2)) */
        m *= 2;
        exponent--;
    }
    /* log m = 2 artanh s; s^2 < 0.0295, so that the first term left out is below 1e-18. */
    double s = (m - 1.0) / (m + 1.0), square = s * s, sum = 0.0;
    for (int k = 21; k >= 3; k -= 2)
        sum = (sum + 1.0 / k) * square;
    double log_m = 2.0 * (s + s * sum);
    return -((double)exponent * ln2_high + (log_m + (double)exponent * ln2_low));
}

static bool any_positive(const float *probs, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (probs[i] > 0.0f)
            return true;
    return false;
}

int32_t ft_gumbel_draw(const float *probs, int32_t n_vocab, uint64_t seed, uint64_t position) {
    const size_t n = (size_t)n_vocab;
    double best = INFINITY, u[IDS];
    int32_t winner = -1;
    for (size_t first = 0; first < n; first += IDS) {
        const size_t n_here = n - first < IDS ? n - first : IDS;
        if (!any_positive(probs + first, n_here))
            continue;
        ft_philox_uniforms(seed, position, FT_PHILOX_GUMBEL, (uint32_t)(first / 2), u);
        for (size_t i = 0; i < n_here; i++) {
            const double p = (double)probs[first + i];
            /* -log(1 - u) >= u: this one cannot win. */
            if (!(p > 0.0) || u[i] >= best * p)
                continue;
            const double arrival = ft_gumbel_exponential(u[i]) / p;
            if (arrival < best) {
                best = arrival;
                winner = (int32_t)(first + i);
            }
        }
    }
    return winner;
}
