/* world: the real coordinator, two real worker services over the history model, and clients, in
 * one process on simulated time.
 * Owns:    everything of one simulation, from start to stop.
 * Runs in: tests/sim.
 * Never:   knows the order of things in advance: the seed decides it. */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "common/worker/service.h"
#include "common/worker/worker.h"
#include "coordinator/app.h"
#include "sim/client.h"

enum { SIM_TARGET, SIM_DRAFT, SIM_ROLES };
enum { SIM_CLIENTS_MAX = 96, SIM_ARGS_MAX = 12, SIM_FAULTS_MAX = 16, SIM_STOLEN_MAX = 64 };

struct sim_worker {
    struct ft_worker_params params;
    struct ft_rpc_loop *loop; /* NULL: not running */
    struct ft_worker *worker;
    struct ft_service *service;
    int32_t stolen[SIM_STOLEN_MAX]; /* blocks that a fault holds */
    int32_t n_stolen;
};

enum sim_fault_kind {
    SIM_KILL,  /* the worker dies and is started again */
    SIM_STALL, /* it handles nothing for a while, perhaps longer than a step may take */
    SIM_LOSE,  /* it forgets a sequence */
    SIM_STEAL, /* blocks of its pool are held by nobody the coordinator knows, for a while */
    SIM_FAULT_KINDS
};

struct sim_fault {
    struct world *world;
    enum sim_fault_kind kind;
    int role;
    int64_t lasts_ns;
    bool undo; /* the next time it fires */
    struct ft_rpc_timer timer;
};

struct sim_opts {
    int32_t target_blocks, draft_blocks; /* 0: plenty */
    int32_t step_tokens, max_seqs;       /* 0: 64, 8 */
    int32_t draft_step_tokens;           /* 0: as step_tokens */
    int32_t target_rows, draft_rows;     /* of a step; 0: as many as it can need */
    bool no_draft;
    bool slotted;                   /* KV of both workers; blocks still count 16 positions each */
    const char *args[SIM_ARGS_MAX]; /* of the coordinator, NULL-terminated */
};

struct world {
    uint64_t seed;
    struct co_app *app;
    struct sim_worker workers[SIM_ROLES];
    struct ft_rpc_loop *outside; /* where clients and faults live */
    struct ft_rpc_client *client;
    struct ft_transform *transform;
    struct sim_client clients[SIM_CLIENTS_MAX];
    int n_clients;
    struct sim_fault faults[SIM_FAULTS_MAX];
    int n_faults;
    uint64_t target_steps; /* seen by the checks so far */
    bool tampered;         /* a fault made workers lose sequences or blocks */
};

/* Runs until the coordinator serves. Fails the test when it does not. */
void world_start(struct world *world, uint64_t seed, const struct sim_opts *opts);
/* One event, then every invariant. false: nothing happens any more. */
bool world_step(struct world *world);
/* Until every client is done; fails the test after limit_ms of simulated time. */
void world_run(struct world *world, int64_t limit_ms);
/* Nothing may be left in coordinator and workers; then free everything. */
void world_stop(struct world *world);
/* Free everything as it is; the coordinator may be closed already. */
void world_abandon(struct world *world);

/* A client that starts in_ns from now; fill in its request before the next step. */
struct sim_client *world_client(struct world *world, int64_t in_ns);
/* One that generates max_tokens, whatever ends a text; its prompt as sim_client_prompt makes it. */
struct sim_client *world_add(struct world *world, int64_t in_ms, uint32_t family, int32_t n_prompt,
                             uint32_t max_tokens);
struct co_request *world_request(const struct world *world, const struct sim_client *client);
/* A parameter of the running service. Fails the test when it is refused. */
void world_set(struct world *world, const char *name, const char *value);
void world_fault(struct world *world, enum sim_fault_kind kind, int role, int64_t in_ns,
                 int64_t lasts_ns);
/* Of any kind, in the first 60 ms; a stall may be as long as a step may take. */
void world_random_fault(struct world *world, bool has_draft);
/* run for seeds 1 to n, or for FORETOKEN_SIM_SEED alone, with all that is logged. */
void world_run_seeds(uint64_t n, void (*run)(uint64_t seed));
/* Print the seed and what went wrong, and fail the test. */
void world_fail(const struct world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

#endif
