/* sampling (coordinator): how a request's tokens are chosen and its drafts accepted, checked.
 * Owns:    nothing; lists live in the request's arena.
 * Runs in: coordinator; loop thread only.
 * Never:   changes a value silently: what is out of range is refused with field, value, limit. */
#ifndef CO_SAMPLING_H
#define CO_SAMPLING_H

#include "coordinator/app.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fill r's sampling, draft_sampling, rule with its parameters, k and speculate.
 * fail FT_E_REQ_INVALID; FT_E_PROC_MEMORY */
enum ft_code co_sampling_take(struct co_request *r, const struct ft_wire_generate *in,
                              struct ft_err *err);

/* The service's rule, its parameters or K have changed: a request goes on by what it did not name
 * itself, and one that named a parameter named its rule; the rates of an acceptance length are made
 * anew. Behind co_drafting_follow. Between two rounds, or before it takes part in one. */
void co_sampling_follow(struct co_request *r);

/* Every id stands for a token. fail FT_E_REQ_INVALID names field, index, value and limit */
enum ft_code co_sampling_check_ids(const struct co_request *r, const char *field,
                                   const int32_t *ids, size_t n, struct ft_err *err);

/* The one rate a with a + a^2 + ... + a^k = length - 1, in [0, 1]. */
double co_sampling_synthetic_rate(double length, int32_t k);

#ifdef __cplusplus
}
#endif
#endif
