#include "coordinator/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/admin.h"
#include "common/wire/health.h"
#include "common/wire/reflection.h"
#include "common/wire/vllm_engine.h"
#include "coordinator/answer.h"
#include "coordinator/drain.h"
#include "coordinator/group.h"
#include "coordinator/reflection.h"
#include "coordinator/round.h"
#include "coordinator/sampling.h"
#include "coordinator/vllm.h"

#define MODULE "service"

/* A decoded message; the bound holds several times the largest of the default limit. */
#define REQUEST_ARENA_CHUNK 4096
#define REQUEST_ARENA_MAX ((size_t)96 << 20)
/* Tokenize and Detokenize are bounded by the message size; this bounds the reply. */
#define IDS_MAX 4194304

static enum ft_code ready(const struct co_app *app, struct ft_err *err) {
    const struct co_readiness *readiness = &app->readiness;
    if (readiness->state == CO_READINESS_DRAINING)
        return ft_err_set(err, FT_E_PEER_UNAVAILABLE, MODULE, "%s", readiness->reason);
    if (readiness->state == CO_READINESS_STARTING)
        return ft_err_set(err, FT_E_PEER_UNAVAILABLE, MODULE, "the service is starting: %s",
                          readiness->reason);
    return FT_OK;
}

/* ---- Generate ------------------------------------------------------------------------------- */

static void time_limit(void *user) {
    struct co_request *r = user;
    struct co_app *app = r->app;
    co_request_event(r, CO_EVENT_TIME_LIMIT);
    co_round_kick(app);
}

static bool comes_before(const struct co_request *a, const struct co_request *b) {
    if (a->turn.priority != b->turn.priority)
        return a->turn.priority < b->turn.priority;
    return a->arrived_ns <= b->arrived_ns;
}

/* Behind everybody of a lower priority value, and of the same one if they came before: a prompt
 * that was long in a tokenizer thread keeps the place of its arrival. */
static void insert(struct co_app *app, struct co_request *r) {
    struct co_request *before = app->last;
    while (before != NULL && !comes_before(before, r))
        before = before->prev;
    r->prev = before;
    r->next = before != NULL ? before->next : app->first;
    if (r->prev != NULL)
        r->prev->next = r;
    else
        app->first = r;
    if (r->next != NULL)
        r->next->prev = r;
    else
        app->last = r;
}

static void enqueue(struct co_app *app, struct co_request *r, const struct ft_wire_params *params) {
    insert(app, r);
    app->n_queued++;
    if (params->has_time_limit_millis)
        ft_rpc_timer_set(app->loop, &r->time_limit,
                         r->arrived_ns + (int64_t)params->time_limit_millis * 1000000, time_limit,
                         r);
}

struct ft_str co_service_client(const struct co_app *app, const struct ft_rpc_call *call) {
    struct ft_str client = {NULL, 0};
    if (app->config.client_metadata_key[0] != 0)
        client = ft_rpc_call_metadata(call, app->config.client_metadata_key);
    if (client.ptr != NULL)
        return client;
    client = ft_str_c(ft_rpc_call_peer(call));
    if (strncmp(client.ptr, "unix:", 5) == 0)
        return client;
    for (size_t i = client.len; i > 0; i--)
        if (client.ptr[i - 1] == ':')
            return (struct ft_str){client.ptr, i - 1};
    return client;
}

/* Requests of one client, waiting and running. */
static int32_t count_own(const struct co_app *app, struct ft_str client) {
    int32_t n = 0;
    for (const struct co_request *r = app->first; r != NULL; r = r->next)
        n += r->state != CO_REQUEST_ENDED && ft_str_eq(r->client, client);
    for (const struct co_encode_job *job = app->encoding.first; job != NULL; job = job->next)
        n += ft_str_eq(job->client, client) ? job->n_requests : 0;
    return n;
}

static void tell_retry(struct ft_rpc_call *call, int32_t ms) {
    char text[16];
    snprintf(text, sizeof text, "%d", ms);
    ft_rpc_call_trailer(call, "retry-after-ms", text);
}

/* So many continuations may be there together at all. */
static enum ft_code check_group(const struct co_app *app, int32_t n, struct ft_err *err) {
    int64_t room = (int64_t)app->config.max_queue + app->pair.max_seqs;
    if (n > room)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "n is %d: at most %lld run and wait together (max_num_seqs %d and "
                          "max_queue %d)",
                          n, (long long)room, app->pair.max_seqs, app->config.max_queue);
    if (app->config.max_requests_per_client > 0 && n > app->config.max_requests_per_client)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "n is %d: at most %d (max_requests_per_client)", n,
                          app->config.max_requests_per_client);
    return FT_OK;
}

