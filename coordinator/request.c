#include "coordinator/request.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/app.h"
#include "coordinator/drain.h"
#include "coordinator/group.h"
#include "coordinator/round.h"
#include "coordinator/vllm.h"

#define MODULE "request"

/* Pauses of a request for which the target worker had no blocks: eight failures in a row, after
 * which it is given up, take 2.5 s. */
#define BACK_OFF_FIRST_MS 10
#define BACK_OFF_DOUBLINGS 7

static void unlink_request(struct co_request *r) {
    struct co_app *app = r->app;
    if (r->prev != NULL)
        r->prev->next = r->next;
    else
        app->first = r->next;
    if (r->next != NULL)
        r->next->prev = r->prev;
    else
        app->last = r->prev;
    r->next = r->prev = NULL;
}

void co_request_collect(struct co_request *r) {
    if (r->state != CO_REQUEST_ENDED || r->call != NULL || r->in_step)
        return;
    unlink_request(r);
    ft_rpc_timer_cancel(r->app->loop, &r->time_limit);
    co_group_forget(r);
    co_request_discard(r);
}

void co_request_discard(struct co_request *r) {
    co_drafting_end(r);
    ft_counts_destroy(&r->counts);
    ft_detok_fini(&r->detok);
    ft_ids_fini(&r->out_ids);
    ft_buf_fini(&r->out_text);
    ft_buf_fini(&r->out_logprobs);
    ft_arena_destroy(&r->arena);
    free(r);
}

void co_request_call_gone(struct co_request *r) {
    r->call = NULL;
    if (r->state != CO_REQUEST_ENDED)
        co_request_event(r, CO_EVENT_CANCEL); /* collects it */
    else
        co_request_collect(r);
}

bool co_request_paused(const struct co_request *r) {
    return r->stream && r->out_ids.len > (size_t)r->app->config.stream_buffer_tokens;
}

/* ---- output --------------------------------------------------------------------------------- */

static struct ft_wire_spec_stats wire_spec(const struct co_request *r) {
    struct ft_wire_spec_stats out = {
        .num_drafts = r->spec.drafts,
        .num_draft_tokens = r->spec.drafted,
        .num_accepted_tokens = r->spec.accepted,
        .num_target_steps = r->spec.target_steps,
        .num_plain_steps = r->spec.plain_steps,
        .lossy = r->lossy || r->rule->lossy,
        .fallback_reason = ft_str_c(r->fallback_reason),
    };
    for (size_t i = 0; i < FT_DRAFT_LEN_MAX; i++) {
        out.drafted_per_pos[i] = r->spec.drafted_per_pos[i];
        out.accepted_per_pos[i] = r->spec.accepted_per_pos[i];
        if (r->spec.drafted_per_pos[i] != 0)
            out.n_pos = i + 1;
    }
    return out;
}

static double seconds(int64_t from_ns, int64_t to_ns) {
    return to_ns > from_ns && from_ns != 0 ? (double)(to_ns - from_ns) * 1e-9 : 0.0;
}

static void fill_end(const struct co_request *r, struct ft_wire_generated *out) {
    out->finish = r->finish;
    out->has_matched_token = r->has_matched_token;
    out->matched_token_id = r->matched_token;
    if (r->matched_stop >= 0) {
        out->has_matched_str = true;
        out->matched_stop_str = r->stops[r->matched_stop];
    }
    out->has_usage = true;
    out->usage = (struct ft_wire_usage){
        .prompt_tokens = (uint32_t)r->n_prompt,
        .completion_tokens = (uint32_t)(r->n - r->n_prompt),
        .cached_tokens = (uint32_t)r->cached_tokens,
        .queue_seconds = seconds(r->arrived_ns, r->started_ns),
        .first_token_seconds = seconds(r->arrived_ns, r->first_token_ns),
        .total_seconds = seconds(r->arrived_ns, r->last_token_ns),
    };
    out->has_speculative = true;
    out->speculative = wire_spec(r);
}

static void fill_first(const struct co_request *r, struct ft_wire_generated *out) {
    out->request_id = ft_str_c(r->id);
    if (r->return_prompt) {
        out->prompt_token_ids = r->tokens;
        out->n_prompt_token_ids = (size_t)r->n_prompt;
    }
    out->prompt_logprobs = r->prompt_logprobs;
    if (r->prompt_logprobs != NULL)
        out->n_prompt_logprobs = (size_t)r->n_prompt_rows;
}

