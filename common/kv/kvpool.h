/* kvpool: fixed pool of KV block ids with reference counts, and the prefix cache over them.
 * Owns:    who holds which block, and the token ids whose KV each block holds.
 * Runs in: draft_worker, target_worker; loop thread only.
 * Never:   allocates after create; touches KV memory (see model.h); knows sequences (see kvseq.h).
 *
 * A block is free, held (by one or more owners) or cached. A held block may be sealed: full, never
 * written again, and found by others through (its parent, its tokens). A sealed block that nobody
 * holds is cached: it keeps its contents until take() needs it, oldest first.
 * Whoever holds a sealed block also holds its parent, and give() lets go of children first; so a
 * cached parent is always younger than its children and is evicted after them. */
#ifndef FT_KV_KVPOOL_H
#define FT_KV_KVPOOL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_kvpool;

/* As long as the longest sequence that a worker may be told to hold, for slots. */
#define FT_KVPOOL_BLOCK_TOKENS_MAX (1 << 24)

struct ft_kvpool_opts {
    int32_t n_blocks;     /* ids 0 .. n_blocks - 1 */
    int32_t block_tokens; /* positions of a block, 1 .. FT_KVPOOL_BLOCK_TOKENS_MAX */
    bool prefix_caching;  /* false: seal() keeps nothing and find() finds nothing */
    uint64_t seed;        /* of the hashes; the cache lives and dies with one model in one process,
                             so the worker's epoch stands for the identity of the model */
};

/* fail FT_E_PROC_CONFIG names the option; FT_E_PROC_MEMORY */
enum ft_code ft_kvpool_create(struct ft_kvpool **out, const struct ft_kvpool_opts *opts,
                              struct ft_err *err);
void ft_kvpool_destroy(struct ft_kvpool **pool);

int32_t ft_kvpool_total(const struct ft_kvpool *pool);
int32_t ft_kvpool_free(const struct ft_kvpool *pool);   /* never used, or forgotten */
int32_t ft_kvpool_cached(const struct ft_kvpool *pool); /* contents kept, held by nobody */
int32_t ft_kvpool_block_tokens(const struct ft_kvpool *pool);

/* Take n blocks, all or none; free ones first, then the oldest cached ones, which are forgotten.
 * out   ids  [n], written only on FT_OK; each is held once, by the caller, who gives it back
 * fail  FT_E_SEQ_POOL_EMPTY: pool unchanged, the request may wait
 * cost  O(n) */
enum ft_code ft_kvpool_take(struct ft_kvpool *pool, int32_t n, int32_t *ids, struct ft_err *err);
/* Let go of n blocks, the last first: ids are in order of positions. */
void ft_kvpool_give(struct ft_kvpool *pool, const int32_t *ids, int32_t n);
int32_t ft_kvpool_refs(const struct ft_kvpool *pool, int32_t id);

/* Token ids of a block, [block_tokens]. Writable while the caller alone holds it unsealed. */
int32_t *ft_kvpool_tokens(struct ft_kvpool *pool, int32_t id);

/* The sealed block with these tokens behind parent (-1: at position 0), held once more for the
 * caller; -1 when there is none. The tokens themselves are compared, all the way up: a hash alone
 * decides nothing. */
int32_t ft_kvpool_find(struct ft_kvpool *pool, int32_t parent, const int32_t *tokens);
/* Seal id, full and computed, held by the caller alone; parent is sealed or -1. Returns the block
 * to hold from now on: id, or a sealed twin with the same contents, id then being free again. */
int32_t ft_kvpool_seal(struct ft_kvpool *pool, int32_t parent, int32_t id);
/* Make a sealed block writable again. false: others hold it too, and it stays sealed. */
bool ft_kvpool_unseal(struct ft_kvpool *pool, int32_t id);

#ifdef __cplusplus
}
#endif
#endif
