#include "sim/world.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/config.h"
#include "coordinator/tune.h"
#include "draft_worker/draft.h"
#include "sim/model.h"
#include "sim/net.h"
#include "support/fixtures.h"
#include "target_worker/verify.h"

#define MS 1000000

static const char *const k_endpoints[SIM_ROLES] = {"unix:/sim/target", "unix:/sim/draft"};

void world_fail(const struct world *world, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "replay with FORETOKEN_SIM_SEED=%llu: at %lld us: %s\n",
            (unsigned long long)world->seed, (long long)(net_now_ns() / 1000), text);
    ck_abort_msg("seed %llu: %s", (unsigned long long)world->seed, text);
    abort();
}

/* ---- workers -------------------------------------------------------------------------------- */

static void worker_start(struct world *world, int role) {
    struct sim_worker *w = &world->workers[role];
    struct ft_err err = {0};
    ft_rpc_loop_create(&w->loop, 0, &err);
    const struct ft_worker_role *roles[SIM_ROLES] = {&tw_verify_role, &dw_draft_role};
    if (ft_worker_open(&w->worker, roles[role], &w->params, &err) != FT_OK ||
        ft_service_open(&w->service, w->loop, w->worker, &err) != FT_OK)
        world_fail(world, "worker %d: %s", role, err.text);
}

static void worker_kill(struct sim_worker *w) {
    if (w->loop == NULL)
        return;
    net_kill(w->loop);
    w->n_stolen = 0;
    ft_service_close(&w->service);
    ft_worker_close(&w->worker);
    ft_rpc_loop_destroy(&w->loop);
}

static void worker_params(struct world *world, int role, const struct sim_opts *opts) {
    struct ft_worker_params *p = &world->workers[role].params;
    int32_t blocks = role == SIM_TARGET ? opts->target_blocks : opts->draft_blocks;
    strcpy(p->model, ft_fixture_model("cyc")); /* its tokenizer and EOS; the weights are not read */
    strcpy(p->listen, k_endpoints[role]);
    strcpy(p->device, role == SIM_TARGET ? "sim-target" : "sim-draft");
    p->kv_cache_bytes = (int64_t)(blocks > 0 ? blocks : 1000) * SIM_BLOCK_BYTES;
    p->max_num_seqs = opts->max_seqs > 0 ? opts->max_seqs : 8;
    p->max_num_batched_tokens = opts->step_tokens > 0 ? opts->step_tokens : 64;
    if (role == SIM_DRAFT && opts->draft_step_tokens > 0)
        p->max_num_batched_tokens = opts->draft_step_tokens;
    p->max_step_rows = role == SIM_TARGET ? opts->target_rows : opts->draft_rows;
    strcpy(p->kv_layout, opts->slotted ? "slotted" : "paged");
    p->enable_prefix_caching = !opts->slotted;
}

/* ---- faults --------------------------------------------------------------------------------- */

static void lose_sequence(struct world *world, struct sim_worker *w) {
    int n = 0;
    for (struct co_request *r = world->app->first; r != NULL; r = r->next)
        n += r->state == CO_REQUEST_RUNNING;
    if (n == 0 || w->worker == NULL)
        return;
    int pick = (int)net_below((uint32_t)n);
    for (struct co_request *r = world->app->first; r != NULL; r = r->next)
        if (r->state == CO_REQUEST_RUNNING && pick-- == 0)
            ft_kvseq_release(w->worker->seqs, r->seq_id);
}

static void steal_blocks(struct sim_worker *w) {
    if (w->worker == NULL || w->n_stolen > 0)
        return;
    int32_t n = ft_kvpool_free(w->worker->pool) + ft_kvpool_cached(w->worker->pool);
    n = n < SIM_STOLEN_MAX ? n : SIM_STOLEN_MAX;
    if (n > 0 && ft_kvpool_take(w->worker->pool, n, w->stolen, NULL) == FT_OK)
        w->n_stolen = n;
}

static void return_blocks(struct sim_worker *w) {
    if (w->worker != NULL && w->n_stolen > 0)
        ft_kvpool_give(w->worker->pool, w->stolen, w->n_stolen);
    w->n_stolen = 0;
}

