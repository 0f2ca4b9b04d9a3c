/* drafter: where drafted tokens come from; one const struct per kind and a registry. No proposal
 * costs nothing: the round is then a plain step.
 * Owns:    shared state of the service and a state per request, made and freed by its functions.
 * Runs in: coordinator; loop thread only.
 * Never:   decides what is committed: whatever it proposes, the acceptance rule keeps the text that
 *          of the target. A token is proposed without knowledge of the numbers that accept it. */
#ifndef CO_DRAFTER_H
#define CO_DRAFTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/sampling.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ids of a row of q that a drafter without a model gives: what is rarer is not drafted. */
#define CO_Q_SUPPORT_MAX 16
/* Tokens that look back at most: the longest context of a table, order 4 less one. */
#define CO_NGRAM_CONTEXT_MAX 3
#define CO_CHAIN_MAX 4

/* The distribution that a token was drawn from. n_ids 0: one-hot, the token itself. */
struct co_q_row {
    int32_t n_ids;
    int32_t ids[CO_Q_SUPPORT_MAX];
    float probs[CO_Q_SUPPORT_MAX]; /* sum to 1 */
};

struct co_draft_context {
    const int32_t *tokens; /* [n] committed, prompt included; n >= 1 */
    int32_t n, n_prompt;
    int32_t n_vocab;    /* ids from here on are not proposed */
    int32_t k_max;      /* most tokens worth proposing, 0 .. FT_DRAFT_LEN_MAX */
    bool model;         /* the draft worker can be asked */
    bool probabilistic; /* draw from q = counts where there are counts; else the best token */
    uint64_t seed;
};

struct co_proposal {
    int32_t n;          /* tokens so far; on extend the model's come first */
    int32_t n_model;    /* the first so many are the draft worker's */
    bool ask_model;     /* propose nothing: the draft worker shall, then extend is called */
    int32_t match;      /* tokens of context that the first proposed token rests on */
    const char *source; /* name of the drafter that proposed; of the extension on extend */
    int32_t tokens[FT_DRAFT_LEN_MAX];
    struct co_q_row q[FT_DRAFT_LEN_MAX]; /* not of the model's tokens */
};

/* How drafters were configured; lives as long as the service. */
struct co_drafter_opts {
    int32_t n_vocab;
    int32_t ngram_window;           /* continuations last seen longer ago do not count; 0: all do */
    int32_t ngram_entries;          /* contexts that one request's tables hold at most */
    int32_t lookup_min, lookup_max; /* shortest and longest suffix that is looked for */
    bool lookup_input;              /* draft the input itself as long as the output repeats it */
    const int32_t *text;            /* [n_text] what unigram and bigram learn from */
    size_t n_text;
    const char *chain[CO_CHAIN_MAX]; /* names in order, NULL behind the last */
    int32_t chain_min_match;         /* a drafter that is no model is taken from this match on */
};

struct co_drafter_usage {
    size_t bytes;     /* of the request's state */
    uint64_t evicted; /* contexts and continuations that the bound of its memory cost */
};

/* State pointers may be NULL: nothing to keep. */
struct co_drafter {
    const char *name;
    /* What all requests share. fail FT_E_PROC_MEMORY; FT_E_PROC_CONFIG: it needs what opts lack */
    enum ft_code (*open)(void **shared, const struct co_drafter_opts *opts, struct ft_err *err);
    void (*close)(void **shared);
    /* What one request of at most tokens_max tokens needs. fail FT_E_PROC_MEMORY */
    enum ft_code (*begin)(void **state, const void *shared, int32_t tokens_max, struct ft_err *err);
    void (*end)(void **state);
    /* Fill proposal, which is zero: up to k_max tokens, or ask_model, or nothing. */
    void (*propose)(const void *shared, void *state, const struct co_draft_context *context,
                    struct co_proposal *proposal);
    /* Behind the tokens that proposal has, as many more as k_max allows. */
    void (*extend)(const void *shared, void *state, const struct co_draft_context *context,
                   struct co_proposal *proposal);
    struct co_drafter_usage (*usage)(const void *state);
};

/* By config name; NULL when there is none. */
const struct co_drafter *co_drafter_find(const char *name);
/* Every drafter in turn; NULL past the last. */
const struct co_drafter *co_drafter_at(size_t index);
/* Row of a drafter in the registry. */
size_t co_drafter_index(const struct co_drafter *drafter);

/* The distribution of the i-th token as a whole row: written into row, which is all zero; and
 * zeroed again. in  i  a token that is not the model's */
void co_proposal_row(const struct co_proposal *proposal, int32_t i, float *row);
void co_proposal_row_clear(const struct co_proposal *proposal, int32_t i, float *row);

/* ---- for drafters --------------------------------------------------------------------------- */

/* The i-th token from the end of committed text and proposal, 0 the last; -1 before the start. */
int32_t co_draft_tail(const struct co_draft_context *context, const struct co_proposal *proposal,
                      int32_t i);

/* Append the choice among n candidates with counts, best first: the first, or with
 * context->probabilistic one drawn from the counts. Candidates outside the vocabulary are left out.
 * False: the proposal is full, or no candidate is left. */
bool co_proposal_choose(struct co_proposal *proposal, const struct co_draft_context *context,
                        const int32_t *ids, const uint32_t *counts, int32_t n);

#ifdef __cplusplus
}
#endif
#endif
