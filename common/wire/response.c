#include "common/wire/inference.h"
#include "common/wire/pb.h"
#include "foretoken/v1/inference.pb-c.h"

#define MODULE "wire"

const char *ft_wire_finish_name(enum ft_wire_finish finish) {
    static const char *const names[] = {"", "stop", "length", "time_limit", "abort"};
    FT_ASSERT((size_t)finish < sizeof names / sizeof names[0]);
    return names[finish];
}

/* ---- GenerateResponse ----------------------------------------------------------------------- */

static Foretoken__V1__Usage usage_message(const struct ft_wire_usage *in) {
    Foretoken__V1__Usage m = FORETOKEN__V1__USAGE__INIT;
    m.prompt_tokens = in->prompt_tokens;
    m.completion_tokens = in->completion_tokens;
    m.cached_tokens = in->cached_tokens;
    m.queue_seconds = in->queue_seconds;
    m.first_token_seconds = in->first_token_seconds;
    m.total_seconds = in->total_seconds;
    return m;
}

/* Borrows in's arrays. */
static Foretoken__V1__SpeculativeStats spec_message(const struct ft_wire_spec_stats *in) {
    Foretoken__V1__SpeculativeStats m = FORETOKEN__V1__SPECULATIVE_STATS__INIT;
    m.num_drafts = in->num_drafts;
    m.num_draft_tokens = in->num_draft_tokens;
    m.num_accepted_tokens = in->num_accepted_tokens;
    m.num_target_steps = in->num_target_steps;
    m.num_plain_steps = in->num_plain_steps;
    m.n_num_accepted_tokens_per_pos = m.n_num_draft_tokens_per_pos = in->n_pos;
    m.num_accepted_tokens_per_pos = (uint64_t *)(uintptr_t)in->accepted_per_pos;
    m.num_draft_tokens_per_pos = (uint64_t *)(uintptr_t)in->drafted_per_pos;
    m.lossy = in->lossy;
    m.fallback_reason = FT_PB_BYTES(in->fallback_reason);
    return m;
}

static void encode_logprobs(const char *field, const struct ft_logprobs *in, size_t n,
                            struct ft_buf *out) {
    for (size_t i = 0; i < n; i++) {
        Foretoken__V1__TokenLogProbs m = FORETOKEN__V1__TOKEN_LOG_PROBS__INIT;
        FT_ASSERT(in[i].n_top >= 0 && in[i].n_top <= FT_LOGPROBS_MAX);
        m.logprob = in[i].token_logprob;
        m.n_top_token_ids = m.n_top_logprobs = (size_t)in[i].n_top;
        m.top_token_ids = (int32_t *)(uintptr_t)in[i].ids;
        m.top_logprobs = (float *)(uintptr_t)in[i].values;
        ft_pb_pack_message(&foretoken__v1__generate_response__descriptor, field, &m.base, out);
    }
}

void ft_wire_encode_generated(const struct ft_wire_generated *in, struct ft_buf *out) {
    Foretoken__V1__GenerateResponse m = FORETOKEN__V1__GENERATE_RESPONSE__INIT;
    Foretoken__V1__Usage usage = usage_message(&in->usage);
    Foretoken__V1__SpeculativeStats speculative = spec_message(&in->speculative);
    FT_ASSERT(in->speculative.n_pos <= FT_DRAFT_LEN_MAX);
    m.n_token_ids = in->n_token_ids;
    m.token_ids = (int32_t *)(uintptr_t)in->token_ids;
    m.text = FT_PB_BYTES(in->text);
    m.finish_reason = (Foretoken__V1__FinishReason)in->finish;
    if (in->has_matched_token) {
        m.matched_stop_case = FORETOKEN__V1__GENERATE_RESPONSE__MATCHED_STOP_MATCHED_TOKEN_ID;
        m.matched_token_id = in->matched_token_id;
    } else if (in->has_matched_str) {
        m.matched_stop_case = FORETOKEN__V1__GENERATE_RESPONSE__MATCHED_STOP_MATCHED_STOP_STR;
        m.matched_stop_str = FT_PB_BYTES(in->matched_stop_str);
    }
    if (in->has_usage)
        m.usage = &usage;
    if (in->has_speculative)
        m.speculative = &speculative;
    m.request_id = FT_PB_BYTES(in->request_id);
    m.n_prompt_token_ids = in->n_prompt_token_ids;
    m.prompt_token_ids = (int32_t *)(uintptr_t)in->prompt_token_ids;
    m.index = in->index;
    ft_pb_pack(&m.base, out);
    encode_logprobs("logprobs", in->logprobs, in->n_logprobs, out);
    encode_logprobs("prompt_logprobs", in->prompt_logprobs, in->n_prompt_logprobs, out);
}

