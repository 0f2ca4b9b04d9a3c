/* drafting: the drafters and the length controller at work in the rounds of the service.
 * Owns:    shared and request state of drafters, scratch rows for their q, what lengths taught.
 * Runs in: coordinator; loop thread only.
 * Never:   talks to a worker (see round.h); fails a request: without memory it decodes plainly. */
#ifndef CO_DRAFTING_H
#define CO_DRAFTING_H

#include "common/base/str.h"
#include "coordinator/drafter.h"
#include "coordinator/length.h"

#ifdef __cplusplus
extern "C" {
#endif

struct co_app;
struct co_config;
struct co_request;

struct co_drafting_counts { /* of one drafter, since start */
    uint64_t drafts, drafted, accepted;
};

struct co_drafting {
    struct co_length_policy policy;
    struct co_length length;
    const struct co_drafter *drafter; /* of requests that name none */
    void *shared[CO_LENGTH_SOURCES];
    bool is_open[CO_LENGTH_SOURCES];
    struct co_drafting_counts counts[CO_LENGTH_SOURCES];
    float *rows; /* [FT_DRAFT_LEN_MAX][n_row] all zero between decisions */
    int32_t n_row;
    struct co_length_item *items; /* [max_seqs] scratch */
    int32_t *item_of;             /* [max_seqs] entry of each item */
    int64_t verify_begin_ns;
    bool steady; /* the round has decoding requests alone, and the draft had nothing to catch up */
};

/* What init refuses for the configuration alone: without a tokenizer, and without its text; and
 * that text, which must be readable. fail FT_E_PROC_CONFIG; FT_E_PROC_MEMORY */
enum ft_code co_drafting_check(const struct co_config *config, struct ft_err *err);
enum ft_code co_drafting_check_text(const struct co_config *config, struct ft_err *err);
/* When the pair is known: the drafters learn their texts. fail FT_E_PROC_* */
enum ft_code co_drafting_init(struct co_app *app, struct ft_err *err);
void co_drafting_fini(struct co_app *app);

/* The drafter of that name, when this service has it. fail FT_E_REQ_INVALID */
enum ft_code co_drafting_find(const struct co_app *app, struct ft_str name,
                              const struct co_drafter **out, struct ft_err *err);
/* The request is freed. */
void co_drafting_end(struct co_request *request);
/* The service's drafter or K has changed: requests that named none go on with it. Between two
 * rounds. */
void co_drafting_follow(struct co_request *request);

/* How many tokens may be drafted for request now, whoever drafts: KV blocks are kept for them. With
 * `model`, 0 while the draft worker cannot serve it, and fallback_reason says why. */
int32_t co_drafting_room(struct co_request *request);

/* For every entry of the round that decodes: what its drafter proposes within the k_want of its
 * plan, and how much of that; k_want is then what the draft worker is asked for. */
void co_drafting_propose(struct co_app *app);
/* The draft worker's tokens of entry i are there: what others put behind them. */
void co_drafting_extend(struct co_app *app, int32_t i);
/* The draft worker went down: what it drafted is gone. */
void co_drafting_lost(struct co_app *app);

/* q rows of entry i, for one decision; done takes them back. */
void co_drafting_rows(struct co_app *app, int32_t i);
void co_drafting_rows_done(struct co_app *app, int32_t i);
/* Of n_draft tokens of entry i that were verified, n_accepted were committed. is_cut: the text
 * ended with them, so the next one was not rejected. */
void co_drafting_decided(struct co_app *app, int32_t i, int32_t n_draft, int32_t n_accepted,
                         bool is_cut);

/* Times of the phases, for the controller. */
void co_drafting_verify_begins(struct co_app *app);
void co_drafting_round_ends(struct co_app *app);

#ifdef __cplusplus
}
#endif
#endif
