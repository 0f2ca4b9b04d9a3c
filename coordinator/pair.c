#include "coordinator/pair.h"

#include <stdio.h>

#include "common/model/config.h"
#include "coordinator/round.h"

#define MODULE "pair"

static int32_t min32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static void copy_path(char out[FT_PARAM_STR_MAX], struct ft_str path) {
    snprintf(out, FT_PARAM_STR_MAX, "%.*s", (int)path.len, path.ptr);
}

static bool same_fingerprint(const struct ft_tokenizer *tokenizer,
                             const struct ft_wire_describe *describe) {
    return describe->tokenizer_fingerprint.len == FT_TOKENIZER_FINGERPRINT_BYTES &&
           memcmp(describe->tokenizer_fingerprint.ptr, ft_tokenizer_fingerprint(tokenizer),
                  FT_TOKENIZER_FINGERPRINT_BYTES) == 0;
}

/* Say how the tokenizer in dir differs from ours. */
static enum ft_code tokenizer_differs(const struct co_app *app, const char *who, const char *dir,
                                      struct ft_err *err) {
    struct ft_tokenizer *other = NULL;
    char difference[200] = "its fingerprint differs";
    if (ft_tokenizer_open(&other, dir, NULL) == FT_OK)
        ft_tokenizer_first_difference(app->pair.tokenizer, other, difference, sizeof difference);
    ft_tokenizer_close(&other);
    return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "the %s model %s has another tokenizer: %s",
                      who, dir, difference);
}

static enum ft_code open_files(struct co_app *app, const char *dir, struct ft_err *err) {
    struct co_pair *pair = &app->pair;
    const char *tokenizer_dir = app->config.tokenizer[0] != 0 ? app->config.tokenizer : dir;
    struct ft_model_config model;
    enum ft_code code = ft_model_config_load(dir, &model, err);
    if (code == FT_OK)
        code = ft_tokenizer_open(&pair->tokenizer, tokenizer_dir, err);
    if (code != FT_OK)
        return code;
    pair->n_eos = min32(model.n_eos, CO_EOS_MAX);
    memcpy(pair->eos_ids, model.eos_token_ids, (size_t)pair->n_eos * sizeof pair->eos_ids[0]);
    pair->chat = ft_chat_detect(pair->tokenizer, tokenizer_dir);
    pair->end_of_turn = ft_chat_end_of_turn(pair->chat, pair->tokenizer);
    return FT_OK;
}

static enum ft_code take_limits(struct co_app *app, const struct ft_wire_describe *d,
                                struct ft_err *err) {
    struct co_pair *pair = &app->pair;
    const struct co_config *config = &app->config;
    int32_t served = (int32_t)d->max_model_len;
    if (config->max_model_len > served)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "max_model_len is %d: the target worker serves at most %d",
                          config->max_model_len, served);
    pair->max_model_len = config->max_model_len != 0 ? config->max_model_len : served;
    if (pair->max_model_len < 2)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "max_model_len is %d: must be at least 2",
                          pair->max_model_len);
    pair->vocab_size = (int32_t)d->vocab_size;
    pair->tokenizer_size = min32(ft_tokenizer_vocab_size(pair->tokenizer), pair->vocab_size);
    pair->target_limits.max_tokens =
        min32(config->max_num_batched_tokens, (int32_t)d->max_step_tokens);
    pair->target_limits.max_rows = (int32_t)d->max_step_rows;
    pair->target_limits.block_tokens = (int32_t)d->kv_block_tokens;
    pair->max_seqs = min32(config->max_num_seqs, (int32_t)d->max_step_sequences);
    pair->max_seqs = min32(pair->max_seqs, pair->target_limits.max_rows);
    pair->max_seqs = min32(pair->max_seqs, pair->target_limits.max_tokens);
    if (pair->max_seqs < 1 || d->kv_block_tokens < 1)
        return ft_err_set(
            err, FT_E_PEER_PROTOCOL, MODULE,
            "the target worker allows no sequence in a step, or no position in a block");
    pair->target_blocks = pair->target_blocks_free = (int64_t)d->kv_blocks_total;
    return FT_OK;
}

/* ---- a target that came back ----------------------------------------------------------------- */

static void copy_name(char *out, size_t cap, struct ft_str name) {
    snprintf(out, cap, "%.*s", name.len < cap ? (int)name.len : (int)cap - 1, name.ptr);
}

static struct co_target_model model_of(const struct ft_wire_describe *d) {
    struct co_target_model model = {
        .n_parameters = d->n_parameters,
        .weight_bytes = d->weight_bytes,
        .fingerprint = d->weights_fingerprint,
    };
    copy_name(model.architecture, sizeof model.architecture, d->architecture);
    copy_name(model.dtype, sizeof model.dtype, d->dtype);
    return model;
}

static enum ft_code another_model(const char *dir, const char *what, const char *is,
                                  const char *was, struct ft_err *err) {
    return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                      "the target worker came back with another model (%.100s): %s is %s, was %s; "
                      "a coordinator that starts anew serves it",
                      dir, what, is, was);
}

