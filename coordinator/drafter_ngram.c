/* The drafter `ngram`: frequency tables of orders 2, 3 and 4 over prompt and output. The longest
 * context that was seen decides; of its continuations the most frequent, among equals the most
 * recent. Each predicted token is context of the next.
 *
 * A table holds a bounded number of contexts in sets of WAYS, each with SLOTS continuations. What
 * does not fit takes the place of the least recently seen context of its set, or of the least
 * frequent continuation; both are counted. */
#include <stdlib.h>

#include "coordinator/drafters.h"

enum { WAYS = 4, SLOTS = 4 };

struct entry { /* n_context 0: free */
    int32_t n_context;
    int32_t context[CO_NGRAM_CONTEXT_MAX]; /* last token first */
    int32_t last;                          /* position of the newest continuation */
    int32_t ids[SLOTS];
    int32_t lasts[SLOTS]; /* position where it was last seen */
    uint32_t counts[SLOTS];
};

struct ngram {
    const struct co_drafter_opts *opts;
    uint32_t n_sets; /* a power of two */
    int32_t n_seen;  /* tokens that are in the tables */
    uint64_t evicted;
    struct entry entries[]; /* [n_sets * WAYS] */
};

static enum ft_code open_ngram(void **shared, const struct co_drafter_opts *opts,
                               struct ft_err *err) {
    struct co_drafter_opts *kept = malloc(sizeof *kept);
    if (kept == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "drafter", "no memory for ngram");
    *kept = *opts;
    *shared = kept;
    return FT_OK;
}

static enum ft_code begin(void **state, const void *shared, int32_t tokens_max,
                          struct ft_err *err) {
    const struct co_drafter_opts *opts = shared;
    /* Each token adds a context of every length at most; twice that keeps sets from filling. */
    int64_t wanted = 2 * (int64_t)CO_NGRAM_CONTEXT_MAX * tokens_max;
    if (wanted > opts->ngram_entries)
        wanted = opts->ngram_entries;
    uint32_t n_sets = 1;
    while ((int64_t)n_sets * 2 * WAYS <= wanted)
        n_sets *= 2;
    struct ngram *ngram = calloc(1, sizeof *ngram + n_sets * WAYS * sizeof ngram->entries[0]);
    if (ngram == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "drafter", "no memory for n-gram tables");
    ngram->opts = opts;
    ngram->n_sets = n_sets;
    *state = ngram;
    return FT_OK;
}