static struct ft_wire_usage decode_usage(const Foretoken__V1__Usage *m) {
    return (struct ft_wire_usage){
        .prompt_tokens = m->prompt_tokens,
        .completion_tokens = m->completion_tokens,
        .cached_tokens = m->cached_tokens,
        .queue_seconds = m->queue_seconds,
        .first_token_seconds = m->first_token_seconds,
        .total_seconds = m->total_seconds,
    };
}

static enum ft_code decode_spec(const Foretoken__V1__SpeculativeStats *m,
                                struct ft_wire_spec_stats *out, struct ft_err *err) {
    size_t n_accepted = m->n_num_accepted_tokens_per_pos;
    size_t n_drafted = m->n_num_draft_tokens_per_pos;
    size_t n_pos = n_accepted > n_drafted ? n_accepted : n_drafted;
    enum ft_code code =
        ft_pb_check_count("SpeculativeStats.num_*_tokens_per_pos", n_pos, FT_DRAFT_LEN_MAX, err);
    if (code != FT_OK)
        return code;
    *out = (struct ft_wire_spec_stats){
        .num_drafts = m->num_drafts,
        .num_draft_tokens = m->num_draft_tokens,
        .num_accepted_tokens = m->num_accepted_tokens,
        .num_target_steps = m->num_target_steps,
        .num_plain_steps = m->num_plain_steps,
        .n_pos = n_pos,
        .lossy = m->lossy,
        .fallback_reason = FT_PB_STR(m->fallback_reason),
    };
    for (size_t i = 0; i < n_accepted; i++)
        out->accepted_per_pos[i] = m->num_accepted_tokens_per_pos[i];
    for (size_t i = 0; i < n_drafted; i++)
        out->drafted_per_pos[i] = m->num_draft_tokens_per_pos[i];
    return FT_OK;
}

static enum ft_code decode_finish(const Foretoken__V1__GenerateResponse *m,
                                  struct ft_wire_generated *out, struct ft_err *err) {
    int finish = (int)m->finish_reason;
    if (finish < FT_WIRE_FINISH_NONE || finish > FT_WIRE_FINISH_ABORT)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "GenerateResponse.finish_reason is %d: must be 0 to %d", finish,
                          FT_WIRE_FINISH_ABORT);
    out->finish = (enum ft_wire_finish)finish;
    if (m->matched_stop_case == FORETOKEN__V1__GENERATE_RESPONSE__MATCHED_STOP_MATCHED_TOKEN_ID) {
        out->has_matched_token = true;
        out->matched_token_id = m->matched_token_id;
    }
    if (m->matched_stop_case == FORETOKEN__V1__GENERATE_RESPONSE__MATCHED_STOP_MATCHED_STOP_STR) {
        out->has_matched_str = true;
        out->matched_stop_str = FT_PB_STR(m->matched_stop_str);
    }
    return FT_OK;
}

