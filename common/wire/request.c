#include "common/wire/inference.h"
#include "common/wire/pb.h"
#include "foretoken/v1/inference.pb-c.h"

#define MODULE "wire"

/* Set or read an `optional` field, which the C twin has as a oneof of one. */
#define SET_OPTIONAL(message, type, OPT, field, in)                                                \
    do {                                                                                           \
        if ((in)->has_##field) {                                                                   \
            (message)->opt_##field##_case = FORETOKEN__V1__##type##__OPT_##OPT##_##OPT;            \
            (message)->field = (in)->field;                                                        \
        }                                                                                          \
    } while (0)
#define GET_OPTIONAL(out, message, member)                                                         \
    do {                                                                                           \
        if ((message)->opt_##member##_case != 0) {                                                 \
            (out)->has_##member = true;                                                            \
            (out)->member = (message)->member;                                                     \
        }                                                                                          \
    } while (0)

/* ---- fields of other interfaces ---------------------------------------------------------------
 */

/* What a field asks for that we do not know would be missing from the answer, silently: refused. */
struct foreign_field {
    uint32_t tag;
    const char *name;
};
/* Fields of vLLM's SamplingParams, whose numbers ours has, that we have not. */
static const struct foreign_field k_foreign_params[] = {
    {13, "spaces_between_special_tokens"},
    {16, "json_schema"},
    {17, "regex"},
    {18, "grammar"},
    {19, "structural_tag"},
    {20, "json_object"},
    {21, "choice"},
};

static enum ft_code refuse_unknown(const ProtobufCMessage *m, const char *where,
                                   struct ft_err *err) {
    if (m->n_unknown_fields == 0)
        return FT_OK;
    uint32_t tag = m->unknown_fields[0].tag;
    bool is_params = m->descriptor == &foretoken__v1__sampling_params__descriptor;
    for (size_t i = 0; is_params && i < sizeof k_foreign_params / sizeof k_foreign_params[0]; i++)
        if (k_foreign_params[i].tag == tag)
            return ft_err_set(err, FT_E_REQ_UNSUPPORTED, MODULE, "%s.%s is not supported", where,
                              k_foreign_params[i].name);
    return ft_err_set(err, FT_E_REQ_UNSUPPORTED, MODULE,
                      "%s has a field %u, which this version does not know", where, tag);
}

/* ---- prompt --------------------------------------------------------------------------------- */

static void encode_chat(const struct ProtobufCMessageDescriptor *parent,
                        const struct ft_wire_prompt *in, struct ft_buf *out) {
    struct ft_buf chat;
    ft_buf_init(&chat, 0);
    for (size_t i = 0; i < in->n_messages; i++) {
        Foretoken__V1__ChatMessage m = FORETOKEN__V1__CHAT_MESSAGE__INIT;
        m.role = FT_PB_BYTES(in->messages[i].role);
        m.content = FT_PB_BYTES(in->messages[i].content);
        ft_pb_pack_message(&foretoken__v1__chat_messages__descriptor, "messages", &m.base, &chat);
    }
    ft_pb_pack_buf(parent, "chat", &chat, out);
}

static void encode_prompt(const struct ProtobufCMessageDescriptor *parent,
                          const struct ft_wire_prompt *in, struct ft_buf *out) {
    Foretoken__V1__TokenIds ids = FORETOKEN__V1__TOKEN_IDS__INIT;
    switch (in->kind) {
    case FT_WIRE_INPUT_NONE:
        break;
    case FT_WIRE_INPUT_IDS:
        ids.n_ids = in->n_ids;
        ids.ids = (int32_t *)(uintptr_t)in->ids;
        ft_pb_pack_message(parent, "token_ids", &ids.base, out);
        break;
    case FT_WIRE_INPUT_TEXT:
        ft_pb_pack_bytes(parent, "text", in->text, out);
        break;
    case FT_WIRE_INPUT_CHAT:
        encode_chat(parent, in, out);
        break;
    }
}

