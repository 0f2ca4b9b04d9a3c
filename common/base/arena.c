#include "common/base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

#define ALIGN 16u

struct chunk {
    struct chunk *next;
    size_t cap;
    size_t used;
    alignas(ALIGN) unsigned char data[];
};

struct ft_arena {
    struct chunk *head; /* the chunk that allocates now */
    size_t chunk_bytes;
    size_t bytes_max;
    size_t bytes_held;
    size_t bytes_used;
};

struct ft_arena *ft_arena_create(size_t chunk_bytes, size_t bytes_max) {
    struct ft_arena *arena = calloc(1, sizeof *arena);
    if (arena == NULL)
        return NULL;
    arena->chunk_bytes = chunk_bytes;
    arena->bytes_max = bytes_max;
    return arena;
}

static void free_chunks(struct chunk *c) {
    while (c != NULL) {
        struct chunk *next = c->next;
        free(c);
        c = next;
    }
}

void ft_arena_destroy(struct ft_arena **arena) {
    if (arena == NULL || *arena == NULL)
        return;
    free_chunks((*arena)->head);
    free(*arena);
    *arena = NULL;
}

static struct chunk *grow(struct ft_arena *arena, size_t bytes) {
    size_t cap = bytes > arena->chunk_bytes ? bytes : arena->chunk_bytes;
    if (cap > SIZE_MAX - sizeof(struct chunk))
        return NULL;
    if (arena->bytes_max != 0 &&
        (arena->bytes_held > arena->bytes_max || cap > arena->bytes_max - arena->bytes_held))
        return NULL;
    struct chunk *c = malloc(sizeof *c + cap);
    if (c == NULL)
        return NULL;
    c->cap = cap;
    c->used = 0;
    c->next = arena->head;
    arena->head = c;
    arena->bytes_held += cap;
    return c;
}

void *ft_arena_alloc(struct ft_arena *arena, size_t bytes) {
    if (bytes > SIZE_MAX - ALIGN)
        return NULL;
    size_t size = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (size == 0)
        size = ALIGN;
    struct chunk *c = arena->head;
    if (c == NULL || c->cap - c->used < size) {
        c = grow(arena, size);
        if (c == NULL)
            return NULL;
    }
    void *p = c->data + c->used;
    c->used += size;
    arena->bytes_used += size;
    return p;
}

void *ft_arena_calloc(struct ft_arena *arena, size_t count, size_t size) {
    if (size != 0 && count > SIZE_MAX / size)
        return NULL;
    void *p = ft_arena_alloc(arena, count * size);
    if (p != NULL)
        memset(p, 0, count * size);
    return p;
}

struct ft_str ft_arena_str(struct ft_arena *arena, struct ft_str s) {
    char *p = s.len == SIZE_MAX ? NULL : ft_arena_alloc(arena, s.len + 1);
    if (p == NULL)
        return (struct ft_str){NULL, 0};
    if (s.len != 0)
        memcpy(p, s.ptr, s.len);
    p[s.len] = 0;
    return (struct ft_str){p, s.len};
}

void ft_arena_reset(struct ft_arena *arena) {
    struct chunk *largest = NULL;
    for (struct chunk *c = arena->head; c != NULL; c = c->next)
        if (largest == NULL || c->cap > largest->cap)
            largest = c;
    struct chunk *c = arena->head;
    while (c != NULL) {
        struct chunk *next = c->next;
        if (c != largest)
            free(c);
        c = next;
    }
    arena->head = largest;
    arena->bytes_held = 0;
    arena->bytes_used = 0;
    if (largest != NULL) {
        largest->next = NULL;
        largest->used = 0;
        arena->bytes_held = largest->cap;
    }
}

size_t ft_arena_used(const struct ft_arena *arena) {
    return arena->bytes_used;
}
