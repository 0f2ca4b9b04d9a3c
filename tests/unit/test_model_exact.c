/* The bits of a row follow from the weights and its own sequence: not from the batch, the chunks,
 * the drafts beside it, rejected drafts before it, or the number of threads. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite.h"
#include "unit/model_run.h"

#define LEN_MAX 320
#define DRAFT_MAX 8

/* xorshift64*, so that a schedule is the same everywhere. */
static uint64_t next_random(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545F4914F6CDD1Du;
}

static int32_t below(uint64_t *state, int32_t n) {
    return (int32_t)(next_random(state) >> 33) % n;
}

struct subject {
    const char *dir;
    char device[RUN_DEVICE_MAX];
    int32_t n_seqs, vocab;
    int32_t len[RUN_SEQS];
    int32_t tokens[RUN_SEQS][LEN_MAX];
    uint64_t rows[RUN_SEQS][LEN_MAX]; /* hashes of the reference's rows */
};

/* FNV-1a over the bits of a row, a number at a time. */
static uint64_t hash_row(const struct run *run, int32_t row) {
    const float *x = run_row(run, row);
    uint64_t hash = 0xCBF29CE484222325u;
    for (int32_t i = 0; i < run->vocab; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        hash = (hash ^ bits) * 0x100000001B3u;
    }
    return hash;
}

static void open_subject(struct run *run, const struct subject *subject, int32_t n_threads) {
    run_open(run, &(struct run_opts){.dir = subject->dir,
                                     .device = subject->device,
                                     .n_threads = n_threads,
                                     .n_seqs = subject->n_seqs,
                                     .max_step_tokens = RUN_ROWS});
}

/* Every sequence alone, its whole text in one step, by one thread. */
static void make_reference(struct subject *subject, int32_t len_max) {
    struct run run;
    open_subject(&run, subject, 1);
    subject->vocab = run.vocab;
    uint64_t random = 20240607;
    for (int32_t s = 0; s < subject->n_seqs; s++) {
        subject->len[s] = len_max - s * 7 % 40;
        for (int32_t i = 0; i < subject->len[s]; i++)
            subject->tokens[s][i] = below(&random, run.vocab);
        run_step(&run, s, 0, subject->tokens[s], subject->len[s], subject->len[s]);
        for (int32_t i = 0; i < subject->len[s]; i++)
            subject->rows[s][i] = hash_row(&run, i);
    }
    run_close(&run);
}

static void row_equals_reference(const struct subject *subject, const struct run *run, int32_t row,
                                 int32_t seq, int32_t position, const char *what) {
    if (hash_row(run, row) != subject->rows[seq][position])
        ck_abort_msg("%s on %s, %s: bits of sequence %d at position %d differ", subject->dir,
                     subject->device, what, seq, position);
}

static void check_chunks(const struct subject *subject, struct run *run, int32_t chunk) {
    char what[64];
    snprintf(what, sizeof what, "chunks of %d", chunk);
    for (int32_t start = 0; start < subject->len[0]; start += chunk) {
        int32_t n = subject->len[0] - start < chunk ? subject->len[0] - start : chunk;
        run_step(run, 0, start, subject->tokens[0] + start, n, n);
        for (int32_t i = 0; i < n; i++)
            row_equals_reference(subject, run, i, 0, start + i, what);
    }
}

/* A schedule: batches of up to n_batch sequences in random order, each with a chunk of its text,
 * some with tokens behind it that will not be kept, as a rejected draft is not. */
struct schedule {
    const struct subject *subject;
    struct run *run;
    int32_t n_batch, draft_len;
    uint64_t random;
    int32_t at[RUN_SEQS]; /* positions that are final */
    struct part {
        int32_t seq, start, n, n_logits;
        int32_t tokens[64 + DRAFT_MAX];
    } parts[RUN_SEQS];
};

static void plan_part(struct schedule *s, struct part *part, int32_t seq) {
    const struct subject *subject = s->subject;
    int32_t left = subject->len[seq] - s->at[seq], n = 1 + s->draft_len;
    switch (below(&s->random, 4)) {
    case 0: /* a chunk of a prompt */
        n = 1 + below(&s->random, 24);
        break;
    case 1: /* a shorter draft */
        n = 1 + below(&s->random, 1 + s->draft_len);
        break;
    default:
        break;
    }
    if (n > left)
        n = left;
    *part = (struct part){.seq = seq, .start = s->at[seq], .n = n, .n_logits = n};
    memcpy(part->tokens, subject->tokens[seq] + part->start, (size_t)n * sizeof(int32_t));
    if (below(&s->random, 2) == 0) /* a draft that is wrong from here on */
        while (part->n < n + s->draft_len && part->start + part->n < subject->len[seq])
            part->tokens[part->n++] = below(&s->random, subject->vocab);
    /* the rows of the wrong tokens are wanted too, so they are the first to come otherwise */
    part->n_logits = part->n - below(&s->random, n);
    s->at[seq] += n;
}