static enum ft_code decode_logprobs(const char *field, Foretoken__V1__TokenLogProbs *const *m,
                                    size_t n, struct ft_arena *arena,
                                    const struct ft_logprobs **out, struct ft_err *err) {
    *out = NULL;
    if (n == 0)
        return FT_OK;
    if (n > FT_WIRE_TOKENS_MAX)
        return ft_pb_check_count(field, n, FT_WIRE_TOKENS_MAX, err);
    struct ft_logprobs *made = ft_arena_calloc(arena, n, sizeof *made);
    if (made == NULL)
        return ft_pb_arena_full(field, err);
    for (size_t i = 0; i < n; i++) {
        size_t n_top = m[i]->n_top_token_ids;
        if (n_top > FT_LOGPROBS_MAX || n_top != m[i]->n_top_logprobs)
            return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                              "%s[%zu] has %zu top_token_ids and %zu top_logprobs: must be as "
                              "many, at most %d",
                              field, i, n_top, m[i]->n_top_logprobs, FT_LOGPROBS_MAX);
        made[i].token_logprob = m[i]->logprob;
        made[i].n_top = (int32_t)n_top;
        for (size_t j = 0; j < n_top; j++) {
            made[i].ids[j] = m[i]->top_token_ids[j];
            made[i].values[j] = m[i]->top_logprobs[j];
        }
    }
    *out = made;
    return FT_OK;
}

static enum ft_code decode_lists(const Foretoken__V1__GenerateResponse *m, struct ft_arena *arena,
                                 struct ft_wire_generated *out, struct ft_err *err) {
    enum ft_code code =
        ft_pb_check_count("GenerateResponse.token_ids", m->n_token_ids, FT_WIRE_TOKENS_MAX, err);
    if (code == FT_OK)
        code = ft_pb_check_count("GenerateResponse.prompt_token_ids", m->n_prompt_token_ids,
                                 FT_WIRE_TOKENS_MAX, err);
    if (code == FT_OK)
        code = decode_logprobs("GenerateResponse.logprobs", m->logprobs, m->n_logprobs, arena,
                               &out->logprobs, err);
    if (code == FT_OK)
        code = decode_logprobs("GenerateResponse.prompt_logprobs", m->prompt_logprobs,
                               m->n_prompt_logprobs, arena, &out->prompt_logprobs, err);
    return code;
}

enum ft_code ft_wire_decode_generated(struct ft_str in, struct ft_arena *arena,
                                      struct ft_wire_generated *out, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__v1__generate_response__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__V1__GenerateResponse *m = raw;
    struct ft_wire_generated made = {
        .token_ids = m->token_ids,
        .n_token_ids = m->n_token_ids,
        .text = FT_PB_STR(m->text),
        .request_id = FT_PB_STR(m->request_id),
        .n_logprobs = m->n_logprobs,
        .n_prompt_logprobs = m->n_prompt_logprobs,
        .prompt_token_ids = m->prompt_token_ids,
        .n_prompt_token_ids = m->n_prompt_token_ids,
        .index = m->index,
    };
    code = decode_lists(m, arena, &made, err);
    if (code == FT_OK)
        code = decode_finish(m, &made, err);
    if (code == FT_OK && m->speculative != NULL) {
        made.has_speculative = true;
        code = decode_spec(m->speculative, &made.speculative, err);
    }
    if (code != FT_OK)
        return code;
    if (m->usage != NULL) {
        made.has_usage = true;
        made.usage = decode_usage(m->usage);
    }
    *out = made;
    return FT_OK;
}

/* ---- TokenizeResponse, DetokenizeResponse --------------------------------------------------- */