static enum ft_code decode_chat(const Foretoken__V1__ChatMessages *m, struct ft_arena *arena,
                                struct ft_wire_prompt *out, struct ft_err *err) {
    enum ft_code code =
        ft_pb_check_count("ChatMessages.messages", m->n_messages, FT_WIRE_LIST_MAX, err);
    if (code != FT_OK)
        return code;
    struct ft_wire_chat_message *messages = ft_arena_calloc(arena, m->n_messages, sizeof *messages);
    if (messages == NULL)
        return ft_pb_arena_full("ChatMessages", err);
    for (size_t i = 0; i < m->n_messages; i++)
        messages[i] = (struct ft_wire_chat_message){FT_PB_STR(m->messages[i]->role),
                                                    FT_PB_STR(m->messages[i]->content)};
    *out = (struct ft_wire_prompt){
        .kind = FT_WIRE_INPUT_CHAT, .messages = messages, .n_messages = m->n_messages};
    return FT_OK;
}

static struct ft_wire_prompt text_prompt(ProtobufCBinaryData text) {
    return (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_TEXT, .text = FT_PB_STR(text)};
}

static enum ft_code decode_prompt(const Foretoken__V1__GenerateRequest *m, struct ft_arena *arena,
                                  struct ft_wire_prompt *out, struct ft_err *err) {
    switch (m->input_case) {
    case FORETOKEN__V1__GENERATE_REQUEST__INPUT_TOKEN_IDS:
        *out = (struct ft_wire_prompt){
            .kind = FT_WIRE_INPUT_IDS, .ids = m->token_ids->ids, .n_ids = m->token_ids->n_ids};
        return ft_pb_check_count("GenerateRequest.token_ids", out->n_ids, FT_WIRE_TOKENS_MAX, err);
    case FORETOKEN__V1__GENERATE_REQUEST__INPUT_TEXT:
        *out = text_prompt(m->text);
        return FT_OK;
    case FORETOKEN__V1__GENERATE_REQUEST__INPUT_CHAT:
        return decode_chat(m->chat, arena, out, err);
    default:
        *out = (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_NONE};
        return FT_OK;
    }
}

/* ---- sampling parameters -------------------------------------------------------------------- */

static void encode_optional_params(const struct ft_wire_params *in,
                                   Foretoken__V1__SamplingParams *m) {
    SET_OPTIONAL(m, SAMPLING_PARAMS, TEMPERATURE, temperature, in);
    SET_OPTIONAL(m, SAMPLING_PARAMS, TOP_P, top_p, in);
    SET_OPTIONAL(m, SAMPLING_PARAMS, REPETITION_PENALTY, repetition_penalty, in);
    SET_OPTIONAL(m, SAMPLING_PARAMS, MAX_TOKENS, max_tokens, in);
    SET_OPTIONAL(m, SAMPLING_PARAMS, SKIP_SPECIAL_TOKENS, skip_special_tokens, in);
    SET_OPTIONAL(m, SAMPLING_PARAMS, N, n, in);
    SET_OPTIONAL(m, SAMPLING_PARAMS, LOGPROBS, logprobs, in);
    SET_OPTIONAL(m, SAMPLING_PARAMS, PROMPT_LOGPROBS, prompt_logprobs, in);
    SET_OPTIONAL(m, SAMPLING_PARAMS, SEED, seed, in);
    SET_OPTIONAL(m, SAMPLING_PARAMS, TRUNCATE_PROMPT_TOKENS, truncate_prompt_tokens, in);
    SET_OPTIONAL(m, SAMPLING_PARAMS, TIME_LIMIT_MILLIS, time_limit_millis, in);
}

static void encode_params(const struct ft_wire_params *in, struct ft_buf *out) {
    const struct ProtobufCMessageDescriptor *type = &foretoken__v1__sampling_params__descriptor;
    Foretoken__V1__SamplingParams m = FORETOKEN__V1__SAMPLING_PARAMS__INIT;
    struct ft_buf params;
    encode_optional_params(in, &m);
    m.top_k = in->top_k;
    m.min_p = in->min_p;
    m.frequency_penalty = in->frequency_penalty;
    m.presence_penalty = in->presence_penalty;
    m.min_tokens = in->min_tokens;
    m.n_stop_token_ids = in->n_stop_token_ids;
    m.stop_token_ids = (int32_t *)(uintptr_t)in->stop_token_ids;
    m.n_allowed_token_ids = in->n_allowed_token_ids;
    m.allowed_token_ids = (int32_t *)(uintptr_t)in->allowed_token_ids;
    m.n_banned_token_ids = in->n_banned_token_ids;
    m.banned_token_ids = (int32_t *)(uintptr_t)in->banned_token_ids;
    m.ignore_eos = in->ignore_eos;
    m.include_stop_str_in_output = in->include_stop_str_in_output;

    ft_buf_init(&params, 0);
    ft_pb_pack(&m.base, &params);
    for (size_t i = 0; i < in->n_stop; i++)
        ft_pb_pack_bytes(type, "stop", in->stop[i], &params);
    for (size_t i = 0; i < in->n_logit_bias; i++) {
        Foretoken__V1__SamplingParams__LogitBiasEntry entry =
            FORETOKEN__V1__SAMPLING_PARAMS__LOGIT_BIAS_ENTRY__INIT;
        entry.key = in->logit_bias[i].id;
        entry.value = in->logit_bias[i].value;
        ft_pb_pack_message(type, "logit_bias", &entry.base, &params);
    }
    if (params.len > 0 || params.failed)
        ft_pb_pack_buf(&foretoken__v1__generate_request__descriptor, "sampling_params", &params,
                       out);
}

