/* twin: a GPU and the CPU side by side, for tests that give both the same operation.
 * Owns:    both devices and the GPU's copies of host arrays, from open to close.
 * Runs in: tests.
 * Never:   hides a failure: what goes wrong fails the test. */
#ifndef TESTS_GPU_TWIN_H
#define TESTS_GPU_TWIN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/gpu/device.h"

#define TWIN_COPIES 64

struct twin {
    struct ft_device *cpu, *gpu;
    void *copies[TWIN_COPIES]; /* on the GPU */
    int32_t n_copies;
};

/* In a process of its own, as a forked test is: a driver that was used must not be forked. */
void twin_open(struct twin *twin);
void twin_close(struct twin *twin);

/* The GPU's copy of a host array, gone with twin_release or twin_close; NULL stays NULL. */
void *twin_put(struct twin *twin, const void *host, size_t bytes);
/* Wait, and bring a copy back. */
void twin_get(struct twin *twin, void *host, const void *copy, size_t bytes);
void twin_release(struct twin *twin);

/* Fails when |got - want| is above tolerance or either is NaN alone. */
void twin_close_to(double got, double want, double tolerance, const char *what, int64_t at);

/* Runs the suite; what main returns: EXIT_SUCCESS, EXIT_FAILURE, or 77 without a GPU. */
struct Suite;
int twin_main(struct Suite *suite);

#endif