static void fire(void *user) {
    struct sim_fault *fault = user;
    struct world *world = fault->world;
    struct sim_worker *w = &world->workers[fault->role];
    if (fault->kind == SIM_KILL) {
        if (fault->undo && w->loop == NULL)
            worker_start(world, fault->role);
        else if (!fault->undo)
            worker_kill(w);
    } else if (fault->kind == SIM_STALL && !fault->undo && w->loop != NULL) {
        net_stall(w->loop, net_now_ns() + fault->lasts_ns);
    } else if (fault->kind == SIM_LOSE && !fault->undo) {
        lose_sequence(world, w);
    } else if (fault->kind == SIM_STEAL) {
        (fault->undo ? return_blocks : steal_blocks)(w);
    }
    if (!fault->undo) {
        fault->undo = true;
        ft_rpc_timer_set(world->outside, &fault->timer, net_now_ns() + fault->lasts_ns, fire,
                         fault);
    }
}

void world_fault(struct world *world, enum sim_fault_kind kind, int role, int64_t in_ns,
                 int64_t lasts_ns) {
    FT_ASSERT(world->n_faults < SIM_FAULTS_MAX);
    struct sim_fault *fault = &world->faults[world->n_faults++];
    *fault = (struct sim_fault){.world = world, .kind = kind, .role = role, .lasts_ns = lasts_ns};
    world->tampered = world->tampered || kind == SIM_LOSE || kind == SIM_STEAL;
    ft_rpc_timer_set(world->outside, &fault->timer, net_now_ns() + in_ns, fire, fault);
}

/* ---- start ---------------------------------------------------------------------------------- */

static void configure(struct world *world, const struct sim_opts *opts) {
    char *argv[SIM_ARGS_MAX + 5] = {"sim", "--target_endpoint=unix:/sim/target"};
    int argc = 2;
    if (!opts->no_draft)
        argv[argc++] = "--draft_endpoint=unix:/sim/draft";
    argv[argc++] = "--listen=unix:/sim/front";
    argv[argc++] = "--metrics_listen=";
    for (int i = 0; i < SIM_ARGS_MAX && opts->args[i] != NULL; i++)
        argv[argc++] = (char *)(uintptr_t)opts->args[i];
    struct ft_err err = {0};
    if (co_config_parse(&world->app->config, argc, argv, &err) != FT_OK)
        world_fail(world, "%s", err.text);
}

void world_start(struct world *world, uint64_t seed, const struct sim_opts *opts) {
    *world = (struct world){.seed = seed};
    sim_model_reset();
    struct ft_err err = {0};
    ft_rpc_loop_create(&world->outside, 0, &err);
    world->transform = ft_transform_create(SIM_VOCAB);
    world->app = calloc(1, sizeof *world->app);
    configure(world, opts);
    for (int role = 0; role < (opts->no_draft ? 1 : SIM_ROLES); role++) {
        worker_params(world, role, opts);
        worker_start(world, role);
    }
    if (co_app_open(world->app, &err) != FT_OK)
        world_fail(world, "%s", err.text);
    ft_rpc_client_open(&world->client, world->outside, "unix:/sim/front", NULL, &err);
    while (!world->app->readiness.serving)
        if (!world_step(world) || world->app->exit_status != 0)
            world_fail(world, "the coordinator does not start");
}

struct sim_client *world_client(struct world *world, int64_t in_ns) {
    FT_ASSERT(world->n_clients < SIM_CLIENTS_MAX);
    struct sim_client *c = &world->clients[world->n_clients];
    *c = (struct sim_client){.world = world,
                             .index = world->n_clients,
                             .stop_id = -1,
                             .cancel_after = -1,
                             .stream = true};
    snprintf(c->id, sizeof c->id, "c%d", world->n_clients++);
    c->params.has_temperature = c->params.has_max_tokens = c->params.has_seed = true;
    c->params.max_tokens = 20;
    ft_buf_init(&c->text, 0);
    ft_rpc_timer_set(world->outside, &c->start_timer, net_now_ns() + in_ns, sim_client_start, c);
    return c;
}

/* ---- invariants ----------------------------------------------------------------------------- */

