/* turns: whether a waiting request may go before others that find no room yet.
 * Owns:    nothing: a walk over the waiting requests in order, by counts alone.
 * Runs in: coordinator; between two rounds.
 * Never:   lets a request wait for ever.
 *
 * Requests stand in order of priority, then of arrival. One that finds no room is passed by those
 * behind it that do, but only by those of its own priority, and only so often: `overtaken_max`
 * times in its life. After that it holds back everybody behind it, and what runs ends, so that it
 * comes next. 0 is first come, first served. */
#ifndef CO_TURNS_H
#define CO_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Requests without room that one walk looks behind: a bound on the time of a walk. */
#define CO_TURNS_BLOCKED_MAX 32

struct co_turn { /* one for each request */
    int32_t priority;
    int32_t n_overtaken; /* 0 at first */
};

struct co_turns {
    int32_t overtaken_max;
    int32_t n_blocked;
    struct co_turn *blocked[CO_TURNS_BLOCKED_MAX]; /* in order */
};

void co_turns_begin(struct co_turns *turns, int32_t overtaken_max);
/* Whether the next in order may go if it finds room; false ends the walk. */
bool co_turns_open(const struct co_turns *turns, const struct co_turn *next);
/* It found none. */
void co_turns_block(struct co_turns *turns, struct co_turn *turn);
/* It goes: everybody blocked so far was overtaken once more. */
void co_turns_pass(struct co_turns *turns);

#ifdef __cplusplus
}
#endif
#endif
