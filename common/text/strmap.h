/* strmap: byte strings to ids; the hash table behind the vocabulary.
 * Owns:    its slots, from first put to fini; keys are borrowed and must outlive it.
 * Runs in: coordinator, workers; one thread at a time.
 * Never:   removes. */
#ifndef FT_TEXT_STRMAP_H
#define FT_TEXT_STRMAP_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_strmap {
    struct ft_strmap_slot *slots;
    size_t n_slots; /* a power of two */
    size_t len;
};

void ft_strmap_fini(struct ft_strmap *map);
/* Room for n keys in all. fail FT_E_PROC_MEMORY */
enum ft_code ft_strmap_reserve(struct ft_strmap *map, size_t n);
/* Id of key, -1 when there is none. */
int32_t ft_strmap_get(const struct ft_strmap *map, struct ft_str key);
/* Add a key that is not there yet; its length must fit 32 bits. fail FT_E_PROC_MEMORY */
enum ft_code ft_strmap_put(struct ft_strmap *map, struct ft_str key, int32_t id);

uint64_t ft_strmap_hash(struct ft_str key);

#ifdef __cplusplus
}
#endif
#endif
