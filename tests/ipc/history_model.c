#include "ipc/history_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ft_model {
    struct ft_model_opts opts;
    struct ft_model_config config;
    struct ft_weights weights;
    int32_t n_blocks;
    uint64_t *kv; /* [n_blocks, FT_KV_BLOCK_TOKENS] hash of the history up to there; 0: poisoned */
};

static bool g_fail_next;
static int g_n_forward, g_last_n_seqs;

static uint64_t mix(uint64_t h) {
    h = (h ^ (h >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    h = (h ^ (h >> 27)) * UINT64_C(0x94D049BB133111EB);
    return h ^ (h >> 31);
}

static uint64_t chain(uint64_t h, int32_t token) {
    if (h == 0 || token == HISTORY_POISON)
        return 0;
    return mix(h + UINT64_C(0x9E3779B97F4A7C15) * (uint64_t)(token + 1)) | 1;
}

static void row_of(uint64_t h, float *row) {
    for (int32_t i = 0; i < HISTORY_VOCAB; i++)
        row[i] = h == 0 ? NAN : (float)(mix(h + (uint64_t)i) >> 40) * 0x1p-21f - 4.0f;
    if (h != 0)
        row[HISTORY_POISON] = -60.0f; /* never chosen, unless a bias wants it */
}

void history_row(const int32_t *tokens, int32_t n, float row[HISTORY_VOCAB]) {
    uint64_t h = 1;
    for (int32_t i = 0; i < n; i++)
        h = chain(h, tokens[i]);
    row_of(h, row);
}

int32_t history_argmax(const int32_t *tokens, int32_t n) {
    float row[HISTORY_VOCAB];
    history_row(tokens, n, row);
    int32_t best = 0;
    for (int32_t i = 1; i < HISTORY_VOCAB; i++)
        if (row[i] > row[best])
            best = i;
    return best;
}

void history_fail_next(void) {
    g_fail_next = true;
}

int history_n_forward(void) {
    return g_n_forward;
}

int history_last_n_seqs(void) {
    return g_last_n_seqs;
}

enum ft_code ft_model_open(struct ft_model **out, const struct ft_model_opts *opts,
                           struct ft_err *err) {
    if (opts->kv_bytes < HISTORY_BLOCK_BYTES)
        return ft_err_set(err, FT_E_PROC_CONFIG, "model", "kv_cache_bytes is %lld: one block is %d",
                          (long long)opts->kv_bytes, HISTORY_BLOCK_BYTES);
    struct ft_model *model = calloc(1, sizeof *model);
    model->opts = *opts;
    strcpy(model->config.architecture, "HistoryForTests");
    model->config.vocab_size = HISTORY_VOCAB;
    model->weights.dtype = FT_DTYPE_F32;
    model->n_blocks = (int32_t)(opts->kv_bytes / HISTORY_BLOCK_BYTES);
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
    return model->opts.max_model_len > 0 ? model->opts.max_model_len : HISTORY_LEN_MAX;
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

const char *ft_model_backend(const struct ft_model *model) {
    (void)model;
    return "history";
}

static uint64_t *slot(struct ft_model *model, const struct ft_batch_seq *seq, int32_t position) {
    int32_t block = seq->blocks[position / FT_KV_BLOCK_TOKENS];
    FT_ASSERT(block >= 0 && block < model->n_blocks);
    return &model->kv[block * FT_KV_BLOCK_TOKENS + position % FT_KV_BLOCK_TOKENS];
}

enum ft_code ft_model_forward(struct ft_model *model, const struct ft_batch_seq *seqs,
                              int32_t n_seqs, float *rows, int64_t row_stride, struct ft_err *err) {
    int64_t n_rows = 0, n_tokens = 0;
    g_n_forward++;
    g_last_n_seqs = n_seqs;
    for (int32_t s = 0; s < n_seqs; s++) {
        const struct ft_batch_seq *seq = &seqs[s];
        FT_ASSERT(seq->n_tokens >= 1 && seq->n_logits <= seq->n_tokens);
        FT_ASSERT(seq->start + seq->n_tokens <= ft_model_max_len(model));
        for (int32_t i = 0; i < seq->n_tokens; i++) {
            int32_t position = seq->start + i;
            uint64_t before = position == 0 ? 1 : *slot(model, seq, position - 1);
            *slot(model, seq, position) = g_fail_next ? 12345 : chain(before, seq->tokens[i]);
            if (i >= seq->n_tokens - seq->n_logits)
                row_of(*slot(model, seq, position), rows + n_rows++ * row_stride);
        }
        n_tokens += seq->n_tokens;
    }
    FT_ASSERT(n_tokens <= model->opts.max_step_tokens && n_rows <= model->opts.max_step_rows);
    if (!g_fail_next)
        return FT_OK;
    g_fail_next = false;
    return ft_err_set(err, FT_E_PROC_INTERNAL, "model", "failed as told");
}
