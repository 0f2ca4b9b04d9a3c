#include <inttypes.h>
#include <stddef.h>

#include "common/wire/admin.h"
#include "foretokenctl/commands.h"
#include "foretokenctl/exit.h"
#include "foretokenctl/fields.h"
#include "foretokenctl/session.h"
#include "foretokenctl/watch.h"

#define STATS(kind, name)                                                                          \
    { #name, kind, offsetof(struct ft_wire_stats, name) }
static const struct ctl_field stats_fields[] = {
    STATS(CTL_STR, version),
    STATS(CTL_F64, uptime_seconds),
    STATS(CTL_U32, num_requests_running),
    STATS(CTL_U32, num_requests_waiting),
    STATS(CTL_U64, num_requests_finished),
    STATS(CTL_U64, num_requests_failed),
    STATS(CTL_U64, num_requests_cancelled),
    STATS(CTL_U64, prompt_tokens_total),
    STATS(CTL_U64, generation_tokens_total),
    STATS(CTL_STR, speculation),
    STATS(CTL_STR, speculation_reason),
    STATS(CTL_U64, rounds_total),
    STATS(CTL_U64, num_drafts_total),
    STATS(CTL_U64, num_draft_tokens_total),
    STATS(CTL_U64, num_accepted_tokens_total),
    STATS(CTL_U64, residual_draws_total),
    STATS(CTL_U64, plain_steps_total),
    STATS(CTL_U64, nan_rows_total),
    STATS(CTL_U64, num_preemptions_total),
    STATS(CTL_F64, round_p50_us),
    STATS(CTL_F64, draft_step_p50_us),
    STATS(CTL_F64, target_step_p50_us),
    STATS(CTL_F64, host_p50_us),
    STATS(CTL_F64, accept_p50_us),
    STATS(CTL_F64, draft_length_mean),
    STATS(CTL_F64, believed_plain_us),
    STATS(CTL_F64, believed_draft_us),
    STATS(CTL_F64, believed_acceptance),
    STATS(CTL_STR, state),
    STATS(CTL_STR, state_reason),
    STATS(CTL_STR, drafter),
    STATS(CTL_STR, num_speculative_tokens),
    STATS(CTL_STR, rejection_sample_method),
    STATS(CTL_STR, log_level),
    STATS(CTL_U64, draft_fallback_rounds_total),
};
#define WORKER(kind, name)                                                                         \
    { #name, kind, offsetof(struct ft_wire_worker_state, name) }
static const struct ctl_field worker_fields[] = {
    WORKER(CTL_BOOL, up),
    WORKER(CTL_ID64, epoch),
    WORKER(CTL_U64, restarts),
    WORKER(CTL_U64, steps),
    WORKER(CTL_U64, step_tokens),
    WORKER(CTL_F64, step_seconds),
    WORKER(CTL_U64, kv_blocks_total),
    WORKER(CTL_U64, kv_blocks_free),
    WORKER(CTL_U64, kv_blocks_cached),
    WORKER(CTL_U32, sequences),
    WORKER(CTL_U64, resident_bytes),
    WORKER(CTL_STR, model),
    WORKER(CTL_F64, up_seconds),
    WORKER(CTL_STR, trouble),
};
#define N_OF(array) (sizeof(array) / sizeof(array)[0])

/* What follows from the counters; 0 as long as there is nothing to divide by. */
struct derived {
    double acceptance_rate, mean_acceptance_length;
};
#define DERIVED(name)                                                                              \
    { #name, CTL_F64, offsetof(struct derived, name) }
static const struct ctl_field derived_fields[] = {DERIVED(acceptance_rate),
                                                  DERIVED(mean_acceptance_length)};

static struct derived derive(const struct ft_wire_stats *s) {
    double accepted = (double)s->num_accepted_tokens_total;
    struct derived d = {.acceptance_rate =
                            ctl_print_ratio(accepted, (double)s->num_draft_tokens_total)};
    if (s->num_drafts_total > 0)
        d.mean_acceptance_length = 1 + accepted / (double)s->num_drafts_total;
    return d;
}

#define PERCENTILES(kind, name)                                                                    \
    { #name, kind, offsetof(struct ft_wire_percentiles, name) }
static const struct ctl_field percentile_fields[] = {
    PERCENTILES(CTL_U64, count),
    PERCENTILES(CTL_F64, p50),
    PERCENTILES(CTL_F64, p90),
    PERCENTILES(CTL_F64, p99),
};
#define LATENCY(name)                                                                              \
    { #name, offsetof(struct ft_wire_stats, name) }
static const struct {
    const char *name;
    size_t offset;
} latencies[] = {LATENCY(time_to_first_token_seconds), LATENCY(inter_token_latency_seconds),
                 LATENCY(e2e_request_latency_seconds)};

static void add_latencies(struct ft_buf *out, const struct ft_wire_stats *s, bool json) {
    for (size_t i = 0; i < N_OF(latencies); i++) {
        const char *at = (const char *)s + latencies[i].offset;
        if (!json) {
            ctl_fields_text(out, latencies[i].name, percentile_fields, N_OF(percentile_fields), at);
            continue;
        }
        ft_buf_addf(out, ",\"%s\":{", latencies[i].name);
        ctl_fields_json(out, percentile_fields, N_OF(percentile_fields), at);
        ft_buf_add_c(out, "}");
    }
}

#define DRAFTER(kind, name)                                                                        \
    { #name, kind, offsetof(struct ft_wire_drafter, name) }
static const struct ctl_field drafter_fields[] = {
    DRAFTER(CTL_STR, name),
    DRAFTER(CTL_U64, num_drafts),
    DRAFTER(CTL_U64, num_draft_tokens),
    DRAFTER(CTL_U64, num_accepted_tokens),
};

static void add_drafters_json(struct ft_buf *out, const struct ft_wire_stats *s) {
    ft_buf_add_c(out, ",\"drafters\":[");
    for (size_t i = 0; i < s->n_drafters; i++) {
        ft_buf_add_c(out, i == 0 ? "{" : ",{");
        ctl_fields_json(out, drafter_fields, N_OF(drafter_fields), &s->drafters[i]);
        ft_buf_add_c(out, "}");
    }
    ft_buf_add_c(out, "]");
}

static void add_worker_json(struct ft_buf *out, const struct ft_wire_worker_state *worker) {
    ft_buf_add_c(out, "{");
    ctl_fields_json(out, worker_fields, N_OF(worker_fields), worker);
    ft_buf_add_c(out, "}");
}

static void add_json(struct ft_buf *out, const struct ft_wire_stats *s) {
    struct derived derived = derive(s);
    ft_buf_add_c(out, "{");
    ctl_fields_json(out, stats_fields, N_OF(stats_fields), s);
    ft_buf_add_c(out, ",");
    ctl_fields_json(out, derived_fields, N_OF(derived_fields), &derived);
    ft_buf_add_c(out, ",\"num_accepted_tokens_per_pos\":");
    ctl_print_json_counts(out, s->accepted_per_pos, s->n_pos);
    add_latencies(out, s, true);
    add_drafters_json(out, s);
    ft_buf_add_c(out, ",\"target\":");
    add_worker_json(out, &s->target);
    ft_buf_add_c(out, ",\"draft\":");
    if (s->has_draft)
        add_worker_json(out, &s->draft);
    else
        ft_buf_add_c(out, "null");
    ft_buf_add_c(out, "}\n");
}

static void add_text(struct ft_buf *out, const struct ft_wire_stats *s) {
    struct derived derived = derive(s);
    ctl_fields_text(out, "", stats_fields, N_OF(stats_fields), s);
    if (s->num_drafts_total > 0)
        ctl_fields_text(out, "", derived_fields, N_OF(derived_fields), &derived);
    for (size_t i = 0; i < N_OF(derived_fields) && s->num_drafts_total == 0; i++) {
        ctl_fields_name(out, "", derived_fields[i].name);
        ft_buf_add_c(out, "n/a\n");
    }
    ctl_fields_name(out, "", "num_accepted_tokens_per_pos");
    for (size_t i = 0; i < s->n_pos; i++)
        ft_buf_addf(out, "%s%" PRIu64, i == 0 ? "" : " ", s->accepted_per_pos[i]);
    ft_buf_add_c(out, "\n");
    add_latencies(out, s, false);
    for (size_t i = 0; i < s->n_drafters; i++) {
        char name[32];
        snprintf(name, sizeof name, "drafter.%zu", i);
        ctl_fields_text(out, name, drafter_fields, N_OF(drafter_fields), &s->drafters[i]);
    }
    ctl_fields_text(out, "target", worker_fields, N_OF(worker_fields), &s->target);
    if (s->has_draft)
        ctl_fields_text(out, "draft", worker_fields, N_OF(worker_fields), &s->draft);
}

static int render(struct ctl_session *session, bool json, struct ft_buf *out) {
    struct ft_wire_stats stats;
    struct ft_err err = {0};
    if (ft_wire_decode_stats(ft_buf_str(&session->reply), session->arena, &stats, &err) != FT_OK)
        return ctl_exit_because(CTL_EXIT_PROTOCOL, err.text);
    if (json)
        add_json(out, &stats);
    else
        add_text(out, &stats);
    return CTL_EXIT_OK;
}

int ctl_stats_run(struct ctl_options *opts) {
    if (opts->watch)
        return ctl_watch(opts, render);
    return ctl_session_show(opts, FT_WIRE_ADMIN_SERVICE "GetStats", NULL, render);
}