static enum ft_code same_model(const struct co_app *app, const struct ft_wire_describe *d,
                               const char *dir, struct ft_err *err) {
    const struct co_target_model *was = &app->pair.target_model;
    const struct co_target_model is = model_of(d);
    if (strcmp(is.architecture, was->architecture) != 0)
        return another_model(dir, "architecture", is.architecture, was->architecture, err);
    if (strcmp(is.dtype, was->dtype) != 0)
        return another_model(dir, "dtype", is.dtype, was->dtype, err);
    bool told = is.fingerprint != 0 && was->fingerprint != 0;
    const struct {
        const char *what;
        uint64_t is, was;
        bool hex;
    } numbers[] = {
        {"vocab_size", d->vocab_size, (uint64_t)app->pair.vocab_size, false},
        {"num_parameters", is.n_parameters, was->n_parameters, false},
        {"weight_bytes", is.weight_bytes, was->weight_bytes, false},
        {"weights_fingerprint", told ? is.fingerprint : 0, told ? was->fingerprint : 0, true},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char texts[2][24];
        uint64_t values[2] = {numbers[i].is, numbers[i].was};
        if (values[0] == values[1])
            continue;
        for (int j = 0; j < 2; j++)
            if (numbers[i].hex)
                snprintf(texts[j], sizeof texts[j], "%016llx", (unsigned long long)values[j]);
            else
                snprintf(texts[j], sizeof texts[j], "%llu", (unsigned long long)values[j]);
        return another_model(dir, numbers[i].what, texts[0], texts[1], err);
    }
    return FT_OK;
}

static enum ft_code same_limits(const struct co_app *app, const struct ft_wire_describe *d,
                                const char *dir, struct ft_err *err) {
    const struct co_pair *pair = &app->pair;
    const struct {
        const char *what;
        int64_t is, needed;
    } limits[] = {
        {"max_model_len", d->max_model_len, pair->max_model_len},
        {"kv_blocks_total", (int64_t)d->kv_blocks_total, pair->target_blocks},
        {"max_step_tokens", d->max_step_tokens, pair->target_limits.max_tokens},
        {"max_step_rows", d->max_step_rows, pair->target_limits.max_rows},
        {"max_step_sequences", d->max_step_sequences, pair->max_seqs},
    };
    if ((int32_t)d->kv_block_tokens != pair->target_limits.block_tokens)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "the target worker came back with other blocks (%.100s): "
                          "kv_block_tokens is %u, was %d",
                          dir, d->kv_block_tokens, pair->target_limits.block_tokens);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        if (limits[i].is < limits[i].needed)
            return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                              "the target worker came back with smaller limits (%.100s): %s is "
                              "%lld, %lld are needed",
                              dir, limits[i].what, (long long)limits[i].is,
                              (long long)limits[i].needed);
    return FT_OK;
}

/* ---- Describe -------------------------------------------------------------------------------- */

enum ft_code co_pair_target(struct co_app *app, const struct ft_wire_describe *describe,
                            struct ft_err *err) {
    char dir[FT_PARAM_STR_MAX];
    copy_path(dir, describe->model_dir);
    if (!app->pair.known) {
        enum ft_code code = app->pair.tokenizer == NULL ? open_files(app, dir, err) : FT_OK;
        if (code != FT_OK)
            return code;
    }
    if (!same_fingerprint(app->pair.tokenizer, describe))
        return tokenizer_differs(app, "target", dir, err);
    if (app->pair.known) {
        enum ft_code code = same_model(app, describe, dir, err);
        return code == FT_OK ? same_limits(app, describe, dir, err) : code;
    }
    if (ft_tokenizer_vocab_size(app->pair.tokenizer) > (int32_t)describe->vocab_size)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "the tokenizer of %s has %d ids, the model only %u", dir,
                          ft_tokenizer_vocab_size(app->pair.tokenizer), describe->vocab_size);
    enum ft_code code = take_limits(app, describe, err);
    if (code == FT_OK)
        code = co_round_init(app, err);
    if (code == FT_OK)
        code = co_drafting_init(app, err);
    if (code == FT_OK)
        code = co_encode_init(app, err);
    if (code == FT_OK) {
        app->pair.target_model = model_of(describe);
        app->pair.known = true;
    }
    return code;
}

enum ft_code co_pair_draft(struct co_app *app, const struct ft_wire_describe *describe,
                           struct ft_err *err) {
    struct co_pair *pair = &app->pair;
    char dir[FT_PARAM_STR_MAX];
    copy_path(dir, describe->model_dir);
    if (!pair->known)
        return ft_err_set(err, FT_E_PEER_UNAVAILABLE, MODULE, "the target is not known yet");
    if (!same_fingerprint(pair->tokenizer, describe))
        return tokenizer_differs(app, "draft", dir, err);
    if ((int32_t)describe->max_step_sequences < pair->max_seqs ||
        (int32_t)describe->max_draft_len < FT_DRAFT_LEN_MAX || describe->max_step_tokens < 1 ||
        describe->kv_block_tokens < 1)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "the draft worker takes %u sequences and %u drafted tokens a step: %d "
                          "and %d are needed",
                          describe->max_step_sequences, describe->max_draft_len, pair->max_seqs,
                          FT_DRAFT_LEN_MAX);
    /* Nobody holds a block: what was held went when the worker did. */
    pair->draft_blocks = pair->draft_blocks_free = (int64_t)describe->kv_blocks_total;
    pair->draft_max_len = (int32_t)describe->max_model_len;
    pair->draft_vocab_size = (int32_t)describe->vocab_size;
    pair->draft_limits.max_tokens = (int32_t)describe->max_step_tokens;
    pair->draft_limits.max_rows = (int32_t)describe->max_step_rows;
    pair->draft_limits.block_tokens = (int32_t)describe->kv_block_tokens;
    return FT_OK;
}

void co_pair_fini(struct co_app *app) {
    ft_tokenizer_close(&app->pair.tokenizer);
}