static enum ft_code send_own(struct co_request *r, const struct ft_wire_generated *message) {
    struct ft_buf out;
    ft_buf_init(&out, 0);
    ft_wire_encode_generated(message, &out);
    enum ft_code code = out.failed ? FT_E_PROC_MEMORY : ft_rpc_call_send(r->call, ft_buf_str(&out));
    ft_buf_fini(&out);
    return code;
}

static struct ft_wire_generated message_of(const struct co_request *r, bool last) {
    struct ft_wire_generated message = {
        .token_ids = r->out_ids.ptr,
        .n_token_ids = r->out_ids.len,
        .text = ft_buf_str(&r->out_text),
        .index = (uint32_t)r->index,
    };
    if (r->n_top >= 0) {
        message.logprobs = (const struct ft_logprobs *)(const void *)r->out_logprobs.ptr;
        message.n_logprobs = r->out_logprobs.len / sizeof *message.logprobs;
    }
    if (!r->announced)
        fill_first(r, &message);
    if (last)
        fill_end(r, &message);
    return message;
}

/* What is pending goes to the call, whole. false: it stays, until the call is writable or gone; or
 * the call has failed, because a client that is told of an end must have got everything before. */
static bool send_pending(struct co_request *r, bool last) {
    struct ft_wire_generated message = message_of(r, last);
    bool is_out = false;
    enum ft_code code = r->vllm ? co_vllm_send(r, &message, last, &is_out) : send_own(r, &message);
    if (code == FT_OK || is_out) {
        r->announced = true;
        r->out_ids.len = 0;
        ft_buf_reset(&r->out_text);
        ft_buf_reset(&r->out_logprobs);
    }
    if (code == FT_OK)
        return true;
    if (code == FT_E_REQ_EXHAUSTED || code == FT_E_REQ_CANCELLED)
        return false;
    ft_err_set(&r->error, code, MODULE, "what was generated could not be sent");
    ft_warn("send-failed request %s code %s tokens %d", r->id, ft_code_name(code),
            r->n - r->n_prompt);
    co_group_fail(r);
    return false;
}

/* What all continuations of a writable call have to say: none waits for another's turn, and who
 * finds no room is the first of the next time. */
static void send_group(struct co_group *group) {
    int32_t first = group->next;
    for (int32_t i = 0; i < CO_GROUP_MAX; i++) {
        int32_t at = (first + i) % CO_GROUP_MAX;
        struct co_request *r = group->members[at];
        if (r == NULL || r->call == NULL || r->state == CO_REQUEST_ENDED ||
            (r->out_ids.len == 0 && r->out_text.len == 0))
            continue;
        group->next = at;
        if (!send_pending(r, false))
            return;
    }
}

void co_request_flush(struct co_request *r) {
    if (r->call == NULL)
        return;
    bool ended = r->state == CO_REQUEST_ENDED;
    if (ended) {
        if (r->error.code != FT_OK) {
            co_group_fail(r);
        } else if (r->finish != FT_WIRE_FINISH_NONE) {
            if (r->is_late && !ft_rpc_call_writable(r->call))
                return;
            r->is_late = !send_pending(r, true);
            if (!r->is_late)
                co_group_said(r);
        }
        return;
    }
    bool pending = r->out_ids.len != 0 || r->out_text.len != 0;
    if (r->stream && pending && ft_rpc_call_writable(r->call))
        send_group(r->group);
}

/* ---- life cycle ----------------------------------------------------------------------------- */

static void release(struct co_released *list, uint64_t seq_id) {
    FT_ASSERT(list->n < list->cap); /* every round sends what there is */
    list->ids[list->n++] = seq_id;
}

void co_request_drop_draft(struct co_request *r) {
    struct co_app *app = r->app;
    r->draft_len = 0;
    if (r->draft_blocks == 0)
        return;
    app->pair.draft_blocks_free += r->draft_blocks;
    r->draft_blocks = 0;
    release(&app->draft_released, r->seq_id);
}

/* Give back a running request's place and everything that the workers hold of it. */
static void give_place(struct co_request *r) {
    struct co_app *app = r->app;
    app->n_running--;
    app->pair.target_blocks_free += r->target_blocks;
    r->target_blocks = r->target_len = 0;
    release(&app->target_released, r->seq_id);
    co_request_drop_draft(r);
}

