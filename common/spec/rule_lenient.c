/* The rule `lenient`: `standard` with q scaled by lenience l in (0, 1] (Leviathan et al. 2023,
 * appendix A.5). A drafted t is accepted with probability min(1, p(t) / (l q(t))), a rejection
 * draws from norm(max(0, p - l q)).
 *
 * What is committed is not distributed as p, but no token is more probable than p / l: an accepted
 * one has at most min(q, p / l); where p > l q the residual adds at most p - l q to q, and
 * q + p - l q <= p + (1 - l) p / l = p / l. l = 1 is `standard`. At temperature 0 p is one-hot and
 * the rule is exact. */
#include "common/spec/rules.h"

static enum ft_code decide(struct ft_transform *transform, const struct ft_round *round,
                           struct ft_verdict *out, struct ft_err *err) {
    FT_ASSERT(round->n_draft >= 0 && round->n_draft <= FT_DRAFT_LEN_MAX);
    FT_ASSERT(round->lenience > 0.0f && round->lenience <= 1.0f);
    if (ft_sampling_is_greedy(round->sampling))
        return ft_rule_greedy(transform, round, out, err);
    return ft_rule_sampled(transform, round, round->lenience, out, err);
}

const struct ft_rule ft_rule_lenient = {
    .name = "lenient", .lossy = true, .by_row = true, .decide = decide};
