#include "sim/options.h"

#include <stdio.h>
#include <string.h>

#include "common/spec/logprob.h"
#include "sim/model.h"
#include "sim/net.h"

enum { OK = 0, CANCELLED = 1, INVALID = 3, INTERNAL = 13 };

void options_begin(struct options_call *c, struct world *world, int index) {
    *c = (struct options_call){.world = world, .cancel_after = -1};
    snprintf(c->id, sizeof c->id, "c%d", index);
    c->rule = ft_rule_find("standard");
    c->in.request_id = ft_str_c(c->id);
    c->in.input = (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_IDS, .ids = c->prompt};
    c->in.stream = true;
    c->in.params.has_temperature = c->in.params.has_max_tokens = c->in.params.has_seed = true;
    c->in.params.max_tokens = 20;
    for (int i = 0; i < OPTIONS_N_MAX; i++) {
        ft_buf_init(&c->lanes[i].text, 0);
        ft_buf_init(&c->lanes[i].want_text, 0);
    }
}

void options_end(struct options_call *c) {
    for (int i = 0; i < OPTIONS_N_MAX; i++) {
        ft_buf_fini(&c->lanes[i].text);
        ft_buf_fini(&c->lanes[i].want_text);
    }
}

uint32_t options_n(const struct options_call *c) {
    return c->in.params.has_n ? c->in.params.n : 1;
}

/* ---- what must come ------------------------------------------------------------------------- */

static uint64_t history_of_prompt(const struct options_call *c) {
    uint64_t history = 1;
    for (size_t i = 0; i < c->in.input.n_ids; i++)
        history = sim_chain(history, c->prompt[i]);
    return history;
}

static struct ft_sampling sampling_of(const struct options_call *c, uint32_t index) {
    const struct ft_wire_params *p = &c->in.params;
    return (struct ft_sampling){
        .temperature = p->temperature,
        .top_p = p->has_top_p ? p->top_p : 1.0f,
        .top_k = p->top_k,
        .min_p = p->min_p,
        .frequency_penalty = p->frequency_penalty,
        .presence_penalty = p->presence_penalty,
        .repetition_penalty = p->has_repetition_penalty ? p->repetition_penalty : 1.0f,
        .seed = p->seed + index,
        .coupled = c->rule->coupled,
        .bias = p->logit_bias,
        .n_bias = p->n_logit_bias,
        .allowed = p->allowed_token_ids,
        .n_allowed = p->n_allowed_token_ids,
        .banned = p->banned_token_ids,
        .n_banned = p->n_banned_token_ids,
    };
}

/* One continuation, as plain steps make it. */
struct plain {
    struct ft_sampling sampling;
    struct ft_counts *counts;
    struct ft_detok detok;
    int32_t stop_ids[64];
    size_t n_stop_ids;
    uint64_t history;
};

static void plain_init(struct plain *plain, const struct options_call *c, uint32_t index) {
    const struct ft_wire_params *p = &c->in.params;
    const struct co_pair *pair = &c->world->app->pair;
    *plain = (struct plain){.sampling = sampling_of(c, index), .history = history_of_prompt(c)};
    plain->counts = ft_counts_create();
    ft_counts_add_prompt(plain->counts, c->prompt, c->in.input.n_ids);
    for (int32_t i = 0; !p->ignore_eos && i < pair->n_eos; i++)
        plain->stop_ids[plain->n_stop_ids++] = pair->eos_ids[i];
    for (size_t i = 0; i < p->n_stop_token_ids; i++)
        plain->stop_ids[plain->n_stop_ids++] = p->stop_token_ids[i];
    ft_detok_init(&plain->detok, p->stop, p->n_stop, p->include_stop_str_in_output);
}

static enum ft_code plain_choose(const struct plain *plain, const struct options_call *c,
                                 int32_t n_before, int32_t *id) {
    float row[SIM_VOCAB];
    const float *rows[1] = {row};
    struct ft_round round = {
        .sampling = &plain->sampling,
        .counts = plain->counts,
        .position = c->in.input.n_ids + (uint64_t)n_before,
        .p_rows = rows,
        .n_vocab = SIM_VOCAB,
        .banned = plain->stop_ids,
        .n_banned = plain->n_stop_ids,
        .n_banned_rows = n_before < (int32_t)c->in.params.min_tokens,
        .lenience = 1.0f,
    };
    struct ft_verdict verdict = {0};
    struct ft_err err = {0};
    sim_row(plain->history, row);
    enum ft_code code = c->rule->decide(c->world->transform, &round, &verdict, &err);
    *id = verdict.tokens[0];
    return code;
}

