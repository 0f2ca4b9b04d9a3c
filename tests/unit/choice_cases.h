/* choice_cases: random rounds with every kind of sampling, for the decisions that a device makes.
 * Owns:    a case's rows and lists, from create to destroy.
 * Runs in: tests.
 * Never:   repeats itself: a case is a function of its number alone. */
#ifndef FT_TEST_CHOICE_CASES_H
#define FT_TEST_CHOICE_CASES_H

#include "common/spec/choice.h"

#define CASE_DRAFTS 8
#define CASE_LIST 40

struct choice_case {
    struct ft_sampling sampling;
    struct ft_bias bias[CASE_LIST];
    int32_t allowed[CASE_LIST], banned[CASE_LIST], stop[3];
    struct ft_counts *counts;
    const struct ft_rule *rule;
    int32_t n_vocab, n_vocab_draft;
    int32_t draft[CASE_DRAFTS];
    float rates[CASE_DRAFTS];
    float *rows; /* [2 * CASE_DRAFTS + 1][stride]: p, then q */
    int64_t stride;
    const float *p_rows[CASE_DRAFTS + 1], *q_rows[CASE_DRAFTS];
    struct ft_round round;
};

/* Vocabularies of at most n_vocab_max. */
void choice_case_create(struct choice_case *c, uint64_t number, int32_t n_vocab_max);
void choice_case_destroy(struct choice_case *c);

/* What a device does with the batch, on the host's memory, by the functions of spec. */
void choice_run_on_host(const struct ft_choice_batch *batch, struct ft_choice_result *results);

#endif
