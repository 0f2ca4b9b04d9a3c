/* philox: Philox4x32-10 counter-based random numbers (Salmon et al. 2011).
 * Owns:    nothing: a number is a function of (seed, position, purpose, lane).
 * Runs in: coordinator, draft_worker; any thread.
 * Never:   has state: nothing depends on batch, slot, time or the history of calls. */
#ifndef FT_SPEC_PHILOX_H
#define FT_SPEC_PHILOX_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a number decides. Each purpose at each position is an independent stream. */
enum ft_philox_purpose {
    FT_PHILOX_PROPOSE = 1,  /* the draft's choice of a token */
    FT_PHILOX_ACCEPT = 2,   /* whether it is accepted */
    FT_PHILOX_RESIDUAL = 3, /* the target's own choice: residual, bonus or plain */
    FT_PHILOX_GUMBEL = 4    /* the coupled rule's noise; see ft_philox_uniforms */
};

/* The raw block: key = seed, counter = (position, purpose, lane). out [4] */
void ft_philox_block(uint64_t seed, uint64_t position, uint32_t purpose, uint32_t lane,
                     uint32_t out[4]);

/* Uniform in [0, 1), 53 bits. position is the absolute index in the sequence of the token that is
 * decided (prompt included). */
double ft_philox_uniform(uint64_t seed, uint64_t position, enum ft_philox_purpose purpose,
                         uint32_t lane);

/* FT_PHILOX_UNIFORMS of them at once, two of each lane: out[2 j] and out[2 j + 1] are words 0, 1
 * and words 2, 3 of lane first_lane + j, so that out[2 j] = ft_philox_uniform(.., first_lane + j).
 * Id t of the coupled rule has number t % 2 of lane t / 2. */
#define FT_PHILOX_UNIFORMS 32u
void ft_philox_uniforms(uint64_t seed, uint64_t position, enum ft_philox_purpose purpose,
                        uint32_t first_lane, double out[FT_PHILOX_UNIFORMS]);

#ifdef __cplusplus
}
#endif
#endif
