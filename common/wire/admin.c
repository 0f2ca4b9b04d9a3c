#include "common/wire/admin.h"

#include "common/wire/pb.h"
#include "foretoken/v1/admin.pb-c.h"

#define MODULE "wire"

static Foretoken__V1__WorkerStats worker_message(const struct ft_wire_worker_state *in) {
    Foretoken__V1__WorkerStats m = FORETOKEN__V1__WORKER_STATS__INIT;
    m.up = in->up;
    m.epoch = in->epoch;
    m.restarts = in->restarts;
    m.steps = in->steps;
    m.step_tokens = in->step_tokens;
    m.step_seconds = in->step_seconds;
    m.kv_blocks_total = in->kv_blocks_total;
    m.kv_blocks_free = in->kv_blocks_free;
    m.kv_blocks_cached = in->kv_blocks_cached;
    m.sequences = in->sequences;
    m.resident_bytes = in->resident_bytes;
    m.model = FT_PB_BYTES(in->model);
    m.trouble = FT_PB_BYTES(in->trouble);
    m.up_seconds = in->up_seconds;
    return m;
}

static Foretoken__V1__Percentiles percentiles_message(const struct ft_wire_percentiles *in) {
    Foretoken__V1__Percentiles m = FORETOKEN__V1__PERCENTILES__INIT;
    m.count = in->count;
    m.p50 = in->p50;
    m.p90 = in->p90;
    m.p99 = in->p99;
    return m;
}

static struct ft_wire_percentiles decode_percentiles(const Foretoken__V1__Percentiles *m) {
    if (m == NULL)
        return (struct ft_wire_percentiles){0};
    return (struct ft_wire_percentiles){m->count, m->p50, m->p90, m->p99};
}

static void pack_drafters(const struct ft_wire_stats *in, struct ft_buf *out) {
    for (size_t i = 0; i < in->n_drafters; i++) {
        Foretoken__V1__DrafterStats m = FORETOKEN__V1__DRAFTER_STATS__INIT;
        m.name = FT_PB_BYTES(in->drafters[i].name);
        m.num_drafts = in->drafters[i].num_drafts;
        m.num_draft_tokens = in->drafters[i].num_draft_tokens;
        m.num_accepted_tokens = in->drafters[i].num_accepted_tokens;
        ft_pb_pack_message(&foretoken__v1__get_stats_response__descriptor, "drafters", &m.base,
                           out);
    }
}

void ft_wire_encode_stats(const struct ft_wire_stats *in, struct ft_buf *out) {
    Foretoken__V1__GetStatsResponse m = FORETOKEN__V1__GET_STATS_RESPONSE__INIT;
    Foretoken__V1__WorkerStats target = worker_message(&in->target);
    Foretoken__V1__WorkerStats draft = worker_message(&in->draft);
    Foretoken__V1__Percentiles ttft = percentiles_message(&in->time_to_first_token_seconds);
    Foretoken__V1__Percentiles itl = percentiles_message(&in->inter_token_latency_seconds);
    Foretoken__V1__Percentiles e2e = percentiles_message(&in->e2e_request_latency_seconds);
    FT_ASSERT(in->n_pos <= FT_DRAFT_LEN_MAX && in->n_drafters <= FT_WIRE_DRAFTERS_MAX);
    m.version = FT_PB_BYTES(in->version);
    m.uptime_seconds = in->uptime_seconds;
    m.num_requests_running = in->num_requests_running;
    m.num_requests_waiting = in->num_requests_waiting;
    m.num_requests_finished = in->num_requests_finished;
    m.num_requests_failed = in->num_requests_failed;
    m.num_requests_cancelled = in->num_requests_cancelled;
    m.prompt_tokens_total = in->prompt_tokens_total;
    m.generation_tokens_total = in->generation_tokens_total;
    m.rounds_total = in->rounds_total;
    m.num_drafts_total = in->num_drafts_total;
    m.num_draft_tokens_total = in->num_draft_tokens_total;
    m.num_accepted_tokens_total = in->num_accepted_tokens_total;
    m.n_num_accepted_tokens_per_pos = in->n_pos;
    m.num_accepted_tokens_per_pos = (uint64_t *)(uintptr_t)in->accepted_per_pos;
    m.residual_draws_total = in->residual_draws_total;
    m.plain_steps_total = in->plain_steps_total;
    m.nan_rows_total = in->nan_rows_total;
    m.num_preemptions_total = in->num_preemptions_total;
    m.speculation = FT_PB_BYTES(in->speculation);
    m.speculation_reason = FT_PB_BYTES(in->speculation_reason);
    m.round_p50_us = in->round_p50_us;
    m.draft_step_p50_us = in->draft_step_p50_us;
    m.target_step_p50_us = in->target_step_p50_us;
    m.host_p50_us = in->host_p50_us;
    m.accept_p50_us = in->accept_p50_us;
    m.draft_length_mean = in->draft_length_mean;
    m.believed_plain_us = in->believed_plain_us;
    m.believed_draft_us = in->believed_draft_us;
    m.believed_acceptance = in->believed_acceptance;
    m.state = FT_PB_BYTES(in->state);
    m.state_reason = FT_PB_BYTES(in->state_reason);
    m.drafter = FT_PB_BYTES(in->drafter);
    m.num_speculative_tokens = FT_PB_BYTES(in->num_speculative_tokens);
    m.rejection_sample_method = FT_PB_BYTES(in->rejection_sample_method);
    m.log_level = FT_PB_BYTES(in->log_level);
    m.time_to_first_token_seconds = &ttft;
    m.inter_token_latency_seconds = &itl;
    m.e2e_request_latency_seconds = &e2e;
    m.draft_fallback_rounds_total = in->draft_fallback_rounds_total;
    m.target = &target;
    if (in->has_draft)
        m.draft = &draft;
    ft_pb_pack(&m.base, out);
    pack_drafters(in, out);
}

