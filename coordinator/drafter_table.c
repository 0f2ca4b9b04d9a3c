/* The drafters `bigram` and `unigram`: what the last token, or nothing at all, says of the next
 * one, learnt from a text when the service starts. They cost next to nothing: the approximation
 * models of Leviathan et al. 2023, section 3.6. After a token that the text lacks, bigram falls
 * back on unigram. */
#include <stdlib.h>

#include "coordinator/drafters.h"

struct table {
    int32_t n_vocab;
    int32_t n_best; /* most frequent ids of the text */
    int32_t best[CO_Q_SUPPORT_MAX];
    uint32_t best_counts[CO_Q_SUPPORT_MAX];
    uint32_t *starts; /* [n_vocab + 1] bounds of each token's successors in ids and counts; NULL in
                         unigram */
    int32_t *ids;     /* most frequent first */
    uint32_t *counts;
};

struct tally {
    int32_t before, id;
    uint32_t count;
};

static int compare_ids(const void *a, const void *b) {
    const struct tally *x = a, *y = b;
    if (x->before != y->before)
        return x->before < y->before ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* By what comes before, then the most frequent first, then the lowest id. */
static int compare_counts(const void *a, const void *b) {
    const struct tally *x = a, *y = b;
    if (x->before != y->before)
        return x->before < y->before ? -1 : 1;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Sum up equal pairs, and order them. Returns how many are left. */
static size_t count_up(struct tally *tallies, size_t n) {
    size_t kept = 0;
    qsort(tallies, n, sizeof *tallies, compare_ids);
    for (size_t i = 0; i < n; i++) {
        if (kept > 0 && compare_ids(&tallies[kept - 1], &tallies[i]) == 0)
            tallies[kept - 1].count++;
        else
            tallies[kept++] = tallies[i];
    }
    qsort(tallies, kept, sizeof *tallies, compare_counts);
    return kept;
}

static bool in_vocab(const struct table *table, int32_t id) {
    return id >= 0 && id < table->n_vocab;
}

static void learn_unigram(struct table *table, struct tally *tallies, const int32_t *text,
                          size_t n_text) {
    size_t n = 0;
    for (size_t i = 0; i < n_text; i++)
        if (in_vocab(table, text[i]))
            tallies[n++] = (struct tally){.id = text[i], .count = 1};
    n = count_up(tallies, n);
    for (size_t i = 0; i < n && i < CO_Q_SUPPORT_MAX; i++) {
        table->best[table->n_best] = tallies[i].id;
        table->best_counts[table->n_best++] = tallies[i].count;
    }
}

/* Keep the first CO_Q_SUPPORT_MAX successors of each token. */
static bool learn_bigram(struct table *table, struct tally *tallies, const int32_t *text,
                         size_t n_text) {
    size_t n = 0, kept = 0;
    for (size_t i = 1; i < n_text; i++)
        if (in_vocab(table, text[i - 1]) && in_vocab(table, text[i]))
            tallies[n++] = (struct tally){.before = text[i - 1], .id = text[i], .count = 1};
    n = count_up(tallies, n);
    size_t most = (size_t)table->n_vocab * CO_Q_SUPPORT_MAX;
    most = (n < most ? n : most) + 1;
    table->starts = calloc((size_t)table->n_vocab + 1, sizeof *table->starts);
    table->ids = malloc(most * sizeof *table->ids);
    table->counts = malloc(most * sizeof *table->counts);
    if (table->starts == NULL || table->ids == NULL || table->counts == NULL)
        return false;
    size_t at = 0;
    for (int32_t before = 0; before < table->n_vocab; before++) {
        table->starts[before] = (uint32_t)kept;
        for (size_t taken = 0; at < n && tallies[at].before == before; at++, taken++) {
            if (taken >= CO_Q_SUPPORT_MAX)
                continue;
            table->ids[kept] = tallies[at].id;
            table->counts[kept++] = tallies[at].count;
        }
    }
    table->starts[table->n_vocab] = (uint32_t)kept;
    return true;
}

static void close_table(void **shared) {
    struct table *table = *shared;
    if (table == NULL)
        return;
    free(table->starts);
    free(table->ids);
    free(table->counts);
    free(table);
    *shared = NULL;
}

static enum ft_code open_table(void **shared, const struct co_drafter_opts *opts, bool bigram,
                               struct ft_err *err) {
    if (opts->n_text == 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, "drafter",
                          "drafter %s needs a text to learn from: set drafter_text",
                          bigram ? "bigram" : "unigram");
    void *table = calloc(1, sizeof(struct table));
    struct tally *tallies = malloc(opts->n_text * sizeof *tallies);
    bool ok = table != NULL && tallies != NULL;
    if (ok) {
        ((struct table *)table)->n_vocab = opts->n_vocab;
        learn_unigram(table, tallies, opts->text, opts->n_text);
        ok = !bigram || learn_bigram(table, tallies, opts->text, opts->n_text);
    }
    free(tallies);
    if (!ok) {
        close_table(&table);
        return ft_err_set(err, FT_E_PROC_MEMORY, "drafter", "no memory to learn %zu tokens",
                          opts->n_text);
    }
    *shared = table;
    return FT_OK;
}

static enum ft_code open_bigram(void **shared, const struct co_drafter_opts *opts,
                                struct ft_err *err) {
    return open_table(shared, opts, true, err);
}

static enum ft_code open_unigram(void **shared, const struct co_drafter_opts *opts,
                                 struct ft_err *err) {
    return open_table(shared, opts, false, err);
}

static bool next_unigram(const struct table *table, const struct co_draft_context *context,
                         struct co_proposal *proposal) {
    return co_proposal_choose(proposal, context, table->best, table->best_counts, table->n_best);
}

static void propose_unigram(const void *shared, void *state, const struct co_draft_context *context,
                            struct co_proposal *proposal) {
    (void)state;
    proposal->source = co_drafter_unigram.name;
    while (next_unigram(shared, context, proposal))
        continue;
}

static bool next_bigram(const struct table *table, const struct co_draft_context *context,
                        struct co_proposal *proposal) {
    int32_t last = co_draft_tail(context, proposal, 0);
    uint32_t from = 0, n = 0;
    if (in_vocab(table, last)) {
        from = table->starts[last];
        n = table->starts[last + 1] - from;
    }
    if (n == 0)
        return next_unigram(table, context, proposal);
    return co_proposal_choose(proposal, context, table->ids + from, table->counts + from,
                              (int32_t)n);
}

static void propose_bigram(const void *shared, void *state, const struct co_draft_context *context,
                           struct co_proposal *proposal) {
    (void)state;
    proposal->match = 1;
    proposal->source = co_drafter_bigram.name;
    while (next_bigram(shared, context, proposal))
        continue;
}

const struct co_drafter co_drafter_bigram = {
    .name = "bigram",
    .open = open_bigram,
    .close = close_table,
    .begin = co_drafter_begin_nothing,
    .end = co_drafter_end_nothing,
    .propose = propose_bigram,
    .extend = co_drafter_extend_nothing,
    .usage = co_drafter_usage_nothing,
};

const struct co_drafter co_drafter_unigram = {
    .name = "unigram",
    .open = open_unigram,
    .close = close_table,
    .begin = co_drafter_begin_nothing,
    .end = co_drafter_end_nothing,
    .propose = propose_unigram,
    .extend = co_drafter_extend_nothing,
    .usage = co_drafter_usage_nothing,
};
