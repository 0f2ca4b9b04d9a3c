/* inference (wire): messages of foretoken.v1.Inference as plain structs.
 * Owns:    nothing; decoded messages live in the arena that was passed in.
 * Runs in: coordinator, foretokenctl.
 * Never:   lets a protobuf-c type out; applies a default or a range check of meaning: has_* says
 *          what the client set, the coordinator validates. Decoders fail with FT_E_REQ_INVALID when
 *          the bytes are not such a message. */
#ifndef FT_WIRE_INFERENCE_H
#define FT_WIRE_INFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/sampling.h"
#include "common/wire/limits.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FT_WIRE_INFERENCE_SERVICE "/foretoken.v1.Inference/"

enum ft_wire_input {
    FT_WIRE_INPUT_NONE,
    FT_WIRE_INPUT_IDS,
    FT_WIRE_INPUT_TEXT,
    FT_WIRE_INPUT_CHAT
};

struct ft_wire_chat_message {
    struct ft_str role, content;
};

struct ft_wire_prompt {
    enum ft_wire_input kind;
    const int32_t *ids;
    size_t n_ids;
    struct ft_str text;
    const struct ft_wire_chat_message *messages;
    size_t n_messages;
};

struct ft_wire_params { /* SamplingParams */
    bool has_temperature, has_top_p, has_repetition_penalty, has_max_tokens,
        has_skip_special_tokens, has_n, has_logprobs, has_prompt_logprobs, has_seed,
        has_truncate_prompt_tokens, has_time_limit_millis;
    float temperature, top_p, min_p, frequency_penalty, presence_penalty, repetition_penalty;
    int32_t top_k;
    uint32_t max_tokens, min_tokens;
    const struct ft_str *stop;
    size_t n_stop;
    const int32_t *stop_token_ids;
    size_t n_stop_token_ids;
    bool skip_special_tokens, ignore_eos, include_stop_str_in_output;
    uint32_t n;
    int32_t logprobs, prompt_logprobs;
    uint64_t seed;
    const struct ft_bias *logit_bias; /* in the order of the message, repeated ids and all */
    size_t n_logit_bias;
    uint32_t truncate_prompt_tokens, time_limit_millis;
    const int32_t *allowed_token_ids, *banned_token_ids; /* in the order of the message */
    size_t n_allowed_token_ids, n_banned_token_ids;
};

struct ft_wire_spec { /* SpeculativeParams, but for what struct ft_wire_generate has of it */
    bool has_lenience, has_synthetic_acceptance_length, has_draft_temperature, has_draft_top_k,
        has_draft_top_p;
    struct ft_str rejection_sample_method; /* empty: not set; decoded: any bytes */
    float lenience, synthetic_acceptance_length;
    const float *synthetic_acceptance_rates;
    size_t n_synthetic_acceptance_rates;
    float draft_temperature, draft_top_p;
    int32_t draft_top_k;
};

struct ft_wire_generate {     /* GenerateRequest */
    struct ft_str request_id; /* decoded: valid UTF-8; other text is the coordinator's to check */
    struct ft_wire_prompt input;
    struct ft_wire_params params;
    bool stream, return_prompt_token_ids;
    bool has_spec_enabled, spec_enabled;
    bool has_num_speculative_tokens;
    uint32_t num_speculative_tokens;
    struct ft_wire_spec spec;
    struct ft_str drafter; /* empty: the service's */
    bool has_parse_special, parse_special;
    bool has_add_special_tokens, add_special_tokens;
    int32_t priority;
    bool vllm; /* made of a request of VllmEngine: fields have its names, and ids no sign */
};

enum ft_wire_finish {
    FT_WIRE_FINISH_NONE = 0,
    FT_WIRE_FINISH_STOP = 1,
    FT_WIRE_FINISH_LENGTH = 2,
    FT_WIRE_FINISH_TIME_LIMIT = 3,
    FT_WIRE_FINISH_ABORT = 4
};
const char *ft_wire_finish_name(enum ft_wire_finish finish); /* "stop", "length", ... */

struct ft_wire_usage {
    uint32_t prompt_tokens, completion_tokens, cached_tokens;
    double queue_seconds, first_token_seconds, total_seconds;
};

