#include "draft_worker/ahead.h"

#include <stdlib.h>

#include "common/spec/choice.h"

#define MODULE "draft"

struct dw_ahead {
    struct ft_choice_batch batch;
    struct ft_draft_seq *seqs;        /* [max_num_seqs] */
    struct ft_choice_result *results; /* [batch.rows_max] */
};

enum ft_code dw_ahead_create(struct dw_ahead **out, struct ft_worker *worker, struct ft_err *err) {
    int32_t n_seqs = worker->params->max_num_seqs;
    *out = NULL;
    if (!ft_model_is_apart(worker->model) || worker->vocab_size > FT_CHOICE_VOCAB_MAX)
        return FT_OK;
    struct dw_ahead *ahead = calloc(1, sizeof *ahead);
    if (ahead == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory");
    bool ok = ft_choice_batch_create(&ahead->batch, n_seqs * FT_DRAFT_LEN_MAX);
    ahead->seqs = calloc((size_t)n_seqs, sizeof *ahead->seqs);
    ahead->results = calloc((size_t)n_seqs * FT_DRAFT_LEN_MAX, sizeof *ahead->results);
    enum ft_code code = FT_OK;
    if (!ok || ahead->seqs == NULL || ahead->results == NULL)
        code = ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for lists of %d sequences",
                          n_seqs);
    struct ft_drafts_opts opts = {n_seqs, ahead->batch.edits_max, ahead->batch.ids_max};
    if (code == FT_OK)
        code = ft_model_drafts_open(worker->model, &opts, err);
    if (code != FT_OK) {
        dw_ahead_destroy(&ahead);
        return code;
    }
    *out = ahead;
    return FT_OK;
}

void dw_ahead_destroy(struct dw_ahead **ahead) {
    if (*ahead == NULL)
        return;
    ft_choice_batch_destroy(&(*ahead)->batch);
    free((*ahead)->seqs);
    free((*ahead)->results);
    free(*ahead);
    *ahead = NULL;
}

/* Rows of all tokens, step by step. false: something cannot be said in rows. */
static bool list_rows(struct dw_ahead *ahead, struct ft_worker *worker, const struct ft_step *step,
                      const struct dw_drafting *list, int32_t n) {
    bool is_host = ft_region_is_host(worker->region);
    ft_choice_batch_reset(&ahead->batch);
    for (int32_t k = 0; k < ahead->seqs[0].n_steps; k++)
        for (int32_t i = 0; i < n && ahead->seqs[i].n_steps > k; i++) {
            const struct dw_drafting *d = &list[i];
            struct ft_choice_draft draft = {.sampling = &d->sampling,
                                            .counts = d->counts,
                                            .n_vocab = worker->vocab_size,
                                            .index = k,
                                            .position = (uint64_t)(d->position + k)};
            if (d->leaves_q)
                draft.probs = ft_region_row_mut(worker->region, step->generation,
                                                (int64_t)d->s->out->first_row + k);
            if ((d->leaves_q && is_host) || !ft_choice_add_draft(&ahead->batch, &draft))
                return false;
        }
    return true;
}

/* Take the tokens over, when all of them are there. */
static bool take_ids(const struct dw_ahead *ahead, struct dw_drafting *list, int32_t n) {
    const struct ft_choice_result *result = ahead->results;
    for (int32_t i = 0; i < ahead->batch.n_rows; i++)
        if (result[i].status != FT_CHOICE_OK || result[i].token < 0)
            return false;
    for (int32_t k = 0; k < ahead->seqs[0].n_steps; k++)
        for (int32_t i = 0; i < n && ahead->seqs[i].n_steps > k; i++)
            list[i].ids[list[i].n_ids++] = (result++)->token;
    return true;
}

/* The model has fed all drafts but the last; now the sequence holds them, too. */
static enum ft_code hold(struct ft_worker *worker, struct dw_drafting *d, struct ft_err *err) {
    struct ft_kvseq_tokens tokens = {.ids = d->ids, .n = d->n_ids - 1, .n_compute = d->n_ids - 1};
    int32_t n_hit;
    if (tokens.n > 0 && ft_kvseq_append(worker->seqs, d->s->seq, &tokens, &n_hit, err) != FT_OK)
        return ft_err_set(err, FT_E_PROC_INTERNAL, MODULE, "a reserved position was not there");
    worker->stats.step_tokens += (uint64_t)tokens.n;
    d->position += d->n_ids;
    return FT_OK;
}

enum ft_code dw_ahead_run(struct dw_ahead *ahead, struct ft_worker *worker, struct ft_step *step,
                          struct dw_drafting *list, int32_t n, bool *done, struct ft_err *err) {
    *done = false;
    if (ahead == NULL || n == 0)
        return FT_OK;
    for (int32_t i = 0; i < n; i++)
        ahead->seqs[i] = (struct ft_draft_seq){.blocks = ft_kvseq_pages(list[i].s->seq),
                                               .start = list[i].position,
                                               .n_steps = (int32_t)list[i].s->in->draft_len};
    if (!list_rows(ahead, worker, step, list, n))
        return FT_OK;
    struct ft_draft_step draft = {.seqs = ahead->seqs,
                                  .n_seqs = n,
                                  .rows = ahead->batch.rows,
                                  .n_rows = ahead->batch.n_rows,
                                  .edits = ahead->batch.edits,
                                  .n_edits = ahead->batch.n_edits,
                                  .ids = ahead->batch.ids,
                                  .n_ids = ahead->batch.n_ids,
                                  .results = ahead->results};
    bool fits = false;
    enum ft_code code =
        ft_model_draft(worker->model, step->batch, step->n_seqs, &draft, &fits, err);
    if (code != FT_OK || !fits || !take_ids(ahead, list, n))
        return code;
    *done = true;
    for (int32_t i = 0; i < step->n_seqs; i++)
        worker->stats.step_tokens += (uint64_t)step->batch[i].n_tokens;
    for (int32_t i = 0; code == FT_OK && i < n; i++) {
        code = hold(worker, &list[i], err);
        if (code == FT_OK)
            code = dw_drafting_end(step, &list[i], err);
    }
    return code;
}
