#include "common/spec/rule.h"

#include <string.h>

#include "common/spec/gumbel.h"
#include "common/spec/rowmath.h"
#include "common/spec/rules.h"

static const struct ft_rule *const rules[] = {&ft_rule_standard, &ft_rule_coupled, &ft_rule_block,
                                              &ft_rule_lenient, &ft_rule_synthetic};

const struct ft_rule *ft_rule_at(size_t index) {
    return index < sizeof rules / sizeof rules[0] ? rules[index] : NULL;
}

const struct ft_rule *ft_rule_find(const char *name) {
    const struct ft_rule *rule;
    for (size_t i = 0; (rule = ft_rule_at(i)) != NULL; i++)
        if (strcmp(rule->name, name) == 0)
            return rule;
    return NULL;
}

struct ft_row_context ft_rule_row_context(const struct ft_round *round, int32_t index) {
    return (struct ft_row_context){
        .sampling = round->sampling,
        .counts = round->counts,
        .drafted = round->draft,
        .n_drafted = (size_t)index,
        .banned = round->banned,
        .n_banned = index < round->n_banned_rows ? round->n_banned : 0,
    };
}

bool ft_rule_reads_q(const struct ft_sampling *draft_sampling) {
    return !ft_sampling_is_greedy(draft_sampling) && !draft_sampling->coupled;
}

int32_t ft_rule_propose(const struct ft_sampling *draft_sampling, const float *q, int32_t n_vocab,
                        uint64_t position, int32_t index) {
    if (draft_sampling->coupled)
        return ft_gumbel_draw(q, n_vocab, draft_sampling->seed, position);
    return ft_transform_draw(
        q, n_vocab,
        ft_philox_uniform(draft_sampling->seed, position, FT_PHILOX_PROPOSE, (uint32_t)index));
}

static enum ft_code row_failed(struct ft_err *err, int32_t index) {
    return ft_err_prefix(err, "row %d", index);
}

enum ft_code ft_rule_row(struct ft_transform *transform, const struct ft_round *round,
                         int32_t index, float *probs, struct ft_err *err) {
    struct ft_row_context context = ft_rule_row_context(round, index);
    if (ft_transform_row(transform, round->p_rows[index], round->n_vocab, &context, probs, err) !=
        FT_OK)
        return row_failed(err, index);
    return FT_OK;
}

enum ft_code ft_rule_greedy(struct ft_transform *transform, const struct ft_round *round,
                            struct ft_verdict *out, struct ft_err *err) {
    struct ft_verdict verdict = {0};
    for (int32_t i = 0; i <= round->n_draft; i++) {
        struct ft_row_context context = ft_rule_row_context(round, i);
        int32_t best;
        if (ft_transform_argmax(transform, round->p_rows[i], round->n_vocab, &context, &best,
                                err) != FT_OK)
            return row_failed(err, i);
        verdict.tokens[verdict.n_tokens++] = best;
        if (i < round->n_draft && round->draft[i] != best) {
            verdict.residual = true;
            break;
        }
    }
    verdict.n_accepted = verdict.n_tokens - 1;
    *out = verdict;
    return FT_OK;
}

double ft_spec_alpha(const float *p, int32_t n_vocab, const float *q, int32_t n_vocab_draft) {
    int32_t n = n_vocab < n_vocab_draft ? n_vocab : n_vocab_draft;
    return ft_rowmath_sum_min(p, q, (size_t)n);
}
