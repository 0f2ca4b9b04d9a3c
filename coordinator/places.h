/* places: who runs, and which blocks of the pools the running requests hold.
 * Owns:    nothing; counts lie in co_pair and in the requests.
 * Runs in: coordinator; loop thread only, between two rounds.
 * Never:   loses a request: who gives up a place is queued where it stood. */
#ifndef CO_PLACES_H
#define CO_PLACES_H

#include "coordinator/app.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the round's entries may hold together: all that nobody else does. Fills n_blocks of both
 * workers' limits. */
void co_places_count(struct co_app *app);

/* Blocks for the next step of every entry: K shrinks first, then requests whose clients do not read
 * are preempted, then the last entries. false: somebody had to go. */
bool co_places_share(struct co_app *app);

/* Somebody found no room in the draft's pool. Of the requests whose clients do not read, the last
 * one that holds blocks there gives them up. false: none does. */
bool co_places_free_draft(struct co_app *app);

/* Admit waiting requests in order; one that finds no room is passed by a bounded number of those
 * behind it (turns.h). Returns whether anybody came or went. */
bool co_places_admit(struct co_app *app);

#ifdef __cplusplus
}
#endif
#endif
