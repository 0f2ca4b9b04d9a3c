#include "common/worker/service.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/worker/reload.h"
#include "common/worker/step.h"

#define MODULE "service"

/* A step of max_num_batched_tokens ids, with biases, is far below it. */
#define MESSAGE_BYTES_MAX ((size_t)16 << 20)
#define ARENA_CHUNK_BYTES ((size_t)1 << 16)
#define ARENA_BYTES_MAX ((size_t)64 << 20)
/* Coordinator, a successor that tries, foretokenctl: a few. */
#define CALLS_MAX 64
/* Long enough for the status to leave; there is nothing worth waiting for. */
#define CLOSE_GRACE_NS 100000000
#define CLOSE_LINGER_MS 200
#define PATH_MAX_LEN 64
#define REFUSED_WARN_NS ((int64_t)10000000000) /* between lines about peers turned away */

enum { /* grpc_status_code as numbers */
       STATUS_OK = 0,
       STATUS_RESOURCE_EXHAUSTED = 8,
       STATUS_FAILED_PRECONDITION = 9,
       STATUS_ABORTED = 10,
       STATUS_UNAVAILABLE = 14
};

enum method { DESCRIBE, ATTACH, RELEASE, GET_STATS, STEPS, RELOAD, N_METHODS };

struct ft_service {
    struct ft_worker *worker;
    struct ft_rpc_loop *loop;
    struct ft_rpc_server *server;
    struct ft_rpc_call *stream; /* of the coordinator; NULL: none */
    struct ft_arena *arena;     /* of one decoded message */
    struct ft_buf out;
    struct ft_buf in;                /* a step that came through the channel */
    struct ft_rpc_watch watch;       /* of the channel */
    struct ft_reload *reload;        /* NULL: none is under way */
    struct ft_rpc_call *reload_call; /* who asked for it; NULL once gone */
    bool closing;                    /* no thread may begin: nobody would wait for it */
    struct ft_err failure;
    int64_t refused_warned_ns; /* 0: never */
    char paths[N_METHODS][PATH_MAX_LEN];
    struct ft_rpc_method methods[N_METHODS];
};

static void notify(const struct ft_service *service, const char *event, int32_t n_seqs) {
    char line[160];
    snprintf(line, sizeof line, "%s coordinator_epoch %016" PRIx64 " sequences %d", event,
             service->worker->coordinator_epoch, n_seqs);
    service->worker->role->notify(FT_LOG_INFO, line);
}

static void finish(struct ft_rpc_call *call, int status, const char *text) {
    ft_rpc_call_finish(call, status, text);
}

/* Answer a unary call with what the encoder left in the buffer. */
static void reply(struct ft_service *service, struct ft_rpc_call *call) {
    struct ft_err err;
    if (service->out.failed) {
        ft_err_set(&err, FT_E_PROC_MEMORY, MODULE, "no memory for a reply");
        ft_rpc_call_fail(call, &err);
        return;
    }
    ft_rpc_call_reply(call, ft_buf_str(&service->out));
}

/* False, and the call ended, when another epoch than the worker's is meant. */
static bool epoch_ok(const struct ft_service *service, struct ft_rpc_call *call, uint64_t epoch) {
    if (epoch == service->worker->epoch)
        return true;
    char text[160];
    snprintf(text, sizeof text, "epoch is %016" PRIx64 ": this worker's is %016" PRIx64, epoch,
             service->worker->epoch);
    finish(call, STATUS_FAILED_PRECONDITION, text);
    return false;
}

static void on_describe(struct ft_rpc_call *call, void *user, struct ft_str message) {
    struct ft_service *service = user;
    struct ft_wire_describe describe;
    (void)message; /* has no fields */
    ft_worker_describe(service->worker, &describe);
    ft_buf_reset(&service->out);
    ft_wire_encode_describe(&describe, &service->out);
    reply(service, call);
}

