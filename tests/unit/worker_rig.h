/* worker_rig: a worker over the history model, driven step by step without gRPC. */
#ifndef FT_TESTS_WORKER_RIG_H
#define FT_TESTS_WORKER_RIG_H

#include "common/worker/step.h"

struct rig {
    struct ft_worker_params params;
    struct ft_worker *worker;
    uint64_t step_id;
    struct ft_wire_step_reply reply; /* of the last step */
};

/* 0 blocks: plenty. The params may be changed before rig_open. */
void rig_init(struct rig *rig, int32_t n_blocks);
void rig_open(struct rig *rig, const struct ft_worker_role *role);
/* Releases everything and checks that every block came back. */
void rig_close(struct rig *rig);
/* Run one step in generation step_id % 2; fails the test when the step fails as a whole. */
const struct ft_wire_seq_result *rig_step(struct rig *rig, const struct ft_wire_seq_step *seqs,
                                          size_t n);
/* Row i of a result. */
const float *rig_row(const struct rig *rig, const struct ft_wire_seq_result *result, int32_t i);

#endif
