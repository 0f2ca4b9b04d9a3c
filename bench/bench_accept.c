/* Cost of one acceptance decision by a rule on K drafts, by vocabulary and sampling.
 * Rows are synthetic (a peaked distribution over a noisy floor, as a language model's are), q is
 * drawn from the real draft transform, so that the mix of acceptances and residuals is natural.
 * The rows of a few rounds are used in turn; they fit no L1, as in service. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/logits.h"
#include "common/base/clock.h"
#include "common/spec/rule.h"

#define N_ROUNDS 8
#define K_MAX 8
#define BUDGET_NS 150000000

struct fixture {
    int32_t n_vocab;
    float *p[N_ROUNDS][K_MAX + 1];
    float *q[N_ROUNDS][K_MAX];
    int32_t draft[N_ROUNDS][K_MAX];
    struct ft_transform *transform;
    struct ft_counts *counts;
};

static void *must(void *memory) {
    if (memory == NULL) {
        fprintf(stderr, "bench_accept: out of memory\n");
        exit(71);
    }
    return memory;
}

static void fill(struct fixture *f) {
    size_t bytes = (size_t)f->n_vocab * sizeof(float);
    for (uint64_t r = 0; r < N_ROUNDS; r++)
        for (uint64_t k = 0; k <= K_MAX; k++) {
            f->p[r][k] = must(malloc(bytes));
            for (uint32_t id = 0; id < (uint32_t)f->n_vocab; id++)
                f->p[r][k][id] = bench_logit(r * 100 + k, id, 20);
            if (k == K_MAX)
                continue;
            f->q[r][k] = must(malloc(bytes));
        }
    f->transform = must(ft_transform_create(f->n_vocab));
    f->counts = must(ft_counts_create());
    for (int32_t i = 0; i < 400; i++) {
        int32_t id = i * 97 % f->n_vocab;
        if (!ft_counts_add_output(f->counts, &id, 1))
            must(NULL);
    }
}

static void drain(struct fixture *f) {
    for (size_t r = 0; r < N_ROUNDS; r++)
        for (size_t k = 0; k <= K_MAX; k++) {
            free(f->p[r][k]);
            if (k < K_MAX)
                free(f->q[r][k]);
        }
    ft_transform_destroy(&f->transform);
    ft_counts_destroy(&f->counts);
}

/* Draft as the worker would: the same transforms, tokens from q. */
static void draft(struct fixture *f, const struct ft_sampling *sampling,
                  const struct ft_counts *counts) {
    struct ft_sampling drafter = *sampling;
    for (drafter.seed = 0; drafter.seed < N_ROUNDS; drafter.seed++)
        for (uint64_t r = drafter.seed, k = 0; k < K_MAX; k++) {
            for (uint32_t id = 0; id < (uint32_t)f->n_vocab; id++)
                f->q[r][k][id] = bench_logit(r * 100 + k, id, 40);
            struct ft_row_context context = {.sampling = sampling,
                                             .counts = counts,
                                             .drafted = f->draft[r],
                                             .n_drafted = (size_t)k};
            if (ft_transform_row(f->transform, f->q[r][k], f->n_vocab, &context, f->q[r][k],
                                 NULL) != FT_OK)
                must(NULL);
            f->draft[r][k] = ft_rule_propose(&drafter, f->q[r][k], f->n_vocab, 100 + k, (int32_t)k);
        }
}

struct timing {
    double us, accepted;
};

static struct timing measure(struct fixture *f, const struct ft_rule *rule,
                             struct ft_sampling sampling, const struct ft_counts *counts,
                             int32_t n_draft) {
    struct ft_verdict verdict;
    struct ft_err err;
    int64_t best = INT64_MAX, accepted = 0, n = 0;
    int64_t start = ft_clock_now_ns();
    while (ft_clock_now_ns() - start < BUDGET_NS) {
        int64_t pass = ft_clock_now_ns();
        for (size_t r = 0; r < N_ROUNDS; r++) {
            sampling.seed = sampling.coupled ? r : (uint64_t)n; /* the drafter's noise */
            n++;
            struct ft_round round = {.sampling = &sampling,
                                     .counts = counts,
                                     .position = 100,
                                     .draft = f->draft[r],
                                     .n_draft = n_draft,
                                     .p_rows = (const float *const *)f->p[r],
                                     .n_vocab = f->n_vocab,
                                     .q_rows = (const float *const *)f->q[r],
                                     .n_vocab_draft = f->n_vocab,
                                     .lenience = 0.5f};
            if (rule->decide(f->transform, &round, &verdict, &err) != FT_OK) {
                fprintf(stderr, "bench_accept: %s\n", err.text);
                exit(70);
            }
            accepted += verdict.n_accepted;
        }
        pass = ft_clock_now_ns() - pass;
        best = pass < best ? pass : best;
    }
    return (struct timing){(double)(ft_clock_now_ns() - start) / (double)n / 1e3,
                           (double)accepted / (double)n};
}

int main(int argc, char **argv) {
    static const int32_t vocabularies[] = {4096, 8192, 128256};
    static const int32_t lengths[] = {0, 1, 4, 8};
    static const char *const names[] = {"greedy", "T=1", "T=0.8 top_k=50 top_p=0.9 penalties",
                                        "T=0.8 top_p=0.95"};
    const struct ft_rule *rule = ft_rule_find(argc > 1 ? argv[1] : "standard");
    if (rule == NULL || rule->blind) {
        fprintf(stderr, "usage: bench_accept [standard|coupled|block|lenient]\n");
        return 64;
    }
    printf("rule %s, ", rule->name);
    printf("us per decide (mean), tokens accepted in brackets\n%7s  %-36s", "vocab", "sampling");
    for (size_t k = 0; k < 4; k++)
        printf("%12s%d   ", "K=", lengths[k]);
    printf("\n");
    for (size_t v = 0; v < 3; v++) {
        struct fixture f = {.n_vocab = vocabularies[v]};
        fill(&f);
        for (size_t mode = 0; mode < 4; mode++) {
            struct ft_sampling sampling = ft_sampling_default();
            if (mode == 0)
                sampling.temperature = 0;
            sampling.coupled = rule->coupled;
            if (mode >= 2)
                sampling.temperature = 0.8f;
            if (mode == 2) {
                sampling.top_k = 50;
                sampling.top_p = 0.9f;
                sampling.repetition_penalty = 1.1f;
                sampling.frequency_penalty = 0.1f;
            }
            if (mode == 3)
                sampling.top_p = 0.95f;
            const struct ft_counts *counts = mode == 2 ? f.counts : NULL;
            draft(&f, &sampling, counts);
            printf("%7d  %-36s", f.n_vocab, names[mode]);
            for (size_t k = 0; k < 4; k++) {
                struct timing t = measure(&f, rule, sampling, counts, lengths[k]);
                printf("%9.1f [%4.2f]", t.us, t.accepted);
            }
            printf("\n");
            fflush(stdout);
        }
        drain(&f);
    }
    return 0;
}
