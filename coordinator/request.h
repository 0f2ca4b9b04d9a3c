/* request: one generation from admission to its last message.
 * Owns:    the request's tokens, text state and output buffer, from create to free.
 * Runs in: coordinator; loop thread only.
 * Never:   talks to a worker (see round.h); sends a token twice. */
#ifndef CO_REQUEST_H
#define CO_REQUEST_H

#include "common/rpc/rpc.h"
#include "common/spec/rule.h"
#include "common/text/detok.h"
#include "common/text/tokenizer.h"
#include "common/wire/inference.h"
#include "coordinator/drafter.h"
#include "coordinator/length.h"
#include "coordinator/stats.h"
#include "coordinator/turns.h"

#ifdef __cplusplus
extern "C" {
#endif

struct co_app;
struct co_group;

enum co_request_state {
    CO_REQUEST_QUEUED,  /* waits for a place and for KV; may have been running before */
    CO_REQUEST_RUNNING, /* takes part in rounds */
    CO_REQUEST_ENDED    /* its last message is on the way, or its client is gone */
};

enum co_request_event {
    CO_EVENT_ADMIT,      /* a place and KV are there */
    CO_EVENT_PREEMPT,    /* its place and KV go to others; it goes on later where it stopped */
    CO_EVENT_STOP,       /* finish is set: end with status OK */
    CO_EVENT_FAIL,       /* error is set: end with its status */
    CO_EVENT_CANCEL,     /* the client is gone, or its deadline passed */
    CO_EVENT_TIME_LIMIT, /* time_limit_millis */
    CO_EVENT_ABORT,      /* an operator ends it: status OK, with what it has */
};

#define CO_REQUEST_ID_MAX 128
#define CO_STOP_IDS_MAX 64

struct co_request {
    struct co_request *next, *prev; /* in order: by priority, then by arrival */
    struct co_app *app;
    struct co_group *group;   /* the continuations of one call */
    int32_t index;            /* of this one */
    struct ft_rpc_call *call; /* NULL once it has said its last, or its client is gone */
    struct ft_arena *arena;
    enum co_request_state state;
    bool in_step; /* a step that names it is in flight: not freed before its reply */
    uint64_t seq_id;
    char id[CO_REQUEST_ID_MAX + 1];
    struct ft_str client; /* whose share it counts to; empty while there is no limit */
    struct ft_str token;  /* name of its call's token; empty where the service asks for none */
    struct co_turn turn;  /* priority: lower is earlier */

    /* what was asked, checked */
    struct ft_sampling sampling, draft_sampling;
    const struct ft_rule *rule;
    float lenience; /* of the rule `lenient` */
    float synthetic_rates[FT_DRAFT_LEN_MAX];
    double synthetic_length; /* that they were made from; 0: they were given */
    int32_t max_new;         /* tokens to generate at most, context limit included */
    int32_t min_tokens;
    int32_t stop_ids[CO_STOP_IDS_MAX + 32]; /* EOS ids unless ignored, and stop_token_ids */
    int32_t n_stop_ids;
    struct ft_str *stops;
    size_t n_stops;
    bool vllm;      /* its client speaks the facade's messages: see vllm.h */
    bool is_late;   /* it has ended, and its call had no room for what it says last */
    bool is_orphan; /* one of its call's continuations has failed, and the call with it */
    bool stream, skip_special, include_stop, speculate, return_prompt;
    int32_t n_top, n_prompt_top; /* alternatives of each token; -1: no log-probabilities */
    int32_t n_prompt_rows_wanted;
    int32_t k;  /* num_speculative_tokens of this request */
    bool k_own; /* the request named it; else the service's policy decides */
    /* It named a drafter; a rule, or a parameter of the service's, which names it too; it wants no
     * speculation. */
    bool drafter_own, rule_own, spec_off;
    bool lenience_own, acceptance_own; /* it named the parameter of the rule */
    bool lossy; /* tokens were decided by a rule that does not keep the distribution */
    const struct co_drafter *drafter;

    /* progress */
    int32_t *tokens;                     /* [n_prompt + max_new] */
    int32_t n_prompt, n;                 /* n committed, prompt included */
    int32_t target_len;                  /* positions of tokens that the target's KV holds */
    int32_t draft_len;                   /* the same for the draft */
    int32_t target_blocks, draft_blocks; /* held, as the coordinator counts them */
    int32_t n_failures;                  /* of its sequence in a row */
    int32_t n_preempted;
    int64_t not_before_ns; /* of its next admission, after a worker had no blocks */
    int32_t cached_tokens;
    bool draft_refused; /* the draft cannot serve it any more; fallback_reason says why */
    const char *fallback_reason;
    bool drafter_began;
    void *drafter_state;
    struct co_length_request length;
    struct ft_counts *counts; /* NULL without penalties */
    struct ft_detok detok;
    int32_t n_prompt_rows; /* positions of the prompt whose row was seen, from the first on */
    struct ft_logprobs *prompt_logprobs; /* [n_prompt_rows_wanted], of the token after each */

    /* output */
    struct ft_ids out_ids; /* not yet sent */
    struct ft_buf out_text;
    struct ft_buf out_logprobs; /* struct ft_logprobs of each of out_ids, when asked for */
    bool announced;             /* the first message went out */
    enum ft_wire_finish finish;
    bool has_matched_token;
    int32_t matched_token;
    int matched_stop; /* index of the stop string, -1: none */
    struct ft_err error;

    struct co_spec_stats spec;
    int64_t arrived_ns, started_ns, first_token_ns, last_token_ns;
    int64_t last_commit_ns;
    struct ft_rpc_timer time_limit;
};

/* Check a decoded GenerateRequest, all but its prompt, and keep what its continuation index needs
 * of it: nothing points into it afterwards. fail  FT_E_REQ_* naming the field, the value and the
 * limit */
enum ft_code co_request_create(struct co_request **out, struct co_app *app,
                               const struct ft_wire_generate *in, int32_t index,
                               struct ft_err *err);
/* Tokens that its prompt may have before truncate_prompt_tokens. */
size_t co_request_prompt_max(const struct co_app *app, const struct ft_wire_generate *in);
/* Its prompt: the ids of the input. It can be queued then. fail as create */
enum ft_code co_request_set_prompt(struct co_request *request, const struct ft_wire_generate *in,
                                   const int32_t *ids, size_t n_ids, struct ft_err *err);
/* What to say when the prompt has more than co_request_prompt_max tokens. */
enum ft_code co_request_prompt_too_long(const struct co_app *app, const struct ft_wire_generate *in,
                                        struct ft_err *err);
/* Free one that was never queued. */
void co_request_discard(struct co_request *request);

/* Feed an event to the state table (request.c). */
void co_request_event(struct co_request *request, enum co_request_event event);
/* CO_EVENT_FAIL with err. */
void co_request_fail(struct co_request *request, const struct ft_err *err);

/* Target blocks that it needs to be admitted: its text and a first round. */
int32_t co_request_blocks_needed(const struct co_request *request);
/* Those that it can ever need. */
int32_t co_request_blocks_most(const struct co_request *request);
/* The target worker had no blocks for it: preempt it, and admit it again after a pause. */
void co_request_back_off(struct co_request *request);
/* Give back what it holds in the draft's pool; it decodes plainly until there is room. */
void co_request_drop_draft(struct co_request *request);

/* Commit tokens in order until the first stop condition; returns how many were committed. */
int32_t co_request_commit(struct co_request *request, const int32_t *tokens, int32_t n);
/* End the request if a stop condition was met; after its statistics are complete. */
void co_request_conclude(struct co_request *request);

/* Send what is pending when the client can take it. */
void co_request_flush(struct co_request *request);
/* Its client reads too slowly: leave it out of rounds for now. */
bool co_request_paused(const struct co_request *request);
/* The call is gone; frees the request once nothing refers to it. */
void co_request_call_gone(struct co_request *request);
/* Free it if it has ended, its call is gone and no step names it. */
void co_request_collect(struct co_request *request);

#ifdef __cplusplus
}
#endif
#endif
