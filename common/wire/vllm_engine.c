#include "common/wire/vllm_engine.h"

#include "common/wire/pb.h"
#include "vllm/grpc/engine/vllm_engine.pb-c.h"

#define MODULE "wire"
#define RESPONSE (&vllm__grpc__engine__generate_response__descriptor)

static enum ft_code unsupported(const char *field, struct ft_err *err) {
    return ft_err_set(err, FT_E_REQ_UNSUPPORTED, MODULE, "%s is not supported", field);
}

/* ---- Generate, in ---------------------------------------------------------------------------- */

static enum ft_code check_request(const Vllm__Grpc__Engine__GenerateRequest *m,
                                  struct ft_err *err) {
    if (m->kv_transfer_params != NULL)
        return unsupported("kv_transfer_params", err);
    if (m->mm_inputs != NULL)
        return unsupported("mm_inputs", err);
    if (m->n_extra_mm_inputs != 0)
        return unsupported("extra_mm_inputs", err);
    if (m->opt_kv_transfer_params_json_case != 0)
        return unsupported("kv_transfer_params_json", err);
    if (m->media_refs != NULL)
        return unsupported("media_refs", err);
    if (m->opt_data_parallel_rank_case != 0 && m->data_parallel_rank != 0)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "data_parallel_rank is %d: there is one rank, 0", m->data_parallel_rank);
    return FT_OK;
}

static enum ft_code check_params(const Vllm__Grpc__Engine__SamplingParams *m, struct ft_err *err) {
    static const char *const constraints[] = {"json_schema",    "regex",       "grammar",
                                              "structural_tag", "json_object", "choice"};
    unsigned constraint = (unsigned)m->constraint_case;
    if (constraint >= 16 && constraint <= 21)
        return unsupported(constraints[constraint - 16], err);
    if (m->opt_logprobs_case != 0 && m->logprobs == -1)
        return unsupported("logprobs -1, which is all of the vocabulary,", err);
    if (m->opt_prompt_logprobs_case != 0 && m->prompt_logprobs == -1)
        return unsupported("prompt_logprobs -1, which is all of the vocabulary,", err);
    if (m->opt_truncate_prompt_tokens_case != 0 && m->truncate_prompt_tokens < -1)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "truncate_prompt_tokens is %d: must be -1 or a number of tokens",
                          m->truncate_prompt_tokens);
    enum ft_code code = ft_pb_check_count("stop", m->n_stop, FT_WIRE_LIST_MAX, err);
    if (code == FT_OK)
        code = ft_pb_check_count("stop_token_ids", m->n_stop_token_ids, FT_WIRE_LIST_MAX, err);
    if (code == FT_OK)
        code = ft_pb_check_count("logit_bias", m->n_logit_bias, FT_WIRE_LIST_MAX, err);
    return code;
}

static enum ft_code take_lists(const Vllm__Grpc__Engine__SamplingParams *m, struct ft_arena *arena,
                               struct ft_wire_params *out, struct ft_err *err) {
    struct ft_str *stop = ft_arena_calloc(arena, m->n_stop, sizeof *stop);
    struct ft_bias *bias = ft_arena_calloc(arena, m->n_logit_bias, sizeof *bias);
    if (stop == NULL || bias == NULL)
        return ft_pb_arena_full("SamplingParams", err);
    for (size_t i = 0; i < m->n_stop; i++)
        stop[i] = FT_PB_STR(m->stop[i]);
    for (size_t i = 0; i < m->n_logit_bias; i++)
        bias[i] = (struct ft_bias){m->logit_bias[i]->key, m->logit_bias[i]->value};
    out->stop = stop;
    out->n_stop = m->n_stop;
    out->logit_bias = bias;
    out->n_logit_bias = m->n_logit_bias;
    out->stop_token_ids = (const int32_t *)m->stop_token_ids; /* past INT32_MAX: negative, no id */
    out->n_stop_token_ids = m->n_stop_token_ids;
    return FT_OK;
}

