#include "coordinator/accept.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/spec/logprob.h"

#define MODULE "accept"

/* A sequence that fails so often in a row (lost, no blocks) is given up. */
#define SEQUENCE_FAILURES_MAX 8

static int32_t min32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/* A sequence that a worker has lost some of has fewer positions there than it was thought to. */
static bool is_shorter(const struct ft_wire_seq_result *result, int32_t len) {
    return result->cached < (uint32_t)len;
}

bool co_accept_draft(struct co_app *app, int32_t i, const struct ft_wire_seq_result *result,
                     uint32_t generation) {
    struct co_round_entry *entry = &app->round.entries[i];
    struct co_plan_item *plan = &app->round.plans[i];
    struct co_request *r = entry->request;
    int32_t held = r->draft_len + plan->draft_tokens;
    plan->n_drafted = 0;
    if (r->state != CO_REQUEST_RUNNING) /* what it held there was given back already */
        return true;
    switch (result->status) {
    case FT_WIRE_SEQ_OK:
        break;
    case FT_WIRE_SEQ_LOST:
        if (!is_shorter(result, r->draft_len))
            return false;
        r->draft_len = (int32_t)result->cached;
        return true;
    case FT_WIRE_SEQ_NUMERIC:
        r->draft_refused = true;
        r->fallback_reason = "draft logits not finite";
        return true;
    case FT_WIRE_SEQ_NO_BLOCKS:
        co_request_drop_draft(r);
        r->fallback_reason = "draft KV pool full";
        return true;
    case FT_WIRE_SEQ_INVALID:
        ft_warn("draft-refused request %s reason %.*s", r->id, (int)result->detail.len,
                result->detail.ptr);
        r->draft_refused = true;
        r->fallback_reason = "draft worker refused the sequence";
        return true;
    }
    if (result->n_draft_ids != (size_t)plan->draft_k)
        return false;
    r->draft_len = held;
    bool rows = plan->sampled && plan->draft_k > 0;
    if (rows && result->n_rows != (uint32_t)plan->draft_k)
        return false;
    for (int32_t k = 0; k < plan->draft_k; k++) {
        entry->draft[k] = result->draft_ids[k];
        if (entry->draft[k] < 0 || entry->draft[k] >= app->pair.draft_vocab_size)
            return false;
        if (rows) {
            entry->q_rows[k] = ft_region_row(co_peer_region(app->draft), generation,
                                             (int64_t)result->first_row + k);
            if (entry->q_rows[k] == NULL)
                return false;
        }
    }
    entry->has_q = rows;
    entry->device_q = rows && !ft_region_is_host(co_peer_region(app->draft));
    plan->n_drafted = plan->draft_k;
    return true;
}

static void give_up(struct co_request *r, enum ft_code code, const char *why) {
    struct ft_err err = {0};
    ft_err_set(&err, code, MODULE, "%s", why);
    co_request_fail(r, &err);
}

/* The sequence did not get through this step. */
static void sequence_failed(struct co_request *r, const struct ft_wire_seq_result *result) {
    char detail[FT_ERR_TEXT_MAX] = "";
    size_t len = result->detail.len < sizeof detail - 1 ? result->detail.len : sizeof detail - 1;
    if (len != 0)
        memcpy(detail, result->detail.ptr, len);
    detail[len] = 0;
    switch (result->status) {
    case FT_WIRE_SEQ_LOST:
        r->target_len = (int32_t)result->cached;
        break;
    case FT_WIRE_SEQ_NO_BLOCKS:
        break;
    case FT_WIRE_SEQ_NUMERIC:
        give_up(r, FT_E_REQ_NUMERIC, detail[0] ? detail : "non-finite logits");
        return;
    default:
        give_up(r, FT_E_PROC_INTERNAL, detail[0] ? detail : "the target refused the sequence");
        return;
    }
    bool is_lost = result->status == FT_WIRE_SEQ_LOST;
    if (++r->n_failures >= SEQUENCE_FAILURES_MAX)
        give_up(r, FT_E_REQ_EXHAUSTED,
                is_lost ? "the target worker lost the sequence again and again"
                        : "the target worker had no KV blocks for it again and again");
    else if (!is_lost)
        co_request_back_off(r);
}