/* The text of one token; true when it ends the continuation. */
static bool plain_say(struct plain *plain, const struct options_call *c, int32_t id,
                      struct options_lane *lane) {
    const struct ft_tokenizer *tokenizer = c->world->app->pair.tokenizer;
    bool stops = false, matched = false;
    for (size_t i = 0; i < plain->n_stop_ids; i++)
        stops = stops || plain->stop_ids[i] == id;
    bool hidden =
        stops ? !c->in.params.include_stop_str_in_output : ft_tokenizer_is_special(tokenizer, id);
    plain->detok.is_early = lane->n_want <= (int32_t)c->in.params.min_tokens;
    if (!hidden)
        matched =
            ft_detok_push(&plain->detok, ft_tokenizer_bytes(tokenizer, id), &lane->want_text) >= 0;
    return stops || matched;
}

static void expect_lane(struct options_call *c, uint32_t index) {
    struct options_lane *lane = &c->lanes[index];
    struct plain plain;
    plain_init(&plain, c, index);
    lane->want_finish = FT_WIRE_FINISH_LENGTH;
    while (lane->want_finish == FT_WIRE_FINISH_LENGTH &&
           lane->n_want < (int32_t)c->in.params.max_tokens) {
        int32_t id;
        enum ft_code code = plain_choose(&plain, c, lane->n_want, &id);
        if (code != FT_OK) {
            c->want_status = ft_code_grpc_status(code);
            break;
        }
        plain.history = sim_chain(plain.history, id);
        lane->want[lane->n_want++] = id;
        ft_counts_add_output(plain.counts, &id, 1);
        if (plain_say(&plain, c, id, lane))
            lane->want_finish = FT_WIRE_FINISH_STOP;
    }
    ft_detok_finish(&plain.detok, &lane->want_text);
    ft_detok_fini(&plain.detok);
    ft_counts_destroy(&plain.counts);
}

/* Drafts change nothing of what is greedy, nor of what the rule `coupled` says. */
static void expect(struct options_call *c) {
    const struct ft_wire_generate *in = &c->in;
    bool greedy = in->params.temperature < FT_TEMPERATURE_MIN && !c->rule->blind;
    bool plain = in->has_num_speculative_tokens && in->num_speculative_tokens == 0;
    c->exact = greedy || plain || c->rule->coupled;
    if (history_of_prompt(c) == 0) {
        c->exact = true;
        c->want_status = INTERNAL; /* its logits are not finite */
        return;
    }
    for (uint32_t i = 0; c->exact && i < options_n(c); i++)
        expect_lane(c, i);
}

/* ---- the end -------------------------------------------------------------------------------- */

static void check_logprob(const struct options_call *c, const struct ft_logprobs *got,
                          uint64_t history, int32_t token, int32_t n_top) {
    float row[SIM_VOCAB];
    struct ft_logprobs want;
    struct ft_err err = {0};
    sim_row(history, row);
    if (ft_logprob_row(c->world->transform, row, SIM_VOCAB, token, n_top, &want, &err) != FT_OK)
        world_fail(c->world, "call %s: a log-probability where none can be", c->id);
    size_t n = (size_t)want.n_top;
    if (want.token_logprob != got->token_logprob || want.n_top != got->n_top ||
        memcmp(want.ids, got->ids, n * sizeof want.ids[0]) != 0 ||
        memcmp(want.values, got->values, n * sizeof want.values[0]) != 0)
        world_fail(c->world, "call %s: token %d has the log-probability %g, expected %g", c->id,
                   token, (double)got->token_logprob, (double)want.token_logprob);
}

static void check_stats(const struct options_call *c, uint32_t index) {
    const struct options_lane *lane = &c->lanes[index];
    const struct ft_wire_spec_stats *s = &lane->spec;
    uint64_t n_drafted = 0, n_accepted = 0;
    for (size_t i = 0; i < s->n_pos; i++) {
        n_drafted += s->drafted_per_pos[i];
        n_accepted += s->accepted_per_pos[i];
    }
    if (n_drafted != s->num_draft_tokens || n_accepted != s->num_accepted_tokens ||
        n_accepted > n_drafted || s->num_drafts > n_drafted || n_accepted > (uint64_t)lane->n_got ||
        s->lossy != c->rule->lossy || s->num_target_steps != s->num_drafts + s->num_plain_steps)
        world_fail(c->world, "call %s[%u]: statistics that do not fit", c->id, index);
    if (lane->usage.completion_tokens != (uint32_t)lane->n_got ||
        lane->usage.prompt_tokens != (uint32_t)c->in.input.n_ids ||
        lane->usage.cached_tokens >= lane->usage.prompt_tokens)
        world_fail(c->world, "call %s[%u]: usage %u + %u, cached %u", c->id, index,
                   lane->usage.prompt_tokens, lane->usage.completion_tokens,
                   lane->usage.cached_tokens);
}

