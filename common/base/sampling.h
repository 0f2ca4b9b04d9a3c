/* sampling: how a request's tokens are chosen; plain data shared by wire, spec and the roles.
 * Owns:    nothing; bias is borrowed.
 * Runs in: every process.
 * Never:   holds unchecked values: whoever fills it has validated the ranges of inference.proto. */
#ifndef FT_BASE_SAMPLING_H
#define FT_BASE_SAMPLING_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Most tokens drafted in one round; bounds every [K] array. The theory's best K for an acceptance
 * of 0.9 and a free drafter is past it, measured gains are not. */
#define FT_DRAFT_LEN_MAX 16

struct ft_bias {
    int32_t id;
    float value;
};

struct ft_sampling {
    float temperature;        /* 0: greedy */
    float top_p;              /* 1: off */
    int32_t top_k;            /* 0: off */
    float min_p;              /* 0: off */
    float frequency_penalty;  /* 0: off */
    float presence_penalty;   /* 0: off */
    float repetition_penalty; /* 1: off */
    uint64_t seed;
    const struct ft_bias *bias; /* [n_bias], ids ascending and unique */
    size_t n_bias;
};

/* Temperatures below this are greedy: dividing by them would overflow f32. */
#define FT_TEMPERATURE_MIN 1e-5f

static inline struct ft_sampling ft_sampling_default(void) {
    return (struct ft_sampling){.temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f};
}

#ifdef __cplusplus
}
#endif
#endif
