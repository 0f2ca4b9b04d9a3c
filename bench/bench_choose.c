/* bench_choose: decisions about rows that lie on a GPU: lists and drafts copied there, one launch,
 * results back in the host's memory. The rows lie in turn in several sets, so that they come from
 * memory as often as in service. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/logits.h"
#include "common/base/clock.h"
#include "common/spec/chooser.h"

enum { VOCAB = 128256, K_MAX = 8, N_SETS = 6, ROUNDS = 200, BATCH_MAX = 32 };

struct fixture {
    struct ft_device *device;
    struct ft_chooser *chooser;
    struct ft_counts *counts;
    float *p, *q; /* dev [N_SETS][K_MAX + 1][VOCAB], [N_SETS][K_MAX][VOCAB] */
    int32_t draft[N_SETS][K_MAX];
};

static void must(enum ft_code code, const struct ft_err *err) {
    if (code == FT_OK)
        return;
    fprintf(stderr, "bench_choose: %s\n", err->text);
    exit(ft_code_exit_status(code));
}

static void *must_alloc(struct fixture *f, size_t bytes) {
    struct ft_err err = {0};
    void *memory = NULL;
    must(f->device->kind->alloc(f->device, bytes, &memory, &err), &err);
    return memory;
}

static void fill(struct fixture *f, const struct ft_sampling *like) {
    static float row[VOCAB];
    struct ft_transform *t = ft_transform_create(VOCAB);
    struct ft_sampling sampling = *like;
    if (t == NULL)
        abort();
    for (int s = 0; s < N_SETS; s++)
        for (int k = 0; k <= K_MAX; k++) {
            uint64_t number = (uint64_t)(s * 100 + k);
            for (uint32_t id = 0; id < VOCAB; id++)
                row[id] = bench_logit(number, id, 20);
            f->device->kind->copy(f->device, f->p + ((size_t)s * (K_MAX + 1) + (size_t)k) * VOCAB,
                                  row, sizeof row);
            if (k == K_MAX)
                continue;
            for (uint32_t id = 0; id < VOCAB; id++)
                row[id] = bench_logit(number, id, 40);
            struct ft_row_context context = {.sampling = &sampling,
                                             .counts = f->counts,
                                             .drafted = f->draft[s],
                                             .n_drafted = (size_t)k};
            struct ft_err err = {0};
            must(ft_transform_row(t, row, VOCAB, &context, row, &err), &err);
            f->draft[s][k] = ft_rule_propose(&sampling, row, VOCAB, 100 + (uint64_t)k, k);
            f->device->kind->copy(f->device, f->q + ((size_t)s * K_MAX + (size_t)k) * VOCAB, row,
                                  sizeof row);
        }
    ft_transform_destroy(&t);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median us of a step of n requests with K drafts; tokens accepted by request in *accepted. */
static double measure(struct fixture *f, const struct ft_rule *rule, struct ft_sampling sampling,
                      int32_t n, int32_t k, double *accepted) {
    static double times[ROUNDS];
    static struct ft_round rounds[BATCH_MAX];
    static struct ft_choice_round at[BATCH_MAX];
    static const float *p_rows[BATCH_MAX][K_MAX + 1], *q_rows[BATCH_MAX][K_MAX];
    int64_t n_accepted = 0;
    for (int r = 0; r < ROUNDS; r++) {
        for (int32_t i = 0; i < n; i++) {
            int s = (r * n + i) % N_SETS;
            for (int32_t j = 0; j <= k; j++)
                p_rows[i][j] = f->p + ((size_t)s * (K_MAX + 1) + (size_t)j) * VOCAB;
            for (int32_t j = 0; j < k; j++)
                q_rows[i][j] = f->q + ((size_t)s * K_MAX + (size_t)j) * VOCAB;
            rounds[i] = (struct ft_round){.sampling = &sampling,
                                          .counts = f->counts,
                                          .position = 100,
                                          .draft = f->draft[s],
                                          .n_draft = k,
                                          .p_rows = p_rows[i],
                                          .n_vocab = VOCAB,
                                          .q_rows = q_rows[i],
                                          .n_vocab_draft = VOCAB};
        }
        sampling.seed = sampling.coupled ? 0 : (uint64_t)r;
        struct ft_err err = {0};
        struct ft_verdict verdict;
        int64_t begin_ns = ft_clock_now_ns();
        ft_chooser_reset(f->chooser);
        for (int32_t i = 0; i < n; i++)
            if (!ft_chooser_add(f->chooser, rule, &rounds[i], &at[i]))
                abort();
        must(ft_chooser_run(f->chooser, &err), &err);
        for (int32_t i = 0; i < n; i++) {
            if (!ft_chooser_verdict(f->chooser, rule, &rounds[i], &at[i], &verdict)) {
                fprintf(stderr, "bench_choose: a row the device does not decide\n");
                exit(70);
            }
            n_accepted += verdict.n_accepted;
        }
        times[r] = (double)(ft_clock_now_ns() - begin_ns) / 1e3;
    }
    qsort(times, ROUNDS, sizeof times[0], by_value);
    *accepted = (double)n_accepted / ROUNDS / n;
    return times[ROUNDS / 2];
}

static struct ft_sampling mode_of(int mode) {
    struct ft_sampling s = ft_sampling_default();
    s.temperature = mode == 0 ? 0.0f : mode == 1 ? 1.0f : 0.8f;
    if (mode == 2) {
        s.top_k = 50;
        s.top_p = 0.9f;
        s.repetition_penalty = 1.1f;
        s.frequency_penalty = 0.1f;
    }
    if (mode == 3)
        s.top_p = 0.95f;
    return s;
}

int main(int argc, char **argv) {
    static const char *const names[] = {"greedy", "T=1", "T=0.8 top_k=50 top_p=0.9 penalties",
                                        "T=0.8 top_p=0.95"};
    static const int32_t lengths[] = {0, 1, 4, 8}, batches[] = {1, 8, 32};
    static struct fixture f;
    struct ft_err err = {0};
    const struct ft_rule *rule = ft_rule_find(argc > 1 ? argv[1] : "standard");
    if (rule == NULL || rule->blind || !rule->by_row) {
        fprintf(stderr, "usage: bench_choose [standard|coupled]\n");
        return 64;
    }
    struct ft_device_opts opts = {.n_threads = 1, .without_scratch = true};
    char text[FT_DEVICE_TEXT_MAX];
    must(ft_device_open(&f.device, "cuda", &opts, &err), &err);
    must(ft_chooser_create(&f.chooser, f.device, BATCH_MAX * (K_MAX + 1), &err), &err);
    f.p = must_alloc(&f, (size_t)N_SETS * (K_MAX + 1) * VOCAB * sizeof(float));
    f.q = must_alloc(&f, (size_t)N_SETS * K_MAX * VOCAB * sizeof(float));
    f.device->kind->describe(f.device, text);
    printf("%s, rule %s, %d tokens; us of a step (p50), drafts accepted in brackets\n", text,
           rule->name, VOCAB);
    printf("%-36s%6s", "sampling", "batch");
    for (int k = 0; k < 4; k++)
        printf("%10s%d   ", "K=", lengths[k]);
    printf("\n");
    for (int mode = 0; mode < 4; mode++) {
        struct ft_sampling sampling = mode_of(mode);
        sampling.coupled = rule->coupled;
        f.counts = mode == 2 ? ft_counts_create() : NULL;
        for (int32_t i = 0; f.counts != NULL && i < 400; i++) {
            int32_t id = i * 97 % VOCAB;
            if (!ft_counts_add_output(f.counts, &id, 1))
                abort();
        }
        fill(&f, &sampling);
        for (int b = 0; b < 3; b++) {
            printf("%-36s%6d", b == 0 ? names[mode] : "", batches[b]);
            for (int k = 0; k < 4; k++) {
                double accepted,
                    us = measure(&f, rule, sampling, batches[b], lengths[k], &accepted);
                printf("%8.1f [%4.2f]", us, accepted);
            }
            printf("\n");
            fflush(stdout);
        }
        ft_counts_destroy(&f.counts);
    }
    ft_chooser_destroy(&f.chooser);
    f.device->kind->give_back(f.device, f.p, 0);
    f.device->kind->give_back(f.device, f.q, 0);
    ft_device_close(&f.device);
    return 0;
}
