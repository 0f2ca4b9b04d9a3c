#include "common/text/strmap.h"

#include <stdlib.h>

#define SLOTS_MIN 1024

struct ft_strmap_slot {
    const char *ptr; /* NULL: empty */
    uint32_t len;
    int32_t id;
};

static uint64_t mix(uint64_t h, uint64_t word) {
    h = (h ^ word) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 29);
}

uint64_t ft_strmap_hash(struct ft_str key) {
    uint64_t h = mix(0, key.len);
    size_t i = 0;
    for (; i + 8 <= key.len; i += 8) {
        uint64_t word;
        memcpy(&word, key.ptr + i, 8);
        h = mix(h, word);
    }
    uint64_t tail = 0;
    if (i < key.len)
        memcpy(&tail, key.ptr + i, key.len - i);
    h = mix(h, tail);
    return h ^ (h >> 32);
}

void ft_strmap_fini(struct ft_strmap *map) {
    free(map->slots);
    *map = (struct ft_strmap){0};
}

/* The slot that holds key, or the empty one where it belongs. */
static size_t probe(const struct ft_strmap *map, struct ft_str key) {
    size_t i = (size_t)ft_strmap_hash(key) & (map->n_slots - 1);
    while (map->slots[i].ptr != NULL &&
           !ft_str_eq(key, (struct ft_str){map->slots[i].ptr, map->slots[i].len}))
        i = (i + 1) & (map->n_slots - 1);
    return i;
}

int32_t ft_strmap_get(const struct ft_strmap *map, struct ft_str key) {
    if (map->n_slots == 0)
        return -1;
    size_t i = probe(map, key);
    return map->slots[i].ptr == NULL ? -1 : map->slots[i].id;
}

static enum ft_code resize(struct ft_strmap *map, size_t n_slots) {
    struct ft_strmap next = {.n_slots = n_slots, .len = map->len};
    next.slots = calloc(n_slots, sizeof *next.slots);
    if (next.slots == NULL)
        return FT_E_PROC_MEMORY;
    for (size_t i = 0; i < map->n_slots; i++) {
        struct ft_strmap_slot slot = map->slots[i];
        if (slot.ptr != NULL)
            next.slots[probe(&next, (struct ft_str){slot.ptr, slot.len})] = slot;
    }
    free(map->slots);
    *map = next;
    return FT_OK;
}

enum ft_code ft_strmap_reserve(struct ft_strmap *map, size_t n) {
    size_t n_slots = map->n_slots == 0 ? SLOTS_MIN : map->n_slots;
    while (n_slots / 2 < n)
        n_slots *= 2;
    return n_slots == map->n_slots ? FT_OK : resize(map, n_slots);
}

enum ft_code ft_strmap_put(struct ft_strmap *map, struct ft_str key, int32_t id) {
    FT_ASSERT(key.ptr != NULL && key.len <= UINT32_MAX);
    if (ft_strmap_reserve(map, map->len + 1) != FT_OK)
        return FT_E_PROC_MEMORY;
    size_t i = probe(map, key);
    FT_ASSERT(map->slots[i].ptr == NULL);
    map->slots[i] = (struct ft_strmap_slot){key.ptr, (uint32_t)key.len, id};
    map->len++;
    return FT_OK;
}
