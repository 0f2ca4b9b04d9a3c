/* The rule `standard`: speculative sampling, Algorithm 1 of Leviathan, Kalman, Matias 2023 ("Fast
 * Inference from Transformers via Speculative Decoding"), the same as Chen et al. 2023.
 *
 * A drafted t at row i is accepted with probability min(1, p(t) / q(t)). The first rejection draws
 * from norm(max(0, p - q)) instead; when all are accepted the last row gives one token more. What
 * is committed has the distribution p, whatever q is. At temperature 0 all of it is a comparison
 * of argmaxes. */
#include "common/spec/residual.h"
#include "common/spec/rules.h"

enum ft_code ft_rule_sampled(struct ft_transform *transform, const struct ft_round *round,
                             float lenience, struct ft_verdict *out, struct ft_err *err) {
    const uint64_t seed = round->sampling->seed;
    float *p = ft_transform_scratch(transform, 0);
    struct ft_verdict verdict = {0};
    enum ft_code code = ft_residual_check_all(round, err);
    if (code != FT_OK)
        return code;
    for (int32_t i = 0; i <= round->n_draft; i++) {
        const uint64_t position = round->position + (uint64_t)i;
        code = ft_rule_row(transform, round, i, p, err);
        if (code != FT_OK)
            return code;
        int32_t *token = &verdict.tokens[verdict.n_tokens++];
        if (i == round->n_draft) {
            *token = ft_transform_draw(p, round->n_vocab,
                                       ft_philox_uniform(seed, position, FT_PHILOX_RESIDUAL, 0));
            break;
        }
        const int32_t draft = round->draft[i];
        double q = ft_residual_q(round, i);
        double u = ft_philox_uniform(seed, position, FT_PHILOX_ACCEPT, 0);
        if (draft >= 0 && draft < round->n_vocab && u * (q * (double)lenience) < (double)p[draft]) {
            *token = draft;
            continue;
        }
        struct ft_residual residual = {.p = p, .p_scale = 1.0f, .q_scale = lenience};
        ft_residual_weigh(transform, round, i, &residual);
        *token = ft_residual_draw(round, i, 0, &residual);
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
        return ft_rule_greedy(transform, round, out, err);
    return ft_rule_sampled(transform, round, 1.0f, out, err);
}

const struct ft_rule ft_rule_standard = {.name = "standard", .by_row = true, .decide = decide};
