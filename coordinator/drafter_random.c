/* The drafter `random`: any token of the vocabulary, the floor that every other one must beat. */
#include "common/spec/philox.h"
#include "coordinator/drafters.h"

/* Behind the lanes of draws from counts, which are indices in a round. */
#define LANE 256u

static void propose(const void *shared, void *state, const struct co_draft_context *context,
                    struct co_proposal *proposal) {
    (void)shared;
    (void)state;
    const uint32_t one = 1;
    proposal->source = co_drafter_random.name;
    for (;;) {
        uint64_t position = (uint64_t)context->n + (uint64_t)proposal->n;
        double u = ft_philox_uniform(context->seed, position, FT_PHILOX_PROPOSE, LANE);
        int32_t id = (int32_t)(u * context->n_vocab);
        if (!co_proposal_choose(proposal, context, &id, &one, 1))
            return;
    }
}

/* The row of a token that is drawn uniformly is uniform, wider than a row of ours: it is one-hot
 * here, which is exact as well because the draw is independent of what decides. */
const struct co_drafter co_drafter_random = {
    .name = "random",
    .open = co_drafter_open_nothing,
    .close = co_drafter_close_nothing,
    .begin = co_drafter_begin_nothing,
    .end = co_drafter_end_nothing,
    .propose = propose,
    .extend = co_drafter_extend_nothing,
    .usage = co_drafter_usage_nothing,
};