/* Requests that may come now: as many as may wait, and as many as there are free places, which
 * those that are queued take when the next round begins, unless what they wait for is KV. */
static int64_t room_for(const struct co_app *app) {
    int64_t n_free = (int64_t)app->pair.max_seqs - app->n_running;
    bool places_help = n_free > 0 && (app->n_queued == 0 || !app->kv_short);
    return (int64_t)app->config.max_queue - app->n_queued - app->encoding.n_requests +
           (places_help ? n_free : 0);
}

/* Queue and shares, for n requests more. On failure the client is told when to come again. */
static enum ft_code check_limits(struct co_app *app, struct ft_rpc_call *call, int32_t n,
                                 struct ft_err *err) {
    int32_t limit = app->config.max_requests_per_client;
    int32_t n_waiting = app->n_queued + app->encoding.n_requests;
    int64_t room = room_for(app);
    if (n > room) {
        tell_retry(call, co_retry_queue_ms(&app->retry, n - (int32_t)room, app->n_running));
        return ft_err_set(err, FT_E_REQ_EXHAUSTED, MODULE,
                          "%d requests are waiting and %d come: the limit is %d (max_queue)",
                          n_waiting, n, app->config.max_queue);
    }
    int32_t n_own = limit > 0 ? count_own(app, co_service_client(app, call)) : 0;
    if (limit > 0 && n_own + n > limit) {
        tell_retry(call, co_retry_client_ms(&app->retry, n_own + n - limit, n_own));
        return ft_err_set(err, FT_E_REQ_EXHAUSTED, MODULE,
                          "this client has %d requests and %d come: the limit is %d "
                          "(max_requests_per_client)",
                          n_own, n, limit);
    }
    return FT_OK;
}

/* A call to Generate until its prompt is encoded. */
struct asked {
    struct co_encode_job encode; /* first: the job is the whole */
    struct ft_arena *arena;      /* of in */
    struct ft_wire_generate in;
    struct co_request *first; /* checked, all but the prompt; NULL once it is queued */
    bool vllm;                /* it came by the facade */
};

static void asked_destroy(struct asked *asked) {
    if (asked->first != NULL)
        co_request_discard(asked->first);
    ft_ids_fini(&asked->encode.ids);
    ft_arena_destroy(&asked->arena);
    free(asked);
}

static int32_t n_of(const struct ft_wire_generate *in) {
    return in->params.has_n ? (int32_t)in->params.n : 1;
}

/* All continuations of the call into made[], complete but for their group. */
static enum ft_code make_requests(struct asked *asked, const int32_t *ids, size_t n_ids,
                                  struct co_request *made[CO_GROUP_MAX], struct ft_err *err) {
    struct co_app *app = asked->encode.app;
    int32_t n = n_of(&asked->in), n_made = 1;
    made[0] = asked->first;
    asked->first = NULL;
    /* What an operator set while the prompt was tokenized counts for it as for those behind it. */
    co_drafting_follow(made[0]);
    co_sampling_follow(made[0]);
    enum ft_code code = co_request_set_prompt(made[0], &asked->in, ids, n_ids, err);
    while (code == FT_OK && n_made < n) {
        code = co_request_create(&made[n_made], app, &asked->in, n_made, err);
        if (code != FT_OK)
            break;
        made[n_made]->arrived_ns = made[0]->arrived_ns;
        memcpy(made[n_made]->id, made[0]->id, sizeof made[0]->id); /* one may have been made */
        code = co_request_set_prompt(made[n_made++], &asked->in, ids, n_ids, err);
    }
    while (code != FT_OK && n_made > 0)
        co_request_discard(made[--n_made]);
    return code;
}

