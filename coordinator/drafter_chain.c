/* The drafter `chain`: an ordered list. The first member that has something wins: one that is no
 * model needs a context of chain_min_match tokens, the model only to be there. Members that can
 * extend put their tokens behind the model's. When only shorter contexts are left, the member with
 * the longest one is still better than nothing where no model can be asked. */
#include <stdlib.h>
#include <string.h>

#include "coordinator/drafters.h"

struct chain { /* shared */
    int32_t n, min_match;
    const struct co_drafter *members[CO_CHAIN_MAX];
    void *shared[CO_CHAIN_MAX];
};

struct chain_state {
    const struct chain *chain;
    void *states[CO_CHAIN_MAX];
};

static void close_chain(void **shared) {
    struct chain *chain = *shared;
    if (chain == NULL)
        return;
    for (int32_t i = 0; i < chain->n; i++)
        chain->members[i]->close(&chain->shared[i]);
    free(chain);
    *shared = NULL;
}

static enum ft_code add_member(struct chain *chain, const struct co_drafter_opts *opts,
                               const char *name, struct ft_err *err) {
    const struct co_drafter *member = co_drafter_find(name);
    if (member == NULL || member == &co_drafter_chain)
        return ft_err_set(err, FT_E_PROC_CONFIG, "drafter",
                          "drafter_chain names '%.40s', which is no drafter that it can hold",
                          name);
    enum ft_code code = member->open(&chain->shared[chain->n], opts, err);
    if (code == FT_OK)
        chain->members[chain->n++] = member;
    return code;
}

static enum ft_code open_chain(void **shared, const struct co_drafter_opts *opts,
                               struct ft_err *err) {
    void *made = calloc(1, sizeof(struct chain));
    if (made == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "drafter", "no memory for a chain");
    struct chain *chain = made;
    chain->min_match = opts->chain_min_match;
    for (size_t i = 0; i < CO_CHAIN_MAX && opts->chain[i] != NULL; i++) {
        enum ft_code code = add_member(chain, opts, opts->chain[i], err);
        if (code != FT_OK) {
            close_chain(&made);
            return code;
        }
    }
    *shared = chain;
    return FT_OK;
}

static void end(void **state) {
    struct chain_state *mine = *state;
    if (mine == NULL)
        return;
    for (int32_t i = 0; i < mine->chain->n; i++)
        mine->chain->members[i]->end(&mine->states[i]);
    free(mine);
    *state = NULL;
}

static enum ft_code begin(void **state, const void *shared, int32_t tokens_max,
                          struct ft_err *err) {
    const struct chain *chain = shared;
    struct chain_state *mine = calloc(1, sizeof *mine);
    if (mine == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "drafter", "no memory for a chain");
    mine->chain = chain;
    void *made = mine;
    for (int32_t i = 0; i < chain->n; i++) {
        enum ft_code code =
            chain->members[i]->begin(&mine->states[i], chain->shared[i], tokens_max, err);
        if (code != FT_OK) {
            end(&made);
            return code;
        }
    }
    *state = mine;
    return FT_OK;
}

static void propose(const void *shared, void *state, const struct co_draft_context *context,
                    struct co_proposal *proposal) {
    const struct chain *chain = shared;
    struct chain_state *mine = state;
    struct co_proposal other;
    for (int32_t i = 0; i < chain->n; i++) {
        memset(&other, 0, sizeof other);
        chain->members[i]->propose(chain->shared[i], mine->states[i], context, &other);
        if (other.ask_model || (other.n > 0 && other.match >= chain->min_match)) {
            *proposal = other;
            return;
        }
        if (other.n > 0 && (proposal->n == 0 || other.match > proposal->match))
            *proposal = other;
    }
}

static void extend(const void *shared, void *state, const struct co_draft_context *context,
                   struct co_proposal *proposal) {
    const struct chain *chain = shared;
    struct chain_state *mine = state;
    int32_t n_before = proposal->n;
    for (int32_t i = 0; i < chain->n; i++) {
        chain->members[i]->extend(chain->shared[i], mine->states[i], context, proposal);
        if (proposal->n > n_before && proposal->match >= chain->min_match)
            return;
        proposal->n = n_before; /* on too short a context */
    }
}

static struct co_drafter_usage usage(const void *state) {
    const struct chain_state *mine = state;
    struct co_drafter_usage all = {.bytes = sizeof *mine};
    for (int32_t i = 0; i < mine->chain->n; i++) {
        struct co_drafter_usage one = mine->chain->members[i]->usage(mine->states[i]);
        all.bytes += one.bytes;
        all.evicted += one.evicted;
    }
    return all;
}

const struct co_drafter co_drafter_chain = {
    .name = "chain",
    .open = open_chain,
    .close = close_chain,
    .begin = begin,
    .end = end,
    .propose = propose,
    .extend = extend,
    .usage = usage,
};
