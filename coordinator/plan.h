/* plan: which tokens of which request go into the next draft step and the next target step, and
 * which KV blocks they may hold.
 * Owns:    nothing: pure functions of counts, so that properties and simulations can test them.
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
    int32_t max_tokens;   /* new positions */
    int32_t max_rows;     /* logits or q rows */
    int32_t block_tokens; /* positions of a KV block */
    int64_t n_blocks;     /* KV blocks that the items may hold, all together */
};

/* One request, in order: those before it were first, or are more important. */
struct co_plan_item {
    /* in */
    int32_t n;            /* committed tokens, prompt included; at least 1 */
    int32_t target_len;   /* of these, in the target's KV: 0 .. n - 1 */
    int32_t draft_len;    /* in the draft's KV: 0 .. n */
    int32_t k_want;       /* tokens worth drafting: 0 .. FT_DRAFT_LEN_MAX; co_plan_kv lowers it */
    bool sampled;         /* its draft steps write q rows */
    bool every_row;       /* prefill wants a row of logits for every position */
    int32_t n_drafted;    /* before co_plan_target: drafts that there are; the first draft_k of them
                             are the draft worker's */
    int32_t draft_blocks; /* held in the draft's pool; co_plan_draft sets what it holds then */
    /* out */
    int32_t target_blocks; /* of co_plan_kv: for n + k_want positions */
    bool target_full;      /* of co_plan_kv: no room for even one drafted token */
    bool drop_draft;       /* its KV in the draft's pool is to be given back before the step */
    bool draft_full;       /* it found no room there */
    int32_t draft_tokens;  /* committed tokens to append to the draft, 0: not in the draft step */
    int32_t draft_k;       /* tokens to draft then */
    int32_t target_tokens; /* committed tokens to append to the target, 0: not in the target step */
    int32_t verify_k;      /* drafted tokens behind them */
    int32_t n_logits;      /* rows wanted of the last positions: verify_k + 1; of a prefill chunk 0,
                              or target_tokens with every_row */
};

int32_t co_plan_blocks(const struct co_plan_limits *limits, int32_t n_positions);

/* Target blocks that the items lack for one plain step of each; 0: they fit. */
int64_t co_plan_lack(const struct co_plan_item *items, int32_t n_items,
                     const struct co_plan_limits *target);

/* Share out the target's blocks: first n positions for everybody, then k_want positions more in
 * order, so that K shrinks before anyone loses its KV. Returns how many items stay, at least one;
 * those behind them, the last in order, are to be preempted. Lowers k_want, fills target_blocks. */
int32_t co_plan_kv(struct co_plan_item *items, int32_t n_items,
                   const struct co_plan_limits *target);

/* Fill draft_tokens, draft_k, draft_blocks, drop_draft and draft_full. Only requests that decode
 * (n - target_len == 1) draft. A draft that is behind catches up in chunks, out of what those that
 * are up to date leave of the step; it drafts in the step that brings it up to date. draft_k is
 * such that the target's step can verify all that is drafted, beside the share of prompts.
 * Where the draft's pool is full, a request decodes plainly: one begins only when all it needs is
 * free; one that grows may take what later ones hold, and gives up its own when that is not
 * enough, so that blocks never lie with requests that cannot use them. */
void co_plan_draft(struct co_plan_item *items, int32_t n_items, const struct co_plan_limits *draft,
                   const struct co_plan_limits *target);

/* Fill target_tokens, verify_k and n_logits. Decoding requests come first, so that a long prompt
 * never delays a running stream by more than one step; drafts leave a quarter of the step's tokens
 * to prompts that need them, and those that no draft worker made come last. Of what is left, the
 * first prompt may take half, and the rest goes to the prompts with the fewest tokens to go: a
 * short one does not wait for a long one, and the first always moves.
 * target->max_tokens and max_rows are at least n_items. */
void co_plan_target(struct co_plan_item *items, int32_t n_items,
                    const struct co_plan_limits *target);

#ifdef __cplusplus
}
#endif
#endif