static void on_stats(struct ft_rpc_call *call, void *user, struct ft_str message) {
    struct ft_service *service = user;
    struct ft_wire_worker_stats stats;
    (void)message;
    ft_worker_stats(service->worker, &stats);
    ft_buf_reset(&service->out);
    ft_wire_encode_worker_stats(&stats, &service->out);
    reply(service, call);
}

static void on_release(struct ft_rpc_call *call, void *user, struct ft_str message) {
    struct ft_service *service = user;
    struct ft_wire_release release;
    struct ft_err err;
    ft_arena_reset(service->arena);
    if (ft_wire_decode_release(message, service->arena, &release, &err) != FT_OK) {
        ft_rpc_call_fail(call, &err);
        return;
    }
    if (!epoch_ok(service, call, release.epoch))
        return;
    for (size_t i = 0; i < release.n_seq_ids; i++)
        ft_kvseq_release(service->worker->seqs, release.seq_ids[i]);
    ft_rpc_call_reply(call, ft_str_c("")); /* ReleaseResponse has no fields */
}

/* ---- attach ---- */

static void detach(struct ft_service *service) {
    if (service->worker->region == NULL)
        return;
    int32_t n = ft_kvseq_count(service->worker->seqs);
    notify(service, "detached", n);
    ft_worker_detach(service->worker);
}

/* The stream of a coordinator that attaches anew is one that it gave up: end it. Another
 * coordinator's keeps the worker. */
static bool clear_stream(struct ft_service *service, const struct ft_wire_attach *attach) {
    if (service->stream == NULL)
        return true;
    if (service->worker->coordinator_epoch != attach->coordinator_epoch)
        return false;
    struct ft_rpc_call *stream = service->stream;
    service->stream = NULL;
    finish(stream, STATUS_ABORTED, "the coordinator attached anew");
    return true;
}

/* False when refused, and the call ended. */
static bool attach_anew(struct ft_service *service, struct ft_rpc_call *call,
                        const struct ft_wire_attach *attach) {
    struct ft_err err;
    if (!clear_stream(service, attach)) {
        finish(call, STATUS_RESOURCE_EXHAUSTED, "another coordinator's step stream is open");
        return false;
    }
    detach(service);
    if (ft_worker_attach(service->worker, attach->coordinator_epoch, attach->device_rows, &err) !=
        FT_OK) {
        ft_rpc_call_fail(call, &err);
        return false;
    }
    notify(service, "attached", 0);
    return true;
}

/* The coordinator has mapped the region: its name is needed no more. */
static bool attach_mapped(struct ft_service *service, struct ft_rpc_call *call,
                          const struct ft_wire_attach *attach) {
    struct ft_worker *worker = service->worker;
    if (worker->region == NULL || worker->coordinator_epoch != attach->coordinator_epoch) {
        finish(call, STATUS_FAILED_PRECONDITION,
               "mapped is set, but this coordinator has nothing attached");
        return false;
    }
    ft_region_unlink(worker->region);
    return true;
}

static void on_attach(struct ft_rpc_call *call, void *user, struct ft_str message) {
    struct ft_service *service = user;
    struct ft_wire_attach attach;
    struct ft_err err;
    ft_arena_reset(service->arena);
    if (ft_wire_decode_attach(message, service->arena, &attach, &err) != FT_OK) {
        ft_rpc_call_fail(call, &err);
        return;
    }
    if (!epoch_ok(service, call, attach.epoch))
        return;
    if (!(attach.mapped ? attach_mapped : attach_anew)(service, call, &attach))
        return;
    const struct ft_region *region = service->worker->region;
    struct ft_wire_attached attached = {ft_str_c(ft_region_name(region)), ft_region_bytes(region)};
    ft_buf_reset(&service->out);
    ft_wire_encode_attached(&attached, &service->out);
    reply(service, call);
}

/* ---- the step stream ---- */