static void check_lane(const struct options_call *c, uint32_t index) {
    const struct options_lane *lane = &c->lanes[index];
    const struct ft_wire_params *p = &c->in.params;
    bool cut = (lane->finish == FT_WIRE_FINISH_ABORT && c->aborted) ||
               (lane->finish == FT_WIRE_FINISH_TIME_LIMIT && p->has_time_limit_millis);
    if (!cut && lane->finish != FT_WIRE_FINISH_STOP && lane->finish != FT_WIRE_FINISH_LENGTH)
        world_fail(c->world, "call %s[%u]: finish %d", c->id, index, (int)lane->finish);
    if (!cut && c->exact &&
        (lane->n_got != lane->n_want || lane->finish != lane->want_finish ||
         !ft_str_eq(ft_buf_str(&lane->text), ft_buf_str(&lane->want_text))))
        world_fail(c->world, "call %s[%u]: %d tokens and finish %d, expected %d and %d", c->id,
                   index, lane->n_got, (int)lane->finish, lane->n_want, (int)lane->want_finish);
    if (lane->finish == FT_WIRE_FINISH_STOP && lane->n_got <= (int32_t)p->min_tokens)
        world_fail(c->world, "call %s[%u]: stopped before min_tokens", c->id, index);
    uint64_t history = history_of_prompt(c);
    for (int32_t i = 0; i < lane->n_got; i++) {
        if (p->has_logprobs)
            check_logprob(c, &lane->logprobs[i], history, lane->got[i], p->logprobs);
        history = sim_chain(history, lane->got[i]);
    }
    check_stats(c, index);
}

static void check_prompt(const struct options_call *c) {
    const struct ft_wire_params *p = &c->in.params;
    int32_t n_all = p->has_prompt_logprobs ? (int32_t)c->in.input.n_ids - 1 : 0;
    if (c->n_prompt_logprobs > n_all || (c->n_prompt_logprobs < n_all && c->lanes[0].n_got > 0))
        world_fail(c->world, "call %s: %d prompt_logprobs, expected %d", c->id,
                   c->n_prompt_logprobs, n_all);
    uint64_t history = 1;
    for (int32_t i = 0; i < c->n_prompt_logprobs; i++) {
        history = sim_chain(history, c->prompt[i]);
        check_logprob(c, &c->prompt_logprobs[i], history, c->prompt[i + 1], p->prompt_logprobs);
    }
}

/* Of a text that is not known beforehand: where bias and masks leave nothing, and rows that rules
 * look at behind a token which numbers cannot follow. */
static bool may_end_so(const struct options_call *c, int code) {
    if (c->exact)
        return false;
    return code == INVALID ||
           (code == INTERNAL && (c->rule->blind || strcmp(c->rule->name, "block") == 0));
}

static void check(const struct options_call *c) {
    int code = c->status.code;
    bool cut = c->aborted || c->in.params.has_time_limit_millis;
    if (c->cancelled && (code == CANCELLED || code == OK))
        return; /* it read no more */
    if (code != c->want_status && !(cut && code == OK) && !may_end_so(c, code))
        world_fail(c->world, "call %s: status %d (%s), expected %d", c->id, code, c->status.text,
                   c->want_status);
    if (code != OK)
        return;
    check_prompt(c);
    for (uint32_t i = 0; i < options_n(c); i++)
        check_lane(c, i);
}

/* ---- what happens --------------------------------------------------------------------------- */

static void take_tokens(struct options_call *c, const struct ft_wire_generated *out) {
    struct options_lane *lane = &c->lanes[out->index];
    for (size_t i = 0; i < out->n_token_ids; i++) {
        int32_t id = out->token_ids[i], at = lane->n_got;
        if (at >= (int32_t)c->in.params.max_tokens)
            world_fail(c->world, "call %s: more than max_tokens", c->id);
        if (c->exact && c->want_status == OK && (at >= lane->n_want || id != lane->want[at]))
            world_fail(c->world, "call %s[%u]: token %d is %d, expected %d of %d", c->id,
                       out->index, at, id, at < lane->n_want ? lane->want[at] : -1, lane->n_want);
        if (c->in.params.has_logprobs && i < out->n_logprobs)
            lane->logprobs[at] = out->logprobs[i];
        lane->got[lane->n_got++] = id;
        c->n_got++;
    }
    if (out->n_logprobs != (c->in.params.has_logprobs ? out->n_token_ids : 0))
        world_fail(c->world, "call %s: %zu logprobs of %zu tokens", c->id, out->n_logprobs,
                   out->n_token_ids);
    ft_buf_add_str(&lane->text, out->text);
}

