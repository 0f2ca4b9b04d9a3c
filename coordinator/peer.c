#include "coordinator/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define MODULE "peer"

/* Pauses between attempts to reach a worker: first, then doubled up to the last. */
#define RETRY_FIRST_MS 20
#define RETRY_LAST_MS 1000
/* Describe and Attach are answered between two steps of the worker. */
#define CONTROL_TIMEOUT_MS 10000
#define STATS_TIMEOUT_MS 1000
#define MS 1000000

struct co_peer {
    struct co_peer_opts opts;
    const char *service; /* path prefix */
    const char *step_method;
    enum co_peer_state state;
    struct ft_rpc_client *client;
    struct ft_rpc_stream *stream;
    struct ft_region *region;
    struct ft_arena *identity; /* describe's strings */
    struct ft_arena *offered;  /* those of an answer that is being decoded */
    struct ft_arena *scratch;  /* of one decoded message */
    struct ft_buf out;
    struct ft_buf in;          /* a reply that came through the channel */
    struct ft_rpc_watch watch; /* of the channel */
    struct ft_wire_describe describe;
    uint64_t attempt; /* counts connections, so that late answers of an old one are dropped */
    uint64_t epochs_seen;
    uint64_t last_epoch;
    int64_t up_since_ns;
    uint64_t next_step_id;
    uint64_t step_id; /* in flight, 0: none */
    size_t step_n_seqs;
    int32_t retry_ms;
    bool closing;
    bool asked_device_rows; /* in the Attach at hand */
    bool no_device_rows;    /* of this epoch: they could not be opened */
    struct ft_rpc_timer retry_timer;
    struct ft_rpc_timer step_timer;
    char trouble[FT_ERR_TEXT_MAX];
};

/* Context of one control call: an answer counts only for the attempt it was sent in. */
struct control {
    struct co_peer *peer;
    uint64_t attempt;
    bool mapped;
};

static void connect_now(void *user);

static void disconnect(struct co_peer *peer) {
    peer->attempt++;
    peer->step_id = 0;
    ft_rpc_timer_cancel(peer->opts.loop, &peer->step_timer);
    if (peer->stream != NULL) {
        struct ft_rpc_stream *stream = peer->stream;
        peer->stream = NULL;
        ft_rpc_stream_cancel(stream);
    }
    ft_region_close(&peer->region);
}

/* Leave whatever state we are in and try again after a pause. */
static void go_down(struct co_peer *peer, const char *why) {
    bool was_up = peer->state == CO_PEER_UP;
    char reason[FT_ERR_TEXT_MAX];
    snprintf(reason, sizeof reason, "%s", why);
    disconnect(peer);
    peer->state = CO_PEER_DOWN;
    memcpy(peer->trouble, reason, sizeof reason);
    if (peer->closing)
        return;
    if (was_up)
        peer->retry_ms = RETRY_FIRST_MS;
    ft_rpc_timer_set(peer->opts.loop, &peer->retry_timer,
                     ft_clock_now_ns() + (int64_t)peer->retry_ms * MS, connect_now, peer);
    peer->retry_ms = peer->retry_ms * 2 > RETRY_LAST_MS ? RETRY_LAST_MS : peer->retry_ms * 2;
    if (was_up)
        peer->opts.events->on_down(peer->opts.user, peer, reason);
}

static void send_control(struct co_peer *peer, const char *method, ft_rpc_unary_fn fn,
                         bool mapped) {
    char path[96];
    snprintf(path, sizeof path, "%s%s", peer->service, method);
    struct control *control = malloc(sizeof *control);
    struct ft_err err = {0};
    enum ft_code code = FT_E_PROC_MEMORY;
    if (control != NULL && !peer->out.failed) {
        *control = (struct control){peer, peer->attempt, mapped};
        struct ft_rpc_call_opts opts = {
            .deadline_ns = ft_clock_now_ns() + (int64_t)CONTROL_TIMEOUT_MS * MS,
        };
        code = ft_rpc_client_unary(peer->client, path, ft_buf_str(&peer->out), &opts, fn, control,
                                   &err);
    }
    if (code != FT_OK) {
        free(control);
        go_down(peer, err.text[0] != 0 ? err.text : "out of memory");
    }
}

