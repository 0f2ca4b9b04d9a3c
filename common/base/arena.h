/* arena: bump allocation for one lifetime (a request, a step), freed all at once.
 * Owns:    its chunks, from create to destroy; reset keeps the largest for reuse.
 * Runs in: every process; one thread at a time.
 * Never:   frees single allocations; grows past bytes_max. */
#ifndef FT_BASE_ARENA_H
#define FT_BASE_ARENA_H

#include <stddef.h>

#include "common/base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_arena;

/* chunk_bytes  first chunk and growth step, > 0
 * bytes_max    total limit, 0 means none
 * Returns NULL when memory is out. The caller owns the arena. */
struct ft_arena *ft_arena_create(size_t chunk_bytes, size_t bytes_max);
void ft_arena_destroy(struct ft_arena **arena);

/* bytes of memory aligned to 16, uninitialised; NULL when the limit or memory is reached. */
void *ft_arena_alloc(struct ft_arena *arena, size_t bytes);
/* The same, zeroed; count * size is checked for overflow. */
void *ft_arena_calloc(struct ft_arena *arena, size_t count, size_t size);
/* A copy of s with a NUL added behind it; .ptr is NULL when memory is out. */
struct ft_str ft_arena_str(struct ft_arena *arena, struct ft_str s);

/* Forget every allocation. */
void ft_arena_reset(struct ft_arena *arena);
size_t ft_arena_used(const struct ft_arena *arena);

#ifdef __cplusplus
}
#endif
#endif
