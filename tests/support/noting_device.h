/* noting_device: a device "noting" that notes programs as "cuda" does, by the same table of them,
 * where there is no GPU: CUDA's graphs are lists of operations of the CPU here. Its memory is said
 * not to be the host's. A sync fails when pinned memory was written between a copy of it and then.
 * Owns:    what it counts, of all such devices together.
 * Runs in: tests.
 * Never:   does an operation of a program that is noted for later. */
#ifndef TESTS_SUPPORT_NOTING_DEVICE_H
#define TESTS_SUPPORT_NOTING_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

/* Where noting fails. */
enum noting_stage { NOTING_END, NOTING_BEGIN, NOTING_INSTANTIATE, NOTING_LAUNCH, NOTING_STAGES };

struct noting {
    int n_begun;    /* steps that asked for a program */
    int n_found;    /* of which there was one */
    int n_captures; /* how often noting began */
    int n_noted;    /* programs that were noted for later */
    int n_graphs;   /* programs that there are */
    int n_done;     /* operations by themselves */
    int n_replayed; /* operations of programs */
    int n_allocs;   /* how often device memory was asked for */
    int n_pinned;   /* ranges of host memory that are pinned */
    /* To be set. */
    int fail_at; /* noting fails the so-manieth time; 0: never */
    enum noting_stage fail_in;
    int alloc_fails_at; /* there is no device memory the so-manieth time; 0: never */
    bool breaks;        /* operations fail */
    int64_t slow_ns;    /* to note, or to begin a step, takes so long */
};
extern struct noting noting;

/* Whether host memory is pinned by any such device. */
bool noting_has_pinned(const void *at);

#endif