/* What 0 means there, not set means here. */
static void take_numbers(const Vllm__Grpc__Engine__SamplingParams *m, struct ft_wire_params *out) {
    out->has_temperature = m->opt_temperature_case != 0;
    out->temperature = m->temperature;
    out->has_top_p = m->top_p != 0.0f;
    out->top_p = m->top_p;
    out->top_k = m->top_k > INT32_MAX ? INT32_MAX : (int32_t)m->top_k;
    out->min_p = m->min_p;
    out->frequency_penalty = m->frequency_penalty;
    out->presence_penalty = m->presence_penalty;
    out->has_repetition_penalty = m->repetition_penalty != 0.0f;
    out->repetition_penalty = m->repetition_penalty;
    out->has_max_tokens = m->opt_max_tokens_case != 0;
    out->max_tokens = m->max_tokens;
    out->min_tokens = m->min_tokens;
    out->has_skip_special_tokens = true;
    out->skip_special_tokens = m->skip_special_tokens;
    out->ignore_eos = m->ignore_eos;
    out->include_stop_str_in_output = m->include_stop_str_in_output;
    out->has_n = m->n != 0;
    out->n = m->n;
    out->has_logprobs = m->opt_logprobs_case != 0;
    out->logprobs = m->logprobs;
    out->has_prompt_logprobs = m->opt_prompt_logprobs_case != 0;
    out->prompt_logprobs = m->prompt_logprobs;
    out->has_seed = m->opt_seed_case != 0;
    out->seed = (uint64_t)(int64_t)m->seed;
    out->has_truncate_prompt_tokens = m->opt_truncate_prompt_tokens_case != 0;
    out->truncate_prompt_tokens = m->truncate_prompt_tokens == -1
                                      ? FT_WIRE_VLLM_TRUNCATE_TO_MODEL
                                      : (uint32_t)m->truncate_prompt_tokens;
}

static enum ft_code take_input(const Vllm__Grpc__Engine__GenerateRequest *m,
                               struct ft_wire_prompt *out, struct ft_err *err) {
    switch (m->input_case) {
    case VLLM__GRPC__ENGINE__GENERATE_REQUEST__INPUT_TOKENIZED:
        *out = (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_IDS,
                                       .ids = (const int32_t *)m->tokenized->input_ids,
                                       .n_ids = m->tokenized->n_input_ids};
        return ft_pb_check_count("tokenized.input_ids", out->n_ids, FT_WIRE_TOKENS_MAX, err);
    case VLLM__GRPC__ENGINE__GENERATE_REQUEST__INPUT_TEXT:
        *out = (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_TEXT, .text = FT_PB_STR(m->text)};
        return FT_OK;
    default:
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "no input: set tokenized or text");
    }
}

enum ft_code ft_wire_decode_vllm_generate(struct ft_str in, struct ft_arena *arena,
                                          struct ft_wire_generate *out, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&vllm__grpc__engine__generate_request__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Vllm__Grpc__Engine__GenerateRequest *m = raw;
    struct ft_wire_generate made = {
        .request_id = FT_PB_STR(m->request_id),
        .stream = m->stream,
        .vllm = true,
    };
    if (ft_utf8_valid_prefix(made.request_id) != made.request_id.len)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "request_id is not valid UTF-8");
    code = check_request(m, err);
    if (code == FT_OK)
        code = take_input(m, &made.input, err);
    static const Vllm__Grpc__Engine__SamplingParams defaults =
        VLLM__GRPC__ENGINE__SAMPLING_PARAMS__INIT;
    const Vllm__Grpc__Engine__SamplingParams *params =
        m->sampling_params != NULL ? m->sampling_params : &defaults;
    if (code == FT_OK)
        code = check_params(params, err);
    if (code == FT_OK)
        code = take_lists(params, arena, &made.params, err);
    if (code != FT_OK)
        return code;
    take_numbers(params, &made.params);
    *out = made;
    return FT_OK;
}

/* ---- Generate, out --------------------------------------------------------------------------- */

