#include "coordinator/plan.h"

#include <stddef.h>

#include "common/base/sampling.h"

static int32_t min32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static bool decodes(const struct co_plan_item *item) {
    return item->n - item->target_len == 1;
}

/* Of a target step, what drafts leave to prompts. */
struct kept {
    int32_t tokens, rows;
};

/* A quarter of the tokens, or all that the prompts need when that is less: drafts that take the
 * whole step would keep a prompt waiting for as long as streams draft. A prompt whose every row is
 * wanted moves only with rows: one at least is kept. */
static struct kept kept_for_prompts(const struct co_plan_item *items, int32_t n_items,
                                    const struct co_plan_limits *target) {
    int32_t share = target->max_tokens < 4 ? 1 : target->max_tokens / 4;
    struct kept kept = {0, 0};
    for (int32_t i = 0; i < n_items; i++) {
        if (decodes(&items[i]))
            continue;
        kept.tokens += min32(items[i].n - items[i].target_len, share - kept.tokens);
        if (items[i].every_row)
            kept.rows = 1;
    }
    return kept;
}

int32_t co_plan_blocks(const struct co_plan_limits *limits, int32_t n_positions) {
    return (n_positions + limits->block_tokens - 1) / limits->block_tokens;
}

/* How many more positions fit behind n when n_blocks can be held, at most want. */
static int32_t fit(const struct co_plan_limits *limits, int32_t n, int64_t n_blocks, int32_t want) {
    int64_t room = n_blocks * limits->block_tokens - n;
    return room < want ? (int32_t)room : want;
}

/* ---- the target's blocks -------------------------------------------------------------------- */

static int64_t blocks_of_all(const struct co_plan_item *items, int32_t n_items,
                             const struct co_plan_limits *target) {
    int64_t sum = 0;
    for (int32_t i = 0; i < n_items; i++)
        sum += co_plan_blocks(target, items[i].n);
    return sum;
}

int64_t co_plan_lack(const struct co_plan_item *items, int32_t n_items,
                     const struct co_plan_limits *target) {
    int64_t lack = blocks_of_all(items, n_items, target) - target->n_blocks;
    return lack > 0 ? lack : 0;
}

int32_t co_plan_kv(struct co_plan_item *items, int32_t n_items,
                   const struct co_plan_limits *target) {
    int64_t needed = blocks_of_all(items, n_items, target);
    int32_t n_kept = n_items;
    while (n_kept > 1 && needed > target->n_blocks)
        needed -= co_plan_blocks(target, items[--n_kept].n);
    int64_t left = target->n_blocks - needed;
    for (int32_t i = 0; i < n_kept; i++) {
        struct co_plan_item *item = &items[i];
        int32_t blocks = co_plan_blocks(target, item->n);
        int32_t k = fit(target, item->n, blocks + left, item->k_want);
        item->target_full = item->k_want > 0 && k == 0;
        item->k_want = k;
        item->target_blocks = co_plan_blocks(target, item->n + item->k_want);
        left -= item->target_blocks - blocks;
    }
    return n_kept;
}

/* ---- the draft step ------------------------------------------------------------------------- */

/* What is left while a draft step is shared out. */
struct draft_left {
    int32_t tokens, rows;
    int32_t verified; /* drafted tokens that the target's step can still take */
    int64_t blocks;
};

/* Positions in the draft's KV after it drafted k tokens behind n; the last one is not fed. */
static int32_t draft_positions(int32_t n, int32_t k) {
    return k > 1 ? n + k - 1 : n;
}

static void drop(struct co_plan_item *item, struct draft_left *left) {
    left->blocks += item->draft_blocks;
    item->draft_blocks = 0;
    item->drop_draft = true;
    item->draft_full = true;
}

/* Take blocks of later requests, the last first, until n_blocks are left. */
static void take_from_later(struct co_plan_item *items, int32_t n_items, int32_t i,
                            int64_t n_blocks, struct draft_left *left) {
    for (int32_t j = n_items - 1; j > i && left->blocks < n_blocks; j--)
        if (items[j].draft_blocks > 0 && items[j].draft_tokens == 0)
            drop(&items[j], left);
}

/* Blocks for item i to hold all of its text and draft *k tokens, which may be lowered. */
static bool hold_draft(struct co_plan_item *items, int32_t n_items, int32_t i, int32_t *k,
                       struct draft_left *left, const struct co_plan_limits *draft) {
    struct co_plan_item *item = &items[i];
    int32_t plain = co_plan_blocks(draft, item->n);
    if (item->draft_blocks > 0)
        take_from_later(items, n_items, i, plain - item->draft_blocks, left);
    int64_t available = item->draft_blocks + left->blocks;
    if (plain > available) {
        if (item->draft_blocks > 0)
            drop(item, left);
        item->draft_full = true;
        return false;
    }
    int32_t behind_last = fit(draft, item->n, available, *k > 1 ? *k - 1 : 0);
    *k = min32(*k, behind_last + 1);
    int32_t blocks = co_plan_blocks(draft, draft_positions(item->n, *k));
    left->blocks -= blocks - item->draft_blocks;
    item->draft_blocks = blocks;
    return true;
}

static void plan_draft(struct co_plan_item *items, int32_t n_items, int32_t i,
                       struct draft_left *left, const struct co_plan_limits *draft) {
    struct co_plan_item *item = &items[i];
    int32_t behind = item->n - item->draft_len;
    if (!decodes(item) || item->k_want <= 0 || behind <= 0 || left->tokens <= 0 || item->drop_draft)
        return;
    int32_t k = min32(item->k_want, left->verified);
    if (item->sampled)
        k = min32(k, left->rows);
    if (k < 0)
        k = 0;
    if (!hold_draft(items, n_items, i, &k, left, draft))
        return;
    item->draft_tokens = min32(behind, left->tokens);
    left->tokens -= item->draft_tokens;
    if (item->draft_tokens < behind)
        return;
    item->draft_k = k;
    left->verified -= k;
    if (item->sampled)
        left->rows -= k;
}

