/* The rule `coupled`: drafter-invariant coupling (Daliri, Musco, Suresh 2024). Each token is
 * argmax(log p + Gumbel(seed, position, token)), which has the distribution p; the drafter draws
 * from q with the same noise, and drafts are accepted while they are the target's own choice. The
 * text is a function of the target, the sampling and the seed: not of the drafter, of K, or of
 * whether anything was drafted. */
#include "common/spec/gumbel.h"
#include "common/spec/rules.h"

static enum ft_code decide(struct ft_transform *transform, const struct ft_round *round,
                           struct ft_verdict *out, struct ft_err *err) {
    FT_ASSERT(round->n_draft >= 0 && round->n_draft <= FT_DRAFT_LEN_MAX);
    if (ft_sampling_is_greedy(round->sampling))
        return ft_rule_greedy(transform, round, out, err);
    float *p = ft_transform_scratch(transform, 0);
    struct ft_verdict verdict = {0};
    for (int32_t i = 0; i <= round->n_draft; i++) {
        enum ft_code code = ft_rule_row(transform, round, i, p, err);
        if (code != FT_OK)
            return code;
        int32_t token =
            ft_gumbel_draw(p, round->n_vocab, round->sampling->seed, round->position + (uint64_t)i);
        verdict.tokens[verdict.n_tokens++] = token;
        if (i < round->n_draft && round->draft[i] != token) {
            verdict.residual = true;
            break;
        }
    }
    verdict.n_accepted = verdict.n_tokens - 1;
    *out = verdict;
    return FT_OK;
}

const struct ft_rule ft_rule_coupled = {
    .name = "coupled", .coupled = true, .by_row = true, .decide = decide};
