#include "sim/client.h"

#include <stdio.h>
#include <string.h>

#include "common/spec/rule.h"
#include "common/spec/rules.h"
#include "sim/model.h"
#include "sim/net.h"
#include "sim/world.h"

#define US 1000

void sim_client_prompt(struct sim_client *c, uint32_t family, int32_t n) {
    uint32_t h = family * 2654435761u;
    for (int32_t i = 0; i < n; i++) {
        h = h * 1664525u + 1013904223u;
        c->prompt[i] = (int32_t)(h >> 24);
    }
    c->n_prompt = n;
}

/* ---- what must come ------------------------------------------------------------------------- */

/* The target's own choice at a position, as a plain step makes it. */
static int32_t choose(const struct sim_client *c, struct ft_transform *transform, uint64_t history,
                      int32_t position) {
    if (c->params.temperature < 5.0f)
        return sim_next(history); /* everything else has a probability of 1e-10 at most */
    float row[SIM_VOCAB];
    const float *rows[1] = {row};
    struct ft_sampling sampling = ft_sampling_default();
    sampling.temperature = c->params.temperature;
    sampling.seed = c->params.seed;
    struct ft_round round = {
        .sampling = &sampling,
        .position = (uint64_t)position,
        .p_rows = rows,
        .n_vocab = SIM_VOCAB,
    };
    struct ft_verdict verdict = {0};
    struct ft_err err = {0};
    sim_row(history, row);
    FT_ASSERT(ft_rule_find("standard")->decide(transform, &round, &verdict, &err) == FT_OK);
    return verdict.tokens[0];
}

void sim_client_expect(struct sim_client *c, struct ft_transform *transform) {
    uint64_t history = 1;
    for (int32_t i = 0; i < c->n_prompt; i++)
        history = sim_chain(history, c->prompt[i]);
    c->exact = c->params.temperature < 5.0f || (c->has_k && c->k == 0);
    if (history == 0) {
        c->expected_status = 13; /* its logits are not finite */
        return;
    }
    c->expected_finish = FT_WIRE_FINISH_LENGTH;
    while (c->n_expected < (int32_t)c->params.max_tokens) {
        int32_t id = choose(c, transform, history, c->n_prompt + c->n_expected);
        history = sim_chain(history, id);
        c->expected[c->n_expected++] = id;
        if ((id == SIM_EOS && !c->params.ignore_eos) || id == c->stop_id) {
            c->expected_finish = FT_WIRE_FINISH_STOP;
            return;
        }
    }
}

/* ---- what happens --------------------------------------------------------------------------- */

static void on_message(void *user, struct ft_str message) {
    struct sim_client *c = user;
    struct ft_wire_generated out;
    struct ft_err err = {0};
    struct ft_arena *arena = ft_arena_create(4096, 0);
    if (ft_wire_decode_generated(message, arena, &out, &err) != FT_OK)
        world_fail(c->world, "client %s: %s", c->id, err.text);
    for (size_t i = 0; i < out.n_token_ids; i++) {
        if (c->exact && (c->n_got >= c->n_expected || out.token_ids[i] != c->expected[c->n_got]))
            world_fail(c->world, "client %s: token %d is %d, expected %d of %d", c->id, c->n_got,
                       out.token_ids[i], c->n_got < c->n_expected ? c->expected[c->n_got] : -1,
                       c->n_expected);
        if (c->n_got >= (int32_t)c->params.max_tokens)
            world_fail(c->world, "client %s: more than max_tokens", c->id);
        c->got[c->n_got++] = out.token_ids[i];
    }
    if (out.n_token_ids > 0 && c->first_token_ns == 0) {
        c->first_token_ns = net_now_ns();
        c->first_token_step = sim_target_log().n_steps;
    }
    ft_buf_add_str(&c->text, out.text);
    if (out.finish != FT_WIRE_FINISH_NONE) {
        c->finish = out.finish;
        c->usage = out.usage;
        c->spec = out.speculative;
        c->spec.fallback_reason = (struct ft_str){NULL, 0};
    }
    ft_arena_destroy(&arena);
    if (c->cancel_after >= 0 && c->n_got >= c->cancel_after && !c->cancelled) {
        c->cancelled = true;
        ft_rpc_stream_cancel(c->stream_call);
    }
}

static void on_done(void *user, const struct ft_rpc_status *status) {
    struct sim_client *c = user;
    const char *retry_after = net_stream_trailer(c->stream_call, "retry-after-ms");
    snprintf(c->retry_after, sizeof c->retry_after, "%s", retry_after ? retry_after : "");
    c->status = *status;
    c->done = true;
    c->done_ns = net_now_ns();
    c->stream_call = NULL;
    ft_rpc_timer_cancel(c->world->outside, &c->cancel_timer);
    ft_rpc_timer_cancel(c->world->outside, &c->read_timer);
    sim_client_check(c);
}

static const struct ft_rpc_stream_handlers k_handlers = {
    .on_message = on_message,
    .on_done = on_done,
};

static void cancel_now(void *user) {
    struct sim_client *c = user;
    if (c->done || c->cancelled)
        return;
    c->cancelled = true;
    ft_rpc_stream_cancel(c->stream_call);
}

static void toggle_reading(void *user) {
    struct sim_client *c = user;
    if (c->done || c->cancelled)
        return;
    c->reads = !c->reads;
    ft_rpc_timer_set(c->world->outside, &c->read_timer,
                     net_now_ns() + (int64_t)(1 + net_below(20000)) * US, toggle_reading, c);
    net_stream_read(c->stream_call, c->reads); /* the client may be done after it */
}

