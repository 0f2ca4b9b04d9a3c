/* The rule `synthetic`, for benchmarks: draft i is accepted with a given probability once those
 * before it are, whatever p and q say, so that a round's cost can be measured at any acceptance.
 * The token behind the accepted ones is the target's own choice. Masks hold: a draft that they
 * exclude is rejected. */
#include "common/spec/rules.h"

bool ft_rule_synthetic_accepts(const struct ft_round *round, int32_t i) {
    const int32_t draft = round->draft[i];
    struct ft_row_context context = ft_rule_row_context(round, i);
    double u = ft_philox_uniform(round->sampling->seed, round->position + (uint64_t)i,
                                 FT_PHILOX_ACCEPT, 0);
    return u < (double)round->synthetic_rates[i] && draft >= 0 && draft < round->n_vocab &&
           ft_row_allows(&context, draft);
}

static enum ft_code own_choice(struct ft_transform *transform, const struct ft_round *round,
                               int32_t i, int32_t *token, struct ft_err *err) {
    float *p = ft_transform_scratch(transform, 0);
    enum ft_code code = ft_rule_row(transform, round, i, p, err); /* one-hot at temperature 0 */
    if (code == FT_OK)
        *token = ft_transform_draw(p, round->n_vocab,
                                   ft_philox_uniform(round->sampling->seed,
                                                     round->position + (uint64_t)i,
                                                     FT_PHILOX_RESIDUAL, 0));
    return code;
}

static enum ft_code decide(struct ft_transform *transform, const struct ft_round *round,
                           struct ft_verdict *out, struct ft_err *err) {
    FT_ASSERT(round->n_draft >= 0 && round->n_draft <= FT_DRAFT_LEN_MAX);
    FT_ASSERT(round->n_draft == 0 || round->synthetic_rates != NULL);
    struct ft_verdict verdict = {0};
    for (; verdict.n_accepted < round->n_draft; verdict.n_accepted++) {
        if (!ft_rule_synthetic_accepts(round, verdict.n_accepted))
            break;
        verdict.tokens[verdict.n_accepted] = round->draft[verdict.n_accepted];
    }
    enum ft_code code =
        own_choice(transform, round, verdict.n_accepted, &verdict.tokens[verdict.n_accepted], err);
    if (code != FT_OK)
        return code;
    verdict.n_tokens = verdict.n_accepted + 1;
    verdict.residual = verdict.n_accepted < round->n_draft;
    *out = verdict;
    return FT_OK;
}

const struct ft_rule ft_rule_synthetic = {
    .name = "synthetic", .lossy = true, .by_row = true, .blind = true, .decide = decide};