static struct ft_wire_worker_state decode_worker(const Foretoken__V1__WorkerStats *m) {
    return (struct ft_wire_worker_state){
        .up = m->up,
        .epoch = m->epoch,
        .restarts = m->restarts,
        .steps = m->steps,
        .step_tokens = m->step_tokens,
        .step_seconds = m->step_seconds,
        .kv_blocks_total = m->kv_blocks_total,
        .kv_blocks_free = m->kv_blocks_free,
        .kv_blocks_cached = m->kv_blocks_cached,
        .sequences = m->sequences,
        .resident_bytes = m->resident_bytes,
        .model = FT_PB_STR(m->model),
        .trouble = FT_PB_STR(m->trouble),
        .up_seconds = m->up_seconds,
    };
}

static struct ft_wire_stats decode_numbers(const Foretoken__V1__GetStatsResponse *m) {
    return (struct ft_wire_stats){
        .version = FT_PB_STR(m->version),
        .uptime_seconds = m->uptime_seconds,
        .num_requests_running = m->num_requests_running,
        .num_requests_waiting = m->num_requests_waiting,
        .num_requests_finished = m->num_requests_finished,
        .num_requests_failed = m->num_requests_failed,
        .num_requests_cancelled = m->num_requests_cancelled,
        .prompt_tokens_total = m->prompt_tokens_total,
        .generation_tokens_total = m->generation_tokens_total,
        .rounds_total = m->rounds_total,
        .num_drafts_total = m->num_drafts_total,
        .num_draft_tokens_total = m->num_draft_tokens_total,
        .num_accepted_tokens_total = m->num_accepted_tokens_total,
        .n_pos = m->n_num_accepted_tokens_per_pos,
        .residual_draws_total = m->residual_draws_total,
        .plain_steps_total = m->plain_steps_total,
        .nan_rows_total = m->nan_rows_total,
        .num_preemptions_total = m->num_preemptions_total,
        .speculation = FT_PB_STR(m->speculation),
        .speculation_reason = FT_PB_STR(m->speculation_reason),
        .round_p50_us = m->round_p50_us,
        .draft_step_p50_us = m->draft_step_p50_us,
        .target_step_p50_us = m->target_step_p50_us,
        .host_p50_us = m->host_p50_us,
        .accept_p50_us = m->accept_p50_us,
        .draft_length_mean = m->draft_length_mean,
        .believed_plain_us = m->believed_plain_us,
        .believed_draft_us = m->believed_draft_us,
        .believed_acceptance = m->believed_acceptance,
        .state = FT_PB_STR(m->state),
        .state_reason = FT_PB_STR(m->state_reason),
        .drafter = FT_PB_STR(m->drafter),
        .num_speculative_tokens = FT_PB_STR(m->num_speculative_tokens),
        .rejection_sample_method = FT_PB_STR(m->rejection_sample_method),
        .log_level = FT_PB_STR(m->log_level),
        .n_drafters = m->n_drafters,
        .time_to_first_token_seconds = decode_percentiles(m->time_to_first_token_seconds),
        .inter_token_latency_seconds = decode_percentiles(m->inter_token_latency_seconds),
        .e2e_request_latency_seconds = decode_percentiles(m->e2e_request_latency_seconds),
        .draft_fallback_rounds_total = m->draft_fallback_rounds_total,
    };
}

enum ft_code ft_wire_decode_stats(struct ft_str in, struct ft_arena *arena,
                                  struct ft_wire_stats *out, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__v1__get_stats_response__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__V1__GetStatsResponse *m = raw;
    code = ft_pb_check_count("GetStatsResponse.num_accepted_tokens_per_pos",
                             m->n_num_accepted_tokens_per_pos, FT_DRAFT_LEN_MAX, err);
    if (code != FT_OK)
        return code;
    code = ft_pb_check_count("GetStatsResponse.drafters", m->n_drafters, FT_WIRE_DRAFTERS_MAX, err);
    if (code != FT_OK)
        return code;
    if (m->target == NULL)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "GetStatsResponse has no target");
    *out = decode_numbers(m);
    for (size_t i = 0; i < out->n_pos; i++)
        out->accepted_per_pos[i] = m->num_accepted_tokens_per_pos[i];
    for (size_t i = 0; i < out->n_drafters; i++)
        out->drafters[i] = (struct ft_wire_drafter){
            FT_PB_STR(m->drafters[i]->name), m->drafters[i]->num_drafts,
            m->drafters[i]->num_draft_tokens, m->drafters[i]->num_accepted_tokens};
    out->target = decode_worker(m->target);
    out->has_draft = m->draft != NULL;
    if (m->draft != NULL)
        out->draft = decode_worker(m->draft);
    return FT_OK;
}