static void on_stream_open(struct ft_rpc_call *call, void *user) {
    struct ft_service *service = user;
    if (service->stream != NULL)
        finish(call, STATUS_RESOURCE_EXHAUSTED, "a step stream is open: there is one at a time");
    else if (service->worker->region == NULL)
        finish(call, STATUS_FAILED_PRECONDITION, "no region is attached: call Attach first");
    else
        service->stream = call;
    if (service->stream == call)
        ft_channel_listen(ft_region_channel(service->worker->region), FT_CHANNEL_AWAKE);
}

static void give_up(struct ft_service *service, struct ft_rpc_call *call,
                    const struct ft_err *err) {
    ft_rpc_call_fail(call, err);
    service->failure = *err;
    ft_rpc_loop_stop(service->loop);
}

/* Through the channel if the coordinator listens there; the stream rings where it sleeps. */
static enum ft_code send_reply(struct ft_service *service, struct ft_rpc_call *call) {
    struct ft_str message = ft_buf_str(&service->out);
    switch (ft_channel_put(ft_region_channel(service->worker->region), message)) {
    case FT_CHANNEL_SEEN:
        return FT_OK;
    case FT_CHANNEL_RING:
        return ft_rpc_call_send(call, ft_str_c(""));
    default:
        return ft_rpc_call_send(call, message);
    }
}

static void on_step(struct ft_rpc_call *call, void *user, struct ft_str message) {
    struct ft_service *service = user;
    struct ft_wire_step step;
    struct ft_wire_step_reply step_reply;
    struct ft_err err = {0};
    if (call != service->stream || service->failure.code != FT_OK)
        return; /* refused or over: what still arrives is not for us */
    if (message.len == 0)
        return; /* it rings: what it is about lies in the channel */
    ft_arena_reset(service->arena);
    if (ft_wire_decode_step(message, service->arena, &step, &err) != FT_OK) {
        ft_rpc_call_fail(call, &err);
        return;
    }
    if (!epoch_ok(service, call, step.epoch))
        return;
    if (step.coordinator_epoch != service->worker->coordinator_epoch) {
        finish(call, STATUS_FAILED_PRECONDITION, "another coordinator has attached since");
        return;
    }
    if (ft_step_execute(service->worker, &step, &step_reply, &err) != FT_OK) {
        give_up(service, call, &err);
        return;
    }
    ft_buf_reset(&service->out);
    ft_wire_encode_step_reply(&step_reply, &service->out);
    enum ft_code code = FT_OK;
    if (service->out.failed)
        code = ft_err_set(&err, FT_E_PROC_MEMORY, MODULE, "no memory for a reply");
    else if ((code = send_reply(service, call)) != FT_OK)
        ft_err_set(&err, code, MODULE, "the coordinator does not read its replies");
    if (code != FT_OK)
        ft_rpc_call_fail(call, &err);
}

/* The region goes at once, not with the stream's last event: until then the channel would hold what
 * is wrong with it, for the loop to find again and again. */
static void drop_stream(struct ft_service *service, const struct ft_err *err) {
    struct ft_rpc_call *stream = service->stream;
    service->stream = NULL;
    detach(service);
    ft_rpc_call_fail(stream, err);
}

static bool look_for_step(void *user) {
    struct ft_service *service = user;
    struct ft_err err = {0};
    bool taken;
    if (service->stream == NULL)
        return false;
    struct ft_channel *channel = ft_region_channel(service->worker->region);
    if (ft_channel_take(channel, &service->in, &taken, &err) != FT_OK)
        drop_stream(service, &err);
    else if (taken)
        on_step(service->stream, service, ft_buf_str(&service->in));
    return taken;
}

static void doze(void *user, bool asleep) {
    struct ft_service *service = user;
    if (service->stream != NULL)
        ft_channel_listen(ft_region_channel(service->worker->region),
                          asleep ? FT_CHANNEL_ASLEEP : FT_CHANNEL_AWAKE);
}