static struct entry *set_of(struct ngram *ngram, const int32_t *context, int32_t n) {
    uint64_t hash = 0x9e3779b97f4a7c15u * (uint64_t)n;
    for (int32_t i = 0; i < n; i++) {
        hash = (hash ^ (uint32_t)context[i]) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return &ngram->entries[(hash & (ngram->n_sets - 1)) * WAYS];
}

static bool same_context(const struct entry *entry, const int32_t *context, int32_t n) {
    if (entry->n_context != n)
        return false;
    for (int32_t i = 0; i < n; i++)
        if (entry->context[i] != context[i])
            return false;
    return true;
}

static struct entry *find(struct ngram *ngram, const int32_t *context, int32_t n) {
    struct entry *set = set_of(ngram, context, n);
    for (int32_t i = 0; i < WAYS; i++)
        if (same_context(&set[i], context, n))
            return &set[i];
    return NULL;
}

/* The entry of a context, made if need be from the least recently seen of its set. */
static struct entry *take(struct ngram *ngram, const int32_t *context, int32_t n) {
    struct entry *entry = find(ngram, context, n);
    if (entry != NULL)
        return entry;
    struct entry *set = set_of(ngram, context, n), *oldest = &set[0];
    for (int32_t i = 1; i < WAYS && oldest->n_context != 0; i++)
        if (set[i].n_context == 0 || set[i].last < oldest->last)
            oldest = &set[i];
    ngram->evicted += oldest->n_context != 0;
    *oldest = (struct entry){.n_context = n};
    for (int32_t i = 0; i < n; i++)
        oldest->context[i] = context[i];
    return oldest;
}

static void add(struct ngram *ngram, const int32_t *context, int32_t n, int32_t id, int32_t at) {
    struct entry *entry = take(ngram, context, n);
    int32_t slot = 0;
    entry->last = at;
    for (int32_t i = 0; i < SLOTS; i++) {
        if (entry->counts[i] != 0 && entry->ids[i] == id) {
            entry->counts[i]++;
            entry->lasts[i] = at;
            return;
        }
        if (entry->counts[i] < entry->counts[slot] ||
            (entry->counts[i] == entry->counts[slot] && entry->lasts[i] < entry->lasts[slot]))
            slot = i;
    }
    ngram->evicted += entry->counts[slot] != 0;
    entry->ids[slot] = id;
    entry->counts[slot] = 1;
    entry->lasts[slot] = at;
}

/* Bring the tables up to date with the committed text. */
static void learn(struct ngram *ngram, const struct co_draft_context *in) {
    for (; ngram->n_seen < in->n; ngram->n_seen++) {
        int32_t at = ngram->n_seen, context[CO_NGRAM_CONTEXT_MAX];
        for (int32_t n = 1; n <= CO_NGRAM_CONTEXT_MAX && n <= at; n++) {
            context[n - 1] = in->tokens[at - n];
            add(ngram, context, n, in->tokens[at], at);
        }
    }
}

/* Continuations of entry that count, best first. */
static int32_t rank(const struct ngram *ngram, const struct entry *entry, int32_t n_text,
                    int32_t ids[SLOTS], uint32_t counts[SLOTS]) {
    int32_t lasts[SLOTS], n = 0, window = ngram->opts->ngram_window;
    for (int32_t i = 0; i < SLOTS; i++) {
        if (entry->counts[i] == 0 || (window > 0 && entry->lasts[i] < n_text - window))
            continue;
        int32_t at = n++;
        for (; at > 0 && (counts[at - 1] < entry->counts[i] ||
                          (counts[at - 1] == entry->counts[i] && lasts[at - 1] < entry->lasts[i]));
             at--) {
            ids[at] = ids[at - 1];
            counts[at] = counts[at - 1];
            lasts[at] = lasts[at - 1];
        }
        ids[at] = entry->ids[i];
        counts[at] = entry->counts[i];
        lasts[at] = entry->lasts[i];
    }
    return n;
}

/* One token more, from the longest context that has a continuation; the length of that context, 0
 * when there is none. */
static int32_t predict(struct ngram *ngram, const struct co_draft_context *in,
                       struct co_proposal *proposal) {
    int32_t context[CO_NGRAM_CONTEXT_MAX], ids[SLOTS];
    uint32_t counts[SLOTS];
    int32_t n_context = 0;
    while (n_context < CO_NGRAM_CONTEXT_MAX) {
        int32_t id = co_draft_tail(in, proposal, n_context);
        if (id < 0)
            break;
        context[n_context++] = id;
    }
    for (int32_t n = n_context; n > 0; n--) {
        const struct entry *entry = find(ngram, context, n);
        int32_t n_ids = entry == NULL ? 0 : rank(ngram, entry, in->n, ids, counts);
        if (n_ids > 0)
            return co_proposal_choose(proposal, in, ids, counts, n_ids) ? n : 0;
    }
    return 0;
}

static void extend(const void *shared, void *state, const struct co_draft_context *context,
                   struct co_proposal *proposal) {
    (void)shared;
    struct ngram *ngram = state;
    learn(ngram, context);
    int32_t match = predict(ngram, context, proposal);
    proposal->match = match;
    proposal->source = co_drafter_ngram.name;
    while (match > 0)
        match = predict(ngram, context, proposal);
}

static struct co_drafter_usage usage(const void *state) {
    const struct ngram *ngram = state;
    return (struct co_drafter_usage){
        .bytes = sizeof *ngram + (size_t)ngram->n_sets * WAYS * sizeof ngram->entries[0],
        .evicted = ngram->evicted,
    };
}

/* Proposing is extending a proposal that has nothing yet. */
const struct co_drafter co_drafter_ngram = {
    .name = "ngram",
    .open = open_ngram,
    .close = co_drafter_end_free,
    .begin = begin,
    .end = co_drafter_end_free,
    .propose = extend,
    .extend = extend,
    .usage = usage,
};
