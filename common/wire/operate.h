/* operate (wire): what an operator asks and does, of foretoken.v1.Admin; statistics are admin.h's.
 * Owns:    nothing; decoded messages live in the arena that was passed in.
 * Runs in: coordinator, foretokenctl.
 * Never:   lets a protobuf-c type out. */
#ifndef FT_WIRE_OPERATE_H
#define FT_WIRE_OPERATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FT_WIRE_PARAMETERS_MAX 64 /* of one SetParameters */

struct ft_wire_service_health { /* Health */
    struct ft_str state, reason;
    double state_seconds;
    uint32_t num_requests_running, num_requests_waiting;
    bool target_up, has_draft, draft_up;
    struct ft_str target_trouble, draft_trouble;
};

struct ft_wire_request_info { /* RequestInfo */
    struct ft_str request_id, state, drafter, rejection_sample_method, client, fallback_reason;
    uint32_t index;
    double age_seconds;
    uint32_t prompt_tokens, output_tokens, max_tokens, num_speculative_tokens;
    uint64_t num_draft_tokens, num_accepted_tokens;
    int32_t priority;
};

struct ft_wire_parameter { /* Parameter */
    struct ft_str name, value;
};

struct ft_wire_draft_reloaded { /* ReloadDraftResponse */
    uint64_t epoch;
    double load_seconds;
};

/* Encoders append; check out->failed once. A list is its entries, appended one by one. */
void ft_wire_encode_service_health(const struct ft_wire_service_health *in, struct ft_buf *out);
void ft_wire_encode_listed_request(const struct ft_wire_request_info *in, struct ft_buf *out);
void ft_wire_encode_cancel(struct ft_str request_id, struct ft_buf *out);
void ft_wire_encode_cancelled(uint32_t n, struct ft_buf *out);
void ft_wire_encode_drain(struct ft_str reason, struct ft_buf *out);
/* Both of SetParametersRequest and of its response: one parameter of either. */
void ft_wire_encode_parameter(const struct ft_wire_parameter *in, struct ft_buf *out);
void ft_wire_encode_reload_draft(struct ft_str model_dir, struct ft_buf *out);
void ft_wire_encode_draft_reloaded(const struct ft_wire_draft_reloaded *in, struct ft_buf *out);

enum ft_code ft_wire_decode_service_health(struct ft_str in, struct ft_arena *arena,
                                           struct ft_wire_service_health *out, struct ft_err *err);
/* out   requests  [n_requests], in the arena */
enum ft_code ft_wire_decode_requests(struct ft_str in, struct ft_arena *arena,
                                     struct ft_wire_request_info **requests, size_t *n_requests,
                                     struct ft_err *err);
enum ft_code ft_wire_decode_cancel(struct ft_str in, struct ft_arena *arena,
                                   struct ft_str *request_id, struct ft_err *err);
enum ft_code ft_wire_decode_cancelled(struct ft_str in, struct ft_arena *arena, uint32_t *n,
                                      struct ft_err *err);
enum ft_code ft_wire_decode_drain(struct ft_str in, struct ft_arena *arena, struct ft_str *reason,
                                  struct ft_err *err);
/* Both of SetParametersRequest and of its response. out  list  at least FT_WIRE_PARAMETERS_MAX */
enum ft_code ft_wire_decode_parameters(struct ft_str in, struct ft_arena *arena,
                                       struct ft_wire_parameter *list, size_t *n,
                                       struct ft_err *err);
enum ft_code ft_wire_decode_reload_draft(struct ft_str in, struct ft_arena *arena,
                                         struct ft_str *model_dir, struct ft_err *err);
enum ft_code ft_wire_decode_draft_reloaded(struct ft_str in, struct ft_arena *arena,
                                           struct ft_wire_draft_reloaded *out, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