static void pack_top(const struct ProtobufCMessageDescriptor *parent, const struct ft_logprobs *row,
                     struct ft_buf *out) {
    Vllm__Grpc__Engine__TopLogProbs m = VLLM__GRPC__ENGINE__TOP_LOG_PROBS__INIT;
    if (row != NULL) {
        m.n_values = m.n_token_ids = (size_t)row->n_top;
        m.values = (float *)(uintptr_t)row->values;
        m.token_ids = (uint32_t *)(uintptr_t)row->ids;
    }
    ft_pb_pack_message(parent, "top_logprobs", &m.base, out);
}

/* A list of floats that lie apart: packed by hand, as the bytes of a length-delimited field. */
static void pack_output_logprobs(const struct ProtobufCMessageDescriptor *parent,
                                 const struct ft_wire_vllm_output *in, struct ft_buf *out) {
    const struct ProtobufCMessageDescriptor *type =
        &vllm__grpc__engine__output_log_probs__descriptor;
    struct ft_buf part, floats;
    if (in->n_logprobs == 0)
        return;
    ft_buf_init(&part, 0);
    ft_buf_init(&floats, 0);
    for (size_t i = 0; i < in->n_logprobs; i++)
        ft_buf_add(&floats, &in->logprobs[i].token_logprob, sizeof(float));
    ft_pb_pack_buf(type, "token_logprobs", &floats, &part);
    Vllm__Grpc__Engine__OutputLogProbs m = VLLM__GRPC__ENGINE__OUTPUT_LOG_PROBS__INIT;
    m.n_token_ids = in->n_logprobs;
    m.token_ids = (uint32_t *)(uintptr_t)(in->ids + (in->n_ids - in->n_logprobs));
    ft_pb_pack(&m.base, &part);
    for (size_t i = 0; i < in->n_logprobs; i++)
        pack_top(type, &in->logprobs[i], &part);
    ft_pb_pack_buf(parent, "output_logprobs", &part, out);
}

static void pack_input_logprobs(const struct ProtobufCMessageDescriptor *parent,
                                const struct ft_wire_vllm_output *in, struct ft_buf *out) {
    const struct ProtobufCMessageDescriptor *type =
        &vllm__grpc__engine__input_log_probs__descriptor;
    struct ft_buf part;
    if (!in->has_prompt_logprobs)
        return;
    ft_buf_init(&part, 0);
    Vllm__Grpc__Engine__InputLogProbs ids = VLLM__GRPC__ENGINE__INPUT_LOG_PROBS__INIT;
    ids.n_token_ids = in->n_prompt_logprobs + 1;
    ids.token_ids = (uint32_t *)(uintptr_t)in->prompt_ids;
    ft_pb_pack(&ids.base, &part);
    for (size_t i = 0; i <= in->n_prompt_logprobs; i++) { /* nothing comes before the first */
        const struct ft_logprobs *row = i > 0 ? &in->prompt_logprobs[i - 1] : NULL;
        Vllm__Grpc__Engine__InputTokenLogProb m = VLLM__GRPC__ENGINE__INPUT_TOKEN_LOG_PROB__INIT;
        if (row != NULL) {
            m.opt_value_case = VLLM__GRPC__ENGINE__INPUT_TOKEN_LOG_PROB__OPT_VALUE_VALUE;
            m.value = row->token_logprob;
        }
        ft_pb_pack_message(type, "token_logprobs", &m.base, &part);
        pack_top(type, row, &part);
    }
    ft_pb_pack_buf(parent, "input_logprobs", &part, out);
}

static void pack_logprobs(const struct ProtobufCMessageDescriptor *parent,
                          const struct ft_wire_vllm_output *in, struct ft_buf *out) {
    pack_output_logprobs(parent, in, out);
    pack_input_logprobs(parent, in, out);
}

