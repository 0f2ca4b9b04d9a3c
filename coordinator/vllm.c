#include "coordinator/vllm.h"

#include <time.h>

#include "common/base/clock.h"
#include "common/wire/vllm_engine.h"
#include "coordinator/answer.h"
#include "coordinator/app.h"
#include "coordinator/round.h"

#define MODULE "vllm"
#define ARENA_CHUNK 1024
#define ARENA_MAX ((size_t)16 << 20)

/* ---- Generate -------------------------------------------------------------------------------- */

enum ft_code co_vllm_decode(const struct co_app *app, struct ft_str message, struct ft_arena *arena,
                            struct ft_wire_generate *out, struct ft_err *err) {
    enum ft_code code = ft_wire_decode_vllm_generate(message, arena, out, err);
    if (code == FT_OK && out->params.has_truncate_prompt_tokens &&
        out->params.truncate_prompt_tokens == FT_WIRE_VLLM_TRUNCATE_TO_MODEL)
        out->params.truncate_prompt_tokens = (uint32_t)(app->pair.max_model_len - 1);
    return code;
}

static struct ft_wire_vllm_output output_of(const struct co_request *r,
                                            const struct ft_wire_generated *message) {
    return (struct ft_wire_vllm_output){
        .ids = message->token_ids,
        .n_ids = message->n_token_ids,
        .logprobs = message->logprobs,
        .n_logprobs = message->n_logprobs,
        .has_prompt_logprobs = message->prompt_logprobs != NULL,
        .prompt_ids = r->tokens,
        .prompt_logprobs = message->prompt_logprobs,
        .n_prompt_logprobs = message->n_prompt_logprobs,
        .prompt_tokens = (uint32_t)r->n_prompt,
        .completion_tokens = (uint32_t)(r->n - r->n_prompt),
        .cached_tokens = (uint32_t)r->cached_tokens,
        .index = (uint32_t)r->index,
    };
}

static void complete(const struct co_request *r, const struct ft_wire_generated *message,
                     struct ft_wire_vllm_output *out) {
    out->ids = r->tokens + r->n_prompt;
    out->n_ids = (size_t)(r->n - r->n_prompt);
    out->finish = message->finish;
    out->has_matched_token = message->has_matched_token;
    out->matched_token_id = message->matched_token_id;
    out->has_matched_str = message->has_matched_str;
    out->matched_stop_str = message->matched_stop_str;
    out->spec_accepted = (uint32_t)message->speculative.num_accepted_tokens;
    out->spec_drafted = (uint32_t)message->speculative.num_draft_tokens;
    if (r->stream) { /* chunks had them */
        out->n_logprobs = 0;
        out->has_prompt_logprobs = false;
    }
}

static enum ft_code send(struct co_request *r, struct ft_buf *out) {
    enum ft_code code = out->failed ? FT_E_PROC_MEMORY : ft_rpc_call_send(r->call, ft_buf_str(out));
    ft_buf_reset(out);
    return code;
}

enum ft_code co_vllm_send(struct co_request *r, const struct ft_wire_generated *message, bool last,
                          bool *is_out) {
    struct ft_wire_vllm_output output = output_of(r, message);
    enum ft_code code = FT_OK;
    struct ft_buf out;
    ft_buf_init(&out, 0);
    if (r->stream && (output.n_ids > 0 || output.has_prompt_logprobs)) {
        ft_wire_encode_vllm_chunk(&output, &out);
        code = send(r, &out);
        *is_out = code == FT_OK;
    }
    if (code == FT_OK && last) {
        complete(r, message, &output);
        ft_wire_encode_vllm_complete(&output, &out);
        code = send(r, &out);
    }
    ft_buf_fini(&out);
    return code;
}

/* ---- the rest -------------------------------------------------------------------------------- */

void co_vllm_health_check(struct ft_rpc_call *call, void *service, struct ft_str message) {
    const struct co_app *app = service;
    bool ready = app->readiness.state == CO_READINESS_READY;
    struct ft_buf out;
    (void)message;
    ft_buf_init(&out, 0);
    ft_wire_encode_vllm_health(ready, ft_str_c(ready ? "Health" : app->readiness.reason), &out);
    co_answer_with(call, &out);
}

struct abort {
    const struct co_token *token; /* of the caller; NULL: none is asked for */
    const struct ft_str *ids;
    size_t n;
};

static bool concerns(const struct abort *a, struct ft_str id, struct ft_str token) {
    if (a->token != NULL && !a->token->admin && !ft_str_eq(token, ft_str_c(a->token->name)))
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (a->ids[i].len > 0 && ft_str_eq(id, a->ids[i]))
            return true;
    return false;
}