/* What the draft's KV still shares with the committed text: the last drafted token was never fed
 * to it. */
static void keep_draft(struct co_request *r, int32_t n_before, int32_t n_draft,
                       int32_t n_accepted) {
    if (n_draft > 0)
        r->draft_len = n_before + min32(n_accepted, n_draft - 1);
}

/* Each committed token was decided at its own row, whichever rule decided it. */
static void add_logprobs(struct co_app *app, struct co_request *r, const struct ft_round *round,
                         const struct ft_verdict *verdict, int32_t n_committed) {
    struct ft_logprobs row;
    for (int32_t j = 0; r->n_top >= 0 && j < n_committed; j++) {
        if (ft_logprob_row(app->round.transform, round->p_rows[j], round->n_vocab,
                           verdict->tokens[j], r->n_top, &row, &r->error) != FT_OK)
            return;
        ft_buf_add(&r->out_logprobs, &row, sizeof row);
    }
    if (r->out_logprobs.failed)
        ft_err_set(&r->error, FT_E_PROC_MEMORY, MODULE, "no memory for logprobs");
}

/* What a chunk of the prompt says of the tokens behind its positions. */
static enum ft_code add_prompt_logprobs(struct co_app *app, struct co_request *r, int32_t n_rows,
                                        int64_t first_row, uint32_t generation,
                                        struct ft_err *err) {
    for (int32_t j = 0; j < n_rows; j++) {
        int32_t position = r->target_len + j;
        if (position >= r->n_prompt_rows_wanted)
            break;
        const struct ft_region *region = co_peer_region(app->target);
        const float *logits = co_decider_read(&app->decider, region,
                                              ft_region_row(region, generation, first_row + j), 0);
        if (logits == NULL)
            return ft_err_set(err, FT_E_PEER_PROTOCOL, MODULE, "a row outside the region");
        enum ft_code code = ft_logprob_row(app->round.transform, logits, app->pair.vocab_size,
                                           r->tokens[position + 1], r->n_prompt_top,
                                           &r->prompt_logprobs[position], err);
        if (code != FT_OK)
            return code;
        if (r->n_prompt_rows <= position)
            r->n_prompt_rows = position + 1;
    }
    return FT_OK;
}

static void commit(struct co_app *app, int32_t i, const struct ft_round *round,
                   const struct ft_verdict *verdict) {
    const struct co_plan_item *plan = &app->round.plans[i];
    struct co_request *r = app->round.entries[i].request;
    int32_t n_before = r->n, n_draft = round->n_draft;
    int32_t n_committed = co_request_commit(r, verdict->tokens, verdict->n_tokens);
    add_logprobs(app, r, round, verdict, n_committed);
    int32_t n_drafts = min32(verdict->n_accepted, n_committed);
    bool prefill = n_before == r->n_prompt && plan->verify_k == 0;
    if (!prefill) {
        co_stats_verified(&r->spec, n_draft, n_drafts, verdict->residual);
        co_stats_verified(&app->stats.spec, n_draft, n_drafts, verdict->residual);
        if (n_draft > 0)
            co_stats_saw(&app->stats, CO_HISTOGRAM_ACCEPTED, n_drafts, 1);
        else if (r->speculate)
            app->stats.fallbacks++;
        co_drafting_decided(app, i, n_draft, n_drafts, n_committed < verdict->n_tokens);
    }
    r->target_len = r->n - 1;
    /* Drafts beyond verify_k were cut by the plan: the draft fed them, nobody decided them. */
    keep_draft(r, n_before, min32(plan->n_drafted, app->round.entries[i].proposal.n_model),
               n_drafts);
    co_request_conclude(r);
}

