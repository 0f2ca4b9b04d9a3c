/* drafters: the rows of the registry in drafter.c, and what drafters without state share.
 * Owns:    nothing.
 * Runs in: coordinator.
 * Never:   included but by drafters and their registry. */
#ifndef CO_DRAFTERS_H
#define CO_DRAFTERS_H

#include "coordinator/drafter.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct co_drafter co_drafter_model;
extern const struct co_drafter co_drafter_ngram;
extern const struct co_drafter co_drafter_lookup;
extern const struct co_drafter co_drafter_bigram;
extern const struct co_drafter co_drafter_unigram;
extern const struct co_drafter co_drafter_random;
extern const struct co_drafter co_drafter_chain;

/* Functions of a drafter that keeps nothing, or never extends. */
enum ft_code co_drafter_open_nothing(void **shared, const struct co_drafter_opts *opts,
                                     struct ft_err *err);
void co_drafter_close_nothing(void **shared);
enum ft_code co_drafter_begin_nothing(void **state, const void *shared, int32_t tokens_max,
                                      struct ft_err *err);
void co_drafter_end_nothing(void **state);
void co_drafter_extend_nothing(const void *shared, void *state,
                               const struct co_draft_context *context,
                               struct co_proposal *proposal);
struct co_drafter_usage co_drafter_usage_nothing(const void *state);
/* Frees *state with free(). */
void co_drafter_end_free(void **state);

#ifdef __cplusplus
}
#endif
#endif