static enum ft_code start_requests(struct asked *asked, const int32_t *ids, size_t n_ids,
                                   struct ft_err *err) {
    struct co_app *app = asked->encode.app;
    struct ft_rpc_call *call = asked->encode.call;
    struct co_request *made[CO_GROUP_MAX];
    struct co_group *group = co_group_create(app, call);
    if (group == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory");
    enum ft_code code = make_requests(asked, ids, n_ids, made, err);
    if (code != FT_OK) {
        co_group_discard(group);
        return code;
    }
    ft_rpc_call_set_user(call, group);
    for (int32_t i = 0; i < n_of(&asked->in); i++) {
        if (app->config.max_requests_per_client > 0) /* out of memory it counts to nobody */
            made[i]->client = ft_arena_str(made[i]->arena, co_service_client(app, call));
        made[i]->token = ft_arena_str(made[i]->arena, asked->encode.token);
        co_group_add(group, made[i]);
        enqueue(app, made[i], &asked->in.params);
    }
    return FT_OK;
}

static void refuse(struct co_app *app, struct ft_rpc_call *call, const struct ft_err *err) {
    app->stats.refused++;
    ft_debug("request-refused code %s reason %s", ft_code_name(err->code), err->text);
    ft_rpc_call_fail(call, err);
}

/* The prompt is encoded, or will not be. */
static void on_encoded(struct co_encode_job *job) {
    struct asked *asked = (struct asked *)job;
    struct co_app *app = job->app;
    struct ft_err err = job->err;
    enum ft_code code = job->code;
    if (code == FT_E_REQ_TOO_LARGE)
        code = co_request_prompt_too_long(app, &asked->in, &err);
    if (job->call != NULL) {
        if (code == FT_OK)
            code = start_requests(asked, job->ids.ptr, job->ids.len, &err);
        if (code != FT_OK)
            refuse(app, job->call, &err);
        co_round_kick(app);
    }
    asked_destroy(asked);
    co_drain_look(app); /* it may have been the last, and no request has come of it */
}

/* Check all but the prompt. */
static enum ft_code check_asked(struct asked *asked, struct ft_str message, struct ft_err *err) {
    struct co_app *app = asked->encode.app;
    struct ft_rpc_call *call = asked->encode.call;
    enum ft_code code = ready(app, err);
    if (code == FT_OK)
        code = check_limits(app, call, 1, err);
    if (code == FT_OK)
        code = asked->vllm ? co_vllm_decode(app, message, asked->arena, &asked->in, err)
                           : ft_wire_decode_generate(message, asked->arena, &asked->in, err);
    if (code == FT_OK)
        code = co_request_create(&asked->first, app, &asked->in, 0, err);
    if (code == FT_OK)
        code = check_group(app, n_of(&asked->in), err);
    if (code == FT_OK)
        code = check_limits(app, call, n_of(&asked->in), err);
    if (code == FT_OK) /* last: it is taken off the token's rate */
        code = co_guard_take(app, call, n_of(&asked->in), asked->in.priority, err);
    const struct co_token *token = co_guard_token(app, call);
    if (token != NULL)
        asked->encode.token = ft_arena_str(asked->arena, ft_str_c(token->name));
    if (code == FT_OK) {
        asked->encode.request = asked->first;
        asked->encode.request_id = ft_str_c(asked->first->id);
    }
    return code;
}

/* The prompt on its way; then asked is on_encoded's. */
static enum ft_code encode_asked(struct asked *asked, struct ft_err *err) {
    struct co_encode_job *job = &asked->encode;
    const struct ft_wire_generate *in = &asked->in;
    job->input = &in->input;
    job->opts.add_special = !in->has_add_special_tokens || in->add_special_tokens;
    job->opts.parse_special = !in->has_parse_special || in->parse_special;
    job->opts.tokens_max = co_request_prompt_max(job->app, in);
    job->n_requests = n_of(in);
    job->done = on_encoded;
    if (job->app->config.max_requests_per_client >
        0) /* the call outlives its name, if not the job */
        job->client = ft_arena_str(asked->arena, co_service_client(job->app, job->call));
    enum ft_code code = co_encode_start(job, err);
    if (code != FT_OK)
        tell_retry(job->call,
                   co_retry_queue_ms(&job->app->retry, job->n_requests, job->app->n_running));
    return code;
}

static void generate(struct co_app *app, struct ft_rpc_call *call, struct ft_str message,
                     bool vllm) {
    struct ft_err err = {0};
    app->last_receive_s = (int64_t)time(NULL);
    struct asked *asked = calloc(1, sizeof *asked);
    if (asked == NULL ||
        (asked->arena = ft_arena_create(REQUEST_ARENA_CHUNK, REQUEST_ARENA_MAX)) == NULL) {
        free(asked);
        ft_err_set(&err, FT_E_PROC_MEMORY, MODULE, "no memory");
        ft_rpc_call_fail(call, &err);
        return;
    }
    asked->vllm = vllm;
    asked->encode.app = app;
    asked->encode.call = call;
    enum ft_code code = check_asked(asked, message, &err);
    if (code == FT_OK && asked->in.input.kind != FT_WIRE_INPUT_IDS) {
        code = encode_asked(asked, &err);
        if (code == FT_OK)
            return; /* asked may be gone */
    } else if (code == FT_OK) {
        code = start_requests(asked, asked->in.input.ids, asked->in.input.n_ids, &err);
    }
    if (code != FT_OK)
        refuse(app, call, &err);
    asked_destroy(asked);
    co_round_kick(app);
}

static void on_generate(struct ft_rpc_call *call, void *service, struct ft_str message) {
    generate(service, call, message, false);
}

static void on_vllm_generate(struct ft_rpc_call *call, void *service, struct ft_str message) {
    generate(service, call, message, true);
}

static void on_generate_writable(struct ft_rpc_call *call, void *service) {
    struct co_group *group = ft_rpc_call_user(call);
    if (group == NULL)
        return;
    co_group_flush(group);
    co_round_kick(service);
}

static void on_generate_cancelled(struct ft_rpc_call *call, void *service) {
    struct co_group *group = ft_rpc_call_user(call);
    co_encode_call_gone(service, call);
    if (group == NULL)
        return;
    co_group_cancel(group);
    co_round_kick(service);
}

static void on_generate_gone(struct ft_rpc_call *call, void *service) {
    struct co_group *group = ft_rpc_call_user(call);
    co_encode_call_gone(service, call);
    if (group == NULL)
        return;
    ft_rpc_call_set_user(call, NULL);
    co_group_call_gone(group);
    co_round_kick(service);
}

/* ---- Tokenize, Detokenize, GetModelInfo ------------------------------------------------------ */

static void unary(struct ft_rpc_call *call, struct co_app *app, struct ft_str message,
                  co_answer_fn fn) {
    struct ft_err err = {0};
    if (ready(app, &err) == FT_OK)
        co_answer(call, app, message, REQUEST_ARENA_MAX, fn);
    else
        ft_rpc_call_fail(call, &err);
}

/* A call to Tokenize until it is answered. */
struct tokenizing {
    struct co_encode_job encode; /* first: the job is the whole */
    struct ft_arena *arena;      /* of in */
    struct ft_wire_tokenize in;
};

static void tokenizing_destroy(struct tokenizing *t) {
    ft_ids_fini(&t->encode.ids);
    ft_arena_destroy(&t->arena);
    free(t);
}

static void on_tokenized(struct co_encode_job *job) {
    struct ft_buf out;
    ft_buf_init(&out, 0);
    if (job->call != NULL && job->code != FT_OK) {
        ft_rpc_call_fail(job->call, &job->err);
    } else if (job->call != NULL) {
        ft_wire_encode_ids(&(struct ft_wire_ids){job->ids.ptr, job->ids.len}, &out);
        co_answer_with(job->call, &out);
    }
    ft_buf_fini(&out);
    tokenizing_destroy((struct tokenizing *)job);
}

static enum ft_code start_tokenizing(struct tokenizing *t, struct ft_str message,
                                     struct ft_err *err) {
    enum ft_code code = ready(t->encode.app, err);
    if (code == FT_OK)
        code = ft_wire_decode_tokenize(message, t->arena, &t->in, err);
    if (code == FT_OK && t->in.input.kind == FT_WIRE_INPUT_NONE)
        code = ft_err_set(err, FT_E_REQ_INVALID, MODULE, "no input: set text or chat");
    if (code != FT_OK)
        return code;
    t->encode.input = &t->in.input;
    t->encode.opts.add_special = !t->in.has_add_special_tokens || t->in.add_special_tokens;
    t->encode.opts.parse_special = !t->in.has_parse_special || t->in.parse_special;
    t->encode.opts.tokens_max = IDS_MAX;
    t->encode.done = on_tokenized;
    return co_encode_start(&t->encode, err);
}

static void on_tokenize(struct ft_rpc_call *call, void *service, struct ft_str message) {
    struct ft_err err = {0};
    struct tokenizing *t = calloc(1, sizeof *t);
    if (t == NULL || (t->arena = ft_arena_create(REQUEST_ARENA_CHUNK, REQUEST_ARENA_MAX)) == NULL) {
        free(t);
        ft_err_set(&err, FT_E_PROC_MEMORY, MODULE, "no memory");
        ft_rpc_call_fail(call, &err);
        return;
    }
    t->encode.app = service;
    t->encode.call = call;
    if (start_tokenizing(t, message, &err) == FT_OK)
        return; /* t may be gone */
    ft_rpc_call_fail(call, &err);
    tokenizing_destroy(t);
}

static void on_tokenize_gone(struct ft_rpc_call *call, void *service) {
    co_encode_call_gone(service, call);
}

static enum ft_code do_detokenize(struct co_app *app, struct ft_str message, struct ft_arena *arena,
                                  struct ft_buf *out, struct ft_err *err) {
    struct ft_wire_detokenize in;
    enum ft_code code = ft_wire_decode_detokenize(message, arena, &in, err);
    if (code != FT_OK)
        return code;
    for (size_t i = 0; i < in.n_ids; i++)
        if (in.ids[i] < 0 || in.ids[i] >= app->pair.tokenizer_size)
            return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                              "token_ids[%zu] is %d: must be 0 to %d", i, in.ids[i],
                              app->pair.tokenizer_size - 1);
    struct ft_buf bytes, text;
    struct ft_detok detok;
    ft_buf_init(&bytes, 0);
    ft_buf_init(&text, 0);
    ft_detok_init(&detok, NULL, 0, false);
    ft_tokenizer_decode(app->pair.tokenizer, in.ids, in.n_ids,
                        in.has_skip_special_tokens && in.skip_special_tokens, &bytes);
    ft_detok_push(&detok, ft_buf_str(&bytes), &text);
    ft_detok_finish(&detok, &text);
    ft_wire_encode_text(&(struct ft_wire_text){ft_buf_str(&text)}, out);
    out->failed = out->failed || bytes.failed || text.failed;
    ft_detok_fini(&detok);
    ft_buf_fini(&bytes);
    ft_buf_fini(&text);
    return FT_OK;
}

