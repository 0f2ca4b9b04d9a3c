#include "common/model/model.h"

#include <stdlib.h>
#include <string.h>

#include "common/model/drafts.h"
#include "common/model/forward.h"
#include "common/model/plan.h"
#include "common/model/warmup.h"

struct ft_model {
    struct ft_model_config config;
    struct ft_weights loaded; /* by ft_model_open; zero otherwise */
    const struct ft_weights *weights;
    struct ft_plan *plan;
    struct ft_drafts *drafts; /* NULL: not opened */
    int32_t max_step_tokens, max_step_rows;
    char backend[FT_DEVICE_TEXT_MAX];
};

static struct ft_model *new_model(struct ft_err *err) {
    struct ft_model *model = calloc(1, sizeof *model);
    if (model == NULL)
        ft_err_set(err, FT_E_PROC_MEMORY, "model", "no memory for %zu bytes", sizeof *model);
    return model;
}

/* config and weights are set. */
static enum ft_code start(struct ft_model *model, const struct ft_model_opts *opts,
                          struct ft_err *err) {
    enum ft_code code = ft_plan_create(&model->plan, &model->config, model->weights, opts, err);
    if (code != FT_OK)
        return code;
    model->max_step_tokens = opts->max_step_tokens;
    model->max_step_rows = opts->max_step_rows;
    model->plan->device->kind->describe(model->plan->device, model->backend);
    return FT_OK;
}

/* A model that has the config and weights of a folder, and nothing else yet. */
static enum ft_code open_files(struct ft_model **out, const char *dir, struct ft_err *err) {
    struct ft_model *model = new_model(err);
    if (model == NULL)
        return FT_E_PROC_MEMORY;
    enum ft_code code = ft_model_config_load(dir, &model->config, err);
    if (code == FT_OK)
        code = ft_weights_open(&model->loaded, dir, &model->config, err);
    if (code != FT_OK) {
        ft_model_close(&model);
        return code;
    }
    model->weights = &model->loaded;
    *out = model;
    return FT_OK;
}

enum ft_code ft_model_check(const struct ft_model_opts *opts, struct ft_model_sizes *sizes,
                            struct ft_err *err) {
    struct ft_model *model = NULL;
    enum ft_code code = open_files(&model, opts->dir, err);
    if (code == FT_OK)
        code = ft_plan_check(&model->config, opts, sizes, err);
    ft_model_close(&model);
    return code;
}

enum ft_code ft_model_open(struct ft_model **out, const struct ft_model_opts *opts,
                           struct ft_err *err) {
    struct ft_model *model = NULL;
    enum ft_code code = open_files(&model, opts->dir, err);
    if (code == FT_OK)
        code = start(model, opts, err);
    if (code != FT_OK) {
        ft_model_close(&model);
        return code;
    }
    *out = model;
    return FT_OK;
}

enum ft_code ft_model_open_weights(struct ft_model **out, const struct ft_model_config *config,
                                   const struct ft_weights *weights,
                                   const struct ft_model_opts *opts, struct ft_err *err) {
    struct ft_model *model = new_model(err);
    if (model == NULL)
        return FT_E_PROC_MEMORY;
    model->config = *config;
    model->weights = weights;
    enum ft_code code = start(model, opts, err);
    if (code != FT_OK) {
        ft_model_close(&model);
        return code;
    }
    *out = model;
    return FT_OK;
}

void ft_model_close(struct ft_model **model) {
    if (*model == NULL)
        return;
    if ((*model)->plan != NULL)
        ft_model_unpin(*model);
    ft_drafts_destroy(&(*model)->drafts);
    ft_plan_destroy(&(*model)->plan);
    if ((*model)->weights == &(*model)->loaded)
        ft_weights_close(&(*model)->loaded);
    free(*model);
    *model = NULL;
}

const struct ft_model_config *ft_model_config(const struct ft_model *model) {
    return &model->config;
}

const struct ft_weights *ft_model_weights(const struct ft_model *model) {
    return model->weights;
}

int32_t ft_model_max_len(const struct ft_model *model) {
    return model->plan->max_len;
}

int32_t ft_model_kv_blocks(const struct ft_model *model) {
    return model->plan->n_blocks;
}

const char *ft_model_backend(const struct ft_model *model) {
    return model->backend;
}

bool ft_model_pin(struct ft_model *model, void *memory, size_t bytes) {
    struct ft_plan *plan = model->plan;
    FT_ASSERT(plan->pinned == NULL);
    if (!plan->device->kind->pin(plan->device, memory, bytes))
        return false;
    plan->pinned = memory;
    plan->pinned_bytes = bytes;
    return true;
}

void ft_model_lend(struct ft_model *model, void *memory, size_t bytes) {
    struct ft_plan *plan = model->plan;
    FT_ASSERT(plan->pinned == NULL);
    plan->pinned = memory;
    plan->pinned_bytes = bytes;
    plan->is_lent = true;
}

void ft_model_unpin(struct ft_model *model) {
    struct ft_plan *plan = model->plan;
    if (plan->pinned != NULL && !plan->is_lent)
        plan->device->kind->unpin(plan->device, plan->pinned);
    plan->pinned = NULL;
    plan->pinned_bytes = 0;
    plan->is_lent = false;
}

struct ft_device *ft_model_device(const struct ft_model *model) {
    return model->plan->device;
}

