/* admit: a decoded GenerateRequest becomes a checked co_request, or an error that names the field,
 * the value and the limit. The ranges are those of proto/foretoken/v1/inference.proto. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "coordinator/app.h"
#include "coordinator/group.h"
#include "coordinator/sampling.h"

#define MODULE "request"

/* Tokens of a prompt before it is truncated: as many as a message decodes to at all. */
#define UNTRUNCATED_MAX ((size_t)1 << 20)
#define REJECT(...) ft_err_set(err, FT_E_REQ_INVALID, MODULE, __VA_ARGS__)

static enum ft_code check_n(const struct ft_wire_params *p, struct ft_err *err) {
    if (p->has_n && (p->n < 1 || p->n > CO_GROUP_MAX))
        return REJECT("n is %u: must be 1 to %d", p->n, CO_GROUP_MAX);
    return FT_OK;
}

/* -1 when it is not asked for. */
static enum ft_code take_n_top(const char *field, bool given, int32_t n, int32_t *out,
                               struct ft_err *err) {
    *out = given ? n : -1;
    if (given && (n < 0 || n > FT_LOGPROBS_MAX))
        return REJECT("%s is %d: must be 0 to %d", field, n, FT_LOGPROBS_MAX);
    return FT_OK;
}

static enum ft_code take_logprobs(struct co_request *r, const struct ft_wire_params *p,
                                  struct ft_err *err) {
    enum ft_code code = take_n_top("logprobs", p->has_logprobs, p->logprobs, &r->n_top, err);
    if (code == FT_OK)
        code = take_n_top("prompt_logprobs", p->has_prompt_logprobs, p->prompt_logprobs,
                          &r->n_prompt_top, err);
    if (code != FT_OK || r->n_prompt_top < 0 || r->n_prompt < 2 || r->index > 0)
        return code;
    r->n_prompt_rows_wanted = r->n_prompt - 1;
    r->prompt_logprobs =
        ft_arena_calloc(r->arena, (size_t)r->n_prompt_rows_wanted, sizeof *r->prompt_logprobs);
    if (r->prompt_logprobs == NULL)
        return ft_err_set(err, FT_E_REQ_EXHAUSTED, MODULE,
                          "no memory for prompt_logprobs of %d tokens", r->n_prompt);
    return FT_OK;
}

static enum ft_code take_stops(struct co_request *r, const struct ft_wire_generate *in,
                               struct ft_err *err) {
    const struct ft_wire_params *p = &in->params;
    if (p->n_stop > FT_DETOK_STOPS_MAX)
        return REJECT("stop has %zu strings: at most %d", p->n_stop, FT_DETOK_STOPS_MAX);
    if (p->n_stop_token_ids > CO_STOP_IDS_MAX)
        return REJECT("stop_token_ids has %zu ids: at most %d", p->n_stop_token_ids,
                      CO_STOP_IDS_MAX);
    enum ft_code code = co_sampling_check_ids(r->app, "stop_token_ids", p->stop_token_ids,
                                              p->n_stop_token_ids, err);
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
        if (co_sampling_check_ids(app, "token_ids", input->ids, input->n_ids, err) != FT_OK)
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

static void keep_last(struct ft_ids *ids, size_t n) {
    if (ids->len <= n)
        return;
    memmove(ids->ptr, ids->ptr + (ids->len - n), n * sizeof *ids->ptr);
    ids->len = n;
}

static enum ft_code take_prompt(struct co_request *r, const struct ft_wire_generate *in,
                                struct ft_err *err) {
    struct co_app *app = r->app;
    int32_t limit = app->pair.max_model_len - 1; /* one token at least is generated */
    const struct ft_wire_params *p = &in->params;
    struct ft_ids ids = {0};
    if (p->has_truncate_prompt_tokens &&
        (p->truncate_prompt_tokens < 1 || p->truncate_prompt_tokens > (uint32_t)limit))
        return REJECT("truncate_prompt_tokens is %u: must be 1 to %d (max_model_len %d less one)",
                      p->truncate_prompt_tokens, limit, app->pair.max_model_len);
    size_t tokens_max = p->has_truncate_prompt_tokens ? UNTRUNCATED_MAX : (size_t)limit;
    enum ft_code code = encode_prompt(app, in, tokens_max, &ids, err);
    if (code == FT_OK && p->has_truncate_prompt_tokens)
        keep_last(&ids, p->truncate_prompt_tokens);
    if (code == FT_E_REQ_TOO_LARGE && in->input.kind != FT_WIRE_INPUT_IDS)
        code = ft_err_set(err, FT_E_REQ_TOO_LARGE, MODULE,
                          "the prompt of %zu bytes has more than %zu tokens, the limit%s",
                          in->input.text.len, tokens_max,
                          p->has_truncate_prompt_tokens ? " before truncate_prompt_tokens"
                                                        : " (max_model_len less one)");
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

enum ft_code co_request_create(struct co_request **out, struct co_app *app,
                               const struct ft_wire_generate *in, int32_t index,
                               struct ft_arena *arena, struct ft_err *err) {
    struct co_request *r = calloc(1, sizeof *r);
    if (r == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for a request");
    r->app = app;
    r->arena = arena;
    r->index = index;
    r->matched_stop = -1;
    r->stream = in->stream;
    r->priority = in->priority;
    r->skip_special = !in->params.has_skip_special_tokens || in->params.skip_special_tokens;
    r->include_stop = in->params.include_stop_str_in_output;
    r->return_prompt = in->return_prompt_token_ids && index == 0;
    enum ft_code code = take_id(r, in->request_id, err);
    if (code == FT_OK)
        code = check_n(&in->params, err);
    if (code == FT_OK)
        code = co_sampling_take(r, in, err);
    if (code == FT_OK)
        code = take_stops(r, in, err);
    if (code == FT_OK)
        code = take_prompt(r, in, err);
    if (code == FT_OK)
        code = take_blocks(r, in, err);
    if (code == FT_OK)
        code = take_counts(r, err);
    if (code == FT_OK)
        code = take_logprobs(r, &in->params, err);
    if (code != FT_OK) {
        r->arena = NULL; /* the caller's again */
        co_request_discard(r);
        return code;
    }
    ft_detok_init(&r->detok, r->stops, r->n_stops, r->include_stop);
    ft_buf_init(&r->out_text, 0);
    ft_buf_init(&r->out_logprobs, 0);
    r->arrived_ns = ft_clock_now_ns();
    *out = r;
    return FT_OK;
}
