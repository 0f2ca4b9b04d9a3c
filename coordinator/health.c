#include "coordinator/health.h"

#include <stdlib.h>

#include "common/wire/health.h"
#include "coordinator/answer.h"
#include "coordinator/app.h"

#define MODULE "health"
#define ARENA_CHUNK 512
#define ARENA_MAX ((size_t)1 << 20) /* of a request that holds one name */

static const struct {
    const char *service;
    bool is_ready; /* SERVING while requests are; else as long as the process lives */
} k_services[] = {
    {"", false},
    {"foretoken.v1.Inference", true},
    {"vllm.grpc.engine.VllmEngine", true},
    {"foretoken.v1.Admin", false},
};
#define N_SERVICES ((int)(sizeof k_services / sizeof k_services[0]))

struct co_health_watch {
    struct co_health_watch *next;
    struct ft_rpc_call *call; /* NULL: it has ended, and on_gone frees this */
    int service;              /* N_SERVICES: none that is known */
    enum ft_wire_health said;
};

static int find(struct ft_str service) {
    for (int i = 0; i < N_SERVICES; i++)
        if (ft_str_eq(service, ft_str_c(k_services[i].service)))
            return i;
    return N_SERVICES;
}

static enum ft_wire_health status_of(const struct co_app *app, int service) {
    if (service == N_SERVICES)
        return FT_WIRE_HEALTH_SERVICE_UNKNOWN;
    bool ready = app->readiness.state == CO_READINESS_READY;
    return ready || !k_services[service].is_ready ? FT_WIRE_HEALTH_SERVING
                                                  : FT_WIRE_HEALTH_NOT_SERVING;
}

static enum ft_code decode(struct ft_str message, int *service, struct ft_err *err) {
    struct ft_str name;
    struct ft_arena *arena = ft_arena_create(ARENA_CHUNK, ARENA_MAX);
    if (arena == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory");
    enum ft_code code = ft_wire_decode_health_request(message, arena, &name, err);
    if (code == FT_OK)
        *service = find(name);
    if (code == FT_OK && *service == N_SERVICES)
        ft_err_set(err, FT_E_REQ_NOT_FOUND, MODULE, "no service '%.*s' here",
                   (int)(name.len < 128 ? name.len : 128), name.ptr == NULL ? "" : name.ptr);
    ft_arena_destroy(&arena);
    return code;
}

void co_health_check(struct ft_rpc_call *call, void *service, struct ft_str message) {
    struct ft_err err = {0};
    int which = N_SERVICES;
    if (decode(message, &which, &err) != FT_OK || which == N_SERVICES) {
        ft_rpc_call_fail(call, &err);
        return;
    }
    struct ft_buf out;
    ft_buf_init(&out, 0);
    ft_wire_encode_health(status_of(service, which), &out);
    co_answer_with(call, &out);
}

static void say(struct co_health_watch *watch, enum ft_wire_health status) {
    struct ft_buf out;
    ft_buf_init(&out, 0);
    ft_wire_encode_health(status, &out);
    watch->said = status;
    struct ft_rpc_call *call = watch->call;
    if (ft_rpc_call_send(call, ft_buf_str(&out)) != FT_OK) {
        watch->call = NULL;
        ft_rpc_call_finish(call, ft_code_grpc_status(FT_E_REQ_EXHAUSTED), "read faster");
    }
    ft_buf_fini(&out);
}

void co_health_watch(struct ft_rpc_call *call, void *service, struct ft_str message) {
    struct co_app *app = service;
    struct ft_err err = {0};
    int which = N_SERVICES;
    enum ft_code code = decode(message, &which, &err);
    struct co_health_watch *watch = code == FT_OK ? calloc(1, sizeof *watch) : NULL;
    if (code == FT_OK && watch == NULL)
        code = ft_err_set(&err, FT_E_PROC_MEMORY, MODULE, "no memory");
    if (code != FT_OK) {
        ft_rpc_call_fail(call, &err);
        return;
    }
    *watch = (struct co_health_watch){app->health.watches, call, which, FT_WIRE_HEALTH_UNKNOWN};
    app->health.watches = watch;
    ft_rpc_call_set_user(call, watch);
    say(watch, status_of(app, which));
}

void co_health_watch_gone(struct ft_rpc_call *call, void *service) {
    struct co_app *app = service;
    struct co_health_watch *watch = ft_rpc_call_user(call);
    struct co_health_watch **at = &app->health.watches;
    while (*at != NULL && *at != watch)
        at = &(*at)->next;
    if (*at != NULL)
        *at = watch->next;
    free(watch);
}

static void on_readiness(void *user, const struct co_readiness *readiness) {
    struct co_app *app = user;
    (void)readiness;
    for (struct co_health_watch *watch = app->health.watches; watch != NULL; watch = watch->next) {
        enum ft_wire_health status = status_of(app, watch->service);
        if (watch->call != NULL && status != watch->said)
            say(watch, status);
    }
}

void co_health_open(struct co_app *app) {
    co_readiness_listen(&app->readiness, &app->health.listener, on_readiness, app);
}

void co_health_close(struct co_app *app) {
    co_readiness_unlisten(&app->readiness, &app->health.listener);
    for (struct co_health_watch *watch = app->health.watches; watch != NULL; watch = watch->next) {
        if (watch->call != NULL)
            ft_rpc_call_finish(watch->call, ft_code_grpc_status(FT_E_PEER_UNAVAILABLE),
                               "the service is shutting down");
        watch->call = NULL;
    }
}
