/* whole_cases: tests of a step as one kernel, on a card or in the simulation.
 * Owns:    nothing.
 * Runs in: tests.
 * Never:   asks where it runs. */
#ifndef TESTS_GPU_WHOLE_CASES_H
#define TESTS_GPU_WHOLE_CASES_H

#include <check.h>
#include <stdint.h>

/* In two cases: "small" is for tools that slow the GPU down a thousandfold. */
void whole_cases_add(Suite *suite);
/* The place's own: the order in which threads run from now on, where that can be chosen. */
void whole_cases_seed(uint64_t seed);

#endif
