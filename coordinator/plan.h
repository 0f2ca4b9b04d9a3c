/* plan: which tokens of which request go into the next draft step and the next target step.
 * Owns:    nothing: a pure function of counts, so that properties and simulations can test it.
 * Runs in: coordinator.
 * Never:   looks at tokens, text, time or workers. */
#ifndef CO_PLAN_H
#define CO_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Limits of one step of one worker. */
struct co_plan_limits {
    int32_t max_tokens; /* new positions */
    int32_t max_rows;   /* logits or q rows */
};

/* One request, in order of arrival. */
struct co_plan_item {
    /* in */
    int32_t n;          /* committed tokens, prompt included; at least 1 */
    int32_t target_len; /* of these, in the target's KV: 0 .. n - 1 */
    int32_t draft_len;  /* in the draft's KV: 0 .. n */
    int32_t k_want;     /* tokens worth drafting: 0 .. FT_DRAFT_LEN_MAX */
    bool sampled;       /* its draft steps write q rows */
    int32_t n_drafted;  /* before co_plan_target: what the drafter returned */
    /* out */
    int32_t draft_tokens;  /* committed tokens to append to the draft, 0: not in the draft step */
    int32_t draft_k;       /* tokens to draft then */
    int32_t target_tokens; /* committed tokens to append to the target, 0: not in the target step */
    int32_t verify_k;      /* drafted tokens behind them */
    int32_t n_logits;      /* rows wanted: verify_k + 1, or 0 for a prefill chunk */
};

/* Fill draft_tokens and draft_k. Only requests that decode (n - target_len == 1) draft. A draft
 * that is behind catches up in chunks; it drafts in the step that brings it up to date. draft_k is
 * such that every decoding request can still be verified under the target's limits. */
void co_plan_draft(struct co_plan_item *items, int32_t n_items, const struct co_plan_limits *draft,
                   const struct co_plan_limits *target);

/* Fill target_tokens, verify_k and n_logits. Decoding requests come first, each with its drafts;
 * prefill chunks share what is left, first come first served, so that a long prompt never delays
 * a running stream by more than one step. */
void co_plan_target(struct co_plan_item *items, int32_t n_items,
                    const struct co_plan_limits *target);

#ifdef __cplusplus
}
#endif
#endif
