#include "support/hash_model.h"

#include <stdlib.h>
#include <string.h>

struct ft_model {
    struct ft_model_opts opts;
    struct ft_model_config config;
    struct ft_weights weights;
    int32_t n_blocks;
    uint64_t
        *kv; /* [n_blocks, FT_KV_BLOCK_TOKENS] history up to there; 0: poisoned, or not written */
};

uint64_t hash_model_mix(uint64_t h) {
    h = (h ^ (h >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    h = (h ^ (h >> 27)) * UINT64_C(0x94D049BB133111EB);
    return h ^ (h >> 31);
}

uint64_t hash_model_chain(uint64_t history, int32_t token) {
    if (history == 0 || token == g_hash_model.poison)
        return 0;
    return hash_model_mix(history + UINT64_C(0x9E3779B97F4A7C15) * (uint64_t)(token + 1)) | 1;
}

enum ft_code ft_model_check(const struct ft_model_opts *opts, struct ft_model_sizes *sizes,
                            struct ft_err *err) {
    if (opts->kv_bytes < g_hash_model.block_bytes)
        return ft_err_set(err, FT_E_PROC_CONFIG, "model", "kv_cache_bytes is %lld: one block is %d",
                          (long long)opts->kv_bytes, g_hash_model.block_bytes);
    sizes->max_len = opts->max_model_len > 0 ? opts->max_model_len : g_hash_model.len_max;
    sizes->kv_blocks = (int32_t)(opts->kv_bytes / g_hash_model.block_bytes);
    return FT_OK;
}

enum ft_code ft_model_open(struct ft_model **out, const struct ft_model_opts *opts,
                           struct ft_err *err) {
    struct ft_model_sizes sizes;
    if (ft_model_check(opts, &sizes, err) != FT_OK)
        return err->code;
    if (g_hash_model.loading != NULL)
        g_hash_model.loading();
    struct ft_model *model = calloc(1, sizeof *model);
    model->opts = *opts;
    strcpy(model->config.architecture, "HistoryForTests");
    model->config.vocab_size = g_hash_model.vocab;
    model->weights.dtype = FT_DTYPE_F32;
    model->n_blocks = sizes.kv_blocks;
    model->kv = calloc((size_t)model->n_blocks * FT_KV_BLOCK_TOKENS, sizeof *model->kv);
    *out = model;
    return FT_OK;
}

void ft_model_close(struct ft_model **model) {
    if (*model == NULL)
        return;
    free((*model)->kv);
    free(*model);
    *model = NULL;
}

const struct ft_model_config *ft_model_config(const struct ft_model *model) {
    return &model->config;
}

const struct ft_weights *ft_model_weights(const struct ft_model *model) {
    return &model->weights;
}

int32_t ft_model_max_len(const struct ft_model *model) {
    return model->opts.max_model_len > 0 ? model->opts.max_model_len : g_hash_model.len_max;
}

int32_t ft_model_kv_blocks(const struct ft_model *model) {
    return model->n_blocks;
}

bool ft_model_pin(struct ft_model *model, void *memory, size_t bytes) {
    (void)model;
    (void)memory;
    (void)bytes;
    return true;
}

void ft_model_unpin(struct ft_model *model) {
    (void)model;
}

bool ft_model_is_apart(const struct ft_model *model) {
    (void)model;
    return false;
}

struct ft_device *ft_model_device(const struct ft_model *model) {
    (void)model;
    return NULL; /* it is nowhere: workers ask of models that are apart */
}

enum ft_code ft_model_drafts_open(struct ft_model *model, const struct ft_drafts_opts *opts,
                                  struct ft_err *err) {
    (void)model;
    (void)opts;
    return ft_err_set(err, FT_E_PROC_CONFIG, "hash_model", "no drafts on a device");
}

enum ft_code ft_model_draft(struct ft_model *model, const struct ft_batch_seq *batch,
                            int32_t n_batch, const struct ft_draft_step *step, bool *fits,
                            struct ft_err *err) {
    (void)model;
    (void)batch;
    (void)n_batch;
    (void)step;
    (void)err;
    *fits = false;
    return FT_OK;
}

bool ft_model_drafts_ahead(const struct ft_model *model) {
    (void)model;
    return false;
}

int32_t ft_model_programs_max(const struct ft_model *model) {
    (void)model;
    return 0;
}

enum ft_code ft_model_warm_up(struct ft_model *model, const struct ft_warmup_opts *opts,
                              struct ft_warmup_done *done, struct ft_err *err) {
    (void)model;
    (void)opts;
    (void)done;
    return ft_err_set(err, FT_E_PROC_INTERNAL, "hash_model", "no programs on a device");
}

void ft_model_lend(struct ft_model *model, void *memory, size_t bytes) {
    (void)model;
    (void)memory;
    (void)bytes;
}

const char *ft_model_backend(const struct ft_model *model) {
    (void)model;
    return g_hash_model.backend;
}

static uint64_t *slot(struct ft_model *model, const struct ft_batch_seq *seq, int32_t position) {
    int32_t block = seq->blocks[position / FT_KV_BLOCK_TOKENS];
    FT_ASSERT(block >= 0 && block < model->n_blocks);
    return &model->kv[block * FT_KV_BLOCK_TOKENS + position % FT_KV_BLOCK_TOKENS];
}

/* After a pass that failed nothing may be read of what it wrote. */
static void spoil(struct ft_model *model, const struct ft_batch_seq *seqs, int32_t n_seqs) {
    for (int32_t s = 0; s < n_seqs; s++)
        for (int32_t i = 0; i < seqs[s].n_tokens; i++)
            *slot(model, &seqs[s], seqs[s].start + i) = 12345;
}

enum ft_code ft_model_forward(struct ft_model *model, const struct ft_batch_seq *seqs,
                              int32_t n_seqs, float *rows, int64_t row_stride, struct ft_err *err) {
    int64_t n_rows = 0, n_tokens = 0;
    for (int32_t s = 0; s < n_seqs; s++) {
        const struct ft_batch_seq *seq = &seqs[s];
        FT_ASSERT(seq->n_tokens >= 1 && seq->n_logits <= seq->n_tokens);
        FT_ASSERT(seq->start + seq->n_tokens <= ft_model_max_len(model));
        for (int32_t i = 0; i < seq->n_tokens; i++) {
            int32_t position = seq->start + i;
            uint64_t before = position == 0 ? 1 : *slot(model, seq, position - 1);
            uint64_t history = hash_model_chain(before, seq->tokens[i]);
            *slot(model, seq, position) = history;
            if (i >= seq->n_tokens - seq->n_logits)
                g_hash_model.row(&model->opts, history, rows + n_rows++ * row_stride);
        }
        n_tokens += seq->n_tokens;
    }
    FT_ASSERT(n_tokens <= model->opts.max_step_tokens && n_rows <= model->opts.max_step_rows);
    if (g_hash_model.stepped(&model->opts, n_seqs, n_tokens))
        return FT_OK;
    spoil(model, seqs, n_seqs);
    return ft_err_set(err, FT_E_PROC_INTERNAL, "model", "failed as told");
}