static void leave(struct co_request *r) {
    struct co_app *app = r->app;
    if (r->state == CO_REQUEST_QUEUED)
        app->n_queued--;
    else
        give_place(r);
    r->state = CO_REQUEST_ENDED;
    int64_t now_ns = ft_clock_now_ns();
    co_retry_ended(&app->retry, r->started_ns != 0 ? now_ns - r->started_ns : -1,
                   now_ns - r->arrived_ns);
    ft_rpc_timer_cancel(app->loop, &r->time_limit);
    co_drain_look(app);
}

static void finish_ok(struct co_request *r) {
    leave(r);
    ft_detok_finish(&r->detok, &r->out_text);
    r->app->stats.finished++;
    r->app->stats.finished_by[r->finish]++;
    r->last_token_ns = ft_clock_now_ns();
    co_stats_saw(&r->app->stats, CO_HISTOGRAM_E2E, seconds(r->arrived_ns, r->last_token_ns), 1);
    ft_debug("request-finished request %s finish %s tokens %d", r->id,
             ft_wire_finish_name(r->finish), r->n - r->n_prompt);
    co_request_flush(r);
    co_request_collect(r);
}

/* The last token is never fed. */
static int32_t positions_most(const struct co_request *r) {
    return r->n_prompt + r->max_new - 1;
}

int32_t co_request_blocks_most(const struct co_request *r) {
    return co_plan_blocks(&r->app->pair.target_limits, positions_most(r));
}

int32_t co_request_blocks_needed(const struct co_request *r) {
    int32_t most = positions_most(r);
    int32_t n = r->n + (r->speculate ? r->k : 0) + 1;
    return co_plan_blocks(&r->app->pair.target_limits, n < most ? n : most);
}

static void on_admit(struct co_request *r) {
    struct co_app *app = r->app;
    app->n_queued--;
    app->n_running++;
    r->target_blocks = co_request_blocks_needed(r);
    app->pair.target_blocks_free -= r->target_blocks;
    r->seq_id = app->next_seq_id++;
    r->state = CO_REQUEST_RUNNING;
    if (r->started_ns != 0)
        return;
    r->started_ns = ft_clock_now_ns();
    app->stats.prompt_tokens += (uint64_t)r->n_prompt;
    co_stats_saw(&app->stats, CO_HISTOGRAM_QUEUE, seconds(r->arrived_ns, r->started_ns), 1);
}

static void on_preempt(struct co_request *r) {
    struct co_app *app = r->app;
    give_place(r);
    app->n_queued++;
    r->state = CO_REQUEST_QUEUED;
    r->n_preempted++;
    app->stats.preemptions++;
    ft_debug("request-preempted request %s tokens %d", r->id, r->n - r->n_prompt);
}

void co_request_back_off(struct co_request *r) {
    int32_t doublings = r->n_failures < BACK_OFF_DOUBLINGS ? r->n_failures : BACK_OFF_DOUBLINGS;
    r->not_before_ns = ft_clock_now_ns() + ((int64_t)BACK_OFF_FIRST_MS << doublings) * 1000000;
    co_request_event(r, CO_EVENT_PREEMPT);
}

static void on_stop(struct co_request *r) {
    finish_ok(r);
}

static void on_fail(struct co_request *r) {
    leave(r);
    r->app->stats.failed++;
    r->app->stats.nan_rows += r->error.code == FT_E_REQ_NUMERIC;
    ft_info("request-failed request %s code %s reason %s", r->id, ft_code_name(r->error.code),
            r->error.text);
    co_request_flush(r);
    co_request_collect(r);
}

static void on_cancel(struct co_request *r) {
    leave(r);
    if (r->is_orphan) /* no client went away */
        r->app->stats.failed++;
    else
        r->app->stats.cancelled++;
    ft_debug("request-cancelled request %s tokens %d", r->id, r->n - r->n_prompt);
    co_request_collect(r);
}

static void on_time_limit(struct co_request *r) {
    r->finish = FT_WIRE_FINISH_TIME_LIMIT;
    finish_ok(r);
}

static void on_abort(struct co_request *r) {
    r->finish = FT_WIRE_FINISH_ABORT;
    finish_ok(r);
}

static void ignore(struct co_request *r) {
    (void)r;
}

