#include "coordinator/drafter.h"

#include <stdlib.h>
#include <string.h>

#include "common/spec/philox.h"
#include "coordinator/drafters.h"

static const struct co_drafter *const k_drafters[] = {
    &co_drafter_model,   &co_drafter_ngram,  &co_drafter_lookup, &co_drafter_bigram,
    &co_drafter_unigram, &co_drafter_random, &co_drafter_chain,
};
#define N_DRAFTERS (sizeof k_drafters / sizeof k_drafters[0])

const struct co_drafter *co_drafter_at(size_t index) {
    return index < N_DRAFTERS ? k_drafters[index] : NULL;
}

const struct co_drafter *co_drafter_find(const char *name) {
    for (size_t i = 0; i < N_DRAFTERS; i++)
        if (strcmp(k_drafters[i]->name, name) == 0)
            return k_drafters[i];
    return NULL;
}

size_t co_drafter_index(const struct co_drafter *drafter) {
    size_t i = 0;
    while (i < N_DRAFTERS && k_drafters[i] != drafter)
        i++;
    FT_ASSERT(i < N_DRAFTERS);
    return i;
}

void co_proposal_row(const struct co_proposal *proposal, int32_t i, float *row) {
    const struct co_q_row *q = &proposal->q[i];
    if (q->n_ids == 0)
        row[proposal->tokens[i]] = 1.0f;
    for (int32_t j = 0; j < q->n_ids; j++)
        row[q->ids[j]] = q->probs[j];
}

void co_proposal_row_clear(const struct co_proposal *proposal, int32_t i, float *row) {
    const struct co_q_row *q = &proposal->q[i];
    row[proposal->tokens[i]] = 0.0f;
    for (int32_t j = 0; j < q->n_ids; j++)
        row[q->ids[j]] = 0.0f;
}

int32_t co_draft_tail(const struct co_draft_context *context, const struct co_proposal *proposal,
                      int32_t i) {
    if (i < proposal->n)
        return proposal->tokens[proposal->n - 1 - i];
    int32_t at = context->n - 1 - (i - proposal->n);
    return at >= 0 ? context->tokens[at] : -1;
}

/* One of n ids with these counts for the next token of a proposal, and the row that it was drawn
 * from. The lane is the token's index in its round, as for every drafter (see ft_rule_propose). */
static int32_t draw(const struct co_draft_context *context, struct co_proposal *proposal,
                    const int32_t *ids, const uint32_t *counts, int32_t n) {
    struct co_q_row *row = &proposal->q[proposal->n];
    uint64_t position = (uint64_t)context->n + (uint64_t)proposal->n;
    double total = 0, sum = 0;
    for (int32_t i = 0; i < n; i++)
        total += counts[i];
    double u =
        ft_philox_uniform(context->seed, position, FT_PHILOX_PROPOSE, (uint32_t)proposal->n) *
        total;
    int32_t chosen = n - 1;
    for (int32_t i = 0; i < n; i++) {
        row->ids[i] = ids[i];
        row->probs[i] = (float)(counts[i] / total);
    }
    row->n_ids = n;
    for (int32_t i = 0; i < n - 1; i++) {
        sum += counts[i];
        if (u < sum) {
            chosen = i;
            break;
        }
    }
    return ids[chosen];
}

bool co_proposal_choose(struct co_proposal *proposal, const struct co_draft_context *context,
                        const int32_t *ids, const uint32_t *counts, int32_t n) {
    int32_t kept_ids[CO_Q_SUPPORT_MAX], kept = 0;
    uint32_t kept_counts[CO_Q_SUPPORT_MAX];
    if (proposal->n >= context->k_max || proposal->n >= FT_DRAFT_LEN_MAX)
        return false;
    for (int32_t i = 0; i < n && kept < CO_Q_SUPPORT_MAX; i++) {
        if (ids[i] < 0 || ids[i] >= context->n_vocab || counts[i] == 0)
            continue;
        kept_ids[kept] = ids[i];
        kept_counts[kept++] = counts[i];
    }
    if (kept == 0)
        return false;
    proposal->q[proposal->n].n_ids = 0;
    int32_t id = kept_ids[0];
    if (context->probabilistic)
        id = draw(context, proposal, kept_ids, kept_counts, kept);
    proposal->tokens[proposal->n++] = id;
    return true;
}

enum ft_code co_drafter_open_nothing(void **shared, const struct co_drafter_opts *opts,
                                     struct ft_err *err) {
    (void)opts;
    (void)err;
    *shared = NULL;
    return FT_OK;
}

void co_drafter_close_nothing(void **shared) {
    *shared = NULL;
}

enum ft_code co_drafter_begin_nothing(void **state, const void *shared, int32_t tokens_max,
                                      struct ft_err *err) {
    (void)shared;
    (void)tokens_max;
    (void)err;
    *state = NULL;
    return FT_OK;
}

void co_drafter_end_nothing(void **state) {
    *state = NULL;
}

void co_drafter_end_free(void **state) {
    free(*state);
    *state = NULL;
}

void co_drafter_extend_nothing(const void *shared, void *state,
                               const struct co_draft_context *context,
                               struct co_proposal *proposal) {
    (void)shared;
    (void)state;
    (void)context;
    (void)proposal;
}

struct co_drafter_usage co_drafter_usage_nothing(const void *state) {
    (void)state;
    return (struct co_drafter_usage){0, 0};
}
