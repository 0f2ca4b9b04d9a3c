#include "common/spec/choice.h"

#include <stdlib.h>
#include <string.h>

#include "common/spec/counts.h"
#include "common/spec/rules.h"

/* A request's own lists hold at most FT_SAMPLING_LIST_MAX entries each, and as many counts as its
 * text has different tokens. */
#define EDITS_MAX 65536
#define IDS_MAX 65536

_Static_assert(FT_CHOICE_DRAFTED_MAX == FT_DRAFT_LEN_MAX, "the device layer knows drafts as long");
_Static_assert(sizeof(struct ft_choice_edit) == 16 && sizeof(struct ft_choice_result) == 16,
               "read and written as one");
_Static_assert(sizeof(struct ft_choice_row) % 16 == 0, "lists behind rows stay aligned");

bool ft_choice_batch_create(struct ft_choice_batch *batch, int32_t rows_max) {
    *batch =
        (struct ft_choice_batch){.rows_max = rows_max, .edits_max = EDITS_MAX, .ids_max = IDS_MAX};
    batch->rows = calloc((size_t)rows_max, sizeof *batch->rows);
    batch->edits = calloc(EDITS_MAX, sizeof *batch->edits);
    batch->ids = calloc(IDS_MAX, sizeof *batch->ids);
    if (batch->rows != NULL && batch->edits != NULL && batch->ids != NULL)
        return true;
    ft_choice_batch_destroy(batch);
    return false;
}

void ft_choice_batch_destroy(struct ft_choice_batch *batch) {
    free(batch->rows);
    free(batch->edits);
    free(batch->ids);
    *batch = (struct ft_choice_batch){0};
}