/* What the rule is to decide; rows are where the workers left them. */
struct decision {
    struct ft_round round;
    const float *p_rows[FT_DRAFT_LEN_MAX + 1], *q_rows[FT_DRAFT_LEN_MAX];
};

/* The rows that decide begin at first_row. false: they are outside the region. */
static bool make_decision(const struct co_app *app, int32_t i, int64_t first_row,
                          uint32_t generation, struct decision *d) {
    const struct co_round_entry *entry = &app->round.entries[i];
    const struct co_plan_item *plan = &app->round.plans[i];
    const struct co_request *r = entry->request;
    for (int32_t k = 0; k <= plan->verify_k; k++) {
        d->p_rows[k] = ft_region_row(co_peer_region(app->target), generation, first_row + k);
        if (d->p_rows[k] == NULL)
            return false;
    }
    memcpy(d->q_rows, entry->q_rows, sizeof d->q_rows);
    int32_t until_stop_allowed = r->min_tokens - (r->n - r->n_prompt);
    d->round = (struct ft_round){
        .sampling = &r->sampling,
        .counts = r->counts,
        .position = (uint64_t)r->n,
        .draft = entry->draft,
        .n_draft = entry->lost ? 0 : plan->verify_k,
        .p_rows = d->p_rows,
        .n_vocab = app->pair.vocab_size,
        .q_rows = entry->has_q ? d->q_rows : NULL,
        .n_vocab_draft = entry->n_vocab_q,
        .banned = r->stop_ids,
        .n_banned = (size_t)r->n_stop_ids,
        .n_banned_rows = until_stop_allowed > 0 ? until_stop_allowed : 0,
        .lenience = r->lenience,
        .synthetic_rates = r->synthetic_rates,
    };
    return true;
}

/* Of the rows that a reply brought, the first that decides; those before it are the prompt's. */
static int64_t deciding_row(const struct co_plan_item *plan,
                            const struct ft_wire_seq_result *result) {
    return (int64_t)result->first_row + plan->n_logits - 1 - plan->verify_k;
}

void co_accept_prepare(struct co_app *app, int32_t i, const struct ft_wire_seq_result *result,
                       uint32_t generation) {
    struct co_round_entry *entry = &app->round.entries[i];
    const struct co_plan_item *plan = &app->round.plans[i];
    const struct co_request *r = entry->request;
    struct decision d;
    entry->choice.n_rows = 0;
    if (ft_region_is_host(co_peer_region(app->target)) || r->state != CO_REQUEST_RUNNING ||
        result->status != FT_WIRE_SEQ_OK || plan->n_logits == 0 ||
        result->n_rows != (uint32_t)plan->n_logits || r->target_len + plan->target_tokens < r->n)
        return;
    /* q rows of the host's, a drafter's own, are not on the GPU. */
    bool has_host_q = entry->has_q && !entry->lost &&
                      (!entry->device_q || entry->proposal.n_model < plan->verify_k);
    if (has_host_q || !make_decision(app, i, deciding_row(plan, result), generation, &d))
        return;
    if (!ft_chooser_add(app->decider.chooser, r->rule, &d.round, &entry->choice))
        entry->choice.n_rows = 0;
}

/* Bring rows that lie on the GPU here: the target's, and the model's q. */
static bool fetch_rows(struct co_app *app, const struct co_round_entry *entry, bool and_q,
                       struct decision *d) {
    for (int32_t k = 0; k <= d->round.n_draft; k++) {
        d->p_rows[k] = co_decider_read(&app->decider, co_peer_region(app->target), d->p_rows[k], k);
        if (d->p_rows[k] == NULL)
            return false;
    }
    int32_t n_q = and_q && entry->has_q && entry->device_q && !entry->lost
                      ? min32(entry->proposal.n_model, d->round.n_draft)
                      : 0;
    for (int32_t k = 0; k < n_q; k++) {
        d->q_rows[k] = co_decider_read(&app->decider, co_peer_region(app->draft), d->q_rows[k],
                                       FT_DRAFT_LEN_MAX + 1 + k);
        if (d->q_rows[k] == NULL)
            return false;
    }
    return true;
}