/* Take the control context apart; NULL when its attempt is over, or is by what was answered. */
static struct co_peer *take_control(void *user, const struct ft_rpc_status *status, bool *mapped) {
    struct control control = *(struct control *)user;
    free(user);
    *mapped = control.mapped;
    if (control.attempt != control.peer->attempt)
        return NULL;
    if (status->code == 0)
        return control.peer;
    go_down(control.peer, status->text);
    return NULL;
}

static void stream_message(void *user, struct ft_str message) {
    struct co_peer *peer = user;
    struct ft_wire_step_reply reply;
    struct ft_err err = {0};
    if (message.len == 0)
        return; /* it rings: what it is about lies in the channel */
    ft_arena_reset(peer->scratch);
    if (ft_wire_decode_step_reply(message, peer->scratch, &reply, &err) != FT_OK) {
        go_down(peer, err.text);
        return;
    }
    if (reply.epoch != peer->describe.epoch || reply.step_id != peer->step_id) {
        ft_debug("late-reply role %s step %llu", peer->opts.role,
                 (unsigned long long)reply.step_id);
        return;
    }
    if (reply.n_results != peer->step_n_seqs) {
        go_down(peer, "the reply answers another number of sequences than was asked");
        return;
    }
    peer->step_id = 0;
    ft_rpc_timer_cancel(peer->opts.loop, &peer->step_timer);
    peer->opts.events->on_reply(peer->opts.user, peer, &reply);
}

static bool look_for_reply(void *user) {
    struct co_peer *peer = user;
    struct ft_err err = {0};
    bool taken;
    if (peer->state != CO_PEER_UP)
        return false;
    if (ft_channel_take(ft_region_channel(peer->region), &peer->in, &taken, &err) != FT_OK)
        go_down(peer, err.text);
    else if (taken)
        stream_message(peer, ft_buf_str(&peer->in));
    return taken;
}

static void doze(void *user, bool asleep) {
    struct co_peer *peer = user;
    if (peer->state == CO_PEER_UP)
        ft_channel_listen(ft_region_channel(peer->region),
                          asleep ? FT_CHANNEL_ASLEEP : FT_CHANNEL_AWAKE);
}

static void stream_done(void *user, const struct ft_rpc_status *status) {
    struct co_peer *peer = user;
    if (peer->stream == NULL)
        return; /* one that we gave up ourselves */
    peer->stream = NULL;
    char why[FT_ERR_TEXT_MAX];
    snprintf(why, sizeof why, "step stream ended: %s: %.300s", ft_rpc_status_name(status->code),
             status->text);
    go_down(peer, why);
}

static const struct ft_rpc_stream_handlers k_stream = {
    .on_message = stream_message,
    .on_done = stream_done,
};

static void open_stream(struct co_peer *peer) {
    char path[96];
    struct ft_err err = {0};
    snprintf(path, sizeof path, "%s%s", peer->service, peer->step_method);
    struct ft_rpc_call_opts opts = {0};
    if (ft_rpc_stream_open(&peer->stream, peer->client, path, &opts, &k_stream, peer, &err) !=
        FT_OK) {
        go_down(peer, err.text);
        return;
    }
    peer->state = CO_PEER_UP;
    ft_channel_listen(ft_region_channel(peer->region), FT_CHANNEL_AWAKE);
    peer->retry_ms = RETRY_FIRST_MS;
    peer->trouble[0] = 0;
    peer->up_since_ns = ft_clock_now_ns();
    if (peer->describe.epoch != peer->last_epoch) {
        peer->last_epoch = peer->describe.epoch;
        peer->epochs_seen++;
    }
    peer->opts.events->on_up(peer->opts.user, peer);
}

static void send_attach(struct co_peer *peer, bool mapped);