static void on_half_close(struct ft_rpc_call *call, void *user) {
    (void)user;
    finish(call, STATUS_OK, NULL);
}

static void on_stream_gone(struct ft_rpc_call *call, void *user) {
    struct ft_service *service = user;
    if (call != service->stream)
        return;
    service->stream = NULL;
    detach(service);
}

/* ---- another model ---- */

static void say_reloaded(const struct ft_worker *worker, int64_t load_ns) {
    char line[640];
    snprintf(line, sizeof line, "reloaded model %s epoch %016" PRIx64 " load_ms %" PRId64,
             worker->params->model, worker->epoch, load_ns / 1000000);
    worker->role->notify(FT_LOG_INFO, line);
}

static void refuse_reload(struct ft_service *service, struct ft_rpc_call *call,
                          const struct ft_err *err) {
    char line[FT_ERR_TEXT_MAX + 64];
    snprintf(line, sizeof line, "reload-refused reason %s", err->text);
    service->worker->role->notify(FT_LOG_WARN, line);
    if (call != NULL)
        ft_rpc_call_fail(call, err);
}

/* Between two steps: the fresh worker takes the place of the one that served, whose stream ends. */
static void on_reloaded(void *user, struct ft_worker *fresh, int64_t load_ns,
                        const struct ft_err *err) {
    struct ft_service *service = user;
    struct ft_rpc_call *call = service->reload_call, *stream = service->stream;
    service->reload = NULL;
    service->reload_call = NULL;
    if (fresh == NULL) {
        refuse_reload(service, call, err);
        return;
    }
    service->stream = NULL;
    detach(service);
    if (stream != NULL)
        finish(stream, STATUS_ABORTED, "the worker has another model now");
    ft_worker_exchange(service->worker, fresh);
    ft_worker_inherit(service->worker, fresh);
    ft_worker_close(&fresh);
    say_reloaded(service->worker, load_ns);
    if (call == NULL)
        return;
    ft_buf_reset(&service->out);
    ft_wire_encode_reloaded(&(struct ft_wire_reloaded){service->worker->epoch, (uint64_t)load_ns},
                            &service->out);
    reply(service, call);
}

static void on_reload(struct ft_rpc_call *call, void *user, struct ft_str message) {
    struct ft_service *service = user;
    struct ft_str dir;
    struct ft_err err = {0};
    if (service->closing) {
        finish(call, STATUS_UNAVAILABLE, "the worker is stopping");
        return;
    }
    ft_arena_reset(service->arena);
    enum ft_code code = ft_wire_decode_reload(message, service->arena, &dir, &err);
    if (code == FT_OK && service->reload != NULL) {
        finish(call, STATUS_FAILED_PRECONDITION, "another reload is under way");
        return;
    }
    if (code == FT_OK)
        code = ft_reload_begin(&service->reload, service->loop, service->worker, dir, on_reloaded,
                               service, &err);
    if (code != FT_OK)
        refuse_reload(service, call, &err);
    else
        service->reload_call = call;
}

static void on_reload_gone(struct ft_rpc_call *call, void *user) {
    struct ft_service *service = user;
    if (call == service->reload_call)
        service->reload_call = NULL; /* the model comes all the same */
}

/* ---- open and close ---- */