/* 12 KiB that truncate_prompt_tokens cuts off, then the prompt. */
static struct ft_str long_text_of(struct sim_client *c) {
    static char text[12288 + SIM_PROMPT_MAX];
    memset(text, 'x', 12288);
    for (int32_t i = 0; i < c->n_prompt; i++)
        text[12288 + i] = (char)c->prompt[i];
    return (struct ft_str){text, 12288 + (size_t)c->n_prompt};
}

static void send_request(struct sim_client *c) {
    struct ft_wire_generate request = {
        .request_id = ft_str_c(c->id),
        .input = {.kind = FT_WIRE_INPUT_IDS, .ids = c->prompt, .n_ids = (size_t)c->n_prompt},
        .params = c->params,
        .stream = c->stream,
        .has_num_speculative_tokens = c->has_k,
        .num_speculative_tokens = c->k,
        .priority = c->priority,
        .spec = {.has_synthetic_acceptance_length = c->acceptance_length > 0,
                 .synthetic_acceptance_length = c->acceptance_length},
    };
    if (c->rule != NULL)
        request.spec.rejection_sample_method = ft_str_c(c->rule);
    if (c->drafter != NULL)
        request.drafter = ft_str_c(c->drafter);
    if (c->long_text) {
        request.input =
            (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_TEXT, .text = long_text_of(c)};
        request.params.has_truncate_prompt_tokens = true;
        request.params.truncate_prompt_tokens = (uint32_t)c->n_prompt;
    }
    if (c->stop_id >= 0) {
        request.params.stop_token_ids = &c->stop_id;
        request.params.n_stop_token_ids = 1;
    }
    struct ft_rpc_call_opts opts = {
        .deadline_ns = c->deadline_in_ns == 0 ? 0 : net_now_ns() + c->deadline_in_ns,
        .metadata_key = c->metadata_key,
        .metadata_value = c->metadata_value,
    };
    struct ft_buf out;
    ft_buf_init(&out, 0);
    ft_wire_encode_generate(&request, &out);
    ft_rpc_stream_open(&c->stream_call, c->world->client, FT_WIRE_INFERENCE_SERVICE "Generate",
                       &opts, &k_handlers, c, NULL);
    ft_rpc_stream_send(c->stream_call, ft_buf_str(&out));
    ft_rpc_stream_half_close(c->stream_call);
    ft_buf_fini(&out);
}

void sim_client_start(void *user) {
    struct sim_client *c = user;
    for (int32_t i = 0; c->long_text && i < c->n_prompt; i++)
        c->prompt[i] &= 0x7f;
    sim_client_expect(c, c->world->transform);
    c->started = c->reads = true;
    c->started_ns = net_now_ns();
    c->started_step = sim_target_log().n_steps;
    send_request(c);
    if (c->cancel_at_ns != 0)
        ft_rpc_timer_set(c->world->outside, &c->cancel_timer, net_now_ns() + c->cancel_at_ns,
                         cancel_now, c);
    if (c->slow)
        toggle_reading(c);
}

/* ---- the end -------------------------------------------------------------------------------- */

static void check_text(const struct sim_client *c) {
    const struct ft_tokenizer *tokenizer = c->world->app->pair.tokenizer;
    struct ft_buf bytes, text;
    struct ft_detok detok;
    int32_t n = c->finish == FT_WIRE_FINISH_STOP ? c->n_got - 1 : c->n_got; /* the stop is hidden */
    ft_buf_init(&bytes, 0);
    ft_buf_init(&text, 0);
    ft_detok_init(&detok, NULL, 0, false);
    ft_tokenizer_decode(tokenizer, c->got, (size_t)(n > 0 ? n : 0), true, &bytes);
    ft_detok_push(&detok, ft_buf_str(&bytes), &text);
    ft_detok_finish(&detok, &text);
    if (!ft_str_eq(ft_buf_str(&text), ft_buf_str(&c->text)))
        world_fail(c->world, "client %s: the text is not that of its tokens", c->id);
    ft_detok_fini(&detok);
    ft_buf_fini(&bytes);
    ft_buf_fini(&text);
}

static void check_finished(const struct sim_client *c) {
    bool cut = c->finish == FT_WIRE_FINISH_TIME_LIMIT;
    if (cut && !c->params.has_time_limit_millis)
        world_fail(c->world, "client %s: a time limit that it has not", c->id);
    if (!cut && c->exact && (c->n_got != c->n_expected || c->finish != c->expected_finish))
        world_fail(c->world, "client %s: %d tokens and finish %d, expected %d and %d", c->id,
                   c->n_got, (int)c->finish, c->n_expected, (int)c->expected_finish);
    if (c->usage.completion_tokens != (uint32_t)c->n_got ||
        c->usage.prompt_tokens != (uint32_t)c->n_prompt ||
        c->usage.cached_tokens > (uint32_t)c->n_prompt)
        world_fail(c->world, "client %s: usage %u + %u, cached %u", c->id, c->usage.prompt_tokens,
                   c->usage.completion_tokens, c->usage.cached_tokens);
    if (c->spec.num_accepted_tokens > c->spec.num_draft_tokens)
        world_fail(c->world, "client %s: more accepted than drafted", c->id);
    check_text(c);
}

void sim_client_check(const struct sim_client *c) {
    int code = c->status.code;
    if (code == 1 && c->cancelled)
        return;
    if (code == 4 && c->deadline_in_ns != 0)
        return;
    if (code == 8 && c->may_be_refused && c->n_got == 0)
        return;
    bool cut = code == 0 && c->finish == FT_WIRE_FINISH_TIME_LIMIT;
    if (code != c->expected_status && !cut)
        world_fail(c->world, "client %s: status %d (%s), expected %d", c->id, code, c->status.text,
                   c->expected_status);
    if (code == 0)
        check_finished(c);
}
