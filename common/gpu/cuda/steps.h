/* steps: whole steps of a model as one kernel: what the kernel reads of a model, made once.
 * Owns:    that, and the kernel's scratch, from the first step of a model until destroy.
 * Runs in: draft_worker, target_worker; loop thread only.
 * Never:   takes memory while a program is being noted: a step is tried before it is noted. */
#ifndef FT_GPU_CUDA_STEPS_H
#define FT_GPU_CUDA_STEPS_H

#include <stdbool.h>

#include "common/gpu/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct k_target;
struct ft_cuda_steps;

/* is_wanted: else no step is run. */
struct ft_cuda_steps *ft_steps_create(bool is_wanted);
void ft_steps_destroy(struct ft_cuda_steps **steps);

/* false: the kernel does not do this step, or there is no memory for what it needs. */
bool ft_steps_run(struct ft_cuda_steps *steps, struct k_target *on,
                  const struct ft_op_step *op, int *error);
/* After the stream has been waited for: whether a step was given up. Until steps_again no step is
 * run. */
bool ft_steps_gave_up(struct ft_cuda_steps *steps, const struct k_target *on, int *error);
/* All has been done again, in some other way. */
void ft_steps_again(struct ft_cuda_steps *steps);
/* Whether programs of before may hold steps that will not be done now. */
bool ft_steps_are_off(const struct ft_cuda_steps *steps);

#ifdef __cplusplus
}
#endif

#endif
