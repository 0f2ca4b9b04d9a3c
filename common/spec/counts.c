/* Entries lie densely, in order of first appearance, so that a penalty pass walks only them; an
 * open-addressing table with linear probing finds an id's entry. */
#include "common/spec/counts.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS_MIN 64u /* power of two */

struct ft_counts {
    struct ft_count *entries; /* [n_slots / 2] */
    size_t n_entries;
    uint32_t *slots; /* [n_slots] index of an entry + 1, or 0; at most half are in use */
    size_t n_slots;  /* 0 or a power of two */
};

struct ft_counts *ft_counts_create(void) {
    return calloc(1, sizeof(struct ft_counts));
}

void ft_counts_destroy(struct ft_counts **counts) {
    if (counts == NULL || *counts == NULL)
        return;
    free((*counts)->entries);
    free((*counts)->slots);
    free(*counts);
    *counts = NULL;
}

void ft_counts_reset(struct ft_counts *counts) {
    counts->n_entries = 0;
    if (counts->n_slots != 0)
        memset(counts->slots, 0, counts->n_slots * sizeof *counts->slots);
}

/* The slot that holds id, or the free one where it belongs. n_slots is not 0. */
static size_t find_slot(const struct ft_counts *counts, int32_t id) {
    size_t mask = counts->n_slots - 1;
    size_t slot = ((uint32_t)id * 0x9E3779B1u >> 7) & mask;
    while (counts->slots[slot] != 0 && counts->entries[counts->slots[slot] - 1].id != id)
        slot = (slot + 1) & mask;
    return slot;
}

static bool grow(struct ft_counts *counts) {
    size_t n_slots = counts->n_slots == 0 ? SLOTS_MIN : counts->n_slots * 2;
    if (n_slots > UINT32_MAX / 2)
        return false;
    uint32_t *slots = calloc(n_slots, sizeof *slots);
    if (slots == NULL)
        return false;
    struct ft_count *entries = realloc(counts->entries, n_slots / 2 * sizeof *counts->entries);
    if (entries == NULL) {
        free(slots);
        return false;
    }
    free(counts->slots);
    counts->entries = entries;
    counts->slots = slots;
    counts->n_slots = n_slots;
    for (size_t i = 0; i < counts->n_entries; i++)
        slots[find_slot(counts, entries[i].id)] = (uint32_t)i + 1;
    return true;
}

/* The entry of id, made when it is new; NULL when memory is out. */
static struct ft_count *entry_of(struct ft_counts *counts, int32_t id) {
    if (counts->n_entries >= counts->n_slots / 2 && !grow(counts))
        return NULL;
    size_t slot = find_slot(counts, id);
    if (counts->slots[slot] == 0) {
        counts->entries[counts->n_entries] = (struct ft_count){.id = id};
        counts->slots[slot] = (uint32_t)++counts->n_entries;
    }
    return &counts->entries[counts->slots[slot] - 1];
}

static const struct ft_count *lookup(const struct ft_counts *counts, int32_t id) {
    if (counts == NULL || counts->n_entries == 0)
        return NULL;
    uint32_t index = counts->slots[find_slot(counts, id)];
    return index == 0 ? NULL : &counts->entries[index - 1];
}

bool ft_counts_add_prompt(struct ft_counts *counts, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct ft_count *entry = entry_of(counts, ids[i]);
        if (entry == NULL)
            return false;
        entry->prompt = true;
    }
    return true;
}

bool ft_counts_add_output(struct ft_counts *counts, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct ft_count *entry = entry_of(counts, ids[i]);
        if (entry == NULL)
            return false;
        entry->output++;
    }
    return true;
}

int32_t ft_counts_output(const struct ft_counts *counts, int32_t id) {
    const struct ft_count *entry = lookup(counts, id);
    return entry == NULL ? 0 : entry->output;
}

bool ft_counts_in_prompt(const struct ft_counts *counts, int32_t id) {
    const struct ft_count *entry = lookup(counts, id);
    return entry != NULL && entry->prompt;
}

size_t ft_counts_size(const struct ft_counts *counts) {
    return counts == NULL ? 0 : counts->n_entries;
}

const struct ft_count *ft_counts_entries(const struct ft_counts *counts) {
    return counts == NULL ? NULL : counts->entries;
}