static void abort_requests(struct co_app *app, const struct abort *a) {
    for (struct co_request *r = app->first, *next; r != NULL; r = next) {
        next = r->next;
        if (concerns(a, ft_str_c(r->id), r->token))
            co_request_event(r, CO_EVENT_ABORT); /* frees r alone */
    }
    for (struct co_encode_job *job = app->encoding.first, *next; job != NULL; job = next) {
        next = job->next;
        if (job->call == NULL || !concerns(a, job->request_id, job->token))
            continue;
        ft_rpc_call_finish(job->call, ft_code_grpc_status(FT_E_REQ_CANCELLED), "aborted");
        co_encode_call_gone(app, job->call);
    }
    co_round_kick(app);
}

void co_vllm_abort(struct ft_rpc_call *call, void *service, struct ft_str message) {
    struct co_app *app = service;
    struct ft_err err = {0};
    const struct ft_str *ids;
    size_t n;
    struct ft_arena *arena = ft_arena_create(ARENA_CHUNK, ARENA_MAX);
    enum ft_code code = arena == NULL ? ft_err_set(&err, FT_E_PROC_MEMORY, MODULE, "no memory")
                                      : ft_wire_decode_vllm_abort(message, arena, &ids, &n, &err);
    if (code != FT_OK) {
        ft_rpc_call_fail(call, &err);
    } else {
        abort_requests(app, &(struct abort){co_guard_token(app, call), ids, n});
        ft_rpc_call_reply(call, (struct ft_str){"", 0});
    }
    ft_arena_destroy(&arena);
}

/* false: the call was told that nothing is known yet. */
static bool knows_model(const struct co_app *app, struct ft_rpc_call *call) {
    if (app->readiness.serving)
        return true;
    ft_rpc_call_finish(call, ft_code_grpc_status(FT_E_PEER_UNAVAILABLE), app->readiness.reason);
    return false;
}

void co_vllm_model_info(struct ft_rpc_call *call, void *service, struct ft_str message) {
    const struct co_app *app = service;
    struct ft_buf out;
    (void)message;
    if (!knows_model(app, call))
        return;
    const struct ft_wire_describe *d = co_peer_describe(app->target);
    struct ft_wire_vllm_model model = {
        .path = d->model_dir,
        .name = ft_str_base_name(d->model_dir),
        .tokenizer_path =
            app->config.tokenizer[0] != 0 ? ft_str_c(app->config.tokenizer) : d->model_dir,
        .architecture = d->architecture,
        .max_model_len = (uint32_t)app->pair.max_model_len,
        .vocab_size = d->vocab_size,
        .eos_ids = app->pair.eos_ids,
        .n_eos_ids = (size_t)app->pair.n_eos,
    };
    ft_buf_init(&out, 0);
    ft_wire_encode_vllm_model(&model, &out);
    co_answer_with(call, &out);
}

void co_vllm_server_info(struct ft_rpc_call *call, void *service, struct ft_str message) {
    const struct co_app *app = service;
    struct ft_buf out;
    (void)message;
    if (!knows_model(app, call))
        return;
    struct ft_wire_vllm_server server = {
        .active_requests = (uint32_t)(app->n_running + app->n_queued),
        .paused = app->readiness.draining,
        .last_receive_s = (double)app->last_receive_s,
        .uptime_s = (double)(ft_clock_now_ns() - app->started_ns) * 1e-9,
        .block_tokens = (uint32_t)app->pair.target_limits.block_tokens,
        .model_dtype = co_peer_describe(app->target)->dtype,
    };
    ft_buf_init(&out, 0);
    ft_wire_encode_vllm_server(&server, &out);
    co_answer_with(call, &out);
}

void co_vllm_loads(struct ft_rpc_call *call, void *service, struct ft_str message) {
    const struct co_app *app = service;
    const struct co_pair *pair = &app->pair;
    struct ft_err err = {0};
    char timestamp[32] = "";
    struct tm tm;
    time_t now = time(NULL);
    if (!knows_model(app, call))
        return;
    struct ft_arena *arena = ft_arena_create(ARENA_CHUNK, ARENA_MAX);
    enum ft_code code = arena == NULL ? ft_err_set(&err, FT_E_PROC_MEMORY, MODULE, "no memory")
                                      : ft_wire_decode_vllm_loads(message, arena, &err);
    ft_arena_destroy(&arena);
    if (code != FT_OK) {
        ft_rpc_call_fail(call, &err);
        return;
    }
    if (gmtime_r(&now, &tm) != NULL)
        strftime(timestamp, sizeof timestamp, "%FT%TZ", &tm);
    struct ft_wire_vllm_load load = {
        .timestamp = ft_str_c(timestamp),
        .version = ft_str_c(CO_VERSION),
        .running = app->n_running,
        .waiting = app->n_queued,
        .max_running = pair->max_seqs,
        .used_tokens =
            (pair->target_blocks - pair->target_blocks_free) * pair->target_limits.block_tokens,
        .max_tokens = pair->target_blocks * pair->target_limits.block_tokens,
    };
    struct ft_buf out;
    ft_buf_init(&out, 0);
    ft_wire_encode_vllm_load(&load, &out);
    co_answer_with(call, &out);
}
