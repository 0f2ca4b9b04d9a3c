/* logprob: log-probabilities of one row of raw logits: its log-softmax, before bias, penalties,
 * masks, temperature and cuts.
 * Owns:    nothing.
 * Runs in: coordinator; loop thread only.
 * Never:   gives a value that is not finite. */
#ifndef FT_SPEC_LOGPROB_H
#define FT_SPEC_LOGPROB_H

#include "common/spec/transform.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of token (any id of the row), and of the n_top most probable ids, 0 .. FT_LOGPROBS_MAX.
 * in    logits  [n_vocab] f32
 * fail  FT_E_REQ_NUMERIC: a NaN, +inf, or nothing finite */
enum ft_code ft_logprob_row(struct ft_transform *transform, const float *logits, int32_t n_vocab,
                            int32_t token, int32_t n_top, struct ft_logprobs *out,
                            struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
