/* choice (spec): decisions about rows that lie on a device: put together as plain data, carried out
 * there by ops->choose, and read back as the verdict that the rule itself would have given.
 * Owns:    the lists of one batch, from create to destroy.
 * Runs in: coordinator, draft_worker; loop thread only.
 * Never:   reads a row; decides otherwise than the rule: what it cannot put into words it refuses,
 *          and what comes back unusual is for the rule to look at. */
#ifndef FT_SPEC_CHOICE_H
#define FT_SPEC_CHOICE_H

#include "common/gpu/choice.h"
#include "common/spec/rule.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_choice_batch {
    struct ft_choice_row *rows;
    struct ft_choice_edit *edits;
    int32_t *ids;
    int32_t n_rows, n_edits, n_ids;
    int32_t rows_max, edits_max, ids_max;
    int32_t n_vocab_max; /* of the rows */
};

/* Lists of a step's rows; edits and ids have room for long lists of few requests, or short ones of
 * many: a request that finds none left is refused. false: no memory. */
bool ft_choice_batch_create(struct ft_choice_batch *batch, int32_t rows_max);
void ft_choice_batch_destroy(struct ft_choice_batch *batch);
void ft_choice_batch_reset(struct ft_choice_batch *batch);

/* Where a round's rows are in the batch. */
struct ft_choice_round {
    int32_t first_row, n_rows;
    int32_t n_known; /* drafts accepted without a look at their rows (`synthetic`) */
};

/* Add what rule would look at. round->p_rows and q_rows are addresses on the device, drafted that
 * of the drafted ids there; round->draft is the host's. false: refused, nothing was added: no room,
 * a rule or a vocabulary without a twin on the device, or a draft that its q cannot have given; the
 * rule decides on rows that are fetched. */
bool ft_choice_add_round(struct ft_choice_batch *batch, const struct ft_rule *rule,
                         const struct ft_round *round, const int32_t *drafted,
                         struct ft_choice_round *at);

/* What the rule says, from the results of the batch's rows. false: a row that it looks at is
 * unusual, and the rule itself has to decide, or to say what is wrong. */
bool ft_choice_verdict(const struct ft_rule *rule, const struct ft_round *round,
                       const struct ft_choice_round *at, const struct ft_choice_result *results,
                       struct ft_verdict *out);

/* Add the index-th token of a draft step: drawn as ft_transform_argmax and ft_rule_propose do, at
 * position, from logits; q goes to probs unless that is NULL. drafted: on the device, the ids
 * before it. false: no room. */
struct ft_choice_draft {
    const struct ft_sampling *sampling;
    const struct ft_counts *counts;
    const float *logits;
    float *probs;
    const int32_t *drafted;
    int32_t n_vocab, index;
    uint64_t position;
};
bool ft_choice_add_draft(struct ft_choice_batch *batch, const struct ft_choice_draft *draft);

#ifdef __cplusplus
}
#endif
#endif