struct ft_wire_spec_stats {
    uint64_t num_drafts, num_draft_tokens, num_accepted_tokens, num_target_steps, num_plain_steps;
    uint64_t accepted_per_pos[FT_DRAFT_LEN_MAX], drafted_per_pos[FT_DRAFT_LEN_MAX];
    size_t n_pos; /* of both; decoded: of the longer, the other is filled up with 0 */
    bool lossy;
    struct ft_str fallback_reason;
};

struct ft_wire_generated { /* GenerateResponse */
    const int32_t *token_ids;
    size_t n_token_ids;
    struct ft_str text;
    enum ft_wire_finish finish;
    bool has_matched_token, has_matched_str;
    int32_t matched_token_id;
    struct ft_str matched_stop_str;
    bool has_usage;
    struct ft_wire_usage usage;
    bool has_speculative;
    struct ft_wire_spec_stats speculative;
    struct ft_str request_id;
    const struct ft_logprobs *logprobs, *prompt_logprobs;
    size_t n_logprobs, n_prompt_logprobs;
    const int32_t *prompt_token_ids;
    size_t n_prompt_token_ids;
    uint32_t index;
};

struct ft_wire_tokenize {        /* TokenizeRequest */
    struct ft_wire_prompt input; /* TEXT or CHAT */
    bool has_parse_special, parse_special;
    bool has_add_special_tokens, add_special_tokens;
};

struct ft_wire_ids { /* TokenizeResponse */
    const int32_t *ids;
    size_t n_ids;
};

struct ft_wire_detokenize { /* DetokenizeRequest */
    const int32_t *ids;
    size_t n_ids;
    bool has_skip_special_tokens, skip_special_tokens;
};

struct ft_wire_text { /* DetokenizeResponse */
    struct ft_str text;
};

struct ft_wire_model {
    struct ft_str name, architecture, dtype, backend, tokenizer_fingerprint; /* hex */
    uint32_t vocab_size, max_model_len;
    uint64_t n_parameters, weight_bytes;
};

struct ft_wire_model_info { /* GetModelInfoResponse */
    struct ft_wire_model target;
    bool has_draft;
    struct ft_wire_model draft;
    struct ft_str speculation, speculation_reason;
    uint32_t num_speculative_tokens;
    struct ft_str rejection_sample_method;
    uint32_t max_model_len;
    const int32_t *eos_token_ids;
    size_t n_eos_token_ids;
    struct ft_str chat_format, version;
};

void ft_wire_encode_generate(const struct ft_wire_generate *in, struct ft_buf *out);
void ft_wire_encode_generated(const struct ft_wire_generated *in, struct ft_buf *out);
void ft_wire_encode_tokenize(const struct ft_wire_tokenize *in, struct ft_buf *out);
void ft_wire_encode_ids(const struct ft_wire_ids *in, struct ft_buf *out);
void ft_wire_encode_detokenize(const struct ft_wire_detokenize *in, struct ft_buf *out);
void ft_wire_encode_text(const struct ft_wire_text *in, struct ft_buf *out);
void ft_wire_encode_model_info(const struct ft_wire_model_info *in, struct ft_buf *out);

enum ft_code ft_wire_decode_generate(struct ft_str in, struct ft_arena *arena,
                                     struct ft_wire_generate *out, struct ft_err *err);
enum ft_code ft_wire_decode_generated(struct ft_str in, struct ft_arena *arena,
                                      struct ft_wire_generated *out, struct ft_err *err);
enum ft_code ft_wire_decode_tokenize(struct ft_str in, struct ft_arena *arena,
                                     struct ft_wire_tokenize *out, struct ft_err *err);
enum ft_code ft_wire_decode_ids(struct ft_str in, struct ft_arena *arena, struct ft_wire_ids *out,
                                struct ft_err *err);
enum ft_code ft_wire_decode_detokenize(struct ft_str in, struct ft_arena *arena,
                                       struct ft_wire_detokenize *out, struct ft_err *err);
enum ft_code ft_wire_decode_text(struct ft_str in, struct ft_arena *arena, struct ft_wire_text *out,
                                 struct ft_err *err);
enum ft_code ft_wire_decode_model_info(struct ft_str in, struct ft_arena *arena,
                                       struct ft_wire_model_info *out, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
