/* pair: what the two workers say of their models, checked against each other.
 * Owns:    the tokenizer of struct co_pair.
 * Runs in: coordinator; at start and whenever a worker comes back.
 * Never:   lets two different vocabularies decode together. */
#ifndef CO_PAIR_H
#define CO_PAIR_H

#include "coordinator/app.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The target described itself. The first time this fixes tokenizer, EOS ids, limits and scratch
 * memory; later it must be the same model: tokenizer, architecture, dtype, sizes and fingerprint of
 * the weights. What config.json says beside these (of rotary positions, of norms) is not compared.
 * fail FT_E_PROC_* names what differs, with both values */
enum ft_code co_pair_target(struct co_app *app, const struct ft_wire_describe *describe,
                            struct ft_err *err);

/* The draft described itself: same tokenizer content needed, other padding is fine.
 * fail FT_E_PROC_CONFIG names the first difference */
enum ft_code co_pair_draft(struct co_app *app, const struct ft_wire_describe *describe,
                           struct ft_err *err);

void co_pair_fini(struct co_app *app);

#ifdef __cplusplus
}
#endif
#endif
