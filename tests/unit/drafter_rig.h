/* drafter_rig: one drafter with what it needs, for tests.
 * Owns:    the drafter's shared state and one request's state, from open to close. */
#ifndef FT_TEST_DRAFTER_RIG_H
#define FT_TEST_DRAFTER_RIG_H

#include <check.h>
#include <string.h>

#include "coordinator/drafter.h"

struct drafter_rig {
    const struct co_drafter *drafter;
    void *shared, *state;
    struct co_proposal proposal;
};

static inline struct co_drafter_opts drafter_rig_opts(int32_t n_vocab) {
    return (struct co_drafter_opts){
        .n_vocab = n_vocab,
        .ngram_entries = 4096,
        .lookup_min = 2,
        .lookup_max = 64,
        .chain = {"ngram", "model"},
        .chain_min_match = 3,
    };
}

static inline void drafter_rig_open(struct drafter_rig *rig, const char *name,
                                    const struct co_drafter_opts *opts, int32_t tokens_max) {
    struct ft_err err = {0};
    memset(rig, 0, sizeof *rig);
    rig->drafter = co_drafter_find(name);
    ck_assert_ptr_nonnull(rig->drafter);
    ck_assert_msg(rig->drafter->open(&rig->shared, opts, &err) == FT_OK, "%s", err.text);
    ck_assert_msg(rig->drafter->begin(&rig->state, rig->shared, tokens_max, &err) == FT_OK, "%s",
                  err.text);
}

static inline void drafter_rig_close(struct drafter_rig *rig) {
    rig->drafter->end(&rig->state);
    rig->drafter->close(&rig->shared);
    ck_assert_ptr_null(rig->state);
    ck_assert_ptr_null(rig->shared);
}

static inline void drafter_rig_propose(struct drafter_rig *rig,
                                       const struct co_draft_context *context) {
    memset(&rig->proposal, 0, sizeof rig->proposal);
    rig->drafter->propose(rig->shared, rig->state, context, &rig->proposal);
}

#endif
