/* vllm_engine (wire): messages of vllm.grpc.engine.VllmEngine, to and from the plain structs of
 * foretoken.v1.Inference.
 * Owns:    nothing; decoded messages live in the arena that was passed in.
 * Runs in: coordinator; any thread.
 * Never:   lets a protobuf-c type out; passes over a known field that is not supported. */
#ifndef FT_WIRE_VLLM_ENGINE_H
#define FT_WIRE_VLLM_ENGINE_H

#include "common/wire/inference.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FT_WIRE_VLLM_SERVICE "/vllm.grpc.engine.VllmEngine/"
#define FT_WIRE_VLLM_TRUNCATE_TO_MODEL UINT32_MAX /* truncate_prompt_tokens -1 */

/* fail  FT_E_REQ_INVALID; FT_E_REQ_UNSUPPORTED naming the field */
enum ft_code ft_wire_decode_vllm_generate(struct ft_str in, struct ft_arena *arena,
                                          struct ft_wire_generate *out, struct ft_err *err);

/* One output of a request, as far as it has come. */
struct ft_wire_vllm_output {
    const int32_t *ids; /* of a chunk the new ones, at the end all of them */
    size_t n_ids;
    const struct ft_logprobs *logprobs; /* [n_logprobs], of the last n_logprobs of ids */
    size_t n_logprobs;
    bool has_prompt_logprobs;
    const int32_t *prompt_ids;                 /* [n_prompt_logprobs + 1] */
    const struct ft_logprobs *prompt_logprobs; /* of prompt_ids[1] and up */
    size_t n_prompt_logprobs;
    uint32_t prompt_tokens, completion_tokens, cached_tokens, index;
    /* at the end */
    enum ft_wire_finish finish;
    bool has_matched_token, has_matched_str;
    int32_t matched_token_id;
    struct ft_str matched_stop_str;
    uint32_t spec_accepted, spec_drafted;
};
void ft_wire_encode_vllm_chunk(const struct ft_wire_vllm_output *in, struct ft_buf *out);
void ft_wire_encode_vllm_complete(const struct ft_wire_vllm_output *in, struct ft_buf *out);

void ft_wire_encode_vllm_health(bool healthy, struct ft_str message, struct ft_buf *out);
/* ids [*n] in the arena. */
enum ft_code ft_wire_decode_vllm_abort(struct ft_str in, struct ft_arena *arena,
                                       const struct ft_str **ids, size_t *n, struct ft_err *err);

struct ft_wire_vllm_model {
    struct ft_str path, name, tokenizer_path, architecture;
    uint32_t max_model_len, vocab_size;
    const int32_t *eos_ids;
    size_t n_eos_ids;
};
void ft_wire_encode_vllm_model(const struct ft_wire_vllm_model *in, struct ft_buf *out);

struct ft_wire_vllm_server {
    uint32_t active_requests;
    bool paused;
    double last_receive_s, uptime_s;
    uint32_t block_tokens;
    struct ft_str model_dtype;
};
void ft_wire_encode_vllm_server(const struct ft_wire_vllm_server *in, struct ft_buf *out);

struct ft_wire_vllm_load {
    struct ft_str timestamp, version;
    int32_t running, waiting, max_running;
    int64_t used_tokens, max_tokens;
};
/* fail FT_E_REQ_INVALID: another rank than 0 */
enum ft_code ft_wire_decode_vllm_loads(struct ft_str in, struct ft_arena *arena,
                                       struct ft_err *err);
void ft_wire_encode_vllm_load(const struct ft_wire_vllm_load *in, struct ft_buf *out);

#ifdef __cplusplus
}
#endif
#endif