/* Continuations of one call count their missed steps with clients that are not there. */
static struct sim_client *client_of(struct world *world, const struct co_request *r) {
    return &world->clients[(atoi(r->id + 1) + 16 * r->index) % SIM_CLIENTS_MAX];
}

/* Whether the target step in flight names r. */
static bool has_turn(const struct co_app *app, const struct co_request *r) {
    for (int32_t i = 0; i < app->round.n_entries; i++)
        if (app->round.entries[i].request == r)
            return app->round.plans[i].target_tokens > 0;
    return false;
}

/* The target has begun another step: who decodes may miss one, but not two in a row. */
static void check_turns(struct world *world) {
    struct co_app *app = world->app;
    uint64_t n_steps = sim_target_log().n_steps;
    if (n_steps == world->target_steps || app->round.phase != CO_ROUND_VERIFY)
        return;
    world->target_steps = n_steps;
    for (struct co_request *r = app->first; r != NULL; r = r->next) {
        if (r->state != CO_REQUEST_RUNNING || r->n - r->target_len != 1 || co_request_paused(r))
            continue;
        struct sim_client *c = client_of(world, r);
        c->n_missed = has_turn(app, r) ? 0 : c->n_missed + 1;
        if (c->n_missed > 1)
            world_fail(world, "request %s decodes and was left out of two steps", r->id);
    }
}

static void check_requests(struct world *world) {
    const struct co_app *app = world->app;
    int32_t n_queued = 0, n_running = 0;
    int64_t target_blocks = 0, draft_blocks = 0;
    for (struct co_request *r = app->first; r != NULL; r = r->next) {
        n_queued += r->state == CO_REQUEST_QUEUED;
        if (r->state != CO_REQUEST_RUNNING)
            continue;
        n_running++;
        target_blocks += r->target_blocks;
        draft_blocks += r->draft_blocks;
        if (r->target_len >= r->n || r->draft_len > r->n)
            world_fail(world, "request %s: %d tokens, target has %d, draft %d", r->id, r->n,
                       r->target_len, r->draft_len);
        if (r->target_len > r->target_blocks * app->pair.target_limits.block_tokens ||
            r->draft_len > r->draft_blocks * app->pair.draft_limits.block_tokens)
            world_fail(world, "request %s: target %d in %d blocks, draft %d in %d", r->id,
                       r->target_len, r->target_blocks, r->draft_len, r->draft_blocks);
        if (r->stream &&
            r->out_ids.len > (size_t)app->config.stream_buffer_tokens + FT_DRAFT_LEN_MAX + 1)
            world_fail(world, "request %s buffers %zu tokens", r->id, r->out_ids.len);
        if (!world->tampered && r->n_failures != 0)
            world_fail(world, "request %s: its sequence failed in a worker that has no fault",
                       r->id);
    }
    if (n_queued != app->n_queued || n_running != app->n_running ||
        (app->pair.known && n_running > app->pair.max_seqs))
        world_fail(world, "%d queued and %d running, counted as %d and %d", n_queued, n_running,
                   app->n_queued, app->n_running);
    if (target_blocks + app->pair.target_blocks_free != app->pair.target_blocks ||
        draft_blocks + app->pair.draft_blocks_free != app->pair.draft_blocks ||
        app->pair.target_blocks_free < 0 || app->pair.draft_blocks_free < 0)
        world_fail(world, "blocks: target %lld + %lld of %lld, draft %lld + %lld of %lld",
                   (long long)target_blocks, (long long)app->pair.target_blocks_free,
                   (long long)app->pair.target_blocks, (long long)draft_blocks,
                   (long long)app->pair.draft_blocks_free, (long long)app->pair.draft_blocks);
}

bool world_step(struct world *world) {
    if (!net_step())
        return false;
    check_turns(world);
    check_requests(world);
    return true;
}

static bool all_done(const struct world *world) {
    for (int i = 0; i < world->n_clients; i++)
        if (!world->clients[i].done)
            return false;
    return true;
}

