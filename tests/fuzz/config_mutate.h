/* config_mutate: seeded mutations of JSON text, for the fuzzers of configs and headers.
 * Owns:    nothing.
 * Runs in: tests.
 * Never:   depends on anything but seed and input: a failing round can be run again. */
#ifndef FT_TESTS_FUZZ_CONFIG_MUTATE_H
#define FT_TESTS_FUZZ_CONFIG_MUTATE_H

#include <stddef.h>
#include <stdint.h>

struct mutate_rng {
    uint64_t state;
};
uint32_t mutate_below(struct mutate_rng *rng, size_t n); /* 0 .. n - 1; n at least 1 */

/* Change the len bytes of text in 1 to 4 places: flipped bytes, cuts, repeats, and numbers and
 * words replaced by others that are likely to break a check. Returns the new length, at most cap.
 */
size_t mutate_json(struct mutate_rng *rng, char *text, size_t len, size_t cap);

/* How long a fuzzer runs: FORETOKEN_FUZZ_SECONDS, or 2 seconds. */
int64_t mutate_deadline_ns(void);

#endif
