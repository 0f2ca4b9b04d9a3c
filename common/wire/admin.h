/* admin (wire): messages of foretoken.v1.Admin as plain structs.
 * Owns:    nothing; decoded messages live in the arena that was passed in.
 * Runs in: coordinator, foretokenctl.
 * Never:   lets a protobuf-c type out. */
#ifndef FT_WIRE_ADMIN_H
#define FT_WIRE_ADMIN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/sampling.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FT_WIRE_ADMIN_SERVICE "/foretoken.v1.Admin/"

struct ft_wire_worker_state { /* WorkerStats */
    bool up;
    uint64_t epoch, restarts, steps, step_tokens;
    double step_seconds;
    uint64_t kv_blocks_total, kv_blocks_free, kv_blocks_cached;
    uint32_t sequences;
    uint64_t resident_bytes;
    struct ft_str model, trouble;
    double up_seconds;
};

#define FT_WIRE_DRAFTERS_MAX 16

struct ft_wire_drafter { /* DrafterStats */
    struct ft_str name;
    uint64_t num_drafts, num_draft_tokens, num_accepted_tokens;
};

struct ft_wire_percentiles { /* Percentiles */
    uint64_t count;
    double p50, p90, p99;
};

struct ft_wire_stats { /* GetStatsResponse; field names as in admin.proto */
    struct ft_str version;
    double uptime_seconds;
    uint32_t num_requests_running, num_requests_waiting;
    uint64_t num_requests_finished, num_requests_failed, num_requests_cancelled;
    uint64_t prompt_tokens_total, generation_tokens_total, rounds_total;
    uint64_t num_drafts_total, num_draft_tokens_total, num_accepted_tokens_total;
    uint64_t accepted_per_pos[FT_DRAFT_LEN_MAX];
    size_t n_pos;
    uint64_t residual_draws_total, plain_steps_total, nan_rows_total, num_preemptions_total;
    struct ft_str speculation, speculation_reason;
    double round_p50_us, draft_step_p50_us, target_step_p50_us, host_p50_us, accept_p50_us;
    double draft_length_mean, believed_plain_us, believed_draft_us, believed_acceptance;
    struct ft_str state, state_reason, drafter, num_speculative_tokens, rejection_sample_method;
    struct ft_str log_level;
    struct ft_wire_drafter drafters[FT_WIRE_DRAFTERS_MAX];
    size_t n_drafters;
    struct ft_wire_percentiles time_to_first_token_seconds, inter_token_latency_seconds;
    struct ft_wire_percentiles e2e_request_latency_seconds;
    uint64_t draft_fallback_rounds_total;
    struct ft_wire_worker_state target;
    bool has_draft;
    struct ft_wire_worker_state draft;
};

void ft_wire_encode_stats(const struct ft_wire_stats *in, struct ft_buf *out);
enum ft_code ft_wire_decode_stats(struct ft_str in, struct ft_arena *arena,
                                  struct ft_wire_stats *out, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
