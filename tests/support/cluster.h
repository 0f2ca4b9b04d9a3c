/* cluster: the three real processes for a test, and a client that talks to them.
 * Owns:    the processes and their run directory, from start to stop.
 * Runs in: tests.
 * Never:   sleeps for readiness: every process says "ready" on a pipe. */
#ifndef TEST_CLUSTER_H
#define TEST_CLUSTER_H

#include <sys/types.h>

#include "common/base/buf.h"
#include "common/rpc/rpc.h"
#include "common/wire/admin.h"
#include "common/wire/inference.h"

enum cluster_role { CLUSTER_TARGET, CLUSTER_DRAFT, CLUSTER_COORDINATOR, CLUSTER_ROLES };

enum { CLUSTER_ARGS = 12, GEN_IDS_MAX = 8192, GEN_OTHERS = 7, GEN_OTHER_IDS_MAX = 256 };

struct cluster_opts {
    const char *target_dir;
    const char *draft_dir;                         /* NULL: none */
    const char *args[CLUSTER_ROLES][CLUSTER_ARGS]; /* NULL-terminated, "--key=value" */
    const char *listen;  /* of the coordinator; NULL: a Unix socket in the run directory */
    const char *log;     /* where all three log to; NULL: a file each in the run directory */
    const char *preload; /* library that the coordinator is started with; NULL: none */
};

struct cluster {
    struct cluster_opts opts;
    char dir[128];
    char endpoint[192];
    pid_t pids[CLUSTER_ROLES]; /* 0: not running */
    struct ft_rpc_loop *loop;
    struct ft_rpc_client *client;
};

/* Fails the test when a process does not become ready. */
void cluster_start(struct cluster *cluster, const struct cluster_opts *opts);
/* SIGTERM to all, newest first; fails the test unless each exits 0. */
void cluster_stop(struct cluster *cluster);
/* A pair of models by their names as fixtures; draft and arg, of the coordinator, may be NULL. */
void cluster_start_pair(struct cluster *cluster, const char *target, const char *draft,
                        const char *arg);
/* Start one process alone; returns 0 when it said ready, else its exit status. */
int cluster_spawn(struct cluster *cluster, enum cluster_role role);
/* Send a signal; for SIGKILL and SIGTERM reap it too. Returns the wait status. */
int cluster_signal(struct cluster *cluster, enum cluster_role role, int signo);
/* Wait for the end of a process that ends by itself; fails the test unless it exits 0. */
void cluster_exits(struct cluster *cluster, enum cluster_role role);

/* One generation, running or done. */
struct gen {
    bool done;
    struct ft_rpc_status status;
    int32_t ids[GEN_IDS_MAX];
    size_t n_ids;
    struct ft_buf text;
    int n_messages;
    enum ft_wire_finish finish;
    bool has_matched_token, has_matched_str;
    int32_t matched_token;
    char matched_str[64];
    struct ft_wire_usage usage;
    struct ft_wire_spec_stats spec;
    struct ft_buf logprobs, prompt_logprobs; /* struct ft_logprobs each */
    struct ft_buf prompt_ids;                /* int32_t each */
    struct gen_other {                       /* continuations 1 and up; all else is of index 0 */
        int32_t ids[GEN_OTHER_IDS_MAX];
        float logprobs[GEN_OTHER_IDS_MAX]; /* of the tokens themselves */
        size_t n_ids, n_logprobs;
        size_t n_tokens; /* all of them, not only those that ids has room for */
        enum ft_wire_finish finish;
        struct ft_wire_usage usage;
    } others[GEN_OTHERS];
    bool bad_utf8; /* a message's text was not valid UTF-8 by itself */
    struct ft_rpc_stream *stream;
    struct ft_arena *arena;
    size_t cancel_after; /* tokens; 0: never */
};

/* Defaults for tests: greedy, ignore_eos off, streaming, text or ids set by the caller. */
struct ft_wire_generate gen_request(void);
struct ft_wire_generate gen_text(const char *text, uint32_t max_tokens, int k);
void gen_start(struct cluster *cluster, const struct ft_wire_generate *request, struct gen *gen);
/* Run the loop until all are done; fails the test after 120 s. */
void gen_wait(struct cluster *cluster, struct gen *const *gens, size_t n);
/* Start and wait. The status is in gen. */
void gen_run(struct cluster *cluster, const struct ft_wire_generate *request, struct gen *gen);
void gen_fini(struct gen *gen);
/* Fails the test unless the generation ended well. */
void gen_require_ok(const struct gen *gen);
/* Fails the test unless got ended well, with the tokens of expected. */
void gen_require_same(const struct gen *got, const struct gen *expected, const char *what);
/* The log-probabilities of token i; fails the test when they did not come. */
const struct ft_logprobs *gen_logprobs(const struct gen *gen, size_t i);

/* Statistics; strings of the result are not kept. */
struct ft_wire_stats cluster_stats(struct cluster *cluster);
/* Fails the test unless, within 10 s, nothing runs or waits and both pools have all their blocks.
 */
void cluster_require_idle(struct cluster *cluster);
/* A call of Admin; the answer is appended to out, which may be NULL. */
struct ft_rpc_status cluster_admin(struct cluster *cluster, const char *method,
                                   struct ft_str message, struct ft_buf *out);

#endif
