#include "coordinator/service.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/admin.h"
#include "coordinator/group.h"
#include "coordinator/round.h"

#define MODULE "service"

/* A hint for clients that were turned away: about the length of a short answer. */
#define RETRY_AFTER_MS "500"
/* Decoded request and tokens of one request; the bound holds several times the largest message of
 * the default limit. */
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

/* Behind everybody of the same or a lower priority value. */
static void insert(struct co_app *app, struct co_request *r) {
    struct co_request *before = app->last;
    while (before != NULL && before->priority > r->priority)
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

/* Who calls: what the metadata key says, or the address without its port. Lives with the call. */
static struct ft_str client_of(const struct co_app *app, const struct ft_rpc_call *call) {
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

/* Queue and shares, for n requests more. On failure the client is told when to come again. */
static enum ft_code check_limits(struct co_app *app, struct ft_rpc_call *call, int32_t n,
                                 struct ft_err *err) {
    enum ft_code code = FT_OK;
    int32_t limit = app->config.max_requests_per_client;
    int32_t n_own = 0;
    struct ft_str client = limit > 0 ? client_of(app, call) : (struct ft_str){NULL, 0};
    for (struct co_request *r = app->first; limit > 0 && r != NULL; r = r->next)
        n_own += r->state != CO_REQUEST_ENDED && ft_str_eq(r->client, client);
    int64_t room = (int64_t)app->config.max_queue - app->n_queued;
    if (app->n_queued == 0 && app->n_running < app->pair.max_seqs) /* some run at once */
        room += app->pair.max_seqs - app->n_running;
    if (n > room)
        code = ft_err_set(err, FT_E_REQ_EXHAUSTED, MODULE,
                          "%d requests are waiting and %d come: the limit is %d (max_queue)",
                          app->n_queued, n, app->config.max_queue);
    else if (limit > 0 && n_own + n > limit)
        code = ft_err_set(err, FT_E_REQ_EXHAUSTED, MODULE,
                          "this client has %d requests and %d come: the limit is %d "
                          "(max_requests_per_client)",
                          n_own, n, limit);
    if (code != FT_OK)
        ft_rpc_call_trailer(call, "retry-after-ms", RETRY_AFTER_MS);
    return code;
}

/* Continuation index of the message, in an arena of its own; its n is how many there are. */
static enum ft_code make_request(struct co_app *app, struct ft_str message, int32_t index,
                                 struct co_request **out, struct ft_wire_generate *in,
                                 struct ft_err *err) {
    struct ft_arena *arena = ft_arena_create(REQUEST_ARENA_CHUNK, REQUEST_ARENA_MAX);
    if (arena == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory");
    enum ft_code code = ft_wire_decode_generate(message, arena, in, err);
    if (code == FT_OK)
        code = co_request_create(out, app, in, index, arena, err);
    if (code != FT_OK)
        ft_arena_destroy(&arena);
    return code;
}

static enum ft_code generate(struct co_app *app, struct ft_rpc_call *call, struct ft_str message,
                             struct ft_err *err) {
    struct co_request *made[CO_GROUP_MAX];
    struct ft_wire_generate in;
    uint32_t n = 1, n_made = 0;
    enum ft_code code = ready(app, err);
    if (code == FT_OK)
        code = check_limits(app, call, 1, err);
    for (; code == FT_OK && n_made < n; n_made += code == FT_OK) {
        code = make_request(app, message, (int32_t)n_made, &made[n_made], &in, err);
        if (code == FT_OK && n_made == 0 && in.params.has_n) {
            n = in.params.n; /* checked */
            code = check_limits(app, call, (int32_t)n, err);
            if (code != FT_OK)
                co_request_discard(made[0]);
        }
    }
    struct co_group *group = code == FT_OK ? co_group_create(call) : NULL;
    if (code == FT_OK && group == NULL)
        code = ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory");
    if (group != NULL)
        ft_rpc_call_set_user(call, group);
    for (uint32_t i = 0; i < n_made; i++) {
        if (group == NULL) {
            co_request_discard(made[i]);
            continue;
        }
        if (app->config.max_requests_per_client > 0) /* out of memory it counts to nobody */
            made[i]->client = ft_arena_str(made[i]->arena, client_of(app, call));
        co_group_add(group, made[i]);
        enqueue(app, made[i], &in.params);
    }
    return code;
}

static void on_generate(struct ft_rpc_call *call, void *service, struct ft_str message) {
    struct co_app *app = service;
    struct ft_err err = {0};
    enum ft_code code = generate(app, call, message, &err);
    if (code != FT_OK) {
        ft_debug("request-refused code %s reason %s", ft_code_name(code), err.text);
        ft_rpc_call_fail(call, &err);
        return;
    }
    co_round_kick(app);
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
    if (group == NULL)
        return;
    co_group_cancel(group);
    co_round_kick(service);
}

static void on_generate_gone(struct ft_rpc_call *call, void *service) {
    struct co_group *group = ft_rpc_call_user(call);
    if (group == NULL)
        return;
    ft_rpc_call_set_user(call, NULL);
    co_group_call_gone(group);
    co_round_kick(service);
}

/* ---- Tokenize, Detokenize, GetModelInfo ------------------------------------------------------ */

static void reply(struct ft_rpc_call *call, struct ft_buf *out) {
    if (out->failed)
        ft_rpc_call_finish(call, ft_code_grpc_status(FT_E_PROC_MEMORY), "no memory for the reply");
    else
        ft_rpc_call_reply(call, ft_buf_str(out));
}

static enum ft_code tokenize(struct co_app *app, const struct ft_wire_tokenize *in,
                             struct ft_ids *ids, struct ft_err *err) {
    struct ft_encode_opts opts = {
        .add_special = !in->has_add_special_tokens || in->add_special_tokens,
        .parse_special = !in->has_parse_special || in->parse_special,
        .tokens_max = IDS_MAX,
    };
    if (in->input.kind == FT_WIRE_INPUT_TEXT)
        return ft_tokenizer_encode(app->pair.tokenizer, in->input.text, &opts, ids, err);
    if (in->input.kind != FT_WIRE_INPUT_CHAT)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "no input: set text or chat");
    struct ft_chat_message messages[CO_CHAT_MESSAGES_MAX];
    size_t n = in->input.n_messages;
    if (n > CO_CHAT_MESSAGES_MAX)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "chat has %zu messages: at most %d", n,
                          CO_CHAT_MESSAGES_MAX);
    for (size_t i = 0; i < n; i++)
        messages[i] =
            (struct ft_chat_message){in->input.messages[i].role, in->input.messages[i].content};
    return ft_chat_encode(app->pair.chat, app->pair.tokenizer, messages, n, IDS_MAX, ids, err);
}

/* Shared shape of the unary handlers: a decoded message in an arena, a reply in a buffer. */
typedef enum ft_code (*unary_fn)(struct co_app *app, struct ft_str message, struct ft_arena *arena,
                                 struct ft_buf *out, struct ft_err *err);

static void unary(struct ft_rpc_call *call, struct co_app *app, struct ft_str message,
                  unary_fn fn) {
    struct ft_err err = {0};
    struct ft_buf out;
    ft_buf_init(&out, 0);
    struct ft_arena *arena = ft_arena_create(REQUEST_ARENA_CHUNK, REQUEST_ARENA_MAX);
    enum ft_code code = ready(app, &err);
    if (code == FT_OK)
        code = arena == NULL ? ft_err_set(&err, FT_E_PROC_MEMORY, MODULE, "no memory")
                             : fn(app, message, arena, &out, &err);
    if (code != FT_OK)
        ft_rpc_call_fail(call, &err);
    else
        reply(call, &out);
    ft_arena_destroy(&arena);
    ft_buf_fini(&out);
}

static enum ft_code do_tokenize(struct co_app *app, struct ft_str message, struct ft_arena *arena,
                                struct ft_buf *out, struct ft_err *err) {
    struct ft_wire_tokenize in;
    struct ft_ids ids = {0};
    enum ft_code code = ft_wire_decode_tokenize(message, arena, &in, err);
    if (code == FT_OK)
        code = tokenize(app, &in, &ids, err);
    if (code == FT_OK)
        ft_wire_encode_ids(&(struct ft_wire_ids){ids.ptr, ids.len}, out);
    ft_ids_fini(&ids);
    return code;
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
    struct ft_str name = d->model_dir;
    for (size_t i = name.len; i > 0; i--) {
        if (name.ptr[i - 1] == '/' && i < name.len) {
            name = (struct ft_str){name.ptr + i, name.len - i};
            break;
        }
    }
    size_t n = d->tokenizer_fingerprint.len < 32 ? d->tokenizer_fingerprint.len : 32;
    hex[0] = 0;
    for (size_t i = 0; i < n; i++)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned char)d->tokenizer_fingerprint.ptr[i]);
    return (struct ft_wire_model){
        .name = name,
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

static void on_tokenize(struct ft_rpc_call *call, void *service, struct ft_str message) {
    unary(call, service, message, do_tokenize);
}

static void on_detokenize(struct ft_rpc_call *call, void *service, struct ft_str message) {
    unary(call, service, message, do_detokenize);
}

static void on_model_info(struct ft_rpc_call *call, void *service, struct ft_str message) {
    unary(call, service, message, do_model_info);
}

static const struct ft_rpc_method k_methods[] = {
    {.path = FT_WIRE_INFERENCE_SERVICE "Generate",
     .kind = FT_RPC_SERVER_STREAM,
     .on_message = on_generate,
     .on_writable = on_generate_writable,
     .on_cancelled = on_generate_cancelled,
     .on_gone = on_generate_gone},
    {.path = FT_WIRE_INFERENCE_SERVICE "Tokenize", .kind = FT_RPC_UNARY, .on_message = on_tokenize},
    {.path = FT_WIRE_INFERENCE_SERVICE "Detokenize",
     .kind = FT_RPC_UNARY,
     .on_message = on_detokenize},
    {.path = FT_WIRE_INFERENCE_SERVICE "GetModelInfo",
     .kind = FT_RPC_UNARY,
     .on_message = on_model_info},
    {.path = FT_WIRE_ADMIN_SERVICE "GetStats",
     .kind = FT_RPC_UNARY,
     .on_message = co_admin_get_stats,
     .on_gone = co_admin_gone},
};

const struct ft_rpc_method *co_service_methods(size_t *n) {
    *n = sizeof k_methods / sizeof k_methods[0];
    return k_methods;
}