static void take(struct options_call *c, const struct ft_wire_generated *out) {
    struct options_lane *lane = &c->lanes[out->index];
    bool first = out->request_id.len > 0;
    if (first == lane->began || lane->finish != FT_WIRE_FINISH_NONE ||
        (out->n_prompt_logprobs > 0 && (out->index != 0 || !first)))
        world_fail(c->world, "call %s[%u]: messages in a wrong order", c->id, out->index);
    lane->began = true;
    take_tokens(c, out);
    for (size_t i = 0; i < out->n_prompt_logprobs; i++)
        c->prompt_logprobs[c->n_prompt_logprobs++] = out->prompt_logprobs[i];
    if (out->finish == FT_WIRE_FINISH_NONE)
        return;
    lane->finish = out->finish;
    lane->usage = out->usage;
    lane->spec = out->speculative;
    lane->spec.fallback_reason = (struct ft_str){NULL, 0};
}

static void on_message(void *user, struct ft_str message) {
    struct options_call *c = user;
    struct ft_wire_generated out;
    struct ft_err err = {0};
    struct ft_arena *arena = ft_arena_create(4096, 0);
    if (ft_wire_decode_generated(message, arena, &out, &err) != FT_OK || out.index >= options_n(c))
        world_fail(c->world, "call %s: index %u, %s", c->id, out.index, err.text);
    take(c, &out);
    ft_arena_destroy(&arena);
    if (c->cancel_after >= 0 && c->n_got >= c->cancel_after && !c->cancelled) {
        c->cancelled = true;
        ft_rpc_stream_cancel(c->stream);
    }
}

static void on_done(void *user, const struct ft_rpc_status *status) {
    struct options_call *c = user;
    c->status = *status;
    c->done = true;
    c->stream = NULL;
    ft_rpc_timer_cancel(c->world->outside, &c->read_timer);
    check(c);
}

static void toggle_reading(void *user) {
    struct options_call *c = user;
    if (c->done || c->cancelled)
        return;
    c->reads = !c->reads;
    ft_rpc_timer_set(c->world->outside, &c->read_timer,
                     net_now_ns() + (int64_t)(1 + net_below(20000)) * 1000, toggle_reading, c);
    net_stream_read(c->stream, c->reads); /* the call may be done after it */
}

/* The prompt, made ASCII, behind what truncation cuts off: helper threads tokenize it. */
static void make_text(struct options_call *c) {
    static char text[OPTIONS_CUT_OFF + OPTIONS_PROMPT_MAX];
    struct ft_wire_prompt *input = &c->in.input;
    memset(text, 'x', OPTIONS_CUT_OFF);
    for (size_t i = 0; i < input->n_ids; i++) {
        c->prompt[i] &= 0x7f;
        text[OPTIONS_CUT_OFF + i] = (char)c->prompt[i];
    }
    c->in.params.has_truncate_prompt_tokens = true;
    c->in.params.truncate_prompt_tokens = (uint32_t)input->n_ids;
    input->kind = FT_WIRE_INPUT_TEXT;
    input->text = (struct ft_str){text, OPTIONS_CUT_OFF + input->n_ids};
}

void options_start(void *user) {
    static const struct ft_rpc_stream_handlers handlers = {
        .on_message = on_message,
        .on_done = on_done,
    };
    struct options_call *c = user;
    struct ft_rpc_call_opts opts = {.deadline_ns = 0};
    struct ft_buf out;
    ft_buf_init(&out, 0);
    if (c->long_text)
        make_text(c);
    expect(c);
    ft_wire_encode_generate(&c->in, &out);
    ft_rpc_stream_open(&c->stream, c->world->client, FT_WIRE_INFERENCE_SERVICE "Generate", &opts,
                       &handlers, c, NULL);
    ft_rpc_stream_send(c->stream, ft_buf_str(&out));
    ft_rpc_stream_half_close(c->stream);
    ft_buf_fini(&out);
    c->reads = true;
    if (c->slow)
        toggle_reading(c);
}
