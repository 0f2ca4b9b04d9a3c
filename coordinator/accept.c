#include "coordinator/accept.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#define MODULE "accept"

/* A sequence that fails so often in a row (lost, no blocks) is given up. */
#define SEQUENCE_FAILURES_MAX 8

static int32_t min32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

bool co_accept_draft(struct co_app *app, int32_t i, const struct ft_wire_seq_result *result,
                     uint32_t generation) {
    struct co_round_entry *entry = &app->round.entries[i];
    struct co_plan_item *plan = &app->round.plans[i];
    struct co_request *r = entry->request;
    int32_t held = r->draft_len + plan->draft_tokens;
    plan->n_drafted = 0;
    switch (result->status) {
    case FT_WIRE_SEQ_OK:
        break;
    case FT_WIRE_SEQ_LOST:
        r->draft_len = min32(r->draft_len, (int32_t)result->cached);
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
        r->target_len = min32(r->target_len, (int32_t)result->cached);
        break;
    case FT_WIRE_SEQ_NO_BLOCKS:
        break;
    case FT_WIRE_SEQ_NUMERIC:
        r->app->stats.nan_rows++;
        give_up(r, FT_E_REQ_NUMERIC, detail[0] ? detail : "non-finite logits");
        return;
    default:
        give_up(r, FT_E_PROC_INTERNAL, detail[0] ? detail : "the target refused the sequence");
        return;
    }
    if (++r->n_failures >= SEQUENCE_FAILURES_MAX)
        give_up(r, FT_E_REQ_EXHAUSTED, "the target worker lost the sequence again and again");
    else if (result->status == FT_WIRE_SEQ_NO_BLOCKS)
        co_request_back_off(r);
}

/* What the draft's KV still shares with the committed text: the last drafted token was never fed
 * to it. */
static void keep_draft(struct co_request *r, int32_t n_before, int32_t n_draft,
                       int32_t n_accepted) {
    if (n_draft > 0)
        r->draft_len = n_before + min32(n_accepted, n_draft - 1);
}

static void commit(struct co_app *app, int32_t i, int32_t n_draft,
                   const struct ft_verdict *verdict) {
    const struct co_plan_item *plan = &app->round.plans[i];
    struct co_request *r = app->round.entries[i].request;
    int32_t n_before = r->n;
    int32_t n_committed = co_request_commit(r, verdict->tokens, verdict->n_tokens);
    int32_t n_drafts = min32(verdict->n_accepted, n_committed);
    bool prefill = n_before == r->n_prompt && plan->verify_k == 0;
    if (!prefill) {
        co_stats_verified(&r->spec, n_draft, n_drafts, verdict->residual);
        co_stats_verified(&app->stats.spec, n_draft, n_drafts, verdict->residual);
        co_drafting_decided(app, i, n_draft, n_drafts);
    }
    r->target_len = r->n - 1;
    /* Drafts beyond verify_k were cut by the plan: the draft fed them, nobody decided them. */
    keep_draft(r, n_before, min32(plan->n_drafted, app->round.entries[i].proposal.n_model),
               n_drafts);
    co_request_conclude(r);
}

static bool decide(struct co_app *app, int32_t i, const struct ft_wire_seq_result *result,
                   uint32_t generation) {
    struct co_round_entry *entry = &app->round.entries[i];
    const struct co_plan_item *plan = &app->round.plans[i];
    struct co_request *r = entry->request;
    const float *p_rows[FT_DRAFT_LEN_MAX + 1];
    for (int32_t k = 0; k <= plan->verify_k; k++) {
        p_rows[k] =
            ft_region_row(co_peer_region(app->target), generation, (int64_t)result->first_row + k);
        if (p_rows[k] == NULL)
            return false;
    }
    int32_t until_stop_allowed = r->min_tokens - (r->n - r->n_prompt);
    struct ft_round round = {
        .sampling = &r->sampling,
        .counts = r->counts,
        .position = (uint64_t)r->n,
        .draft = entry->draft,
        .n_draft = entry->lost ? 0 : plan->verify_k,
        .p_rows = p_rows,
        .n_vocab = app->pair.vocab_size,
        .q_rows = entry->has_q ? entry->q_rows : NULL,
        .n_vocab_draft = entry->n_vocab_q,
        .banned = r->stop_ids,
        .n_banned = (size_t)r->n_stop_ids,
        .n_banned_rows = until_stop_allowed > 0 ? until_stop_allowed : 0,
    };
    struct ft_verdict verdict;
    struct ft_err err = {0};
    co_drafting_rows(app, i);
    enum ft_code code = app->rule->decide(app->round.transform, &round, &verdict, &err);
    if (code == FT_E_PEER_PROTOCOL) { /* the draft's fault: the target's own row decides */
        app->round.bad_draft = true;
        round.n_draft = 0;
        code = app->rule->decide(app->round.transform, &round, &verdict, &err);
    }
    co_drafting_rows_done(app, i);
    if (code != FT_OK) {
        app->stats.nan_rows += code == FT_E_REQ_NUMERIC;
        co_request_fail(r, &err);
        return true;
    }
    commit(app, i, round.n_draft, &verdict);
    return true;
}

bool co_accept_target(struct co_app *app, int32_t i, const struct ft_wire_seq_result *result,
                      uint32_t generation) {
    struct co_request *r = app->round.entries[i].request;
    const struct co_plan_item *plan = &app->round.plans[i];
    if (r->state != CO_REQUEST_RUNNING)
        return true;
    if (result->status != FT_WIRE_SEQ_OK) {
        sequence_failed(r, result);
        return true;
    }
    if (result->n_rows != (uint32_t)plan->n_logits)
        return false;
    if (r->n == r->n_prompt && r->n_preempted == 0) /* of each chunk */
        r->cached_tokens = min32(r->cached_tokens + (int32_t)result->prefix_hit, r->n_prompt);
    r->n_failures = 0;
    r->target_len += plan->target_tokens;
    if (plan->n_logits == 0)
        return true;
    app->round.decoding = app->round.decoding || plan->target_tokens == 1;
    return decide(app, i, result, generation);
}