static enum ft_code decode_stop(const Foretoken__V1__SamplingParams *m, struct ft_arena *arena,
                                struct ft_wire_params *out, struct ft_err *err) {
    enum ft_code code = ft_pb_check_count("SamplingParams.stop", m->n_stop, FT_WIRE_LIST_MAX, err);
    if (code != FT_OK)
        return code;
    struct ft_str *stop = ft_arena_calloc(arena, m->n_stop, sizeof *stop);
    if (stop == NULL)
        return ft_pb_arena_full("SamplingParams.stop", err);
    for (size_t i = 0; i < m->n_stop; i++)
        stop[i] = FT_PB_STR(m->stop[i]);
    out->stop = stop;
    out->n_stop = m->n_stop;
    return FT_OK;
}

static enum ft_code decode_logit_bias(const Foretoken__V1__SamplingParams *m,
                                      struct ft_arena *arena, struct ft_wire_params *out,
                                      struct ft_err *err) {
    enum ft_code code =
        ft_pb_check_count("SamplingParams.logit_bias", m->n_logit_bias, FT_WIRE_LIST_MAX, err);
    if (code != FT_OK)
        return code;
    struct ft_bias *bias = ft_arena_calloc(arena, m->n_logit_bias, sizeof *bias);
    if (bias == NULL)
        return ft_pb_arena_full("SamplingParams.logit_bias", err);
    for (size_t i = 0; i < m->n_logit_bias; i++)
        bias[i] = (struct ft_bias){m->logit_bias[i]->key, m->logit_bias[i]->value};
    out->logit_bias = bias;
    out->n_logit_bias = m->n_logit_bias;
    return FT_OK;
}

static void decode_optional_params(const Foretoken__V1__SamplingParams *m,
                                   struct ft_wire_params *out) {
    GET_OPTIONAL(out, m, temperature);
    GET_OPTIONAL(out, m, top_p);
    GET_OPTIONAL(out, m, repetition_penalty);
    GET_OPTIONAL(out, m, max_tokens);
    GET_OPTIONAL(out, m, skip_special_tokens);
    GET_OPTIONAL(out, m, n);
    GET_OPTIONAL(out, m, logprobs);
    GET_OPTIONAL(out, m, prompt_logprobs);
    GET_OPTIONAL(out, m, seed);
    GET_OPTIONAL(out, m, truncate_prompt_tokens);
    GET_OPTIONAL(out, m, time_limit_millis);
}

static enum ft_code decode_params(const Foretoken__V1__SamplingParams *m, struct ft_arena *arena,
                                  struct ft_wire_params *out, struct ft_err *err) {
    enum ft_code code = refuse_unknown(&m->base, "sampling_params", err);
    if (code == FT_OK)
        code = ft_pb_check_count("SamplingParams.stop_token_ids", m->n_stop_token_ids,
                                 FT_WIRE_LIST_MAX, err);
    if (code == FT_OK)
        code = ft_pb_check_count("SamplingParams.allowed_token_ids", m->n_allowed_token_ids,
                                 FT_WIRE_LIST_MAX, err);
    if (code == FT_OK)
        code = ft_pb_check_count("SamplingParams.banned_token_ids", m->n_banned_token_ids,
                                 FT_WIRE_LIST_MAX, err);
    if (code != FT_OK)
        return code;
    decode_optional_params(m, out);
    out->top_k = m->top_k;
    out->min_p = m->min_p;
    out->frequency_penalty = m->frequency_penalty;
    out->presence_penalty = m->presence_penalty;
    out->min_tokens = m->min_tokens;
    out->stop_token_ids = m->stop_token_ids;
    out->n_stop_token_ids = m->n_stop_token_ids;
    out->allowed_token_ids = m->allowed_token_ids;
    out->n_allowed_token_ids = m->n_allowed_token_ids;
    out->banned_token_ids = m->banned_token_ids;
    out->n_banned_token_ids = m->n_banned_token_ids;
    out->ignore_eos = m->ignore_eos;
    out->include_stop_str_in_output = m->include_stop_str_in_output;
    code = decode_stop(m, arena, out, err);
    return code != FT_OK ? code : decode_logit_bias(m, arena, out, err);
}

