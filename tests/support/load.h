/* load: streams that run all the time, each compared with the text that it must have.
 * Owns:    the streams, from start to stop.
 * Runs in: tests; on the cluster's loop.
 * Never:   forgets a stream that ended otherwise than with its own text. */
#ifndef TEST_LOAD_H
#define TEST_LOAD_H

#include "support/cluster.h"

enum { LOAD_STREAMS = 8, LOAD_TOKENS = 200 };

struct load {
    struct cluster *cluster;
    struct gen gens[LOAD_STREAMS];
    int32_t texts[LOAD_STREAMS][LOAD_TOKENS]; /* what each must say */
    bool running[LOAD_STREAMS];
    bool restarts;   /* a stream that ends is followed by another */
    bool drains;     /* the service may refuse a stream, before it says anything */
    uint64_t n_done; /* ended with their text */
    uint64_t n_refused;
    uint64_t n_lost;   /* ended with another status than OK, and not refused */
    uint64_t n_wrong;  /* ended with OK and another text */
    uint64_t n_double; /* tokens too many, of all */
    char first_trouble[256];
};

/* Learn the texts (plainly, one at a time) and start all streams: half are greedy, half sampled by
 * the rule coupled, whose text does not depend on speculation either. */
void load_start(struct load *load, struct cluster *cluster);
/* Let them run for so long, or with restarts off until all have ended; fails the test when they do
 * not within two minutes. */
void load_run(struct load *load, int ms);
void load_end(struct load *load);
/* Streams that have begun and not ended. */
int load_in_flight(const struct load *load);

#endif
