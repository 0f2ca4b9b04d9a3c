#include "coordinator/turns.h"

#include "common/base/err.h"

void co_turns_begin(struct co_turns *turns, int32_t overtaken_max) {
    turns->overtaken_max = overtaken_max;
    turns->n_blocked = 0;
}

/* Those before have priorities of at most the next one's: the first blocked has the lowest value.
 */
bool co_turns_open(const struct co_turns *turns, const struct co_turn *next) {
    if (turns->n_blocked == CO_TURNS_BLOCKED_MAX)
        return false;
    for (int32_t i = 0; i < turns->n_blocked; i++)
        if (turns->blocked[i]->priority != next->priority ||
            turns->blocked[i]->n_overtaken >= turns->overtaken_max)
            return false;
    return true;
}

void co_turns_block(struct co_turns *turns, struct co_turn *turn) {
    FT_ASSERT(turns->n_blocked < CO_TURNS_BLOCKED_MAX);
    turns->blocked[turns->n_blocked++] = turn;
}

void co_turns_pass(struct co_turns *turns) {
    for (int32_t i = 0; i < turns->n_blocked; i++)
        turns->blocked[i]->n_overtaken++;
}
