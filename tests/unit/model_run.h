/* model_run: a model and a few sequences, driven by a test through ft_model_forward.
 * Owns:    the model, rows and block tables, from open to close.
 * Runs in: tests.
 * Never:   hides a failure: what goes wrong fails the test. */
#ifndef TESTS_UNIT_MODEL_RUN_H
#define TESTS_UNIT_MODEL_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/model/model.h"

#define RUN_SEQS 16
#define RUN_ROWS 512

struct run {
    struct ft_model *model;
    int32_t vocab;
    int64_t stride;
    float *rows; /* [RUN_ROWS, stride] */
    int32_t n_blocks_per_seq;
    int32_t *blocks[RUN_SEQS]; /* block tables; the blocks of a sequence are scattered */
};

/* Devices to run tests on: every instruction set of the CPU, then each other kind of the registry
 * that this machine has; one that it lacks is named on standard output. false past the last. */
#define RUN_DEVICE_MAX 32
bool run_device(size_t idx, char spec[RUN_DEVICE_MAX]);
/* The same with the CPU once, in its best variant. */
bool run_device_kind(size_t idx, char spec[RUN_DEVICE_MAX]);

/* weights NULL: open dir. n_seqs sequences of max_len positions each. */
struct run_opts {
    const char *dir;
    const struct ft_model_config *config;
    const struct ft_weights *weights;
    const char *device;
    int32_t n_threads;
    int32_t max_len; /* 0: the model's */
    int32_t n_seqs;
    int32_t max_step_tokens; /* 0: max_len */
};
void run_open(struct run *run, const struct run_opts *opts);
void run_close(struct run *run);

/* One sequence, one step. rows of the last n_logits positions land in run->rows. */
void run_step(struct run *run, int32_t seq, int32_t start, const int32_t *tokens, int32_t n_tokens,
              int32_t n_logits);
/* A batch; rows land in run->rows. */
void run_batch(struct run *run, const struct ft_batch_seq *seqs, int32_t n_seqs);
const float *run_row(const struct run *run, int32_t row);
int32_t run_argmax(const struct run *run, int32_t row);
/* Greedy continuation of a prompt on sequence 0, whose rows come one by one. */
void run_greedy(struct run *run, const int32_t *prompt, int32_t n_prompt, int32_t *out,
                int32_t n_out);

#endif
