#include "sim/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/model.h"
#include "sim/net.h"

struct ft_model {
    struct ft_model_opts opts;
    struct ft_model_config config;
    struct ft_weights weights;
    bool is_draft;
    int32_t n_blocks;
    uint64_t *kv; /* [n_blocks, FT_KV_BLOCK_TOKENS] history up to there; 0: never written */
};

static struct sim_step_log g_log;

static uint64_t mix(uint64_t h) {
    h = (h ^ (h >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    h = (h ^ (h >> 27)) * UINT64_C(0x94D049BB133111EB);
    return h ^ (h >> 31);
}

uint64_t sim_chain(uint64_t history, int32_t token) {
    if (history == 0 || token == SIM_POISON)
        return 0;
    return mix(history + UINT64_C(0x9E3779B97F4A7C15) * (uint64_t)(token + 1)) | 1;
}

int32_t sim_next(uint64_t history) {
    return mix(history + 7) % 80 == 0 ? SIM_EOS : (int32_t)(mix(history + 11) % 256);
}

/* Agrees with the target four times out of five. */
static int32_t draft_next(uint64_t history) {
    return mix(history + 13) % 5 == 0 ? (int32_t)(mix(history + 17) % 256) : sim_next(history);
}

static void fill_row(uint64_t history, int32_t best, float row[SIM_VOCAB]) {
    for (int32_t i = 0; i < SIM_VOCAB; i += 8) {
        uint64_t bits = mix(history + (uint64_t)i);
        for (int32_t j = i; j < i + 8 && j < SIM_VOCAB; j++, bits >>= 8)
            row[j] = history == 0 ? NAN : (float)(bits & 255) * 0x1p-6f;
    }
    if (history == 0)
        return;
    row[best] = 60.0f;
    row[SIM_POISON] = -1000.0f;
}

void sim_row(uint64_t history, float row[SIM_VOCAB]) {
    fill_row(history, sim_next(history), row);
}

struct sim_step_log sim_target_log(void) {
    return g_log;
}

void sim_model_reset(void) {
    g_log = (struct sim_step_log){0};
}

enum ft_code ft_model_open(struct ft_model **out, const struct ft_model_opts *opts,
                           struct ft_err *err) {
    (void)err;
    struct ft_model *model = calloc(1, sizeof *model);
    model->opts = *opts;
    model->is_draft = strcmp(opts->device, "sim-draft") == 0;
    strcpy(model->config.architecture, "HistoryForTests");
    model->config.vocab_size = SIM_VOCAB;
    model->weights.dtype = FT_DTYPE_F32;
    model->n_blocks = (int32_t)(opts->kv_bytes / SIM_BLOCK_BYTES);
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
    return model->opts.max_model_len > 0 ? model->opts.max_model_len : SIM_LEN_MAX;
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
    return "sim";
}

static uint64_t *slot(struct ft_model *model, const struct ft_batch_seq *seq, int32_t position) {
    int32_t block = seq->blocks[position / FT_KV_BLOCK_TOKENS];
    FT_ASSERT(block >= 0 && block < model->n_blocks);
    return &model->kv[block * FT_KV_BLOCK_TOKENS + position % FT_KV_BLOCK_TOKENS];
}

enum ft_code ft_model_forward(struct ft_model *model, const struct ft_batch_seq *seqs,
                              int32_t n_seqs, float *rows, int64_t row_stride, struct ft_err *err) {
    (void)err;
    int64_t n_rows = 0, n_tokens = 0;
    for (int32_t s = 0; s < n_seqs; s++) {
        const struct ft_batch_seq *seq = &seqs[s];
        FT_ASSERT(seq->n_tokens >= 1 && seq->n_logits <= seq->n_tokens);
        FT_ASSERT(seq->start + seq->n_tokens <= ft_model_max_len(model));
        for (int32_t i = 0; i < seq->n_tokens; i++) {
            int32_t position = seq->start + i;
            uint64_t before = position == 0 ? 1 : *slot(model, seq, position - 1);
            uint64_t history = sim_chain(before, seq->tokens[i]);
            *slot(model, seq, position) = history;
            if (i >= seq->n_tokens - seq->n_logits)
                fill_row(history, model->is_draft ? draft_next(history) : sim_next(history),
                         rows + n_rows++ * row_stride);
        }
        n_tokens += seq->n_tokens;
    }
    FT_ASSERT(n_tokens <= model->opts.max_step_tokens && n_rows <= model->opts.max_step_rows);
    if (!model->is_draft) {
        g_log.n_steps++;
        g_log.n_tokens = n_tokens;
    }
    net_spend_ns(model->is_draft ? 20000 + 1000 * n_tokens : 100000 + 4000 * n_tokens);
    return FT_OK;
}