void ft_wire_encode_ids(const struct ft_wire_ids *in, struct ft_buf *out) {
    Foretoken__V1__TokenizeResponse m = FORETOKEN__V1__TOKENIZE_RESPONSE__INIT;
    m.n_token_ids = in->n_ids;
    m.token_ids = (int32_t *)(uintptr_t)in->ids;
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_ids(struct ft_str in, struct ft_arena *arena, struct ft_wire_ids *out,
                                struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__v1__tokenize_response__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__V1__TokenizeResponse *m = raw;
    *out = (struct ft_wire_ids){m->token_ids, m->n_token_ids};
    return FT_OK;
}

void ft_wire_encode_text(const struct ft_wire_text *in, struct ft_buf *out) {
    Foretoken__V1__DetokenizeResponse m = FORETOKEN__V1__DETOKENIZE_RESPONSE__INIT;
    m.text = FT_PB_BYTES(in->text);
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_text(struct ft_str in, struct ft_arena *arena, struct ft_wire_text *out,
                                 struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__v1__detokenize_response__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__V1__DetokenizeResponse *m = raw;
    *out = (struct ft_wire_text){FT_PB_STR(m->text)};
    return FT_OK;
}

/* ---- GetModelInfoResponse ------------------------------------------------------------------- */

static Foretoken__V1__ModelInfo model_message(const struct ft_wire_model *in) {
    Foretoken__V1__ModelInfo m = FORETOKEN__V1__MODEL_INFO__INIT;
    m.name = FT_PB_BYTES(in->name);
    m.architecture = FT_PB_BYTES(in->architecture);
    m.vocab_size = in->vocab_size;
    m.max_model_len = in->max_model_len;
    m.num_parameters = in->n_parameters;
    m.weight_bytes = in->weight_bytes;
    m.dtype = FT_PB_BYTES(in->dtype);
    m.backend = FT_PB_BYTES(in->backend);
    m.tokenizer_fingerprint = FT_PB_BYTES(in->tokenizer_fingerprint);
    return m;
}

void ft_wire_encode_model_info(const struct ft_wire_model_info *in, struct ft_buf *out) {
    Foretoken__V1__GetModelInfoResponse m = FORETOKEN__V1__GET_MODEL_INFO_RESPONSE__INIT;
    Foretoken__V1__ModelInfo target = model_message(&in->target);
    Foretoken__V1__ModelInfo draft = model_message(&in->draft);
    m.target = &target;
    if (in->has_draft)
        m.draft = &draft;
    m.speculation = FT_PB_BYTES(in->speculation);
    m.speculation_reason = FT_PB_BYTES(in->speculation_reason);
    m.num_speculative_tokens = in->num_speculative_tokens;
    m.rejection_sample_method = FT_PB_BYTES(in->rejection_sample_method);
    m.max_model_len = in->max_model_len;
    m.n_eos_token_ids = in->n_eos_token_ids;
    m.eos_token_ids = (int32_t *)(uintptr_t)in->eos_token_ids;
    m.chat_format = FT_PB_BYTES(in->chat_format);
    m.version = FT_PB_BYTES(in->version);
    ft_pb_pack(&m.base, out);
}

static struct ft_wire_model decode_model(const Foretoken__V1__ModelInfo *m) {
    return (struct ft_wire_model){
        .name = FT_PB_STR(m->name),
        .architecture = FT_PB_STR(m->architecture),
        .dtype = FT_PB_STR(m->dtype),
        .backend = FT_PB_STR(m->backend),
        .tokenizer_fingerprint = FT_PB_STR(m->tokenizer_fingerprint),
        .vocab_size = m->vocab_size,
        .max_model_len = m->max_model_len,
        .n_parameters = m->num_parameters,
        .weight_bytes = m->weight_bytes,
    };
}

enum ft_code ft_wire_decode_model_info(struct ft_str in, struct ft_arena *arena,
                                       struct ft_wire_model_info *out, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__v1__get_model_info_response__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__V1__GetModelInfoResponse *m = raw;
    if (m->target == NULL)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "GetModelInfoResponse has no target");
    *out = (struct ft_wire_model_info){
        .target = decode_model(m->target),
        .has_draft = m->draft != NULL,
        .speculation = FT_PB_STR(m->speculation),
        .speculation_reason = FT_PB_STR(m->speculation_reason),
        .num_speculative_tokens = m->num_speculative_tokens,
        .rejection_sample_method = FT_PB_STR(m->rejection_sample_method),
        .max_model_len = m->max_model_len,
        .eos_token_ids = m->eos_token_ids,
        .n_eos_token_ids = m->n_eos_token_ids,
        .chat_format = FT_PB_STR(m->chat_format),
        .version = FT_PB_STR(m->version),
    };
    if (m->draft != NULL)
        out->draft = decode_model(m->draft);
    return FT_OK;
}
