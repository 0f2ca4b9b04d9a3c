/* rules: the rows of the registry in rule.c.
 * Owns:    nothing.
 * Runs in: coordinator.
 * Never:   included outside common/spec. */
#ifndef FT_SPEC_RULES_H
#define FT_SPEC_RULES_H

#include "common/spec/rule.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct ft_rule ft_rule_standard;
extern const struct ft_rule ft_rule_coupled;
extern const struct ft_rule ft_rule_block;
extern const struct ft_rule ft_rule_lenient;
extern const struct ft_rule ft_rule_synthetic;

/* What the rules share. The row of a failure is named in err. */
enum ft_code ft_rule_row(struct ft_transform *transform, const struct ft_round *round,
                         int32_t index, float *probs, struct ft_err *err);
/* Temperature 0: a draft is accepted when it is the argmax. */
enum ft_code ft_rule_greedy(struct ft_transform *transform, const struct ft_round *round,
                            struct ft_verdict *out, struct ft_err *err);
/* Algorithm 1 of Leviathan et al. with q scaled by lenience (rule_standard.c). */
enum ft_code ft_rule_sampled(struct ft_transform *transform, const struct ft_round *round,
                             float lenience, struct ft_verdict *out, struct ft_err *err);

/* Does `synthetic` accept draft i, once those before it are? Its row has no say (rule_synthetic.c).
 */
bool ft_rule_synthetic_accepts(const struct ft_round *round, int32_t i);

#ifdef __cplusplus
}
#endif
#endif
