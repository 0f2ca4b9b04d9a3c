#include "common/kv/kvpool.h"

#include <stdlib.h>
#include <string.h>

#include "common/kv/kvhash.h"

#define MODULE "kvpool"
#define NONE (-1)

struct block {
    int32_t refs;
    int32_t bucket_next;    /* next block of the same hash bucket, NONE at the end */
    int32_t older, younger; /* neighbours among the cached ones */
    bool sealed;
    uint64_t hash; /* chained over all tokens up to the end of this block */
    uint64_t
        serial; /* of the contents; never used again, so a child of lost contents is lost too */
    uint64_t parent_serial; /* 0: at position 0 */
};

struct ft_kvpool {
    struct ft_kvpool_opts opts;
    struct block *blocks;
    int32_t *tokens;   /* [n_blocks, block_tokens] */
    int32_t *free_ids; /* stack */
    int32_t n_free;
    int32_t oldest, youngest; /* ends of the list of cached blocks */
    int32_t n_cached;
    int32_t *buckets; /* [bucket_mask + 1] first block of each, NONE when empty */
    uint32_t bucket_mask;
    uint64_t next_serial;
};

static enum ft_code check_opts(const struct ft_kvpool_opts *opts, struct ft_err *err) {
    if (opts->n_blocks < 1 || opts->n_blocks > INT32_MAX / 2)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "n_blocks is %d: must be 1 to %d",
                          opts->n_blocks, INT32_MAX / 2);
    if (opts->block_tokens < 1 || opts->block_tokens > FT_KVPOOL_BLOCK_TOKENS_MAX)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "block_tokens is %d: must be 1 to %d",
                          opts->block_tokens, FT_KVPOOL_BLOCK_TOKENS_MAX);
    return FT_OK;
}

enum ft_code ft_kvpool_create(struct ft_kvpool **out, const struct ft_kvpool_opts *opts,
                              struct ft_err *err) {
    enum ft_code code = check_opts(opts, err);
    if (code != FT_OK)
        return code;
    size_t n = (size_t)opts->n_blocks;
    uint32_t n_buckets = 1;
    while (n_buckets < n)
        n_buckets *= 2;
    struct ft_kvpool *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        goto fail_memory;
    pool->opts = *opts;
    pool->blocks = calloc(n, sizeof *pool->blocks);
    pool->tokens = calloc(n * (size_t)opts->block_tokens, sizeof *pool->tokens);
    pool->free_ids = calloc(n, sizeof *pool->free_ids);
    pool->buckets = calloc(n_buckets, sizeof *pool->buckets);
    if (pool->blocks == NULL || pool->tokens == NULL || pool->free_ids == NULL ||
        pool->buckets == NULL)
        goto fail_memory;
    pool->bucket_mask = n_buckets - 1;
    memset(pool->buckets, 0xFF, n_buckets * sizeof *pool->buckets);
    /* Low ids are on top: a lightly used pool touches the start of KV memory only. */
    for (int32_t id = opts->n_blocks - 1; id >= 0; id--)
        pool->free_ids[pool->n_free++] = id;
    pool->oldest = pool->youngest = NONE;
    pool->next_serial = 1;
    *out = pool;
    return FT_OK;

fail_memory:
    ft_kvpool_destroy(&pool);
    return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for the table of %d KV blocks",
                      opts->n_blocks);
}

void ft_kvpool_destroy(struct ft_kvpool **pool) {
    if (*pool == NULL)
        return;
    free((*pool)->blocks);
    free((*pool)->tokens);
    free((*pool)->free_ids);
    free((*pool)->buckets);
    free(*pool);
    *pool = NULL;
}

int32_t ft_kvpool_total(const struct ft_kvpool *pool) {
    return pool->opts.n_blocks;
}

int32_t ft_kvpool_free(const struct ft_kvpool *pool) {
    return pool->n_free;
}

int32_t ft_kvpool_cached(const struct ft_kvpool *pool) {
    return pool->n_cached;
}

int32_t ft_kvpool_block_tokens(const struct ft_kvpool *pool) {
    return pool->opts.block_tokens;
}

static struct block *block_at(const struct ft_kvpool *pool, int32_t id) {
    FT_ASSERT(id >= 0 && id < pool->opts.n_blocks);
    return &pool->blocks[id];
}

int32_t ft_kvpool_refs(const struct ft_kvpool *pool, int32_t id) {
    return block_at(pool, id)->refs;
}

static int32_t *tokens_at(const struct ft_kvpool *pool, int32_t id) {
    return pool->tokens + (size_t)id * (size_t)pool->opts.block_tokens;
}

int32_t *ft_kvpool_tokens(struct ft_kvpool *pool, int32_t id) {
    FT_ASSERT(block_at(pool, id)->refs > 0);
    return tokens_at(pool, id);
}

/* ---- the index of sealed blocks ---- */

static uint64_t chain_hash(const struct ft_kvpool *pool, int32_t parent, const int32_t *tokens) {
    uint64_t h = parent == NONE ? ft_kvhash_mix(pool->opts.seed) : block_at(pool, parent)->hash;
    for (int32_t i = 0; i < pool->opts.block_tokens; i++)
        h = ft_kvhash_next(h, tokens[i]);
    return h;
}

