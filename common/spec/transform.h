/* transform: raw logits of one row become the distribution that is sampled from.
 * Order: bias and masks; repetition, presence and frequency penalties; temperature; top-k; top-p;
 * min-p. Ties at a cut are all kept. The same code makes p (target) and q (draft) rows.
 * Owns:    scratch memory of struct ft_transform, from create to destroy.
 * Runs in: coordinator (p), draft_worker (q); loop thread only.
 * Never:   returns a row that does not sum to one: non-finite logits are an error. */
#ifndef FT_SPEC_TRANSFORM_H
#define FT_SPEC_TRANSFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/sampling.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Token counts of one sequence, for the penalties: which ids are in the prompt, and how often each
 * is in the output. */
struct ft_counts;
struct ft_counts *ft_counts_create(void); /* NULL: memory is out */
void ft_counts_destroy(struct ft_counts **counts);
void ft_counts_reset(struct ft_counts *counts);
bool ft_counts_add_prompt(struct ft_counts *counts, const int32_t *ids, size_t n);
bool ft_counts_add_output(struct ft_counts *counts, const int32_t *ids, size_t n);
/* How often id is in the output; whether it is in the prompt. */
int32_t ft_counts_output(const struct ft_counts *counts, int32_t id);
bool ft_counts_in_prompt(const struct ft_counts *counts, int32_t id);

/* True when the sampling needs counts at all. */
bool ft_sampling_has_penalties(const struct ft_sampling *sampling);
/* The entry of id among the biases, NULL when there is none. */
const struct ft_bias *ft_sampling_bias(const struct ft_sampling *sampling, int32_t id);
/* True for argmax: temperature 0, or too small to divide by. */
bool ft_sampling_is_greedy(const struct ft_sampling *sampling);

struct ft_transform; /* scratch for rows of up to n_vocab */
struct ft_transform *ft_transform_create(int32_t n_vocab);
void ft_transform_destroy(struct ft_transform **transform);

/* Rows of n_vocab floats that the transform lends to an acceptance rule; it never writes them. */
#define FT_TRANSFORM_N_ROWS 2u
float *ft_transform_scratch(struct ft_transform *transform, size_t index);

struct ft_row_context {
    const struct ft_sampling *sampling;
    const struct ft_counts *counts; /* may be NULL when there are no penalties */
    const int32_t *drafted;         /* [n_drafted]: this row also sees t1..ti as output */
    size_t n_drafted;
    const int32_t *banned; /* [n_banned]: ids with probability zero (min_tokens) */
    size_t n_banned;
};

/* Do the masks leave id? */
bool ft_row_allows(const struct ft_row_context *context, int32_t id);

/* in   logits  [n_vocab] f32
 * out  probs   [n_vocab] f32, sums to 1 within 1e-5; may be the same memory as logits. Greedy
 *              sampling (temperature 0) gives a one-hot row.
 * fail FT_E_REQ_NUMERIC: a NaN, or +inf, or nothing finite; FT_E_REQ_INVALID: everything banned */
enum ft_code ft_transform_row(struct ft_transform *transform, const float *logits, int32_t n_vocab,
                              const struct ft_row_context *context, float *probs,
                              struct ft_err *err);

/* The greedy choice after bias, masks and penalties: lowest id among the largest. */
enum ft_code ft_transform_argmax(struct ft_transform *transform, const float *logits,
                                 int32_t n_vocab, const struct ft_row_context *context,
                                 int32_t *out, struct ft_err *err);

/* Token whose interval of the cumulative sum of probs holds u in [0, 1); never one with
 * probability zero. The sum is taken in order of ids, in double; u is scaled by it, so that probs
 * may be weights >= 0 with any sum. -1 when nothing is positive or the sum is not finite. */
int32_t ft_transform_draw(const float *probs, int32_t n_vocab, double u);

#ifdef __cplusplus
}
#endif
#endif