static struct ft_wire_model describe_model(const struct ft_wire_describe *d, char hex[65]) {
    size_t n = d->tokenizer_fingerprint.len < 32 ? d->tokenizer_fingerprint.len : 32;
    hex[0] = 0;
    for (size_t i = 0; i < n; i++)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned char)d->tokenizer_fingerprint.ptr[i]);
    return (struct ft_wire_model){
        .name = ft_str_base_name(d->model_dir),
        .architecture = d->architecture,
        .dtype = d->dtype,
        .backend = d->backend,
        .tokenizer_fingerprint = ft_str_c(hex),
        .vocab_size = d->vocab_size,
        .max_model_len = d->max_model_len,
        .n_parameters = d->n_parameters,
        .weight_bytes = d->weight_bytes,
    };
}

static enum ft_code do_model_info(struct co_app *app, struct ft_str message, struct ft_arena *arena,
                                  struct ft_buf *out, struct ft_err *err) {
    (void)message;
    (void)arena;
    (void)err;
    char target_hex[65], draft_hex[65];
    const char *reason;
    const char *mode = co_app_mode(app, &reason);
    struct ft_wire_model_info info = {
        .target = describe_model(co_peer_describe(app->target), target_hex),
        .speculation = ft_str_c(mode),
        .speculation_reason = ft_str_c(reason),
        .num_speculative_tokens = (uint32_t)app->config.draft_length.k_max,
        .rejection_sample_method = ft_str_c(app->rule->name),
        .max_model_len = (uint32_t)app->pair.max_model_len,
        .eos_token_ids = app->pair.eos_ids,
        .n_eos_token_ids = (size_t)app->pair.n_eos,
        .chat_format = ft_str_c(ft_chat_name(app->pair.chat)),
        .version = ft_str_c(CO_VERSION),
    };
    if (app->draft != NULL && app->pair.draft_max_len > 0) {
        info.has_draft = true;
        info.draft = describe_model(co_peer_describe(app->draft), draft_hex);
    }
    ft_wire_encode_model_info(&info, out);
    return FT_OK;
}

