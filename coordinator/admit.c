/* admit: a decoded GenerateRequest becomes a checked co_request, or an error that names the field,
 * the value and the limit. The ranges are those of proto/foretoken/v1/inference.proto. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "coordinator/app.h"

#define MODULE "request"

#define BIAS_MAX 1024
#define REJECT(...) ft_err_set(err, FT_E_REQ_INVALID, MODULE, __VA_ARGS__)

struct range {
    const char *field;
    float value, min, max;
};

static enum ft_code check_ranges(const struct ft_wire_params *p, struct ft_err *err) {
    const struct range rows[] = {
        {"temperature", p->has_temperature ? p->temperature : 1.0f, 0.0f, 100.0f},
        {"top_p", p->has_top_p ? p->top_p : 1.0f, 0.0f, 1.0f},
        {"min_p", p->min_p, 0.0f, 1.0f},
        {"frequency_penalty", p->frequency_penalty, -2.0f, 2.0f},
        {"presence_penalty", p->presence_penalty, -2.0f, 2.0f},
        {"repetition_penalty", p->has_repetition_penalty ? p->repetition_penalty : 1.0f, 0.01f,
         100.0f},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!(rows[i].value >= rows[i].min && rows[i].value <= rows[i].max)) /* NaN too */
            return REJECT("%s is %g: must be %g to %g", rows[i].field, (double)rows[i].value,
                          (double)rows[i].min, (double)rows[i].max);
    if (p->top_k < -1)
        return REJECT("top_k is %d: must be -1 or more", p->top_k);
    if (p->has_max_tokens && p->max_tokens == 0)
        return REJECT("max_tokens is 0: must be at least 1");
    if (p->has_max_tokens && p->min_tokens > p->max_tokens)
        return REJECT("min_tokens is %u: must be at most max_tokens, which is %u", p->min_tokens,
                      p->max_tokens);
    return FT_OK;
}

static enum ft_code check_supported(const struct ft_wire_params *p, struct ft_err *err) {
    const char *field = NULL;
    if (p->has_n && p->n != 1)
        return p->n == 0 ? REJECT("n is 0: must be at least 1")
                         : ft_err_set(err, FT_E_REQ_UNSUPPORTED, MODULE,
                                      "n is %u: this version supports 1", p->n);
    if (p->has_logprobs)
        field = "logprobs";
    else if (p->has_prompt_logprobs)
        field = "prompt_logprobs";
    else if (p->has_truncate_prompt_tokens)
        field = "truncate_prompt_tokens";
    if (field != NULL)
        return ft_err_set(err, FT_E_REQ_UNSUPPORTED, MODULE, "%s is not supported by this version",
                          field);
    return FT_OK;
}

static enum ft_code check_ids(const struct co_app *app, const char *field, const int32_t *ids,
                              size_t n, struct ft_err *err) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= app->pair.tokenizer_size)
            return REJECT("%s[%zu] is %d: must be 0 to %d", field, i, ids[i],
                          app->pair.tokenizer_size - 1);
    return FT_OK;
}

static int compare_bias(const void *a, const void *b) {
    int32_t x = ((const struct ft_bias *)a)->id, y = ((const struct ft_bias *)b)->id;
    return (x > y) - (x < y);
}