static int32_t plan_batch(struct schedule *s) {
    int32_t open[RUN_SEQS], n_open = 0, n_parts = 0;
    for (int32_t seq = 0; seq < s->subject->n_seqs; seq++)
        if (s->at[seq] < s->subject->len[seq])
            open[n_open++] = seq;
    while (n_open > 0 && n_parts < s->n_batch) {
        int32_t i = below(&s->random, n_open);
        plan_part(s, &s->parts[n_parts++], open[i]);
        open[i] = open[--n_open];
    }
    return n_parts;
}

static void check_schedule(struct schedule *s) {
    char what[96];
    snprintf(what, sizeof what, "batch %d, K %d", s->n_batch, s->draft_len);
    int32_t n_parts, n_rows = 0;
    while ((n_parts = plan_batch(s)) > 0) {
        struct ft_batch_seq batch[RUN_SEQS];
        for (int32_t i = 0; i < n_parts; i++)
            batch[i] = (struct ft_batch_seq){.blocks = s->run->blocks[s->parts[i].seq],
                                             .start = s->parts[i].start,
                                             .tokens = s->parts[i].tokens,
                                             .n_tokens = s->parts[i].n,
                                             .n_logits = s->parts[i].n_logits};
        run_batch(s->run, batch, n_parts);
        int32_t row = 0;
        for (int32_t i = 0; i < n_parts; i++) {
            const struct part *part = &s->parts[i];
            for (int32_t t = part->n - part->n_logits; t < part->n; t++, row++) {
                if (part->start + t >= s->at[part->seq])
                    continue; /* not kept */
                row_equals_reference(s->subject, s->run, row, part->seq, part->start + t, what);
                n_rows++;
            }
        }
    }
    ck_assert_int_gt(n_rows, s->n_batch);
}

/* Batches of n, n + batch_step, ... sequences on n threads. */
static void check_subject(struct subject *subject, int32_t len_max, int32_t batch_step) {
    static const int32_t chunks[] = {1, 7, 16, 64, LEN_MAX};
    make_reference(subject, len_max);
    for (int32_t n_threads = 1; n_threads <= 2; n_threads++) {
        struct run run;
        open_subject(&run, subject, n_threads);
        for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++)
            check_chunks(subject, &run, chunks[i]);
        for (int32_t n = n_threads; n <= subject->n_seqs; n += batch_step) {
            struct schedule schedule = {.subject = subject,
                                        .run = &run,
                                        .n_batch = n,
                                        .draft_len = (n + n_threads) % (DRAFT_MAX + 1),
                                        .random = (uint64_t)(n * 1000 + n_threads)};
            check_schedule(&schedule);
        }
        run_close(&run);
    }
}

static const char *const dirs[] = {
    "tests/data/golden/llama-bias",          "tests/data/golden/llama-f16-sharded",
    "tests/data/golden/llama-gqa-tied-bf16", "tests/data/golden/llama-mqa-rope-llama3",
    "tests/data/golden/llama-rope-linear",   "tests/data/golden/llama-untied-f32",
    "tests/data/golden/mistral-untied",      "tests/data/golden/qwen2-tied",
    "tests/data/golden/qwen3-qknorm",
};

START_TEST(dev50_rows_of_golden_models_do_not_depend_on_company) {
    char dir[512];
    snprintf(dir, sizeof dir, FT_TEST_SOURCE_DIR "/%s", dirs[_i]);
    char device[RUN_DEVICE_MAX];
    for (size_t i = 0; run_device(i, device); i++) {
        static struct subject subject;
        subject = (struct subject){.dir = dir, .n_seqs = RUN_SEQS};
        memcpy(subject.device, device, sizeof device);
        check_subject(&subject, 60, i == 0 ? 2 : 15);
    }
}
END_TEST

/* Long enough for several segments of attention. */
START_TEST(dev61_rows_of_demo_pair_do_not_depend_on_chunks) {
    static const char *const pair[] = {"draft", "target"};
    char dir[512];
    snprintf(dir, sizeof dir, FT_TEST_SOURCE_DIR "/models/demo-%s", pair[_i]);
    char device[RUN_DEVICE_MAX];
    for (size_t i = 0; run_device_kind(i, device); i++) {
        static struct subject subject;
        subject = (struct subject){.dir = dir, .n_seqs = 5};
        memcpy(subject.device, device, sizeof device);
        check_subject(&subject, 300, 2);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("model_exact");
    TCase *tcase = tcase_create("bits");
    tcase_add_loop_test(tcase, dev50_rows_of_golden_models_do_not_depend_on_company, 0,
                        sizeof dirs / sizeof dirs[0]);
    tcase_add_loop_test(tcase, dev61_rows_of_demo_pair_do_not_depend_on_chunks, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