static void attach_done(void *user, const struct ft_rpc_status *status, struct ft_str reply) {
    bool mapped;
    struct co_peer *peer = take_control(user, status, &mapped);
    if (peer == NULL)
        return;
    if (mapped) {
        open_stream(peer);
        return;
    }
    struct ft_wire_attached attached;
    struct ft_err err = {0};
    ft_arena_reset(peer->scratch);
    enum ft_code code = ft_wire_decode_attached(reply, peer->scratch, &attached, &err);
    char name[FT_REGION_NAME_MAX];
    if (code == FT_OK && attached.shm_name.len >= sizeof name)
        code = ft_err_set(&err, FT_E_PEER_PROTOCOL, MODULE, "the region's name has %zu bytes",
                          attached.shm_name.len);
    if (code == FT_OK) {
        snprintf(name, sizeof name, "%.*s", (int)attached.shm_name.len, attached.shm_name.ptr);
        code =
            ft_region_map_on(&peer->region, name, peer->describe.epoch, *peer->opts.device, &err);
    }
    if (code != FT_OK && peer->asked_device_rows) {
        ft_warn("handover role %s fallback shared-memory reason \"%s\"", peer->opts.role, err.text);
        peer->no_device_rows = true;
        send_attach(peer, false);
        return;
    }
    if (code == FT_OK &&
        ft_region_layout(peer->region)->n_cols != (int32_t)peer->describe.vocab_size)
        code = ft_err_set(&err, FT_E_PEER_PROTOCOL, MODULE,
                          "region rows are %d wide, the vocabulary has %u",
                          ft_region_layout(peer->region)->n_cols, peer->describe.vocab_size);
    if (code != FT_OK)
        go_down(peer, err.text);
    else
        send_attach(peer, true);
}

/* Rows can stay on the GPU that this process reads. */
static bool wants_device_rows(const struct co_peer *peer) {
    char uuid[FT_DEVICE_UUID_MAX];
    struct ft_device *device = *peer->opts.device;
    if (device == NULL || peer->no_device_rows)
        return false;
    device->kind->uuid(device, uuid);
    return uuid[0] != 0 && ft_str_eq(peer->describe.device_uuid, ft_str_c(uuid));
}

static void send_attach(struct co_peer *peer, bool mapped) {
    struct ft_wire_attach attach = {
        .epoch = peer->describe.epoch,
        .coordinator_epoch = peer->opts.coordinator_epoch,
        .mapped = mapped,
        .device_rows = wants_device_rows(peer),
    };
    peer->asked_device_rows = attach.device_rows;
    peer->state = CO_PEER_ATTACHING;
    ft_buf_reset(&peer->out);
    ft_wire_encode_attach(&attach, &peer->out);
    send_control(peer, "Attach", attach_done, mapped);
}

/* fresh, decoded into offered, is what is told of the worker from now on. */
static void know(struct co_peer *peer, const struct ft_wire_describe *fresh) {
    struct ft_arena *spare = peer->identity;
    peer->identity = peer->offered;
    peer->offered = spare;
    peer->no_device_rows = peer->no_device_rows && peer->describe.epoch == fresh->epoch;
    peer->describe = *fresh;
}

static void describe_done(void *user, const struct ft_rpc_status *status, struct ft_str reply) {
    bool mapped;
    struct co_peer *peer = take_control(user, status, &mapped);
    if (peer == NULL)
        return;
    struct ft_err err = {0};
    struct ft_wire_describe fresh;
    ft_arena_reset(peer->offered);
    enum ft_code code = ft_wire_decode_describe(reply, peer->offered, &fresh, &err);
    if (code == FT_OK)
        know(peer, &fresh);
    if (code == FT_OK && !ft_str_eq(peer->describe.role, ft_str_c(peer->opts.role)))
        code = ft_err_set(&err, FT_E_PEER_PROTOCOL, MODULE, "%s is a '%.*s' worker, not a %s",
                          peer->opts.endpoint, (int)peer->describe.role.len,
                          peer->describe.role.ptr, peer->opts.role);
    if (code == FT_OK)
        code = peer->opts.events->on_described(peer->opts.user, peer, &err);
    if (code != FT_OK)
        go_down(peer, err.text);
    else
        send_attach(peer, false);
}

