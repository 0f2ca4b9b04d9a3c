#include "unit/model_run.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/gpu/cpu/isa.h"
#include "common/gpu/device.h"

/* Bytes of n blocks, from the layout that ops.h documents. */
static int64_t kv_bytes(const struct ft_model_config *config, int32_t n_blocks) {
    return n_blocks * ft_kv_block_floats(config->n_kv_heads, config->head_dim) * 4LL *
           config->n_layers;
}

bool run_device_kind(size_t idx, char spec[RUN_DEVICE_MAX]) {
    const struct ft_device_kind *kind;
    for (size_t i = 0; (kind = ft_device_kind_at(i)) != NULL; i++) {
        struct ft_device *device = NULL;
        struct ft_err err = {0};
        enum ft_code code =
            ft_device_open(&device, kind->name, &(struct ft_device_opts){1, 0, false}, &err);
        ft_device_close(&device);
        if (code != FT_OK) {
            ck_assert_msg(!kind->is_host && code == FT_E_PROC_OS, "%s", err.text);
            printf("skipped: %s: %s\n", kind->name, err.text);
        } else if (idx-- == 0) {
            snprintf(spec, RUN_DEVICE_MAX, "%s", kind->name);
            return true;
        }
    }
    return false;
}

bool run_device(size_t idx, char spec[RUN_DEVICE_MAX]) {
    size_t n_isas = 0;
    while (ft_isa_at(n_isas) != NULL)
        n_isas++;
    if (idx >= n_isas)
        return run_device_kind(idx - n_isas + 1, spec);
    snprintf(spec, RUN_DEVICE_MAX, "cpu:%s", ft_isa_at(idx)->name);
    return true;
}

void run_open(struct run *run, const struct run_opts *opts) {
    struct ft_err err = {0};
    struct ft_model_config config;
    if (opts->weights != NULL)
        config = *opts->config;
    else
        ck_assert_msg(ft_model_config_load(opts->dir, &config, &err) == FT_OK, "%s", err.text);
    int32_t max_len = opts->max_len > 0 ? opts->max_len : config.max_position_embeddings;
    *run = (struct run){.vocab = config.vocab_size,
                        .stride = (config.vocab_size + 15) / 16 * 16 + 16,
                        .n_blocks_per_seq = (max_len + 15) / 16};
    int32_t n_blocks = run->n_blocks_per_seq * opts->n_seqs;
    struct ft_model_opts model_opts = {
        .dir = opts->dir,
        .device = opts->device,
        .n_threads = opts->n_threads,
        .max_model_len = opts->max_len,
        .kv_bytes = kv_bytes(&config, n_blocks),
        .max_step_tokens = opts->max_step_tokens > 0 ? opts->max_step_tokens : max_len,
        .max_step_rows = RUN_ROWS,
    };
    enum ft_code code =
        opts->weights != NULL
            ? ft_model_open_weights(&run->model, &config, opts->weights, &model_opts, &err)
            : ft_model_open(&run->model, &model_opts, &err);
    ck_assert_msg(code == FT_OK, "%s", err.text);
    ck_assert_int_eq(ft_model_kv_blocks(run->model), n_blocks);
    run->rows = calloc((size_t)(RUN_ROWS * run->stride), sizeof(float));
    ck_assert_ptr_nonnull(run->rows);
    if (opts->n_threads > 1) /* so that both ways of getting rows have their tests */
        ft_model_pin(run->model, run->rows, (size_t)(RUN_ROWS * run->stride) * sizeof(float));
    for (int32_t s = 0; s < opts->n_seqs; s++) {
        run->blocks[s] = calloc((size_t)run->n_blocks_per_seq, sizeof(int32_t));
        ck_assert_ptr_nonnull(run->blocks[s]);
        /* block b of sequence s: interleaved and descending, so that nothing is contiguous */
        for (int32_t b = 0; b < run->n_blocks_per_seq; b++)
            run->blocks[s][b] = n_blocks - 1 - (b * opts->n_seqs + s);
    }
}

void run_close(struct run *run) {
    ft_model_close(&run->model);
    free(run->rows);
    for (int32_t s = 0; s < RUN_SEQS; s++)
        free(run->blocks[s]);
}

void run_batch(struct run *run, const struct ft_batch_seq *seqs, int32_t n_seqs) {
    struct ft_err err = {0};
    enum ft_code code = ft_model_forward(run->model, seqs, n_seqs, run->rows, run->stride, &err);
    ck_assert_msg(code == FT_OK, "%s", err.text);
}

void run_step(struct run *run, int32_t seq, int32_t start, const int32_t *tokens, int32_t n_tokens,
              int32_t n_logits) {
    struct ft_batch_seq batch = {.blocks = run->blocks[seq],
                                 .start = start,
                                 .tokens = tokens,
                                 .n_tokens = n_tokens,
                                 .n_logits = n_logits};
    run_batch(run, &batch, 1);
}

const float *run_row(const struct run *run, int32_t row) {
    return run->rows + row * run->stride;
}

int32_t run_argmax(const struct run *run, int32_t row) {
    const float *x = run_row(run, row);
    int32_t best = 0;
    for (int32_t i = 1; i < run->vocab; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

void run_greedy(struct run *run, const int32_t *prompt, int32_t n_prompt, int32_t *out,
                int32_t n_out) {
    run_step(run, 0, 0, prompt, n_prompt, 1);
    for (int32_t i = 0; i < n_out; i++) {
        out[i] = run_argmax(run, 0);
        if (i + 1 < n_out)
            run_step(run, 0, n_prompt + i, &out[i], 1, 1);
    }
}