void ft_choice_batch_reset(struct ft_choice_batch *batch) {
    batch->n_rows = batch->n_edits = batch->n_ids = 0;
    batch->n_vocab_max = 0;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static bool add_ids(struct ft_choice_batch *batch, const int32_t *ids, size_t n) {
    if (n > (size_t)(batch->ids_max - batch->n_ids))
        return false;
    if (n > 0)
        memcpy(batch->ids + batch->n_ids, ids, n * sizeof *ids);
    batch->n_ids += (int32_t)n;
    return true;
}

static bool add_edit(struct ft_choice_batch *batch, struct ft_choice_edit edit) {
    if (batch->n_edits == batch->edits_max)
        return false;
    batch->edits[batch->n_edits++] = edit;
    return true;
}

/* Biases and counts, each id once. */
static bool add_edits(struct ft_choice_batch *batch, const struct ft_sampling *sampling,
                      const struct ft_counts *counts) {
    bool counted = ft_sampling_has_penalties(sampling) && counts != NULL;
    size_t n_counts = counted ? ft_counts_size(counts) : 0;
    const struct ft_count *entries = counted ? ft_counts_entries(counts) : NULL;
    for (size_t i = 0; i < sampling->n_bias; i++) {
        struct ft_choice_edit edit = {.id = sampling->bias[i].id, .bias = sampling->bias[i].value};
        if (counted) {
            edit.n_output = ft_counts_output(counts, edit.id);
            edit.is_counted = edit.n_output > 0 || ft_counts_in_prompt(counts, edit.id);
        }
        if (!add_edit(batch, edit))
            return false;
    }
    for (size_t i = 0; i < n_counts; i++) {
        struct ft_choice_edit edit = {
            .id = entries[i].id, .n_output = entries[i].output, .is_counted = 1};
        if (ft_sampling_bias(sampling, edit.id) == NULL && !add_edit(batch, edit))
            return false;
    }
    return true;
}

/* What all rows of one request have in common. */
static bool begin_row(struct ft_choice_batch *batch, const struct ft_sampling *sampling,
                      bool is_coupled, const struct ft_counts *counts, struct ft_choice_row *row) {
    bool is_greedy = ft_sampling_is_greedy(sampling);
    *row = (struct ft_choice_row){
        .kind = is_greedy    ? FT_CHOICE_GREEDY
                : is_coupled ? FT_CHOICE_GUMBEL
                             : FT_CHOICE_DRAW,
        .top_k = sampling->top_k,
        .temperature = sampling->temperature,
        .top_p = sampling->top_p,
        .min_p = sampling->min_p,
        .repetition = sampling->repetition_penalty,
        .presence = sampling->presence_penalty,
        .frequency = sampling->frequency_penalty,
        .has_penalties = ft_sampling_has_penalties(sampling),
        .first_edit = batch->n_edits,
        .draft = -1,
        .lenience = 1.0f,
        .seed = sampling->seed,
    };
    if (!add_edits(batch, sampling, counts))
        return false;
    row->n_edits = batch->n_edits - row->first_edit;
    row->first_allowed = batch->n_ids;
    if (!add_ids(batch, sampling->allowed, sampling->n_allowed))
        return false;
    row->n_allowed = (int32_t)sampling->n_allowed;
    row->first_banned = batch->n_ids;
    if (!add_ids(batch, sampling->banned, sampling->n_banned))
        return false;
    row->n_banned = (int32_t)sampling->n_banned;
    return true;
}

static bool add_row(struct ft_choice_batch *batch, const struct ft_choice_row *row) {
    if (batch->n_rows == batch->rows_max || row->n_vocab > FT_CHOICE_VOCAB_MAX)
        return false;
    if (row->n_vocab > batch->n_vocab_max)
        batch->n_vocab_max = row->n_vocab;
    batch->rows[batch->n_rows++] = *row;
    return true;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static double uniform(const struct ft_round *round, int32_t i, enum ft_philox_purpose purpose) {
    return ft_philox_uniform(round->sampling->seed, round->position + (uint64_t)i, purpose, 0);
}

/* Drafts that `synthetic` accepts. */
static int32_t count_known(const struct ft_rule *rule, const struct ft_round *round) {
    int32_t n = 0;
    while (rule->blind && n < round->n_draft && ft_rule_synthetic_accepts(round, n))
        n++;
    return n;
}

static bool is_sampled(const struct ft_rule *rule, const struct ft_round *round) {
    return !rule->blind && !rule->coupled && !ft_sampling_is_greedy(round->sampling);
}

/* Row i of the round, behind what begin_row has filled in. */
static bool add_round_row(struct ft_choice_batch *batch, const struct ft_rule *rule,
                          const struct ft_round *round, int32_t i, struct ft_choice_row row) {
    row.logits = round->p_rows[i];
    row.n_vocab = round->n_vocab;
    row.n_drafted = i;
    row.position = round->position + (uint64_t)i;
    row.u_draw = uniform(round, i, FT_PHILOX_RESIDUAL);
    if (i < round->n_banned_rows)
        row.n_banned += (int32_t)round->n_banned;
    if (is_sampled(rule, round) && i < round->n_draft) {
        row.kind = FT_CHOICE_SPECULATE;
        row.draft = round->draft[i];
        row.q = round->q_rows == NULL ? NULL : round->q_rows[i];
        row.n_q = round->n_vocab_draft;
        row.u_accept = uniform(round, i, FT_PHILOX_ACCEPT);
        row.lenience = rule == &ft_rule_lenient ? round->lenience : 1.0f;
        if (row.q != NULL && (row.draft < 0 || row.draft >= row.n_q))
            return false;
    }
    return add_row(batch, &row);
}

bool ft_choice_add_round(struct ft_choice_batch *batch, const struct ft_rule *rule,
                         const struct ft_round *round, const int32_t *drafted,
                         struct ft_choice_round *at) {
    struct ft_choice_batch before = *batch;
    struct ft_choice_row row;
    if (!rule->by_row && !ft_sampling_is_greedy(round->sampling))
        return false;
    *at = (struct ft_choice_round){.first_row = batch->n_rows, .n_known = count_known(rule, round)};
    bool ok = begin_row(batch, round->sampling, rule->coupled, round->counts, &row);
    row.drafted = drafted;
    /* Bans of the first rows lie behind those of all rows. */
    if (ok && round->n_banned_rows > 0)
        ok = add_ids(batch, round->banned, round->n_banned);
    for (int32_t i = at->n_known; ok && i <= round->n_draft; i++) {
        ok = add_round_row(batch, rule, round, i, row);
        if (rule->blind)
            break; /* what follows a rejection is not looked at */
    }
    at->n_rows = batch->n_rows - at->first_row;
    if (!ok) {
        batch->n_rows = before.n_rows;
        batch->n_edits = before.n_edits;
        batch->n_ids = before.n_ids;
    }
    return ok;
}

/* A q row that is no distribution counts wherever it stands (ft_residual_check_all). */
static bool has_unusual_draft(const struct ft_round *round, const struct ft_choice_round *at,
                              const struct ft_choice_result *results) {
    for (int32_t i = 0; i < round->n_draft; i++)
        if (results[at->first_row + i].status != FT_CHOICE_OK)
            return true;
    return false;
}

bool ft_choice_verdict(const struct ft_rule *rule, const struct ft_round *round,
                       const struct ft_choice_round *at, const struct ft_choice_result *results,
                       struct ft_verdict *out) {
    struct ft_verdict verdict = {0};
    if (is_sampled(rule, round) && round->q_rows != NULL && has_unusual_draft(round, at, results))
        return false;
    for (; verdict.n_tokens < at->n_known; verdict.n_tokens++)
        verdict.tokens[verdict.n_tokens] = round->draft[verdict.n_tokens];
    for (int32_t j = 0; j < at->n_rows; j++) {
        const struct ft_choice_result *result = &results[at->first_row + j];
        int32_t i = at->n_known + j, draft = i < round->n_draft ? round->draft[i] : -1;
        if (result->status == FT_CHOICE_ASK)
            return false;
        if (i < round->n_draft && is_sampled(rule, round) && result->is_accepted) {
            verdict.tokens[verdict.n_tokens++] = draft;
            continue;
        }
        if (result->status != FT_CHOICE_OK || result->token < 0 || result->token >= round->n_vocab)
            return false;
        verdict.tokens[verdict.n_tokens++] = result->token;
        if (i == round->n_draft)
            break;
        if (rule->blind || is_sampled(rule, round) || result->token != draft) {
            verdict.residual = true;
            break;
        }
    }
    if (verdict.n_tokens == 0)
        return false;
    verdict.n_accepted = verdict.n_tokens - 1;
    *out = verdict;
    return true;
}

bool ft_choice_add_draft(struct ft_choice_batch *batch, const struct ft_choice_draft *draft) {
    struct ft_choice_batch before = *batch;
    struct ft_choice_row row;
    bool ok = begin_row(batch, draft->sampling, draft->sampling->coupled, draft->counts, &row);
    row.logits = draft->logits;
    row.probs = draft->probs;
    row.n_vocab = draft->n_vocab;
    row.drafted = draft->drafted;
    row.n_drafted = draft->index;
    row.position = draft->position;
    row.u_draw = ft_philox_uniform(draft->sampling->seed, draft->position, FT_PHILOX_PROPOSE,
                                   (uint32_t)draft->index);
    if (ok && add_row(batch, &row))
        return true;
    batch->n_edits = before.n_edits;
    batch->n_ids = before.n_ids;
    return false;
}