bool ft_model_is_apart(const struct ft_model *model) {
    return !model->plan->device->kind->is_host;
}

/* Sequence i of a batch against the limits that the caller was given. */
static enum ft_code check_seq(const struct ft_model *model, const struct ft_batch_seq *seq,
                              int32_t i, struct ft_err *err) {
    const struct ft_plan *plan = model->plan;
    if (seq->n_tokens < 1)
        return ft_err_set(err, FT_E_PROC_INTERNAL, "model",
                          "sequence %d: n_tokens is %d, must be at least 1", i, seq->n_tokens);
    if (seq->n_logits < 0 || seq->n_logits > seq->n_tokens)
        return ft_err_set(err, FT_E_PROC_INTERNAL, "model",
                          "sequence %d: n_logits is %d, limit 0 .. %d", i, seq->n_logits,
                          seq->n_tokens);
    if (seq->start < 0 || seq->start > plan->max_len - seq->n_tokens)
        return ft_err_set(err, FT_E_PROC_INTERNAL, "model",
                          "sequence %d: start %d and %d tokens, limit %d positions", i, seq->start,
                          seq->n_tokens, plan->max_len);
    for (int32_t t = 0; t < seq->n_tokens; t++)
        if (seq->tokens[t] < 0 || seq->tokens[t] >= model->config.vocab_size)
            return ft_err_set(err, FT_E_PROC_INTERNAL, "model",
                              "sequence %d: token %d is %d, limit 0 .. %d", i, t, seq->tokens[t],
                              model->config.vocab_size - 1);
    int32_t n_blocks = (seq->start + seq->n_tokens - 1) / FT_KV_BLOCK_TOKENS + 1;
    for (int32_t b = 0; b < n_blocks; b++)
        if (seq->blocks[b] < 0 || seq->blocks[b] >= plan->n_blocks)
            return ft_err_set(err, FT_E_PROC_INTERNAL, "model",
                              "sequence %d: block %d is %d, limit 0 .. %d", i, b, seq->blocks[b],
                              plan->n_blocks - 1);
    return FT_OK;
}

static enum ft_code check_batch(const struct ft_model *model, const struct ft_batch_seq *seqs,
                                int32_t n_seqs, int64_t row_stride, struct ft_err *err) {
    int64_t n_tokens = 0, n_rows = 0;
    for (int32_t i = 0; i < n_seqs; i++) {
        enum ft_code code = check_seq(model, &seqs[i], i, err);
        if (code != FT_OK)
            return code;
        n_tokens += seqs[i].n_tokens;
        n_rows += seqs[i].n_logits;
    }
    if (n_tokens < 1 || n_tokens > model->max_step_tokens)
        return ft_err_set(err, FT_E_PROC_INTERNAL, "model",
                          "the step has %lld tokens, limit 1 .. %d", (long long)n_tokens,
                          model->max_step_tokens);
    if (n_rows > model->max_step_rows)
        return ft_err_set(err, FT_E_PROC_INTERNAL, "model", "the step wants %lld rows, limit %d",
                          (long long)n_rows, model->max_step_rows);
    if (row_stride < model->config.vocab_size || row_stride % 16 != 0)
        return ft_err_set(err, FT_E_PROC_INTERNAL, "model",
                          "row_stride is %lld, must be a multiple of 16, at least %d",
                          (long long)row_stride, model->config.vocab_size);
    return FT_OK;
}

enum ft_code ft_model_forward(struct ft_model *model, const struct ft_batch_seq *seqs,
                              int32_t n_seqs, float *rows, int64_t row_stride, struct ft_err *err) {
    enum ft_code code = check_batch(model, seqs, n_seqs, row_stride, err);
    if (code != FT_OK)
        return code;
    return ft_forward_run(model->plan, seqs, n_seqs, rows, row_stride, err);
}

enum ft_code ft_model_drafts_open(struct ft_model *model, const struct ft_drafts_opts *opts,
                                  struct ft_err *err) {
    FT_ASSERT(model->drafts == NULL);
    if (!ft_model_is_apart(model))
        return ft_err_set(err, FT_E_PROC_CONFIG, "model", "drafts are made on a GPU alone");
    return ft_drafts_create(&model->drafts, model->plan, opts, err);
}

bool ft_model_drafts_ahead(const struct ft_model *model) {
    return model->drafts != NULL;
}

enum ft_code ft_model_draft(struct ft_model *model, const struct ft_batch_seq *batch,
                            int32_t n_batch, const struct ft_draft_step *step, bool *fits,
                            struct ft_err *err) {
    enum ft_code code = check_batch(model, batch, n_batch, model->plan->logits_stride, err);
    if (code != FT_OK)
        return code;
    *fits = model->drafts != NULL && step->n_seqs > 0 && ft_drafts_fit(model->drafts, step);
    if (!*fits)
        return FT_OK;
    return ft_drafts_run(model->drafts, batch, n_batch, step, err);
}

int32_t ft_model_programs_max(const struct ft_model *model) {
    return model->plan->device->kind->n_programs_max;
}

enum ft_code ft_model_warm_up(struct ft_model *model, const struct ft_warmup_opts *opts,
                              struct ft_warmup_done *done, struct ft_err *err) {
    FT_ASSERT(opts->n_rows_max <= model->max_step_rows);
    return ft_warmup_run(model->plan, model->drafts, opts, done, err);
}