/* [state][event]. An event that comes late, after the end, changes nothing. */
static void (*const k_table[3][7])(struct co_request *) = {
    [CO_REQUEST_QUEUED] = {on_admit, ignore, ignore, on_fail, on_cancel, on_time_limit, on_abort},
    [CO_REQUEST_RUNNING] = {ignore, on_preempt, on_stop, on_fail, on_cancel, on_time_limit,
                            on_abort},
    [CO_REQUEST_ENDED] = {ignore, ignore, ignore, ignore, ignore, ignore, ignore},
};

void co_request_event(struct co_request *r, enum co_request_event event) {
    k_table[r->state][event](r);
}

void co_request_fail(struct co_request *r, const struct ft_err *err) {
    if (r->state == CO_REQUEST_ENDED)
        return;
    r->error = *err;
    if (r->error.code == FT_OK)
        r->error.code = FT_E_PROC_INTERNAL;
    co_request_event(r, CO_EVENT_FAIL);
}

/* ---- commit --------------------------------------------------------------------------------- */

static bool is_stop_id(const struct co_request *r, int32_t id) {
    for (int32_t i = 0; i < r->n_stop_ids; i++)
        if (r->stop_ids[i] == id)
            return true;
    return false;
}

/* Text of one token into out_text; true when a stop string is complete. */
static bool add_text(struct co_request *r, int32_t id, bool stops) {
    const struct ft_tokenizer *tokenizer = r->app->pair.tokenizer;
    bool hidden =
        stops ? !r->include_stop : r->skip_special && ft_tokenizer_is_special(tokenizer, id);
    if (hidden)
        return false;
    /* Stop strings count from min_tokens on, as stop tokens do, wherever they begin. */
    r->detok.is_early = r->n - r->n_prompt <= r->min_tokens;
    r->matched_stop = ft_detok_push(&r->detok, ft_tokenizer_bytes(tokenizer, id), &r->out_text);
    return r->matched_stop >= 0;
}

/* One token; true when it ends the request. */
static bool commit_one(struct co_request *r, int32_t id) {
    r->tokens[r->n++] = id;
    bool kept = ft_ids_push(&r->out_ids, &id, 1) == FT_OK;
    if (r->counts != NULL)
        kept = kept && ft_counts_add_output(r->counts, &id, 1);
    if (!kept) {
        ft_err_set(&r->error, FT_E_PROC_MEMORY, "request", "no memory for the output");
        return true;
    }
    int32_t produced = r->n - r->n_prompt;
    bool stops = is_stop_id(r, id);
    bool matched = add_text(r, id, stops);
    if (stops || matched) {
        r->finish = FT_WIRE_FINISH_STOP;
        r->has_matched_token = stops && !matched;
        r->matched_token = id;
        return true;
    }
    if (produced == r->max_new) {
        r->finish = FT_WIRE_FINISH_LENGTH;
        return true;
    }
    return false;
}

/* Latencies, as those see them who get the tokens: n that came at once share the time. */
static void see_commit(struct co_request *r, int32_t n) {
    struct co_stats *stats = &r->app->stats;
    int64_t now_ns = ft_clock_now_ns();
    stats->generation_tokens += (uint64_t)n;
    if (r->first_token_ns == 0) {
        r->first_token_ns = now_ns;
        stats->prefix_queries += (uint64_t)r->n_prompt;
        stats->prefix_hits += (uint64_t)r->cached_tokens;
        co_stats_saw(stats, CO_HISTOGRAM_TTFT, seconds(r->arrived_ns, now_ns), 1);
    } else if (n > 0) {
        co_stats_saw(stats, CO_HISTOGRAM_ITL, seconds(r->last_commit_ns, now_ns) / n, (uint64_t)n);
    }
    r->last_commit_ns = now_ns;
}

int32_t co_request_commit(struct co_request *r, const int32_t *tokens, int32_t n) {
    int32_t committed = 0;
    bool end = false;
    while (committed < n && !end)
        end = commit_one(r, tokens[committed++]);
    r->lossy = r->lossy || r->rule->lossy;
    see_commit(r, committed);
    return committed;
}

void co_request_conclude(struct co_request *r) {
    if (r->error.code != FT_OK)
        co_request_event(r, CO_EVENT_FAIL);
    else if (r->finish != FT_WIRE_FINISH_NONE)
        co_request_event(r, CO_EVENT_STOP);
}
