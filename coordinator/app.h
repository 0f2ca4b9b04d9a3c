/* app: the coordinator's state, one per process.
 * Owns:    everything of the process; made by main.c.
 * Runs in: coordinator; loop thread only.
 * Never:   is reached through a global. */
#ifndef CO_APP_H
#define CO_APP_H

#include "common/spec/rule.h"
#include "common/text/chat.h"
#include "coordinator/config.h"
#include "coordinator/decider.h"
#include "coordinator/drafting.h"
#include "coordinator/encode.h"
#include "coordinator/guard.h"
#include "coordinator/health.h"
#include "coordinator/peer.h"
#include "coordinator/plan.h"
#include "coordinator/readiness.h"
#include "coordinator/request.h"
#include "coordinator/retry.h"
#include "coordinator/stats.h"
#include "coordinator/supervise.h"
#include "coordinator/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CO_VERSION "0.1.0"
#define CO_EOS_MAX 32
#define CO_CHAT_MESSAGES_MAX 1024 /* as inference.proto says; a bound on stack and time */

/* What the target's model is, beside its vocabulary and limits: streams go on with no other. */
struct co_target_model {
    char architecture[64], dtype[16];
    uint64_t n_parameters, weight_bytes;
    uint64_t fingerprint; /* 0: not told */
};

/* What is known of the pair of models, from the first Describe on. */
struct co_pair {
    bool known;
    struct co_target_model target_model;
    struct ft_tokenizer *tokenizer;
    enum ft_chat_format chat;
    int32_t eos_ids[CO_EOS_MAX]; /* of the model's files, and the end of a turn for chat input */
    int32_t n_eos;
    int32_t end_of_turn; /* -1: none */
    int32_t max_model_len;
    int32_t vocab_size;     /* rows of the target's head */
    int32_t tokenizer_size; /* ids that stand for something */
    int32_t draft_max_len;  /* 0: no draft seen yet */
    int32_t draft_vocab_size;
    int32_t max_seqs;
    struct co_plan_limits target_limits, draft_limits;
    /* KV blocks of the pools, and those that no running request holds: counted here so that a step
     * never asks for more than there is. A worker may hold fewer (it shares those of its prefix
     * cache), never more. */
    int64_t target_blocks, draft_blocks;
    int64_t target_blocks_free, draft_blocks_free;
};

/* Sequences that a worker may forget; they go with its next step, before anything is appended. */
struct co_released {
    uint64_t *ids;
    size_t n, cap;
};

struct co_round_entry { /* what a drafter proposed for one request */
    struct co_request *request;
    int32_t draft[FT_DRAFT_LEN_MAX];
    const float *q_rows[FT_DRAFT_LEN_MAX]; /* in the draft's region: gone when it goes down */
    bool has_q;
    bool device_q;     /* the model's q rows lie on the GPU */
    int32_t n_vocab_q; /* of the q rows */
    int32_t k_room;    /* tokens that there are KV blocks for */
    struct co_proposal proposal;
    struct ft_choice_round choice; /* its rows are decided on the GPU; none: n_rows 0 */
    bool lost; /* the drafts cannot be decided: their q rows are gone or wrong */
};

enum co_round_phase { CO_ROUND_IDLE, CO_ROUND_DRAFT, CO_ROUND_VERIFY };

struct co_round {
    enum co_round_phase phase;
    struct co_round_entry *entries; /* [max_seqs] */
    struct co_plan_item *plans;     /* [max_seqs], one for each entry */
    int32_t n_entries;
    struct ft_wire_seq_step *seqs; /* [max_seqs] scratch of a step */
    int32_t *tokens;               /* scratch of a step: appended and drafted tokens */
    int64_t tokens_cap;
    int64_t begin_ns;
    int64_t draft_ns, target_ns; /* computing inside the workers */
    bool bad_draft;              /* q rows that nothing can have been drawn from */
    bool decoding;               /* at least one request verified or stepped plainly */
    struct ft_transform *transform;
};

struct co_metrics;

struct co_app {
    struct co_config config;
    struct ft_rpc_loop *loop;
    struct ft_rpc_server *server;
    int port;                       /* that it listens on; 0: a Unix socket */
    struct co_peer *target, *draft; /* draft NULL: none configured */
    struct co_guard guard;
    struct co_health health;
    struct co_decider decider;
    struct co_pair pair;
    const struct ft_rule *rule;
    struct co_round round;
    struct co_drafting drafting;
    struct co_encoding encoding; /* prompts on their way to becoming requests */
    struct co_retry retry;
    struct co_stats stats;
    struct co_trace trace;
    struct co_request *first, *last; /* all requests that have not been freed, in order */
    int32_t n_queued, n_running;
    bool kv_short; /* a request was left without KV, though with a place, when places were given */
    int32_t n_orphans; /* requests whose call failed with a sibling: see group.h */
    int32_t n_calls;   /* of which something may still have to reach a client: groups' */
    uint64_t next_seq_id;
    struct co_released target_released, draft_released;
    uint64_t epoch;
    int64_t started_ns;
    int64_t target_lost_ns; /* when it was lost last */
    int64_t last_receive_s; /* of the last Generate, since 1970; 0: none yet */
    struct co_readiness readiness;
    struct co_config_sources sources; /* of config, for a reload */
    struct co_supervise supervise;
    bool stopping;              /* for good: the process ends, once it is drained or at once */
    bool drained_said;          /* of this drain */
    bool reloading;             /* the draft worker loads another model */
    bool tuned;                 /* parameters were set since the last round began */
    struct co_metrics *metrics; /* NULL: none */
    struct ft_rpc_timer startup_timer, recovery_timer, shutdown_timer;
    struct ft_rpc_timer backoff_timer; /* a request waits after its worker had no blocks for it */
    int exit_status;
};

/* Listen, reach for the workers and serve once they are there; config is filled in and the rest is
 * zero. The caller runs app->loop, and closes in any case.
 * fail FT_E_PROC_* */
enum ft_code co_app_open(struct co_app *app, struct ft_err *err);
/* End every request, UNAVAILABLE, and free everything. exit_status stays. */
void co_app_close(struct co_app *app);

/* Effective speculation mode: "draft_model", another drafter's name or "plain", and why it is plain
 * ("" otherwise). */
const char *co_app_mode(const struct co_app *app, const char **reason);

/* Calls that the server takes at once: all that may run and wait, so that it is the queue that
 * turns requests away and says when to come again, and others beside them. */
int32_t co_app_calls_max(const struct co_app *app);

#ifdef __cplusplus
}
#endif
#endif
