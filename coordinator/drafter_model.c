/* The drafter `model`: the draft worker proposes. */
#include "coordinator/drafters.h"

static void propose(const void *shared, void *state, const struct co_draft_context *context,
                    struct co_proposal *proposal) {
    (void)shared;
    (void)state;
    proposal->ask_model = context->model && context->k_max > 0;
    proposal->source = co_drafter_model.name;
}

const struct co_drafter co_drafter_model = {
    .name = "model",
    .open = co_drafter_open_nothing,
    .close = co_drafter_close_nothing,
    .begin = co_drafter_begin_nothing,
    .end = co_drafter_end_nothing,
    .propose = propose,
    .extend = co_drafter_extend_nothing,
    .usage = co_drafter_usage_nothing,
};
