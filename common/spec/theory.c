#include "common/spec/theory.h"

#include <math.h>

#include "common/spec/rule.h"

double ft_theory_tokens(double alpha, int32_t k) {
    if (alpha >= 1)
        return k + 1.0;
    return (1 - pow(alpha, k + 1)) / (1 - alpha);
}

double ft_theory_tokens_by_position(const double *rate, int32_t k) {
    double tokens = 1, reach = 1;
    for (int32_t i = 0; i < k; i++) {
        reach *= rate[i];
        tokens += reach;
    }
    return tokens;
}

double ft_theory_speedup(double alpha, int32_t k, double c) {
    return ft_theory_tokens(alpha, k) / (k * c + 1);
}

double ft_theory_speedup_measured(double tokens, const struct ft_theory_times *times) {
    double round = times->draft + times->verify;
    return round > 0 ? tokens * times->plain / round : 0;
}

double ft_theory_operations(double alpha, int32_t k, double c_ops) {
    return (k * c_ops + k + 1) / ft_theory_tokens(alpha, k);
}

int32_t ft_theory_best_k(double alpha, double c, int32_t k_max) {
    int32_t best = 0;
    for (int32_t k = 1; k <= k_max; k++)
        if (ft_theory_speedup(alpha, k, c) > ft_theory_speedup(alpha, best, c))
            best = k;
    return best;
}

void ft_theory_alpha_add(struct ft_theory_alpha *alpha, const float *p, int32_t n_vocab,
                         const float *q, int32_t n_vocab_draft) {
    double overlap = ft_spec_alpha(p, n_vocab, q, n_vocab_draft);
    alpha->n++;
    alpha->sum += overlap;
    alpha->sum_squares += overlap * overlap;
}

double ft_theory_alpha_mean(const struct ft_theory_alpha *alpha) {
    return alpha->n == 0 ? 0 : alpha->sum / (double)alpha->n;
}

double ft_theory_alpha_error(const struct ft_theory_alpha *alpha) {
    if (alpha->n < 2)
        return 0;
    double n = (double)alpha->n, mean = alpha->sum / n;
    double variance = (alpha->sum_squares - n * mean * mean) / (n - 1);
    return variance > 0 ? sqrt(variance / n) : 0;
}

double ft_theory_alpha_counted(const uint64_t *drafted, const uint64_t *accepted, size_t n_pos) {
    double decided = 0, taken = 0;
    for (size_t i = 0; i < n_pos; i++) {
        uint64_t reached = i == 0 ? drafted[0] : accepted[i - 1];
        decided += (double)(reached < drafted[i] ? reached : drafted[i]);
        taken += (double)accepted[i];
    }
    return decided > 0 ? taken / decided : 0;
}
