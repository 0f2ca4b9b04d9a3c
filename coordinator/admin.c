/* admin: GetStats asks both workers and answers when both have, or have not in time. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/wire/admin.h"
#include "coordinator/answer.h"
#include "coordinator/service.h"

struct stats_query {
    struct co_app *app;
    struct ft_rpc_call *call; /* NULL once gone */
    int n_waiting;
    struct ft_wire_worker_state target, draft;
};

static void fill_worker(const struct co_peer *peer, const struct ft_wire_worker_stats *stats,
                        struct ft_wire_worker_state *out) {
    *out = (struct ft_wire_worker_state){
        .up = co_peer_up(peer),
        .restarts = co_peer_restarts(peer),
        .model = co_peer_describe(peer)->model_dir,
        .trouble = ft_str_c(co_peer_trouble(peer)),
        .up_seconds = (double)co_peer_up_ns(peer) * 1e-9,
    };
    if (stats == NULL)
        return;
    out->epoch = stats->epoch;
    out->steps = stats->steps;
    out->step_tokens = stats->step_tokens;
    out->step_seconds = (double)stats->step_nanos * 1e-9;
    out->kv_blocks_total = stats->kv_blocks_total;
    out->kv_blocks_free = stats->kv_blocks_free;
    out->kv_blocks_cached = stats->kv_blocks_cached;
    out->sequences = stats->sequences;
    out->resident_bytes = stats->resident_bytes;
}

static struct ft_wire_percentiles percentiles(const struct co_stats *stats,
                                              enum co_stats_histogram which) {
    return (struct ft_wire_percentiles){
        .count = stats->histograms[which].count,
        .p50 = co_stats_quantile(stats, which, 0.50),
        .p90 = co_stats_quantile(stats, which, 0.90),
        .p99 = co_stats_quantile(stats, which, 0.99),
    };
}

static void fill_drafters(const struct co_drafting *drafting, struct ft_wire_stats *out) {
    for (size_t i = 0; co_drafter_at(i) != NULL && out->n_drafters < FT_WIRE_DRAFTERS_MAX; i++) {
        const struct co_drafting_counts *counts = &drafting->counts[i];
        if (counts->drafts > 0)
            out->drafters[out->n_drafters++] =
                (struct ft_wire_drafter){ft_str_c(co_drafter_at(i)->name), counts->drafts,
                                         counts->drafted, counts->accepted};
    }
}

/* What is in force; lives as long as the app's config. */
static void fill_settings(const struct co_app *app, struct ft_wire_stats *out) {
    out->state = ft_str_c(co_readiness_name(app->readiness.state));
    out->state_reason = ft_str_c(app->readiness.reason);
    out->drafter = ft_str_c(app->config.drafter);
    out->num_speculative_tokens = ft_str_c(app->config.num_speculative_tokens);
    out->rejection_sample_method = ft_str_c(app->config.rejection_sample_method);
    out->log_level = ft_str_c(app->config.log_level);
}

static void fill_counters(const struct co_app *app, struct ft_wire_stats *out) {
    const struct co_stats *s = &app->stats;
    out->uptime_seconds = (double)(ft_clock_now_ns() - app->started_ns) * 1e-9;
    out->num_requests_running = (uint32_t)app->n_running;
    out->num_requests_waiting = (uint32_t)(app->n_queued + app->encoding.n_requests);
    out->num_requests_finished = s->finished;
    out->num_requests_failed = s->failed;
    out->num_requests_cancelled = s->cancelled;
    out->prompt_tokens_total = s->prompt_tokens;
    out->generation_tokens_total = s->generation_tokens;
    out->rounds_total = s->rounds;
    out->num_drafts_total = s->spec.drafts;
    out->num_draft_tokens_total = s->spec.drafted;
    out->num_accepted_tokens_total = s->spec.accepted;
    for (size_t i = 0; i < FT_DRAFT_LEN_MAX; i++) {
        out->accepted_per_pos[i] = s->spec.accepted_per_pos[i];
        if (s->spec.drafted_per_pos[i] != 0)
            out->n_pos = i + 1;
    }
    out->residual_draws_total = s->spec.residual_draws;
    out->plain_steps_total = s->spec.plain_steps;
    out->nan_rows_total = s->nan_rows;
    out->num_preemptions_total = s->preemptions;
    struct co_round_times t = co_stats_medians(s);
    out->round_p50_us = (double)t.round;
    out->draft_step_p50_us = (double)t.draft;
    out->target_step_p50_us = (double)t.target;
    out->host_p50_us = (double)t.host;
    out->accept_p50_us = (double)t.accept;
    out->draft_fallback_rounds_total = s->fallbacks;
    out->time_to_first_token_seconds = percentiles(s, CO_HISTOGRAM_TTFT);
    out->inter_token_latency_seconds = percentiles(s, CO_HISTOGRAM_ITL);
    out->e2e_request_latency_seconds = percentiles(s, CO_HISTOGRAM_E2E);
    const struct co_drafting *drafting = &app->drafting;
    if (drafting->drafter == NULL)
        return;
    fill_drafters(drafting, out);
    double alpha = co_length_alpha(&drafting->length, co_drafter_index(drafting->drafter));
    out->draft_length_mean = drafting->length.k_mean;
    out->believed_plain_us = co_cost_estimate(&drafting->length.verify, 1, 1) * 1e-3;
    out->believed_draft_us = co_cost_estimate(&drafting->length.draft, 1, 1) * 1e-3;
    out->believed_acceptance = alpha > 0 ? alpha : 0;
}

static void answer(struct stats_query *query) {
    if (--query->n_waiting > 0)
        return;
    if (query->call != NULL) {
        const char *reason;
        struct ft_wire_stats stats = {.version = ft_str_c(CO_VERSION)};
        stats.speculation = ft_str_c(co_app_mode(query->app, &reason));
        stats.speculation_reason = ft_str_c(reason);
        fill_counters(query->app, &stats);
        fill_settings(query->app, &stats);
        stats.target = query->target;
        stats.has_draft = query->app->draft != NULL;
        stats.draft = query->draft;
        struct ft_buf out;
        ft_buf_init(&out, 0);
        ft_wire_encode_stats(&stats, &out);
        ft_rpc_call_set_user(query->call, NULL);
        co_answer_with(query->call, &out);
    }
    free(query);
}

static void target_stats(void *user, const struct ft_wire_worker_stats *stats) {
    struct stats_query *query = user;
    fill_worker(query->app->target, stats, &query->target);
    answer(query);
}

static void draft_stats(void *user, const struct ft_wire_worker_stats *stats) {
    struct stats_query *query = user;
    fill_worker(query->app->draft, stats, &query->draft);
    answer(query);
}

void co_admin_get_stats(struct ft_rpc_call *call, void *service, struct ft_str message) {
    (void)message;
    struct co_app *app = service;
    struct stats_query *query = calloc(1, sizeof *query);
    if (query == NULL) {
        ft_rpc_call_finish(call, ft_code_grpc_status(FT_E_PROC_MEMORY), "no memory");
        return;
    }
    query->app = app;
    query->call = call;
    query->n_waiting = app->draft != NULL ? 2 : 1;
    ft_rpc_call_set_user(call, query);
    bool has_draft = app->draft != NULL; /* query may be gone after the last answer */
    co_peer_stats(app->target, target_stats, query);
    if (has_draft)
        co_peer_stats(app->draft, draft_stats, query);
}

void co_admin_gone(struct ft_rpc_call *call, void *service) {
    (void)service;
    struct stats_query *query = ft_rpc_call_user(call);
    if (query != NULL)
        query->call = NULL;
}