/* By the rule itself, on rows that are here. */
static enum ft_code decide_here(struct co_app *app, int32_t i, struct decision *d,
                                struct ft_verdict *verdict, struct ft_err *err) {
    const struct co_request *r = app->round.entries[i].request;
    enum ft_code code = r->rule->decide(app->round.transform, &d->round, verdict, err);
    if (code == FT_E_PEER_PROTOCOL) { /* the draft's fault: the target's own row decides */
        app->round.bad_draft = true;
        d->round.n_draft = 0;
        code = r->rule->decide(app->round.transform, &d->round, verdict, err);
    }
    return code;
}

static bool decide(struct co_app *app, int32_t i, int64_t first_row, uint32_t generation) {
    struct co_round_entry *entry = &app->round.entries[i];
    struct co_request *r = entry->request;
    struct ft_verdict verdict;
    struct ft_err err = {0};
    struct decision d;
    enum ft_code code = FT_OK;
    co_drafting_rows(app, i);
    if (!make_decision(app, i, first_row, generation, &d)) {
        co_drafting_rows_done(app, i);
        return false;
    }
    bool is_decided =
        entry->choice.n_rows > 0 &&
        ft_chooser_verdict(app->decider.chooser, r->rule, &d.round, &entry->choice, &verdict);
    app->decider.n_rounds += is_decided;
    app->decider.n_asked += !is_decided && !ft_region_is_host(co_peer_region(app->target));
    if ((!is_decided || r->n_top >= 0) && !fetch_rows(app, entry, !is_decided, &d))
        code = ft_err_set(&err, FT_E_PROC_INTERNAL, MODULE, "rows could not be read from the GPU");
    if (code == FT_OK && !is_decided)
        code = decide_here(app, i, &d, &verdict, &err);
    co_drafting_rows_done(app, i);
    if (code != FT_OK) {
        co_request_fail(r, &err);
        return true;
    }
    commit(app, i, &d.round, &verdict);
    return true;
}

bool co_accept_target(struct co_app *app, int32_t i, const struct ft_wire_seq_result *result,
                      uint32_t generation) {
    struct co_request *r = app->round.entries[i].request;
    const struct co_plan_item *plan = &app->round.plans[i];
    if (r->state != CO_REQUEST_RUNNING)
        return true;
    if (result->status == FT_WIRE_SEQ_LOST && !is_shorter(result, r->target_len))
        return false;
    if (result->status != FT_WIRE_SEQ_OK) {
        sequence_failed(r, result);
        return true;
    }
    if (result->n_rows != (uint32_t)plan->n_logits ||
        result->prefix_hit > (uint32_t)plan->target_tokens)
        return false;
    /* Of each chunk; those that the worker has lost since are looked for again. */
    if (r->n == r->n_prompt && r->n_preempted == 0)
        r->cached_tokens = min32(r->cached_tokens, r->target_len) + (int32_t)result->prefix_hit;
    r->n_failures = 0;
    if (plan->every_row) {
        struct ft_err err = {0};
        enum ft_code code = add_prompt_logprobs(app, r, plan->n_logits, (int64_t)result->first_row,
                                                generation, &err);
        if (code == FT_E_PEER_PROTOCOL)
            return false;
        if (code != FT_OK) {
            co_request_fail(r, &err);
            return true;
        }
    }
    r->target_len += plan->target_tokens;
    if (plan->n_logits == 0 || r->target_len < r->n) /* more of it has to be prefilled */
        return true;
    app->round.decoding = app->round.decoding || plan->target_tokens == 1;
    return decide(app, i, deciding_row(plan, result), generation);
}
