/* The drafter `lookup` (prompt lookup): what followed the longest suffix of the text where it
 * occurred before; among equally long ones the most recent. A suffix never matches itself, and a
 * copy ends where the text does. With lookup_input the input is drafted from its start on as long
 * as the output repeats it (Shallow Aggressive Decoding, Sun et al. 2021). */
#include <stdlib.h>

#include "coordinator/drafters.h"

static enum ft_code open_lookup(void **shared, const struct co_drafter_opts *opts,
                                struct ft_err *err) {
    struct co_drafter_opts *kept = malloc(sizeof *kept);
    if (kept == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "drafter", "no memory for lookup");
    *kept = *opts;
    *shared = kept;
    return FT_OK;
}

/* Length of the longest common suffix of text[0..a) and text[0..b), at most max; a < b. */
static int32_t common_suffix(const int32_t *text, int32_t a, int32_t b, int32_t max) {
    int32_t len = 0;
    while (len < max && len < a && text[a - 1 - len] == text[b - 1 - len])
        len++;
    return len;
}

static void copy(const struct co_draft_context *context, int32_t from, int32_t end,
                 struct co_proposal *proposal) {
    const uint32_t one = 1;
    while (from < end && co_proposal_choose(proposal, context, &context->tokens[from], &one, 1))
        from++;
}

/* Output tokens so far when they are the first of the input, else 0. */
static int32_t repeated_input(const struct co_draft_context *context) {
    int32_t n_output = context->n - context->n_prompt;
    if (n_output >= context->n_prompt)
        return 0;
    for (int32_t i = 0; i < n_output; i++)
        if (context->tokens[context->n_prompt + i] != context->tokens[i])
            return 0;
    return n_output;
}

static void propose(const void *shared, void *state, const struct co_draft_context *context,
                    struct co_proposal *proposal) {
    (void)state;
    const struct co_drafter_opts *opts = shared;
    int32_t best = 0, best_end = 0;
    proposal->source = co_drafter_lookup.name;
    if (context->k_max <= 0)
        return;
    int32_t repeated = opts->lookup_input ? repeated_input(context) : 0;
    if (repeated > 0) {
        proposal->match = repeated;
        copy(context, repeated, context->n_prompt, proposal);
        return;
    }
    for (int32_t end = context->n - 1; end > 0 && best < opts->lookup_max; end--) {
        if (opts->ngram_window > 0 && end < context->n - opts->ngram_window)
            break;
        int32_t len = common_suffix(context->tokens, end, context->n, opts->lookup_max);
        if (len > best) {
            best = len;
            best_end = end;
        }
    }
    if (best < opts->lookup_min)
        return;
    proposal->match = best;
    copy(context, best_end, context->n, proposal);
}

const struct co_drafter co_drafter_lookup = {
    .name = "lookup",
    .open = open_lookup,
    .close = co_drafter_end_free,
    .begin = co_drafter_begin_nothing,
    .end = co_drafter_end_nothing,
    .propose = propose,
    .extend = co_drafter_extend_nothing,
    .usage = co_drafter_usage_nothing,
};
