/* naive_model: a transformer with random weights and a plain forward pass in double precision.
 * Owns:    its weights.
 * Runs in: tests.
 * Never:   shares code with the model layer, but for the rotary frequencies. */
#ifndef TESTS_UNIT_NAIVE_MODEL_H
#define TESTS_UNIT_NAIVE_MODEL_H

#include "common/model/model.h"

struct naive_model;

/* config is kept. Formats are mixed: norms f32, projections by turns f32, f16, bf16. */
struct naive_model *naive_make(const struct ft_model_config *config, uint64_t seed);
void naive_free(struct naive_model *model);
const struct ft_weights *naive_weights(const struct naive_model *model);
/* Make the embedding of a token NaN; the embedding is f32. */
void naive_poison(struct naive_model *model, int32_t token);
/* Logits of all positions, [n, vocab_size]; the caller frees them. */
double *naive_logits(const struct naive_model *model, const int32_t *tokens, int32_t n);

#endif