/* ---- speculative parameters ----------------------------------------------------------------- */

static void encode_spec(const struct ft_wire_generate *request, struct ft_buf *out) {
    Foretoken__V1__SpeculativeParams m = FORETOKEN__V1__SPECULATIVE_PARAMS__INIT;
    const struct ft_wire_spec *in = &request->spec;
    if (request->has_spec_enabled) {
        m.opt_enabled_case = FORETOKEN__V1__SPECULATIVE_PARAMS__OPT_ENABLED_ENABLED;
        m.enabled = request->spec_enabled;
    }
    SET_OPTIONAL(&m, SPECULATIVE_PARAMS, NUM_SPECULATIVE_TOKENS, num_speculative_tokens, request);
    SET_OPTIONAL(&m, SPECULATIVE_PARAMS, LENIENCE, lenience, in);
    SET_OPTIONAL(&m, SPECULATIVE_PARAMS, SYNTHETIC_ACCEPTANCE_LENGTH, synthetic_acceptance_length,
                 in);
    SET_OPTIONAL(&m, SPECULATIVE_PARAMS, DRAFT_TEMPERATURE, draft_temperature, in);
    SET_OPTIONAL(&m, SPECULATIVE_PARAMS, DRAFT_TOP_K, draft_top_k, in);
    SET_OPTIONAL(&m, SPECULATIVE_PARAMS, DRAFT_TOP_P, draft_top_p, in);
    m.drafter = FT_PB_BYTES(request->drafter);
    m.rejection_sample_method = FT_PB_BYTES(in->rejection_sample_method);
    m.n_synthetic_acceptance_rates = in->n_synthetic_acceptance_rates;
    m.synthetic_acceptance_rates = (float *)(uintptr_t)in->synthetic_acceptance_rates;
    struct ft_buf spec;
    ft_buf_init(&spec, 0);
    ft_pb_pack(&m.base, &spec);
    if (spec.len > 0 || spec.failed)
        ft_pb_pack_buf(&foretoken__v1__generate_request__descriptor, "speculative_params", &spec,
                       out);
}

static enum ft_code decode_spec(const Foretoken__V1__SpeculativeParams *m,
                                struct ft_wire_generate *request, struct ft_err *err) {
    struct ft_wire_spec *out = &request->spec;
    if (m->opt_enabled_case != 0) {
        request->has_spec_enabled = true;
        request->spec_enabled = m->enabled;
    }
    GET_OPTIONAL(request, m, num_speculative_tokens);
    GET_OPTIONAL(out, m, lenience);
    GET_OPTIONAL(out, m, synthetic_acceptance_length);
    GET_OPTIONAL(out, m, draft_temperature);
    GET_OPTIONAL(out, m, draft_top_k);
    GET_OPTIONAL(out, m, draft_top_p);
    request->drafter = FT_PB_STR(m->drafter);
    out->rejection_sample_method = FT_PB_STR(m->rejection_sample_method);
    out->synthetic_acceptance_rates = m->synthetic_acceptance_rates;
    out->n_synthetic_acceptance_rates = m->n_synthetic_acceptance_rates;
    return ft_pb_check_count("SpeculativeParams.synthetic_acceptance_rates",
                             m->n_synthetic_acceptance_rates, FT_WIRE_LIST_MAX, err);
}

/* ---- GenerateRequest ------------------------------------------------------------------------ */

void ft_wire_encode_generate(const struct ft_wire_generate *in, struct ft_buf *out) {
    Foretoken__V1__GenerateRequest m = FORETOKEN__V1__GENERATE_REQUEST__INIT;
    m.request_id = FT_PB_BYTES(in->request_id);
    m.stream = in->stream;
    m.return_prompt_token_ids = in->return_prompt_token_ids;
    SET_OPTIONAL(&m, GENERATE_REQUEST, PARSE_SPECIAL, parse_special, in);
    SET_OPTIONAL(&m, GENERATE_REQUEST, ADD_SPECIAL_TOKENS, add_special_tokens, in);
    m.priority = in->priority;
    ft_pb_pack(&m.base, out);
    encode_prompt(&foretoken__v1__generate_request__descriptor, &in->input, out);
    encode_params(&in->params, out);
    encode_spec(in, out);
}