static void on_detokenize(struct ft_rpc_call *call, void *service, struct ft_str message) {
    unary(call, service, message, do_detokenize);
}

static void on_model_info(struct ft_rpc_call *call, void *service, struct ft_str message) {
    unary(call, service, message, do_model_info);
}

static const struct ft_rpc_method k_methods[] = {
    {.path = FT_WIRE_HEALTH_SERVICE "Check",
     .kind = FT_RPC_UNARY,
     .in_drain = true,
     .in_crowd = true,
     .on_message = co_health_check},
    {.path = FT_WIRE_HEALTH_SERVICE "Watch",
     .kind = FT_RPC_SERVER_STREAM,
     .in_drain = true,
     .in_crowd = true,
     .on_message = co_health_watch,
     .on_gone = co_health_watch_gone},
    {.path = FT_WIRE_REFLECTION_SERVICE "ServerReflectionInfo",
     .kind = FT_RPC_BIDI,
     .on_message = co_reflection_message,
     .on_half_close = co_reflection_half_close},
    {.path = FT_WIRE_REFLECTION_ALPHA_SERVICE "ServerReflectionInfo",
     .kind = FT_RPC_BIDI,
     .on_message = co_reflection_message,
     .on_half_close = co_reflection_half_close},
    {.path = FT_WIRE_VLLM_SERVICE "Generate",
     .kind = FT_RPC_SERVER_STREAM,
     .on_message = on_vllm_generate,
     .on_writable = on_generate_writable,
     .on_cancelled = on_generate_cancelled,
     .on_gone = on_generate_gone},
    {.path = FT_WIRE_VLLM_SERVICE "HealthCheck",
     .kind = FT_RPC_UNARY,
     .in_drain = true,
     .in_crowd = true,
     .on_message = co_vllm_health_check},
    {.path = FT_WIRE_VLLM_SERVICE "Abort",
     .kind = FT_RPC_UNARY,
     .in_drain = true,
     .in_crowd = true,
     .on_message = co_vllm_abort},
    {.path = FT_WIRE_VLLM_SERVICE "GetModelInfo",
     .kind = FT_RPC_UNARY,
     .on_message = co_vllm_model_info},
    {.path = FT_WIRE_VLLM_SERVICE "GetServerInfo",
     .kind = FT_RPC_UNARY,
     .on_message = co_vllm_server_info},
    {.path = FT_WIRE_VLLM_SERVICE "GetLoads", .kind = FT_RPC_UNARY, .on_message = co_vllm_loads},
    {.path = FT_WIRE_INFERENCE_SERVICE "Generate",
     .kind = FT_RPC_SERVER_STREAM,
     .on_message = on_generate,
     .on_writable = on_generate_writable,
     .on_cancelled = on_generate_cancelled,
     .on_gone = on_generate_gone},
    {.path = FT_WIRE_INFERENCE_SERVICE "Tokenize",
     .kind = FT_RPC_UNARY,
     .on_message = on_tokenize,
     .on_cancelled = on_tokenize_gone,
     .on_gone = on_tokenize_gone},
    {.path = FT_WIRE_INFERENCE_SERVICE "Detokenize",
     .kind = FT_RPC_UNARY,
     .on_message = on_detokenize},
    {.path = FT_WIRE_INFERENCE_SERVICE "GetModelInfo",
     .kind = FT_RPC_UNARY,
     .on_message = on_model_info},
    {.path = FT_WIRE_ADMIN_SERVICE "GetStats",
     .kind = FT_RPC_UNARY,
     .in_drain = true,
     .in_crowd = true,
     .on_message = co_admin_get_stats,
     .on_gone = co_admin_gone},
    {.path = FT_WIRE_ADMIN_SERVICE "GetHealth",
     .kind = FT_RPC_UNARY,
     .in_crowd = true,
     .on_message = co_operate_health},
    {.path = FT_WIRE_ADMIN_SERVICE "ListRequests",
     .kind = FT_RPC_UNARY,
     .in_crowd = true,
     .on_message = co_operate_list},
    {.path = FT_WIRE_ADMIN_SERVICE "CancelRequest",
     .kind = FT_RPC_UNARY,
     .in_crowd = true,
     .on_message = co_operate_cancel},
    {.path = FT_WIRE_ADMIN_SERVICE "Drain",
     .kind = FT_RPC_UNARY,
     .in_crowd = true,
     .on_message = co_operate_drain},
    {.path = FT_WIRE_ADMIN_SERVICE "Resume",
     .kind = FT_RPC_UNARY,
     .in_crowd = true,
     .on_message = co_operate_resume},
    {.path = FT_WIRE_ADMIN_SERVICE "SetParameters",
     .kind = FT_RPC_UNARY,
     .in_crowd = true,
     .on_message = co_operate_set},
    {.path = FT_WIRE_ADMIN_SERVICE "ReloadDraft",
     .kind = FT_RPC_UNARY,
     .in_crowd = true,
     .on_message = co_operate_reload_draft,
     .on_gone = co_operate_reload_gone},
    {.path = FT_WIRE_ADMIN_SERVICE "Trace",
     .kind = FT_RPC_UNARY,
     .in_crowd = true,
     .on_message = co_admin_trace},
};

const struct ft_rpc_method *co_service_methods(size_t *n) {
    *n = sizeof k_methods / sizeof k_methods[0];
    return k_methods;
}