static enum ft_code take_bias(struct co_request *r, const struct ft_wire_params *p,
                              struct ft_err *err) {
    if (p->n_logit_bias == 0)
        return FT_OK;
    if (p->n_logit_bias > BIAS_MAX)
        return REJECT("logit_bias has %zu entries: at most %d", p->n_logit_bias, BIAS_MAX);
    struct ft_bias *rows = ft_arena_calloc(r->arena, p->n_logit_bias, sizeof *rows);
    if (rows == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for logit_bias");
    for (size_t i = 0; i < p->n_logit_bias; i++) {
        rows[i] = p->logit_bias[i];
        if (rows[i].id < 0 || rows[i].id >= r->app->pair.tokenizer_size)
            return REJECT("logit_bias has the id %d: must be 0 to %d", rows[i].id,
                          r->app->pair.tokenizer_size - 1);
        if (!(rows[i].value >= -100.0f && rows[i].value <= 100.0f))
            return REJECT("logit_bias of %d is %g: must be -100 to 100", rows[i].id,
                          (double)rows[i].value);
    }
    qsort(rows, p->n_logit_bias, sizeof *rows, compare_bias);
    for (size_t i = 1; i < p->n_logit_bias; i++)
        if (rows[i].id == rows[i - 1].id)
            return REJECT("logit_bias names the id %d twice", rows[i].id);
    r->sampling.bias = rows;
    r->sampling.n_bias = p->n_logit_bias;
    return FT_OK;
}

static enum ft_code take_sampling(struct co_request *r, const struct ft_wire_params *p,
                                  struct ft_err *err) {
    enum ft_code code = check_supported(p, err);
    if (code == FT_OK)
        code = check_ranges(p, err);
    if (code != FT_OK)
        return code;
    r->sampling = ft_sampling_default();
    if (p->has_temperature)
        r->sampling.temperature = p->temperature < FT_TEMPERATURE_MIN ? 0.0f : p->temperature;
    if (p->has_top_p)
        r->sampling.top_p = p->top_p;
    if (p->has_repetition_penalty)
        r->sampling.repetition_penalty = p->repetition_penalty;
    r->sampling.top_k = p->top_k > 0 && p->top_k < r->app->pair.vocab_size ? p->top_k : 0;
    r->sampling.min_p = p->min_p;
    r->sampling.frequency_penalty = p->frequency_penalty;
    r->sampling.presence_penalty = p->presence_penalty;
    r->sampling.seed = p->has_seed ? p->seed : ft_clock_random_u64();
    return take_bias(r, p, err);
}

static enum ft_code take_stops(struct co_request *r, const struct ft_wire_generate *in,
                               struct ft_err *err) {
    const struct ft_wire_params *p = &in->params;
    if (p->n_stop > FT_DETOK_STOPS_MAX)
        return REJECT("stop has %zu strings: at most %d", p->n_stop, FT_DETOK_STOPS_MAX);
    if (p->n_stop_token_ids > CO_STOP_IDS_MAX)
        return REJECT("stop_token_ids has %zu ids: at most %d", p->n_stop_token_ids,
                      CO_STOP_IDS_MAX);
    enum ft_code code =
        check_ids(r->app, "stop_token_ids", p->stop_token_ids, p->n_stop_token_ids, err);
    if (code != FT_OK)
        return code;
    if (!p->ignore_eos) {
        for (int32_t i = 0; i < r->app->pair.n_eos; i++)
            r->stop_ids[r->n_stop_ids++] = r->app->pair.eos_ids[i];
        if (in->input.kind == FT_WIRE_INPUT_CHAT && r->app->pair.end_of_turn >= 0)
            r->stop_ids[r->n_stop_ids++] = r->app->pair.end_of_turn;
    }
    for (size_t i = 0; i < p->n_stop_token_ids; i++)
        r->stop_ids[r->n_stop_ids++] = p->stop_token_ids[i];
    r->stops = ft_arena_calloc(r->arena, p->n_stop, sizeof *r->stops);
    if (r->stops == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for stop");
    for (size_t i = 0; i < p->n_stop; i++) {
        if (p->stop[i].len < 1 || p->stop[i].len > FT_DETOK_STOP_BYTES_MAX)
            return REJECT("stop[%zu] has %zu bytes: must be 1 to %d", i, p->stop[i].len,
                          FT_DETOK_STOP_BYTES_MAX);
        if (ft_utf8_valid_prefix(p->stop[i]) != p->stop[i].len)
            return REJECT("stop[%zu] is not UTF-8 at byte %zu", i,
                          ft_utf8_valid_prefix(p->stop[i]));
        r->stops[i] = p->stop[i];
    }
    r->n_stops = p->n_stop;
    return FT_OK;
}

/* The ids of the prompt, appended to out. */
static enum ft_code encode_prompt(struct co_app *app, const struct ft_wire_generate *in,
                                  size_t tokens_max, struct ft_ids *out, struct ft_err *err) {
    const struct ft_wire_prompt *input = &in->input;
    struct ft_encode_opts opts = {
        .add_special = in->has_add_special_tokens ? in->add_special_tokens : true,
        .parse_special = in->has_parse_special ? in->parse_special : true,
        .tokens_max = tokens_max,
    };
    switch (input->kind) {
    case FT_WIRE_INPUT_IDS:
        if (input->n_ids > tokens_max)
            return ft_err_set(err, FT_E_REQ_TOO_LARGE, MODULE,
                              "token_ids has %zu tokens: at most %zu (max_model_len %d less one)",
                              input->n_ids, tokens_max, app->pair.max_model_len);
        if (check_ids(app, "token_ids", input->ids, input->n_ids, err) != FT_OK)
            return FT_E_REQ_INVALID;
        return ft_ids_push(out, input->ids, input->n_ids);
    case FT_WIRE_INPUT_TEXT:
        return ft_tokenizer_encode(app->pair.tokenizer, input->text, &opts, out, err) == FT_OK
                   ? FT_OK
                   : ft_err_prefix(err, "text");
    case FT_WIRE_INPUT_CHAT: {
        struct ft_chat_message messages[CO_CHAT_MESSAGES_MAX];
        if (input->n_messages > sizeof messages / sizeof messages[0])
            return REJECT("chat has %zu messages: at most %zu", input->n_messages,
                          sizeof messages / sizeof messages[0]);
        for (size_t i = 0; i < input->n_messages; i++)
            messages[i] =
                (struct ft_chat_message){input->messages[i].role, input->messages[i].content};
        return ft_chat_encode(app->pair.chat, app->pair.tokenizer, messages, input->n_messages,
                              tokens_max, out, err) == FT_OK
                   ? FT_OK
                   : ft_err_prefix(err, "chat");
    }
    case FT_WIRE_INPUT_NONE:
        break;
    }
    return REJECT("no input: set one of text, token_ids or chat");
}

static enum ft_code take_prompt(struct co_request *r, const struct ft_wire_generate *in,
                                struct ft_err *err) {
    struct co_app *app = r->app;
    int32_t limit = app->pair.max_model_len - 1; /* one token at least is generated */
    struct ft_ids ids = {0};
    enum ft_code code = encode_prompt(app, in, (size_t)limit, &ids, err);
    if (code == FT_E_REQ_TOO_LARGE && in->input.kind != FT_WIRE_INPUT_IDS)
        code = ft_err_set(err, FT_E_REQ_TOO_LARGE, MODULE,
                          "the prompt of %zu bytes has more than %d tokens, the limit "
                          "(max_model_len %d less one)",
                          in->input.text.len, limit, app->pair.max_model_len);
    if (code == FT_OK && ids.len == 0)
        code = REJECT("the prompt is empty: at least one token is needed");
    if (code == FT_OK) {
        r->n_prompt = r->n = (int32_t)ids.len;
        r->max_new = app->pair.max_model_len - r->n_prompt;
        if (in->params.has_max_tokens && in->params.max_tokens < (uint32_t)r->max_new)
            r->max_new = (int32_t)in->params.max_tokens;
        r->min_tokens = in->params.min_tokens < (uint32_t)r->max_new
                            ? (int32_t)in->params.min_tokens
                            : r->max_new;
        r->tokens =
            ft_arena_calloc(r->arena, (size_t)(r->n_prompt + r->max_new), sizeof *r->tokens);
        if (r->tokens == NULL)
            code = ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for the tokens");
        else
            memcpy(r->tokens, ids.ptr, ids.len * sizeof *ids.ptr);
    }
    ft_ids_fini(&ids);
    return code;
}

static enum ft_code take_counts(struct co_request *r, struct ft_err *err) {
    if (!ft_sampling_has_penalties(&r->sampling))
        return FT_OK;
    r->counts = ft_counts_create();
    if (r->counts == NULL || !ft_counts_add_prompt(r->counts, r->tokens, (size_t)r->n_prompt))
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for penalties");
    return FT_OK;
}

static enum ft_code take_id(struct co_request *r, struct ft_str id, struct ft_err *err) {
    if (id.len > CO_REQUEST_ID_MAX)
        return REJECT("request_id has %zu bytes: at most %d", id.len, CO_REQUEST_ID_MAX);
    for (size_t i = 0; i < id.len; i++)
        if (id.ptr[i] < 0x20 || id.ptr[i] > 0x7e)
            return REJECT("request_id has a byte 0x%02x at %zu: must be printable ASCII",
                          (unsigned char)id.ptr[i], i);
    if (id.len == 0)
        snprintf(r->id, sizeof r->id, "req-%llx", (unsigned long long)ft_clock_random_u64());
    else
        memcpy(r->id, id.ptr, id.len);
    return FT_OK;
}

static enum ft_code take_speculation(struct co_request *r, const struct ft_wire_generate *in,
                                     struct ft_err *err) {
    r->k = r->app->drafting.policy.k_max;
    r->drafter = r->app->drafting.drafter;
    if (in->drafter.len > 0 && co_drafting_find(r->app, in->drafter, &r->drafter, err) != FT_OK)
        return FT_E_REQ_INVALID;
    if (in->has_num_speculative_tokens) {
        if (in->num_speculative_tokens > FT_DRAFT_LEN_MAX)
            return REJECT("num_speculative_tokens is %u: must be 0 to %d",
                          in->num_speculative_tokens, FT_DRAFT_LEN_MAX);
        r->k = (int32_t)in->num_speculative_tokens;
        r->k_own = true;
    }
    r->speculate = (!in->has_spec_enabled || in->spec_enabled) && r->k > 0;
    return FT_OK;
}

/* What the target's pool can never hold is refused now. Without max_tokens the pool is a limit like
 * the context. */
static enum ft_code take_blocks(struct co_request *r, const struct ft_wire_generate *in,
                                struct ft_err *err) {
    const struct co_pair *pair = &r->app->pair;
    int64_t room = pair->target_blocks * pair->target_limits.block_tokens;
    int64_t longest = room - r->n_prompt + 1; /* the last token is never fed */
    if (longest >= 1 && !in->params.has_max_tokens && r->max_new > longest)
        r->max_new = (int32_t)longest;
    if (r->min_tokens > r->max_new)
        r->min_tokens = r->max_new;
    if (r->max_new <= longest)
        return FT_OK;
    return ft_err_set(err, FT_E_REQ_EXHAUSTED, MODULE,
                      "%d prompt tokens and max_tokens %d need %d KV blocks of %d positions: the "
                      "target's pool has %lld",
                      r->n_prompt, r->max_new,
                      co_plan_blocks(&pair->target_limits, r->n_prompt + r->max_new - 1),
                      pair->target_limits.block_tokens, (long long)pair->target_blocks);
}

static void free_partial(struct co_request *r) {
    ft_counts_destroy(&r->counts);
    ft_detok_fini(&r->detok);
    free(r);
}

enum ft_code co_request_create(struct co_request **out, struct co_app *app,
                               const struct ft_wire_generate *in, struct ft_arena *arena,
                               struct ft_err *err) {
    struct co_request *r = calloc(1, sizeof *r);
    if (r == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for a request");
    r->app = app;
    r->arena = arena;
    r->matched_stop = -1;
    r->stream = in->stream;
    r->priority = in->priority;
    r->skip_special = !in->params.has_skip_special_tokens || in->params.skip_special_tokens;
    r->include_stop = in->params.include_stop_str_in_output;
    enum ft_code code = take_id(r, in->request_id, err);
    if (code == FT_OK)
        code = take_sampling(r, &in->params, err);
    if (code == FT_OK)
        code = take_stops(r, in, err);
    if (code == FT_OK)
        code = take_speculation(r, in, err);
    if (code == FT_OK)
        code = take_prompt(r, in, err);
    if (code == FT_OK)
        code = take_blocks(r, in, err);
    if (code == FT_OK)
        code = take_counts(r, err);
    if (code != FT_OK) {
        free_partial(r);
        return code;
    }
    ft_detok_init(&r->detok, r->stops, r->n_stops, r->include_stop);
    ft_buf_init(&r->out_text, 0);
    r->arrived_ns = ft_clock_now_ns();
    *out = r;
    return FT_OK;
}