static int32_t *bucket_of(const struct ft_kvpool *pool, uint64_t hash) {
    return &pool->buckets[(uint32_t)hash & pool->bucket_mask];
}

static uint64_t serial_of(const struct ft_kvpool *pool, int32_t parent) {
    if (parent == NONE)
        return 0;
    FT_ASSERT(block_at(pool, parent)->sealed);
    return pool->blocks[parent].serial;
}

static int32_t lookup(const struct ft_kvpool *pool, int32_t parent, const int32_t *tokens,
                      uint64_t hash) {
    size_t bytes = (size_t)pool->opts.block_tokens * sizeof *tokens;
    uint64_t parent_serial = serial_of(pool, parent);
    for (int32_t id = *bucket_of(pool, hash); id != NONE; id = pool->blocks[id].bucket_next) {
        const struct block *block = &pool->blocks[id];
        if (block->hash == hash && block->parent_serial == parent_serial &&
            memcmp(tokens_at(pool, id), tokens, bytes) == 0)
            return id;
    }
    return NONE;
}

static void forget(struct ft_kvpool *pool, int32_t id) {
    int32_t *link = bucket_of(pool, pool->blocks[id].hash);
    while (*link != id) {
        FT_ASSERT(*link != NONE);
        link = &pool->blocks[*link].bucket_next;
    }
    *link = pool->blocks[id].bucket_next;
    pool->blocks[id].sealed = false;
}

/* ---- the list of cached blocks ---- */

static void cached_push(struct ft_kvpool *pool, int32_t id) {
    struct block *block = &pool->blocks[id];
    block->older = pool->youngest;
    block->younger = NONE;
    if (pool->youngest != NONE)
        pool->blocks[pool->youngest].younger = id;
    else
        pool->oldest = id;
    pool->youngest = id;
    pool->n_cached++;
}

static void cached_remove(struct ft_kvpool *pool, int32_t id) {
    struct block *block = &pool->blocks[id];
    if (block->older != NONE)
        pool->blocks[block->older].younger = block->younger;
    else
        pool->oldest = block->younger;
    if (block->younger != NONE)
        pool->blocks[block->younger].older = block->older;
    else
        pool->youngest = block->older;
    pool->n_cached--;
}

/* ---- take and give ---- */

enum ft_code ft_kvpool_take(struct ft_kvpool *pool, int32_t n, int32_t *ids, struct ft_err *err) {
    FT_ASSERT(n >= 0);
    if (n > pool->n_free + pool->n_cached)
        return ft_err_set(err, FT_E_SEQ_POOL_EMPTY, MODULE,
                          "%d KV blocks are needed, %d of %d are free", n,
                          pool->n_free + pool->n_cached, pool->opts.n_blocks);
    for (int32_t i = 0; i < n; i++) {
        if (pool->n_free > 0) {
            ids[i] = pool->free_ids[--pool->n_free];
        } else {
            ids[i] = pool->oldest;
            cached_remove(pool, ids[i]);
            forget(pool, ids[i]);
        }
        pool->blocks[ids[i]].refs = 1;
    }
    return FT_OK;
}

static void hold(struct ft_kvpool *pool, int32_t id) {
    if (pool->blocks[id].refs++ == 0)
        cached_remove(pool, id);
}

static void let_go(struct ft_kvpool *pool, int32_t id) {
    struct block *block = block_at(pool, id);
    FT_ASSERT(block->refs > 0);
    if (--block->refs > 0)
        return;
    if (block->sealed)
        cached_push(pool, id);
    else
        pool->free_ids[pool->n_free++] = id;
}

void ft_kvpool_give(struct ft_kvpool *pool, const int32_t *ids, int32_t n) {
    for (int32_t i = n - 1; i >= 0; i--)
        let_go(pool, ids[i]);
}

/* ---- prefix cache ---- */

int32_t ft_kvpool_find(struct ft_kvpool *pool, int32_t parent, const int32_t *tokens) {
    if (!pool->opts.prefix_caching)
        return NONE;
    int32_t id = lookup(pool, parent, tokens, chain_hash(pool, parent, tokens));
    if (id != NONE)
        hold(pool, id);
    return id;
}

int32_t ft_kvpool_seal(struct ft_kvpool *pool, int32_t parent, int32_t id) {
    if (!pool->opts.prefix_caching)
        return id;
    struct block *block = block_at(pool, id);
    FT_ASSERT(block->refs == 1 && !block->sealed);
    uint64_t hash = chain_hash(pool, parent, tokens_at(pool, id));
    int32_t twin = lookup(pool, parent, tokens_at(pool, id), hash);
    if (twin != NONE) {
        hold(pool, twin);
        let_go(pool, id);
        return twin;
    }
    block->sealed = true;
    block->hash = hash;
    block->serial = pool->next_serial++;
    block->parent_serial = serial_of(pool, parent);
    block->bucket_next = *bucket_of(pool, hash);
    *bucket_of(pool, hash) = id;
    return id;
}

bool ft_kvpool_unseal(struct ft_kvpool *pool, int32_t id) {
    struct block *block = block_at(pool, id);
    FT_ASSERT(block->refs > 0);
    if (block->refs > 1)
        return false;
    if (block->sealed)
        forget(pool, id);
    return true;
}
