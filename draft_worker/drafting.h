/* drafting: one sequence that drafts in a step, and what the ways of drafting share.
 * Owns:    nothing; counts and rows are the role's.
 * Runs in: draft_worker; loop thread only.
 * Never:   outlives a step. */
#ifndef DW_DRAFTING_H
#define DW_DRAFTING_H

#include "common/spec/rule.h"
#include "common/worker/step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Its row of the scratch logits is its place in the list. */
struct dw_drafting {
    struct ft_step_seq *s;
    struct ft_sampling sampling;
    struct ft_counts *counts; /* NULL without penalties */
    bool greedy;
    bool leaves_q; /* writes its q rows to the region */
    int32_t ids[FT_DRAFT_LEN_MAX];
    int32_t n_ids;
    int32_t position; /* absolute, of the next token */
};

/* The drafted ids become the sequence's result. */
enum ft_code dw_drafting_end(struct ft_step *step, struct dw_drafting *d, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
