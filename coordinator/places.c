#include "coordinator/places.h"

#include "common/base/clock.h"
#include "coordinator/group.h"
#include "coordinator/round.h"

/* Of those whose clients do not read, the last in order: it needs its place least. */
static struct co_request *last_paused(struct co_app *app) {
    for (struct co_request *r = app->last; r != NULL; r = r->prev)
        if (r->state == CO_REQUEST_RUNNING && co_request_paused(r))
            return r;
    return NULL;
}

/* Blocks for each running request that may still grow into one. */
static int64_t room_to_grow(const struct co_app *app) {
    int64_t n = 0;
    for (const struct co_request *r = app->first; r != NULL; r = r->next)
        n += r->state == CO_REQUEST_RUNNING && r->target_blocks < co_request_blocks_most(r);
    return n;
}

/* One that was preempted comes back only when the others have room to grow, so that it is not
 * preempted again at once. */
static bool has_room(const struct co_app *app, const struct co_request *r) {
    int64_t blocks = co_request_blocks_needed(r);
    if (app->n_running == app->pair.max_seqs || blocks > app->pair.target_blocks_free)
        return false;
    return r->n_preempted == 0 || blocks + room_to_grow(app) <= app->pair.target_blocks_free;
}

static void back_in(void *user) {
    co_round_kick(user);
}

bool co_places_admit(struct co_app *app) {
    int64_t now_ns = ft_clock_now_ns(), wake_ns = INT64_MAX;
    bool changed = false;
    struct co_turns turns;
    co_turns_begin(&turns, app->config.max_overtakes);
    app->kv_short = false;
    for (struct co_request *r = app->first; r != NULL && app->n_queued > 0; r = r->next) {
        if (r->state != CO_REQUEST_QUEUED || co_request_paused(r) || co_group_waits(r))
            continue;
        if (r->not_before_ns > now_ns) {
            wake_ns = r->not_before_ns < wake_ns ? r->not_before_ns : wake_ns;
            continue;
        }
        if (!co_turns_open(&turns, &r->turn))
            break;
        struct co_request *paused;
        while (!has_room(app, r) && (paused = last_paused(app)) != NULL) {
            co_request_event(paused, CO_EVENT_PREEMPT);
            changed = true;
        }
        if (!has_room(app, r)) {
            app->kv_short = app->kv_short || app->n_running < app->pair.max_seqs;
            co_turns_block(&turns, &r->turn);
            continue;
        }
        co_turns_pass(&turns);
        co_request_event(r, CO_EVENT_ADMIT);
        changed = true;
    }
    if (wake_ns != INT64_MAX)
        ft_rpc_timer_set(app->loop, &app->backoff_timer, wake_ns, back_in, app);
    return changed;
}

void co_places_count(struct co_app *app) {
    struct co_pair *pair = &app->pair;
    pair->target_limits.n_blocks = pair->target_blocks_free;
    pair->draft_limits.n_blocks = pair->draft_blocks_free;
    for (int32_t i = 0; i < app->round.n_entries; i++) {
        pair->target_limits.n_blocks += app->round.entries[i].request->target_blocks;
        pair->draft_limits.n_blocks += app->round.entries[i].request->draft_blocks;
    }
}

bool co_places_free_draft(struct co_app *app) {
    struct co_request *r = app->last;
    while (r != NULL && !(r->draft_blocks > 0 && co_request_paused(r)))
        r = r->prev;
    if (r != NULL)
        co_request_drop_draft(r);
    return r != NULL;
}

bool co_places_share(struct co_app *app) {
    struct co_round *round = &app->round;
    struct co_request *paused;
    bool all_stay = true;
    co_places_count(app);
    while (co_plan_lack(round->plans, round->n_entries, &app->pair.target_limits) > 0 &&
           (paused = last_paused(app)) != NULL) {
        co_request_event(paused, CO_EVENT_PREEMPT);
        co_places_count(app);
        all_stay = false;
    }
    int32_t n_kept = co_plan_kv(round->plans, round->n_entries, &app->pair.target_limits);
    while (round->n_entries > n_kept) {
        co_request_event(round->entries[--round->n_entries].request, CO_EVENT_PREEMPT);
        all_stay = false;
    }
    for (int32_t i = 0; i < round->n_entries; i++) {
        struct co_request *r = round->entries[i].request;
        app->pair.target_blocks_free += r->target_blocks - round->plans[i].target_blocks;
        r->target_blocks = round->plans[i].target_blocks;
        if (round->plans[i].target_full)
            r->fallback_reason = "target KV pool full";
    }
    app->kv_short = app->kv_short || !all_stay;
    FT_ASSERT(app->pair.target_blocks_free >= 0); /* alone, each request fits (see admit.c) */
    return all_stay;
}