/* Behind by no more than a round leaves: such a request drafts in this step. */
static bool is_current(const struct co_plan_item *item) {
    return item->n - item->draft_len <= FT_DRAFT_LEN_MAX + 1;
}

void co_plan_draft(struct co_plan_item *items, int32_t n_items, const struct co_plan_limits *draft,
                   const struct co_plan_limits *target) {
    struct kept kept = kept_for_prompts(items, n_items, target);
    struct draft_left left = {
        .tokens = draft->max_tokens,
        .rows = draft->max_rows,
        .verified = min32(target->max_tokens - kept.tokens, target->max_rows - kept.rows),
        .blocks = draft->n_blocks,
    };
    for (int32_t i = 0; i < n_items; i++) {
        struct co_plan_item *item = &items[i];
        item->draft_tokens = item->draft_k = 0;
        item->drop_draft = item->draft_full = false;
        left.blocks -= item->draft_blocks;
        left.verified -= decodes(item);
    }
    for (int32_t i = 0; i < n_items; i++)
        if (is_current(&items[i]))
            plan_draft(items, n_items, i, &left, draft);
    for (int32_t i = 0; i < n_items; i++)
        if (!is_current(&items[i]))
            plan_draft(items, n_items, i, &left, draft);
}

/* ---- the target step ------------------------------------------------------------------------ */

/* What is left while a target step is shared out. */
struct target_left {
    int32_t tokens, rows;
    int32_t owed; /* tokens, each with its row, of the decoding requests that are still to come */
    struct kept kept;
};

/* A decoding request's token, and the drafts that the draft worker was asked to make for it. Those
 * of others, which cost nothing to make, take what these leave. */
static int32_t owed(const struct co_plan_item *item) {
    return 1 + min32(item->n_drafted, item->draft_k);
}

static void plan_decoding(struct co_plan_item *item, struct target_left *left) {
    left->owed -= owed(item);
    if (left->tokens < 1 || left->rows < 1)
        return;
    int32_t room = min32(left->tokens - left->kept.tokens, left->rows - left->kept.rows);
    room -= 1 + left->owed;
    item->target_tokens = 1;
    item->verify_k = min32(item->n_drafted, room > 0 ? room : 0);
    item->n_logits = item->verify_k + 1;
    left->tokens -= 1 + item->verify_k;
    left->rows -= 1 + item->verify_k;
}

static int32_t to_go(const struct co_plan_item *item) {
    return item->n - item->target_len - item->target_tokens;
}

/* More prompt tokens for item, at most n_max of them. */
static void extend_prefill(struct co_plan_item *item, int32_t n_max, int32_t *tokens_left,
                           int32_t *rows_left) {
    int32_t chunk = min32(to_go(item), n_max);
    if (item->every_row)
        chunk = min32(chunk, *rows_left);
    else if (chunk == to_go(item) && *rows_left < 1)
        chunk--; /* The last token waits for a row of logits. */
    if (chunk <= 0)
        return;
    item->target_tokens += chunk;
    *tokens_left -= chunk;
    int32_t n_rows = item->every_row ? chunk : to_go(item) == 0 ? 1 : 0;
    item->n_logits += n_rows;
    *rows_left -= n_rows;
}

/* Of the prompts that have nothing in this step yet, the one with the fewest tokens to go. */
static struct co_plan_item *shortest(struct co_plan_item *items, int32_t n_items) {
    struct co_plan_item *best = NULL;
    for (int32_t i = 0; i < n_items; i++)
        if (items[i].target_tokens == 0 && to_go(&items[i]) > 1 &&
            (best == NULL || to_go(&items[i]) < to_go(best)))
            best = &items[i];
    return best;
}

static void plan_prefill(struct co_plan_item *items, int32_t n_items, int32_t tokens_left,
                         int32_t rows_left) {
    struct co_plan_item *first = NULL;
    for (int32_t i = 0; i < n_items && first == NULL; i++)
        if (items[i].n - items[i].target_len > 1)
            first = &items[i];
    if (first == NULL)
        return;
    extend_prefill(first, (tokens_left + 1) / 2, &tokens_left, &rows_left);
    struct co_plan_item *next;
    while (tokens_left > 0 && (next = shortest(items, n_items)) != NULL && next != first) {
        extend_prefill(next, tokens_left, &tokens_left, &rows_left);
        if (next->target_tokens == 0)
            break; /* short of a row */
    }
    if (tokens_left > 0 && to_go(first) > 0)
        extend_prefill(first, tokens_left, &tokens_left, &rows_left);
}

void co_plan_target(struct co_plan_item *items, int32_t n_items,
                    const struct co_plan_limits *target) {
    struct target_left left = {
        .tokens = target->max_tokens,
        .rows = target->max_rows,
        .kept = kept_for_prompts(items, n_items, target),
    };
    for (int32_t i = 0; i < n_items; i++) {
        items[i].target_tokens = 0;
        items[i].verify_k = 0;
        items[i].n_logits = 0;
        left.owed += decodes(&items[i]) ? owed(&items[i]) : 0;
    }
    for (int32_t i = 0; i < n_items; i++)
        if (decodes(&items[i]))
            plan_decoding(&items[i], &left);
    plan_prefill(items, n_items, left.tokens, left.rows);
}