enum ft_code ft_wire_decode_generate(struct ft_str in, struct ft_arena *arena,
                                     struct ft_wire_generate *out, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__v1__generate_request__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__V1__GenerateRequest *m = raw;
    struct ft_wire_generate made = {.request_id = FT_PB_STR(m->request_id),
                                    .stream = m->stream,
                                    .return_prompt_token_ids = m->return_prompt_token_ids};
    if (ft_utf8_valid_prefix(made.request_id) != made.request_id.len)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "GenerateRequest.request_id is not valid UTF-8");
    code = refuse_unknown(&m->base, "the request", err);
    if (code == FT_OK && m->speculative_params != NULL)
        code = refuse_unknown(&m->speculative_params->base, "speculative_params", err);
    if (code == FT_OK)
        code = decode_prompt(m, arena, &made.input, err);
    if (code == FT_OK && m->sampling_params != NULL)
        code = decode_params(m->sampling_params, arena, &made.params, err);
    if (code == FT_OK && m->speculative_params != NULL)
        code = decode_spec(m->speculative_params, &made, err);
    if (code != FT_OK)
        return code;
    GET_OPTIONAL(&made, m, parse_special);
    GET_OPTIONAL(&made, m, add_special_tokens);
    made.priority = m->priority;
    *out = made;
    return FT_OK;
}

/* ---- TokenizeRequest, DetokenizeRequest ----------------------------------------------------- */

void ft_wire_encode_tokenize(const struct ft_wire_tokenize *in, struct ft_buf *out) {
    FT_ASSERT(in->input.kind != FT_WIRE_INPUT_IDS);
    Foretoken__V1__TokenizeRequest m = FORETOKEN__V1__TOKENIZE_REQUEST__INIT;
    SET_OPTIONAL(&m, TOKENIZE_REQUEST, PARSE_SPECIAL, parse_special, in);
    SET_OPTIONAL(&m, TOKENIZE_REQUEST, ADD_SPECIAL_TOKENS, add_special_tokens, in);
    ft_pb_pack(&m.base, out);
    encode_prompt(&foretoken__v1__tokenize_request__descriptor, &in->input, out);
}

enum ft_code ft_wire_decode_tokenize(struct ft_str in, struct ft_arena *arena,
                                     struct ft_wire_tokenize *out, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__v1__tokenize_request__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__V1__TokenizeRequest *m = raw;
    struct ft_wire_tokenize made = {.input = {.kind = FT_WIRE_INPUT_NONE}};
    if (m->input_case == FORETOKEN__V1__TOKENIZE_REQUEST__INPUT_TEXT)
        made.input = text_prompt(m->text);
    if (m->input_case == FORETOKEN__V1__TOKENIZE_REQUEST__INPUT_CHAT)
        code = decode_chat(m->chat, arena, &made.input, err);
    if (code != FT_OK)
        return code;
    GET_OPTIONAL(&made, m, parse_special);
    GET_OPTIONAL(&made, m, add_special_tokens);
    *out = made;
    return FT_OK;
}

void ft_wire_encode_detokenize(const struct ft_wire_detokenize *in, struct ft_buf *out) {
    Foretoken__V1__DetokenizeRequest m = FORETOKEN__V1__DETOKENIZE_REQUEST__INIT;
    m.n_token_ids = in->n_ids;
    m.token_ids = (int32_t *)(uintptr_t)in->ids;
    SET_OPTIONAL(&m, DETOKENIZE_REQUEST, SKIP_SPECIAL_TOKENS, skip_special_tokens, in);
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_detokenize(struct ft_str in, struct ft_arena *arena,
                                       struct ft_wire_detokenize *out, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__v1__detokenize_request__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__V1__DetokenizeRequest *m = raw;
    code =
        ft_pb_check_count("DetokenizeRequest.token_ids", m->n_token_ids, FT_WIRE_TOKENS_MAX, err);
    if (code != FT_OK)
        return code;
    *out = (struct ft_wire_detokenize){.ids = m->token_ids, .n_ids = m->n_token_ids};
    GET_OPTIONAL(out, m, skip_special_tokens);
    return FT_OK;
}
