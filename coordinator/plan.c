#include "coordinator/plan.h"

static int32_t min32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static bool decodes(const struct co_plan_item *item) {
    return item->n - item->target_len == 1;
}

void co_plan_draft(struct co_plan_item *items, int32_t n_items, const struct co_plan_limits *draft,
                   const struct co_plan_limits *target) {
    int32_t n_decoding = 0;
    for (int32_t i = 0; i < n_items; i++)
        n_decoding += decodes(&items[i]);
    /* What verification can take beyond the one token of each decoding request. */
    int32_t target_left = min32(target->max_tokens, target->max_rows) - n_decoding;
    int32_t tokens_left = draft->max_tokens;
    int32_t rows_left = draft->max_rows;
    for (int32_t i = 0; i < n_items; i++) {
        struct co_plan_item *item = &items[i];
        item->draft_tokens = 0;
        item->draft_k = 0;
        int32_t behind = item->n - item->draft_len;
        if (!decodes(item) || item->k_want <= 0 || behind <= 0 || tokens_left <= 0)
            continue;
        item->draft_tokens = min32(behind, tokens_left);
        tokens_left -= item->draft_tokens;
        if (item->draft_tokens < behind)
            continue;
        int32_t k = min32(item->k_want, target_left);
        if (item->sampled)
            k = min32(k, rows_left);
        if (k <= 0)
            continue;
        item->draft_k = k;
        target_left -= k;
        if (item->sampled)
            rows_left -= k;
    }
}

static void plan_decoding(struct co_plan_item *item, int32_t *tokens_left, int32_t *rows_left,
                          int32_t n_after) {
    if (*tokens_left < 1 || *rows_left < 1)
        return;
    int32_t room = min32(*tokens_left, *rows_left) - 1 - n_after;
    item->target_tokens = 1;
    item->verify_k = min32(item->n_drafted, room > 0 ? room : 0);
    item->n_logits = item->verify_k + 1;
    *tokens_left -= 1 + item->verify_k;
    *rows_left -= 1 + item->verify_k;
}

void co_plan_target(struct co_plan_item *items, int32_t n_items,
                    const struct co_plan_limits *target) {
    int32_t tokens_left = target->max_tokens;
    int32_t rows_left = target->max_rows;
    int32_t n_decoding = 0;
    for (int32_t i = 0; i < n_items; i++) {
        items[i].target_tokens = 0;
        items[i].verify_k = 0;
        items[i].n_logits = 0;
        n_decoding += decodes(&items[i]);
    }
    for (int32_t i = 0; i < n_items; i++)
        if (decodes(&items[i]))
            plan_decoding(&items[i], &tokens_left, &rows_left, --n_decoding);
    for (int32_t i = 0; i < n_items; i++) {
        struct co_plan_item *item = &items[i];
        int32_t behind = item->n - item->target_len;
        if (behind <= 1 || tokens_left <= 0)
            continue;
        int32_t chunk = min32(behind, tokens_left);
        if (chunk == behind && rows_left < 1)
            chunk--; /* The last token waits for a row of logits. */
        item->target_tokens = chunk;
        item->n_logits = chunk == behind ? 1 : 0;
        tokens_left -= chunk;
        rows_left -= item->n_logits;
    }
}