static void connect_now(void *user) {
    struct co_peer *peer = user;
    peer->attempt++;
    peer->state = CO_PEER_DESCRIBING;
    ft_rpc_client_kick(peer->client);
    ft_buf_reset(&peer->out);
    send_control(peer, "Describe", describe_done, false);
}

enum ft_code co_peer_open(struct co_peer **out, const struct co_peer_opts *opts,
                          struct ft_err *err) {
    struct co_peer *peer = calloc(1, sizeof *peer);
    if (peer == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for a peer");
    bool is_target = strcmp(opts->role, "target") == 0;
    peer->opts = *opts;
    peer->service = is_target ? FT_WIRE_TARGET_SERVICE : FT_WIRE_DRAFT_SERVICE;
    peer->step_method = is_target ? "Verify" : "DraftStep";
    peer->retry_ms = RETRY_FIRST_MS;
    peer->next_step_id = 1;
    snprintf(peer->trouble, sizeof peer->trouble, "not reached yet");
    ft_buf_init(&peer->out, 0);
    ft_buf_init(&peer->in, 0);
    peer->watch = (struct ft_rpc_watch){.look = look_for_reply, .doze = doze, .user = peer};
    ft_rpc_loop_watch(opts->loop, &peer->watch);
    peer->identity = ft_arena_create(4096, 1 << 20);
    peer->offered = ft_arena_create(4096, 1 << 20);
    peer->scratch = ft_arena_create(1 << 16, 64 << 20);
    struct ft_rpc_client_opts client_opts = {.message_max = 16 << 20};
    enum ft_code code = FT_OK;
    if (peer->identity == NULL || peer->offered == NULL || peer->scratch == NULL)
        code = ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for a peer");
    if (code == FT_OK)
        code = ft_rpc_client_open(&peer->client, opts->loop, opts->endpoint, &client_opts, err);
    if (code != FT_OK) {
        co_peer_close(&peer);
        return code;
    }
    *out = peer;
    connect_now(peer);
    return FT_OK;
}

void co_peer_close(struct co_peer **peer) {
    if (peer == NULL || *peer == NULL)
        return;
    struct co_peer *p = *peer;
    p->closing = true;
    ft_rpc_loop_unwatch(p->opts.loop, &p->watch);
    disconnect(p);
    p->state = CO_PEER_DOWN;
    ft_rpc_timer_cancel(p->opts.loop, &p->retry_timer);
    ft_rpc_client_close(&p->client);
    ft_arena_destroy(&p->identity);
    ft_arena_destroy(&p->offered);
    ft_arena_destroy(&p->scratch);
    ft_buf_fini(&p->out);
    ft_buf_fini(&p->in);
    free(p);
    *peer = NULL;
}

bool co_peer_up(const struct co_peer *peer) {
    return peer != NULL && peer->state == CO_PEER_UP;
}

const char *co_peer_role(const struct co_peer *peer) {
    return peer->opts.role;
}

const struct ft_wire_describe *co_peer_describe(const struct co_peer *peer) {
    return &peer->describe;
}

const struct ft_region *co_peer_region(const struct co_peer *peer) {
    return peer->region;
}

uint64_t co_peer_restarts(const struct co_peer *peer) {
    return peer != NULL && peer->epochs_seen > 0 ? peer->epochs_seen - 1 : 0;
}

const char *co_peer_trouble(const struct co_peer *peer) {
    return peer->trouble;
}

int64_t co_peer_up_ns(const struct co_peer *peer) {
    return co_peer_up(peer) ? ft_clock_now_ns() - peer->up_since_ns : 0;
}

static void step_late(void *user) {
    struct co_peer *peer = user;
    char why[96];
    snprintf(why, sizeof why, "no reply to a step within %d ms", peer->opts.step_timeout_ms);
    go_down(peer, why);
}

/* Through the channel if the worker listens there; the stream rings where it sleeps. */
static enum ft_code send_step(struct co_peer *peer) {
    struct ft_str message = ft_buf_str(&peer->out);
    switch (ft_channel_put(ft_region_channel(peer->region), message)) {
    case FT_CHANNEL_SEEN:
        return FT_OK;
    case FT_CHANNEL_RING:
        return ft_rpc_stream_send(peer->stream, ft_str_c(""));
    default:
        return ft_rpc_stream_send(peer->stream, message);
    }
}

enum ft_code co_peer_step(struct co_peer *peer, struct ft_wire_step *step) {
    if (!co_peer_up(peer))
        return FT_E_PEER_UNAVAILABLE;
    FT_ASSERT(peer->step_id == 0);
    step->step_id = peer->next_step_id++;
    step->epoch = peer->describe.epoch;
    step->coordinator_epoch = peer->opts.coordinator_epoch;
    step->generation = (uint32_t)(step->step_id % FT_REGION_GENERATIONS);
    ft_buf_reset(&peer->out);
    ft_wire_encode_step(step, &peer->out);
    if (peer->out.failed || send_step(peer) != FT_OK) {
        go_down(peer, "a step could not be sent");
        return FT_E_PEER_UNAVAILABLE;
    }
    peer->step_id = step->step_id;
    peer->step_n_seqs = step->n_seqs;
    ft_rpc_timer_set(peer->opts.loop, &peer->step_timer,
                     ft_clock_now_ns() + (int64_t)peer->opts.step_timeout_ms * MS, step_late, peer);
    return FT_OK;
}

void co_peer_set_step_timeout(struct co_peer *peer, int32_t timeout_ms) {
    peer->opts.step_timeout_ms = timeout_ms;
}

bool co_peer_busy(const struct co_peer *peer) {
    return peer != NULL && peer->step_id != 0;
}

void co_peer_fail(struct co_peer *peer, const char *why) {
    go_down(peer, why);
}

struct stats_call {
    struct co_peer *peer;
    co_peer_stats_fn fn;
    void *user;
};

static void stats_done(void *user, const struct ft_rpc_status *status, struct ft_str reply) {
    struct stats_call call = *(struct stats_call *)user;
    free(user);
    struct ft_wire_worker_stats stats;
    ft_arena_reset(call.peer->scratch);
    bool ok = status->code == 0 &&
              ft_wire_decode_worker_stats(reply, call.peer->scratch, &stats, NULL) == FT_OK;
    call.fn(call.user, ok ? &stats : NULL);
}

void co_peer_stats(struct co_peer *peer, co_peer_stats_fn fn, void *user) {
    struct stats_call *call = co_peer_up(peer) ? malloc(sizeof *call) : NULL;
    if (call == NULL) {
        fn(user, NULL);
        return;
    }
    *call = (struct stats_call){peer, fn, user};
    char path[96];
    snprintf(path, sizeof path, "%sGetStats", peer->service);
    struct ft_rpc_call_opts opts = {.deadline_ns =
                                        ft_clock_now_ns() + (int64_t)STATS_TIMEOUT_MS * MS};
    if (ft_rpc_client_unary(peer->client, path, (struct ft_str){NULL, 0}, &opts, stats_done, call,
                            NULL) != FT_OK) {
        free(call);
        fn(user, NULL);
    }
}

void co_peer_call(struct co_peer *peer, const char *method, struct ft_str message,
                  int64_t timeout_ms, ft_rpc_unary_fn fn, void *user) {
    char path[96];
    struct ft_err err = {0};
    snprintf(path, sizeof path, "%s%s", peer->service, method);
    struct ft_rpc_call_opts opts = {
        .deadline_ns = ft_clock_now_ns() + timeout_ms * MS,
        .no_retry = true,
    };
    if (ft_rpc_client_unary(peer->client, path, message, &opts, fn, user, &err) == FT_OK)
        return;
    struct ft_rpc_status status = ft_rpc_status_from_err(&err);
    fn(user, &status, (struct ft_str){NULL, 0});
}