void world_run(struct world *world, int64_t limit_ms) {
    int64_t limit_ns = net_now_ns() + limit_ms * MS;
    while (!all_done(world)) {
        if (!world_step(world) || net_now_ns() > limit_ns) {
            for (int i = 0; i < world->n_clients; i++)
                if (!world->clients[i].done)
                    world_fail(world, "request c%d does not end (%d of %d tokens)", i,
                               world->clients[i].n_got, world->clients[i].n_expected);
        }
    }
}

/* ---- stop ----------------------------------------------------------------------------------- */

static bool worker_clean(const struct sim_worker *w) {
    return w->worker == NULL ||
           (ft_kvseq_count(w->worker->seqs) == 0 &&
            ft_kvpool_free(w->worker->pool) + ft_kvpool_cached(w->worker->pool) + w->n_stolen ==
                ft_kvpool_total(w->worker->pool));
}

/* What ended is freed everywhere within a round: a few milliseconds, or a reconnection. */
static void settle(struct world *world) {
    int64_t limit_ns = net_now_ns() + (int64_t)20000 * MS;
    const struct co_app *app = world->app;
    while (app->first != NULL || app->encoding.first != NULL ||
           !worker_clean(&world->workers[SIM_TARGET]) || !worker_clean(&world->workers[SIM_DRAFT]))
        if (!world_step(world) || net_now_ns() > limit_ns)
            world_fail(world, "left: %s, target %s, draft %s",
                       app->first != NULL ? "requests" : "no requests",
                       worker_clean(&world->workers[SIM_TARGET]) ? "clean" : "not clean",
                       worker_clean(&world->workers[SIM_DRAFT]) ? "clean" : "not clean");
}

void world_stop(struct world *world) {
    settle(world);
    world_abandon(world);
}

void world_abandon(struct world *world) {
    for (int i = 0; i < world->n_faults; i++)
        ft_rpc_timer_cancel(world->outside, &world->faults[i].timer);
    for (int role = 0; role < SIM_ROLES; role++)
        return_blocks(&world->workers[role]);
    co_app_close(world->app);
    free(world->app);
    ft_rpc_client_close(&world->client);
    for (int role = 0; role < SIM_ROLES; role++)
        worker_kill(&world->workers[role]);
    ft_transform_destroy(&world->transform);
    for (int i = 0; i < world->n_clients; i++)
        ft_buf_fini(&world->clients[i].text);
    ft_rpc_loop_destroy(&world->outside);
}

/* ---- what suites have in common -------------------------------------------------------------- */

struct sim_client *world_add(struct world *world, int64_t in_ms, uint32_t family, int32_t n_prompt,
                             uint32_t max_tokens) {
    struct sim_client *c = world_client(world, in_ms * MS);
    sim_client_prompt(c, family, n_prompt);
    c->params.max_tokens = max_tokens;
    c->params.ignore_eos = true;
    return c;
}

struct co_request *world_request(const struct world *world, const struct sim_client *client) {
    for (struct co_request *r = world->app->first; r != NULL; r = r->next)
        if (strcmp(r->id, client->id) == 0)
            return r;
    return NULL;
}

void world_set(struct world *world, const char *name, const char *value) {
    struct ft_wire_parameter parameter = {ft_str_c(name), ft_str_c(value)};
    struct ft_err err = {0};
    ck_assert_msg(co_tune_set(world->app, &parameter, 1, &err) == FT_OK, "%s", err.text);
}

void world_random_fault(struct world *world, bool has_draft) {
    int role = has_draft ? (int)net_below(SIM_ROLES) : SIM_TARGET;
    enum sim_fault_kind kind = (enum sim_fault_kind)net_below(SIM_FAULT_KINDS);
    int64_t longest_ms = kind == SIM_STALL && role == SIM_TARGET ? 300 : 60;
    world_fault(world, kind, role, (int64_t)net_below(60000) * 1000,
                (int64_t)(1 + net_below((uint32_t)longest_ms)) * MS);
}

void world_run_seeds(uint64_t n, void (*run)(uint64_t seed)) {
    const char *one = getenv("FORETOKEN_SIM_SEED");
    if (one != NULL) {
        ft_log_set_level(FT_LOG_DEBUG);
        run(strtoull(one, NULL, 10));
        return;
    }
    for (uint64_t seed = 1; seed <= n; seed++)
        run(seed);
}
