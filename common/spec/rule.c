#include "common/spec/rule.h"

#include <string.h>

#include "common/spec/rowmath.h"
#include "common/spec/rules.h"

static const struct ft_rule *const rules[] = {&ft_rule_standard};

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

double ft_spec_alpha(const float *p, int32_t n_vocab, const float *q, int32_t n_vocab_draft) {
    int32_t n = n_vocab < n_vocab_draft ? n_vocab : n_vocab_draft;
    return ft_rowmath_sum_min(p, q, (size_t)n);
}
