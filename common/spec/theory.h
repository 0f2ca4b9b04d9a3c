/* theory: what speculation can bring, after Leviathan et al. 2023 (see rule_standard.c). alpha:
 * probability that a draft is accepted; k: draft length; c: time of a draft step / target step.
 * Owns:    nothing: pure functions.
 * Runs in: coordinator, foretokenctl; any thread.
 * Never:   measures; knows requests. */
#ifndef FT_SPEC_THEORY_H
#define FT_SPEC_THEORY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Tokens that a round of k drafts commits on average: (1 - alpha^(k+1)) / (1 - alpha), equation 1;
 * k + 1 at alpha = 1. in  alpha 0 .. 1, k >= 0 */
double ft_theory_tokens(double alpha, int32_t k);

/* The same when the i-th draft is accepted with rate[i] once those before it are: what a round
 * commits where acceptance falls with the position. */
double ft_theory_tokens_by_position(const double *rate, int32_t k);

/* Speed over plain decoding where verifying k + 1 tokens costs one target step (theorem 3.8). */
double ft_theory_speedup(double alpha, int32_t k, double c);

/* The same from times that were measured, when verification is not free: plain, draft (of k
 * tokens) and verify are whole phases in one unit, hand-overs included. */
struct ft_theory_times {
    double plain, draft, verify;
};
double ft_theory_speedup_measured(double tokens, const struct ft_theory_times *times);

/* Operations over those of plain decoding (theorem 3.11); c_ops is the cost of a draft step in
 * operations over that of the target per token. */
double ft_theory_operations(double alpha, int32_t k, double c_ops);

/* The k of 0 .. k_max with the largest speed-up, the least one on a tie. */
int32_t ft_theory_best_k(double alpha, double c, int32_t k_max);

/* alpha where a sampled draft meets a sampled target, from rows p and q of the same position: the
 * mean of 1 - D_LK(p, q), the sum of min(p, q) (theorem 3.5, corollary 3.6). */
struct ft_theory_alpha {
    uint64_t n;
    double sum, sum_squares;
};
void ft_theory_alpha_add(struct ft_theory_alpha *alpha, const float *p, int32_t n_vocab,
                         const float *q, int32_t n_vocab_draft);
double ft_theory_alpha_mean(const struct ft_theory_alpha *alpha);  /* 0 before the first row */
double ft_theory_alpha_error(const struct ft_theory_alpha *alpha); /* standard error of the mean */

/* alpha from counts by position, of rounds with the same k: a draft is decided only when those
 * before it were accepted, so that accepted / decided is the estimate, and accepted / drafted is
 * not. 0 when nothing was drafted. */
double ft_theory_alpha_counted(const uint64_t *drafted, const uint64_t *accepted, size_t n_pos);

#ifdef __cplusplus
}
#endif
#endif
