/* kvhash: the chained hash of tokens that picks a bucket of the prefix cache.
 * Owns:    nothing.
 * Runs in: kvpool.c, and its test, which makes collisions with it.
 * Never:   decides a hit: it is quick, and made for no adversary. */
#ifndef FT_KV_KVHASH_H
#define FT_KV_KVHASH_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Finaliser of splitmix64 (Steele et al. 2014). */
static inline uint64_t ft_kvhash_mix(uint64_t h) {
    h = (h ^ (h >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    h = (h ^ (h >> 27)) * UINT64_C(0x94D049BB133111EB);
    return h ^ (h >> 31);
}

/* The hash of everything up to token, from that of everything before it. */
static inline uint64_t ft_kvhash_next(uint64_t before, int32_t token) {
    return ft_kvhash_mix(before + UINT64_C(0x9E3779B97F4A7C15) + (uint32_t)token);
}

#ifdef __cplusplus
}
#endif
#endif
