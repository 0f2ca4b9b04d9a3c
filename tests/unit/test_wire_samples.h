/* test_wire_samples: random messages of every kind, for the round-trip suite and the fuzzer.
 * Owns:    nothing; a sample lives in the arena that was passed in.
 * Runs in: tests.
 * Never:   depends on anything but the seed. */
#ifndef FT_TEST_WIRE_SAMPLES_H
#define FT_TEST_WIRE_SAMPLES_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sample_rng {
    uint64_t state; /* any value */
};
uint64_t sample_u64(struct sample_rng *rng);

/* One row per message that has an encoder. make: a random message, encoded into wire and written
 * out field by field into text. read: decode wire and write that out. */
struct wire_sample {
    const char *name;
    void (*make)(struct sample_rng *rng, struct ft_arena *arena, struct ft_buf *wire,
                 struct ft_buf *text);
    enum ft_code (*read)(struct ft_str wire, struct ft_arena *arena, struct ft_buf *text,
                         struct ft_err *err);
};
extern const struct wire_sample wire_samples[];
extern const size_t n_wire_samples;

#ifdef __cplusplus
}
#endif
#endif
