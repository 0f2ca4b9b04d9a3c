/* The rule `block`: block verification, Algorithm 2 of Sun et al. 2024 ("Block Verification
 * Accelerates Speculative Decoding").
 *
 * The drafts are accepted together: with b_0 = 1 and b_i = min(1, b_{i-1} p(t_i) / q(t_i)), the
 * first i drafts pass with probability h_i = S_i / (S_i + 1 - b_i), where S_i is the sum of
 * max(0, b_i p - q) over row i, and h_K = b_K. The longest i that passes is accepted; the token
 * behind it comes from norm(max(0, b_i p - q)), from the last row when all passed. What is
 * committed has the distribution p, and in expectation no rule that is exact accepts more; in
 * particular not `standard`.
 *
 * Drafts that did not pass were looked at, and their positions are drafted and decided again in
 * the next round: every random number has the index in its round as its lane, which is another
 * one then. */
#include "common/spec/residual.h"
#include "common/spec/rules.h"

static double uniform(const struct ft_round *round, int32_t i, enum ft_philox_purpose purpose) {
    return ft_philox_uniform(round->sampling->seed, round->position + (uint64_t)i, purpose,
                             (uint32_t)i);
}

/* Do the first i drafts pass, i of 1 .. n_draft? */
static bool passes(const struct ft_round *round, int32_t i, double chance) {
    return uniform(round, i - 1, FT_PHILOX_ACCEPT) < chance;
}

struct block {
    float *p;             /* scratch */
    double joint;         /* b_i */
    int32_t n_accepted;   /* longest that passed so far */
    int32_t token_behind; /* what follows them */
};

/* Row i of 0 .. n_draft - 1: may the block end before draft i? Then on to b_{i+1}. */
static enum ft_code add_draft(struct ft_transform *transform, const struct ft_round *round,
                              int32_t i, struct block *block, struct ft_err *err) {
    struct ft_residual residual = {.p = block->p, .p_scale = (float)block->joint, .q_scale = 1.0f};
    enum ft_code code = ft_rule_row(transform, round, i, block->p, err);
    if (code != FT_OK)
        return code;
    ft_residual_weigh(transform, round, i, &residual);
    double left = residual.sum + (1.0 - block->joint);
    if (i == 0 || passes(round, i, left > 0.0 ? residual.sum / left : 1.0)) {
        block->n_accepted = i;
        block->token_behind = ft_residual_draw(round, i, (uint32_t)i, &residual);
    }
    const int32_t token = round->draft[i];
    double p = token >= 0 && token < round->n_vocab ? (double)block->p[token] : 0.0;
    block->joint *= p / ft_residual_q(round, i);
    if (block->joint > 1.0)
        block->joint = 1.0;
    return FT_OK;
}

static enum ft_code decide_sampled(struct ft_transform *transform, const struct ft_round *round,
                                   struct ft_verdict *out, struct ft_err *err) {
    const int32_t k = round->n_draft;
    struct block block = {.p = ft_transform_scratch(transform, 0), .joint = 1.0};
    enum ft_code code = ft_residual_check_all(round, err);
    for (int32_t i = 0; code == FT_OK && i < k && block.joint > 0.0; i++)
        code = add_draft(transform, round, i, &block, err);
    if (code != FT_OK)
        return code;
    if (k == 0 || passes(round, k, block.joint)) {
        code = ft_rule_row(transform, round, k, block.p, err);
        if (code != FT_OK)
            return code;
        block.n_accepted = k;
        block.token_behind =
            ft_transform_draw(block.p, round->n_vocab, uniform(round, k, FT_PHILOX_RESIDUAL));
    }
    struct ft_verdict verdict = {.n_accepted = block.n_accepted,
                                 .n_tokens = block.n_accepted + 1,
                                 .residual = block.n_accepted < k};
    for (int32_t i = 0; i < block.n_accepted; i++)
        verdict.tokens[i] = round->draft[i];
    verdict.tokens[block.n_accepted] = block.token_behind;
    *out = verdict;
    return FT_OK;
}

static enum ft_code decide(struct ft_transform *transform, const struct ft_round *round,
                           struct ft_verdict *out, struct ft_err *err) {
    FT_ASSERT(round->n_draft >= 0 && round->n_draft <= FT_DRAFT_LEN_MAX);
    if (ft_sampling_is_greedy(round->sampling))
        return ft_rule_greedy(transform, round, out, err);
    return decide_sampled(transform, round, out, err);
}

const struct ft_rule ft_rule_block = {.name = "block", .decide = decide};