void ft_wire_encode_vllm_chunk(const struct ft_wire_vllm_output *in, struct ft_buf *out) {
    Vllm__Grpc__Engine__GenerateStreamChunk m = VLLM__GRPC__ENGINE__GENERATE_STREAM_CHUNK__INIT;
    struct ft_buf part;
    m.n_token_ids = in->n_ids;
    m.token_ids = (uint32_t *)(uintptr_t)in->ids;
    m.prompt_tokens = in->prompt_tokens;
    m.completion_tokens = in->completion_tokens;
    m.cached_tokens = in->cached_tokens;
    m.index = in->index;
    ft_buf_init(&part, 0);
    ft_pb_pack(&m.base, &part);
    pack_logprobs(&vllm__grpc__engine__generate_stream_chunk__descriptor, in, &part);
    ft_pb_pack_buf(RESPONSE, "chunk", &part, out);
}

void ft_wire_encode_vllm_complete(const struct ft_wire_vllm_output *in, struct ft_buf *out) {
    Vllm__Grpc__Engine__GenerateComplete m = VLLM__GRPC__ENGINE__GENERATE_COMPLETE__INIT;
    struct ft_buf part;
    m.n_output_ids = in->n_ids;
    m.output_ids = (uint32_t *)(uintptr_t)in->ids;
    m.finish_reason = FT_PB_BYTES(ft_str_c(ft_wire_finish_name(in->finish)));
    m.prompt_tokens = in->prompt_tokens;
    m.completion_tokens = in->completion_tokens;
    m.cached_tokens = in->cached_tokens;
    m.index = in->index;
    if (in->has_matched_token) {
        m.matched_stop_case = VLLM__GRPC__ENGINE__GENERATE_COMPLETE__MATCHED_STOP_MATCHED_TOKEN_ID;
        m.matched_token_id = (uint32_t)in->matched_token_id;
    } else if (in->has_matched_str) {
        m.matched_stop_case = VLLM__GRPC__ENGINE__GENERATE_COMPLETE__MATCHED_STOP_MATCHED_STOP_STR;
        m.matched_stop_str = FT_PB_BYTES(in->matched_stop_str);
    }
    m.spec_accepted_tokens = in->spec_accepted;
    m.spec_draft_tokens = in->spec_drafted;
    ft_buf_init(&part, 0);
    ft_pb_pack(&m.base, &part);
    pack_logprobs(&vllm__grpc__engine__generate_complete__descriptor, in, &part);
    ft_pb_pack_buf(RESPONSE, "complete", &part, out);
}

/* ---- the rest -------------------------------------------------------------------------------- */

