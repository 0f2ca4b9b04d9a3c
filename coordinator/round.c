#include "coordinator/round.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/accept.h"
#include "coordinator/group.h"
#include "coordinator/places.h"
#include "coordinator/tune.h"

#define MODULE "round"

/* A kick sends what it finds, and until the next one only those end that were running then; in the
 * kick itself each may be preempted or lose its draft. */
#define RELEASED_PER_SEQ 4

enum ft_code co_round_init(struct co_app *app, struct ft_err *err) {
    struct co_round *round = &app->round;
    size_t n = (size_t)app->pair.max_seqs;
    round->tokens_cap = app->pair.target_limits.max_tokens;
    round->entries = calloc(n, sizeof *round->entries);
    round->plans = calloc(n, sizeof *round->plans);
    round->seqs = calloc(n, sizeof *round->seqs);
    round->tokens = calloc((size_t)round->tokens_cap, sizeof *round->tokens);
    round->transform = ft_transform_create(app->pair.vocab_size);
    app->target_released.cap = app->draft_released.cap = RELEASED_PER_SEQ * n;
    app->target_released.ids = calloc(RELEASED_PER_SEQ * n, sizeof *app->target_released.ids);
    app->draft_released.ids = calloc(RELEASED_PER_SEQ * n, sizeof *app->draft_released.ids);
    enum ft_code code = co_trace_init(&app->trace, err);
    if (code != FT_OK)
        return code;
    if (round->entries == NULL || round->plans == NULL || round->seqs == NULL ||
        round->tokens == NULL || round->transform == NULL || app->target_released.ids == NULL ||
        app->draft_released.ids == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for %zu requests", n);
    return FT_OK;
}

void co_round_fini(struct co_app *app) {
    free(app->round.entries);
    free(app->round.plans);
    free(app->round.seqs);
    free(app->round.tokens);
    ft_transform_destroy(&app->round.transform);
    co_trace_fini(&app->trace);
    free(app->target_released.ids);
    free(app->draft_released.ids);
}

/* ---- what takes part ------------------------------------------------------------------------ */

static void collect_entries(struct co_app *app) {
    struct co_round *round = &app->round;
    round->n_entries = 0;
    for (struct co_request *r = app->first; r != NULL; r = r->next) {
        if (r->state != CO_REQUEST_RUNNING || co_request_paused(r))
            continue;
        FT_ASSERT(round->n_entries < app->pair.max_seqs);
        struct co_round_entry *entry = &round->entries[round->n_entries];
        struct co_plan_item *plan = &round->plans[round->n_entries++];
        if (r->draft_refused)
            co_request_drop_draft(r); /* it will never need it again */
        entry->request = r;
        entry->has_q = entry->device_q = entry->lost = false;
        memset(entry->q_rows, 0, sizeof entry->q_rows);
        entry->choice.n_rows = 0;
        *plan = (struct co_plan_item){
            .n = r->n,
            .target_len = r->target_len,
            .draft_len = r->draft_len,
            .k_want = co_drafting_room(r),
            .sampled = ft_rule_reads_q(&r->draft_sampling),
            .every_row = r->n_prompt_rows < r->n_prompt_rows_wanted,
        };
    }
}

/* Who takes part in the round, with blocks for its target step. New ones come only when nobody
 * had to go for the blocks of others. */
static void gather(struct co_app *app) {
    collect_entries(app);
    if (co_places_share(app) && co_places_admit(app)) {
        collect_entries(app);
        co_places_share(app);
    }
    for (int32_t i = 0; i < app->round.n_entries; i++)
        app->round.entries[i].request->in_step = true;
}

/* Fill the plans of the draft step. true: somebody found no room in the draft's pool. */
static bool try_draft(struct co_app *app) {
    struct co_round *round = &app->round;
    bool is_full = false;
    co_places_count(app);
    for (int32_t i = 0; i < round->n_entries; i++)
        round->plans[i].draft_blocks = round->entries[i].request->draft_blocks;
    co_plan_draft(round->plans, round->n_entries, &app->pair.draft_limits,
                  &app->pair.target_limits);
    for (int32_t i = 0; i < round->n_entries; i++)
        is_full = is_full || round->plans[i].draft_full;
    return is_full;
}

static void plan_draft(struct co_app *app) {
    struct co_round *round = &app->round;
    while (try_draft(app) && co_places_free_draft(app))
        continue;
    for (int32_t i = 0; i < round->n_entries; i++) {
        struct co_request *r = round->entries[i].request;
        const struct co_plan_item *plan = &round->plans[i];
        if (plan->draft_full)
            r->fallback_reason = "draft KV pool full";
        if (plan->drop_draft)
            co_request_drop_draft(r);
        app->pair.draft_blocks_free += r->draft_blocks - plan->draft_blocks;
        r->draft_blocks = plan->draft_blocks;
    }
}

/* Leave out what has ended since the round began. */
static void drop_ended(struct co_round *round) {
    int32_t kept = 0;
    for (int32_t i = 0; i < round->n_entries; i++) {
        struct co_request *r = round->entries[i].request;
        if (r->state == CO_REQUEST_RUNNING) {
            round->entries[kept] = round->entries[i];
            round->plans[kept++] = round->plans[i];
        } else {
            r->in_step = false;
            co_request_collect(r);
        }
    }
    round->n_entries = kept;
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* Send a step when it says anything; true when it computes. */
static bool send_step(struct co_peer *peer, const struct ft_wire_seq_step *seqs, size_t n_seqs,
                      struct co_released *released) {
    struct ft_wire_step step = {
        .seqs = seqs,
        .n_seqs = n_seqs,
        .release = released->ids,
        .n_release = released->n,
    };
    if (n_seqs == 0 && released->n == 0)
        return false;
    released->n = 0; /* a worker that is down has nothing to forget */
    return co_peer_up(peer) && co_peer_step(peer, &step) == FT_OK && n_seqs > 0;
}

/* True when a draft step is on its way. */
static bool send_draft(struct co_app *app) {
    struct co_round *round = &app->round;
    size_t n_seqs = 0;
    for (int32_t i = 0; i < round->n_entries; i++) {
        const struct co_plan_item *plan = &round->plans[i];
        const struct co_request *r = round->entries[i].request;
        if (plan->draft_tokens == 0)
            continue;
        round->seqs[n_seqs++] = (struct ft_wire_seq_step){
            .seq_id = r->seq_id,
            .keep = (uint32_t)r->draft_len,
            .tokens = r->tokens + r->draft_len,
            .n_tokens = (size_t)plan->draft_tokens,
            .draft_len = (uint32_t)plan->draft_k,
            .has_sampling = true,
            .sampling = r->draft_sampling,
            .n_prompt = (uint32_t)r->n_prompt,
        };
    }
    return send_step(app->draft, round->seqs, n_seqs, &app->draft_released);
}

/* True when a target step is on its way. */
/* What the target is fed for a draft. An id that it does not have is a draft that its rule rejects:
 * rows behind it are not looked at, and any token will do for them. */
static void put_drafts(int32_t *to, const int32_t *drafts, size_t n, int32_t n_vocab) {
    for (size_t k = 0; k < n; k++)
        to[k] = drafts[k] < n_vocab ? drafts[k] : 0;
}

static bool send_target(struct co_app *app) {
    struct co_round *round = &app->round;
    int32_t *tokens = round->tokens;
    size_t n_seqs = 0;
    for (int32_t i = 0; i < round->n_entries; i++) {
        const struct co_plan_item *plan = &round->plans[i];
        const struct co_request *r = round->entries[i].request;
        if (plan->target_tokens == 0)
            continue;
        size_t n_own = (size_t)plan->target_tokens, n_drafts = (size_t)plan->verify_k;
        memcpy(tokens, r->tokens + r->target_len, n_own * sizeof *tokens);
        put_drafts(tokens + n_own, round->entries[i].draft, n_drafts, app->pair.vocab_size);
        round->seqs[n_seqs++] = (struct ft_wire_seq_step){
            .seq_id = r->seq_id,
            .keep = (uint32_t)r->target_len,
            .tokens = tokens,
            .n_tokens = n_own + n_drafts,
            .n_logits = (uint32_t)plan->n_logits,
        };
        tokens += n_own + n_drafts;
    }
    return send_step(app->target, round->seqs, n_seqs, &app->target_released);
}

/* ---- the round ------------------------------------------------------------------------------ */

static float us(int64_t ns) {
    return (float)ns * 1e-3f;
}

static void record_times(struct co_app *app, int64_t accept_ns) {
    struct co_round *round = &app->round;
    int64_t total = ft_clock_now_ns() - round->begin_ns;
    struct co_round_times times = {
        .round = us(total),
        .draft = us(round->draft_ns),
        .target = us(round->target_ns),
        .host = us(total - round->draft_ns - round->target_ns),
        .accept = us(accept_ns),
    };
    co_stats_round(&app->stats, &times);
}

/* Leave the round that is in flight, begin the next one, and only then write to clients: their
 * messages are made while the draft computes. */
static void end_round(struct co_app *app) {
    struct co_round *round = &app->round;
    round->phase = CO_ROUND_IDLE;
    for (int32_t i = 0; i < round->n_entries; i++) {
        struct co_request *r = round->entries[i].request;
        r->in_step = false;
        if (co_request_paused(r)) /* only if its client does not read either */
            co_request_flush(r);
    }
    round->n_entries = 0;
    co_round_kick(app);
    int64_t begin_ns = ft_clock_now_ns();
    for (struct co_request *r = app->first, *next; r != NULL; r = next) {
        next = r->next;
        co_request_flush(r);
        co_request_collect(r);
    }
    co_trace_written(&app->trace, begin_ns, ft_clock_now_ns());
}

static void verify(struct co_app *app) {
    struct co_round *round = &app->round;
    round->phase = CO_ROUND_VERIFY;
    drop_ended(round);
    co_drafting_verify_begins(app);
    co_plan_target(round->plans, round->n_entries, &app->pair.target_limits);
    co_trace_mark(&app->trace, FT_TRACE_VERIFY_SENT, ft_clock_now_ns());
    if (!send_target(app) && round->phase == CO_ROUND_VERIFY)
        end_round(app); /* everybody left while the draft computed; others may have come */
}

void co_round_kick(struct co_app *app) {
    struct co_round *round = &app->round;
    co_group_reap(app);
    if (round->phase != CO_ROUND_IDLE || !co_peer_up(app->target))
        return;
    /* A worker may still be busy with releases, or the draft with a step of a round that the
     * target's death ended. */
    if (co_peer_busy(app->draft) || co_peer_busy(app->target))
        return;
    co_tune_follow(app);
    gather(app);
    if (round->n_entries == 0) { /* what ended is forgotten even when nobody goes on */
        send_step(app->draft, NULL, 0, &app->draft_released);
        send_step(app->target, NULL, 0, &app->target_released);
        return;
    }
    round->begin_ns = ft_clock_now_ns();
    co_trace_begin(&app->trace, round->begin_ns);
    round->draft_ns = 0;
    round->target_ns = 0;
    round->decoding = false;
    round->bad_draft = false;
    round->phase = CO_ROUND_DRAFT;
    co_drafting_propose(app);
    plan_draft(app);
    int64_t sent_ns = ft_clock_now_ns();
    if (send_draft(app)) {
        co_trace_mark(&app->trace, FT_TRACE_DRAFT_SENT, sent_ns);
    } else if (round->phase == CO_ROUND_DRAFT) {
        verify(app);
    }
}

void co_round_draft_reply(struct co_app *app, const struct ft_wire_step_reply *reply) {
    struct co_round *round = &app->round;
    if (round->phase != CO_ROUND_DRAFT) {
        co_round_kick(app);
        return;
    }
    round->draft_ns = (int64_t)reply->compute_nanos;
    co_trace_reply(&app->trace, FT_TRACE_DRAFT_SENT, ft_clock_now_ns(), reply->begin_nanos,
                   reply->compute_nanos);
    uint32_t generation = (uint32_t)(reply->step_id % FT_REGION_GENERATIONS);
    size_t at = 0;
    bool ok = true;
    for (int32_t i = 0; i < round->n_entries && ok; i++) {
        if (round->plans[i].draft_tokens == 0)
            continue;
        ok = at < reply->n_results &&
             reply->results[at].seq_id == round->entries[i].request->seq_id &&
             co_accept_draft(app, i, &reply->results[at], generation);
        if (ok)
            co_drafting_extend(app, i);
        at++;
    }
    if (!ok) {
        co_peer_fail(app->draft, "a draft reply does not fit its step"); /* verifies plainly */
        return;
    }
    verify(app);
}

void co_round_draft_down(struct co_app *app) {
    struct co_round *round = &app->round;
    for (struct co_request *r = app->first; r != NULL; r = r->next) {
        co_request_drop_draft(r);
        r->draft_refused = false; /* by the one that is gone */
    }
    app->draft_released.n = 0; /* what it held went with it */
    co_drafting_lost(app);
    if (round->phase == CO_ROUND_DRAFT)
        verify(app);
    else
        co_round_kick(app);
}

/* Accept what entry i got, and note it. *now_ns is the time before and, in the end, behind it. */
static bool accept(struct co_app *app, int32_t i, const struct ft_wire_seq_result *result,
                   uint32_t generation, int64_t *now_ns) {
    const struct co_plan_item *plan = &app->round.plans[i];
    const struct co_request *r = app->round.entries[i].request;
    int32_t n_before = r->n;
    uint64_t accepted_before = r->spec.accepted;
    if (!co_accept_target(app, i, result, generation))
        return false;
    struct ft_wire_trace_seq seq = {
        .seq_id = r->seq_id,
        .tokens = (uint32_t)plan->target_tokens,
        .model_drafted = (uint32_t)plan->draft_k,
        .drafted = (uint32_t)plan->verify_k,
        .accepted = (uint32_t)(r->spec.accepted - accepted_before),
        .committed = (uint32_t)(r->n - n_before),
        .accept_begin = (uint64_t)*now_ns,
    };
    *now_ns = ft_clock_now_ns();
    seq.accept_end = (uint64_t)*now_ns;
    co_trace_request(&app->trace, &seq, r->id);
    return true;
}

/* Decide on the GPU what lies there, all of it at once. false: the GPU failed, and both workers
 * were dropped: they come back with rows in shared memory. */
static bool decide_there(struct co_app *app, const struct ft_wire_step_reply *reply,
                         uint32_t generation) {
    struct co_round *round = &app->round;
    struct ft_err err = {0};
    size_t at = 0;
    if (ft_region_is_host(co_peer_region(app->target)))
        return true;
    ft_chooser_reset(app->decider.chooser);
    for (int32_t i = 0; i < round->n_entries && at < reply->n_results; i++)
        if (round->plans[i].target_tokens != 0)
            co_accept_prepare(app, i, &reply->results[at++], generation);
    if (ft_chooser_run(app->decider.chooser, &err) == FT_OK)
        return true;
    ft_error("accept device failed effect \"tokens are decided on the CPU\" reason \"%s\"",
             err.text);
    co_peer_fail(app->target, "rows on the GPU cannot be read any more");
    if (app->draft != NULL && co_peer_region(app->draft) != NULL)
        co_peer_fail(app->draft, "rows on the GPU cannot be read any more");
    co_decider_close(&app->decider);
    app->decider.tried = true;
    return false;
}

void co_round_target_reply(struct co_app *app, const struct ft_wire_step_reply *reply) {
    struct co_round *round = &app->round;
    if (round->phase != CO_ROUND_VERIFY) {
        co_round_kick(app);
        return;
    }
    int64_t begin_ns = ft_clock_now_ns();
    round->target_ns = (int64_t)reply->compute_nanos;
    co_trace_reply(&app->trace, FT_TRACE_VERIFY_SENT, begin_ns, reply->begin_nanos,
                   reply->compute_nanos);
    uint32_t generation = (uint32_t)(reply->step_id % FT_REGION_GENERATIONS);
    size_t at = 0;
    int64_t now_ns = begin_ns;
    bool ok = true;
    if (!decide_there(app, reply, generation))
        return;
    for (int32_t i = 0; i < round->n_entries && ok; i++) {
        if (round->plans[i].target_tokens == 0)
            continue;
        ok = at < reply->n_results &&
             reply->results[at].seq_id == round->entries[i].request->seq_id &&
             accept(app, i, &reply->results[at], generation, &now_ns);
        at++;
    }
    if (!ok) {
        co_peer_fail(app->target, "a target reply does not fit its step"); /* ends the round */
        return;
    }
    co_drafting_round_ends(app);
    co_trace_end(&app->trace, now_ns);
    if (round->decoding)
        record_times(app, now_ns - begin_ns);
    if (round->bad_draft)
        co_peer_fail(app->draft, "q rows that its tokens cannot have been drawn from");
    end_round(app);
}

void co_round_target_down(struct co_app *app) {
    for (struct co_request *r = app->first; r != NULL; r = r->next)
        r->target_len = 0;
    app->target_released.n = 0;
    /* A draft step in flight ends in its own time; its round is over. */
    if (app->round.phase != CO_ROUND_IDLE)
        end_round(app);
}
