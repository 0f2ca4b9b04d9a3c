/* target: what every fuzz target shares: one function over bytes, for libFuzzer or for replay.c.
 * Owns:    nothing.
 * Runs in: tests.
 * Never:   keeps state from one input to the next but for what costs to make. */
#ifndef FT_FUZZ_TARGET_H
#define FT_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A promise of the code under test: a finding where it does not hold. */
#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond);                     \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* A refusal says why, in the words of the code that it returns. */
static inline void must_refuse_well(enum ft_code code, const struct ft_err *err) {
    MUST(code == err->code);
    MUST(strlen(err->text) > 0);
}

/* The bytes in a block of exactly their size, so that a sanitizer sees a read past it. */
static inline char *exact_copy(const uint8_t *data, size_t size) {
    char *copy = malloc(size > 0 ? size : 1);
    MUST(copy != NULL);
    if (size > 0)
        memcpy(copy, data, size);
    return copy;
}

#endif