static void fill_methods(struct ft_service *service) {
    static const struct {
        const char *name;
        void (*on_message)(struct ft_rpc_call *call, void *user, struct ft_str message);
    } rows[N_METHODS] = {
        [DESCRIBE] = {"Describe", on_describe},
        [ATTACH] = {"Attach", on_attach},
        [RELEASE] = {"Release", on_release},
        [GET_STATS] = {"GetStats", on_stats},
        [STEPS] = {NULL, on_step},
        [RELOAD] = {"Reload", on_reload},
    };
    const struct ft_worker_role *role = service->worker->role;
    for (int i = 0; i < N_METHODS; i++) {
        const char *name = rows[i].name != NULL ? rows[i].name : role->step_method;
        int n = snprintf(service->paths[i], PATH_MAX_LEN, "%s%s", role->service, name);
        FT_ASSERT(n > 0 && n < PATH_MAX_LEN);
        service->methods[i] = (struct ft_rpc_method){
            .path = service->paths[i],
            .kind = FT_RPC_UNARY,
            .on_message = rows[i].on_message,
        };
    }
    service->methods[STEPS].kind = FT_RPC_BIDI;
    service->methods[STEPS].on_open = on_stream_open;
    service->methods[STEPS].on_half_close = on_half_close;
    service->methods[STEPS].on_gone = on_stream_gone;
    service->methods[RELOAD].on_gone = on_reload_gone;
}

static void on_peer_refused(void *user, uint32_t uid) {
    struct ft_service *service = user;
    char line[96];
    int64_t now_ns = ft_clock_now_ns();
    if (service->refused_warned_ns != 0 && now_ns - service->refused_warned_ns < REFUSED_WARN_NS)
        return;
    service->refused_warned_ns = now_ns;
    snprintf(line, sizeof line, "peer-not-allowed peer unix:uid=%u", (unsigned)uid);
    service->worker->role->notify(FT_LOG_WARN, line);
}

static enum ft_code open_server(struct ft_service *service, struct ft_err *err) {
    struct ft_rpc_server_opts opts = {
        .linger_ms = CLOSE_LINGER_MS,
        .methods = service->methods,
        .n_methods = service->worker->role->reloads ? N_METHODS : RELOAD, /* it is the last */
        .service = service,
        .message_max = MESSAGE_BYTES_MAX,
        .calls_max = CALLS_MAX,
        .socket = {.mode = (unsigned)strtoul(service->worker->params->socket_mode, NULL, 8),
                   .group = service->worker->params->socket_group,
                   .users = service->worker->params->socket_users},
        .on_peer_refused = on_peer_refused,
    };
    enum ft_code code = ft_rpc_server_create(&service->server, service->loop, &opts, err);
    if (code == FT_OK)
        code = ft_rpc_server_listen(service->server, service->worker->params->listen, NULL, err);
    if (code == FT_OK)
        code = ft_rpc_server_start(service->server, err);
    return code;
}

enum ft_code ft_service_open(struct ft_service **out, struct ft_rpc_loop *loop,
                             struct ft_worker *worker, struct ft_err *err) {
    struct ft_service *service = calloc(1, sizeof *service);
    if (service == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory");
    service->worker = worker;
    service->loop = loop;
    ft_buf_init(&service->out, MESSAGE_BYTES_MAX);
    ft_buf_init(&service->in, 0);
    service->watch = (struct ft_rpc_watch){.look = look_for_step, .doze = doze, .user = service};
    ft_rpc_loop_watch(loop, &service->watch);
    fill_methods(service);
    service->arena = ft_arena_create(ARENA_CHUNK_BYTES, ARENA_BYTES_MAX);
    enum ft_code code = service->arena != NULL
                            ? open_server(service, err)
                            : ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory");
    if (code != FT_OK) {
        ft_service_close(&service);
        return code;
    }
    *out = service;
    return FT_OK;
}

void ft_service_close(struct ft_service **service) {
    if (*service == NULL)
        return;
    (*service)->closing = true;
    ft_reload_cancel(&(*service)->reload);
    if ((*service)->server != NULL)
        ft_rpc_server_close(&(*service)->server, CLOSE_GRACE_NS);
    detach(*service);
    ft_rpc_loop_unwatch((*service)->loop, &(*service)->watch);
    ft_arena_destroy(&(*service)->arena);
    ft_buf_fini(&(*service)->out);
    ft_buf_fini(&(*service)->in);
    free(*service);
    *service = NULL;
}

const struct ft_err *ft_service_failure(const struct ft_service *service) {
    return &service->failure;
}