void ft_wire_encode_vllm_health(bool healthy, struct ft_str message, struct ft_buf *out) {
    Vllm__Grpc__Engine__HealthCheckResponse m = VLLM__GRPC__ENGINE__HEALTH_CHECK_RESPONSE__INIT;
    m.healthy = healthy;
    m.message = FT_PB_BYTES(message);
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_vllm_abort(struct ft_str in, struct ft_arena *arena,
                                       const struct ft_str **ids, size_t *n, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&vllm__grpc__engine__abort_request__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Vllm__Grpc__Engine__AbortRequest *m = raw;
    code = ft_pb_check_count("request_ids", m->n_request_ids, FT_WIRE_LIST_MAX, err);
    if (code != FT_OK)
        return code;
    struct ft_str *made = ft_arena_calloc(arena, m->n_request_ids, sizeof *made);
    if (made == NULL)
        return ft_pb_arena_full("AbortRequest", err);
    for (size_t i = 0; i < m->n_request_ids; i++)
        made[i] = FT_PB_STR(m->request_ids[i]);
    *ids = made;
    *n = m->n_request_ids;
    return FT_OK;
}

/* "LlamaForCausalLM" -> "llama", as the config.json of such a model has it. */
static struct ft_str model_type(struct ft_str architecture, char out[64]) {
    static const char suffix[] = "ForCausalLM";
    size_t n = architecture.len < 63 ? architecture.len : 63;
    size_t end = sizeof suffix - 1;
    if (n > end && memcmp(architecture.ptr + n - end, suffix, end) == 0)
        n -= end;
    for (size_t i = 0; i < n; i++) {
        char c = architecture.ptr[i];
        out[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    return (struct ft_str){out, n};
}

void ft_wire_encode_vllm_model(const struct ft_wire_vllm_model *in, struct ft_buf *out) {
    Vllm__Grpc__Engine__GetModelInfoResponse m = VLLM__GRPC__ENGINE__GET_MODEL_INFO_RESPONSE__INIT;
    char type[64];
    m.model_path = FT_PB_BYTES(in->path);
    m.is_generation = true;
    m.max_context_length = in->max_model_len;
    m.vocab_size = in->vocab_size;
    m.served_model_name = FT_PB_BYTES(in->name);
    m.tokenizer_path = FT_PB_BYTES(in->tokenizer_path);
    m.model_type = FT_PB_BYTES(model_type(in->architecture, type));
    m.n_eos_token_ids = in->n_eos_ids;
    m.eos_token_ids = (int32_t *)(uintptr_t)in->eos_ids;
    m.pad_token_id = m.bos_token_id = -1;
    m.max_req_input_len = (int32_t)in->max_model_len - 1;
    ft_pb_pack(&m.base, out);
    ft_pb_pack_bytes(&vllm__grpc__engine__get_model_info_response__descriptor, "architectures",
                     in->architecture, out);
}

void ft_wire_encode_vllm_server(const struct ft_wire_vllm_server *in, struct ft_buf *out) {
    Vllm__Grpc__Engine__GetServerInfoResponse m =
        VLLM__GRPC__ENGINE__GET_SERVER_INFO_RESPONSE__INIT;
    m.active_requests = in->active_requests;
    m.is_paused = in->paused;
    m.last_receive_timestamp = in->last_receive_s;
    m.uptime_seconds = in->uptime_s;
    m.server_type = FT_PB_BYTES(ft_str_c("vllm-grpc"));
    m.data_parallel_size = 1;
    m.kv_cache_dtype = FT_PB_BYTES(ft_str_c("auto"));
    m.block_size = (int32_t)in->block_tokens;
    m.model_dtype = FT_PB_BYTES(in->model_dtype);
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_vllm_loads(struct ft_str in, struct ft_arena *arena,
                                       struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&vllm__grpc__engine__get_loads_request__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Vllm__Grpc__Engine__GetLoadsRequest *m = raw;
    if (m->opt_dp_rank_case != 0 && m->dp_rank != 0)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "dp_rank is %d: there is one rank, 0",
                          m->dp_rank);
    return FT_OK;
}

static int32_t clamp(int64_t n) {
    return n > INT32_MAX ? INT32_MAX : (int32_t)n;
}

void ft_wire_encode_vllm_load(const struct ft_wire_vllm_load *in, struct ft_buf *out) {
    Vllm__Grpc__Engine__GetLoadsResponse m = VLLM__GRPC__ENGINE__GET_LOADS_RESPONSE__INIT;
    Vllm__Grpc__Engine__SchedulerLoad load = VLLM__GRPC__ENGINE__SCHEDULER_LOAD__INIT;
    m.timestamp = FT_PB_BYTES(in->timestamp);
    m.version = FT_PB_BYTES(in->version);
    m.dp_rank_count = 1;
    load.num_running_reqs = in->running;
    load.num_waiting_reqs = in->waiting;
    load.num_total_reqs = in->running + in->waiting;
    load.num_used_tokens = clamp(in->used_tokens);
    load.max_total_num_tokens = clamp(in->max_tokens);
    if (in->max_tokens > 0)
        load.token_usage = (double)in->used_tokens / (double)in->max_tokens;
    if (in->max_running > 0)
        load.utilization = (double)in->running / in->max_running;
    load.max_running_requests = in->max_running;
    ft_pb_pack(&m.base, out);
    ft_pb_pack_message(&vllm__grpc__engine__get_loads_response__descriptor, "loads", &load.base,
                       out);
}
