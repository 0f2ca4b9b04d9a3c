#include "common/kv/kvseq.h"

#include <stdlib.h>
#include <string.h>

#define MODULE "kvseq"
#define NONE (-1)

struct ft_kvseq {
    uint64_t id;
    uint64_t stamp;
    int32_t *blocks;
    int32_t *pages;   /* the pages of the blocks; blocks itself where a block is a page */
    int32_t n_blocks; /* at least ceil(len / block_tokens); more while positions are reserved */
    int32_t n_sealed; /* leading blocks that are full and may be shared: never written */
    int32_t len;
    int32_t next; /* of the bucket, or of the free list */
};

struct ft_kvseq_table {
    struct ft_kvpool *pool;
    int32_t block_tokens;
    int32_t pages_per_block;
    int32_t n_max, len_max;
    int32_t n_used;
    struct ft_kvseq *seqs; /* [n_max] */
    int32_t *block_slab;   /* [n_max, blocks of len_max] */
    int32_t *page_slab;    /* [n_max, pages of these]; NULL where a block is a page */
    int32_t free_head;
    int32_t *buckets;
    uint32_t bucket_mask;
};

static int32_t blocks_for(const struct ft_kvseq_table *table, int64_t len) {
    return (int32_t)((len + table->block_tokens - 1) / table->block_tokens);
}

enum ft_code ft_kvseq_create(struct ft_kvseq_table **out, const struct ft_kvseq_opts *opts,
                             struct ft_err *err) {
    if (opts->n_max < 1 || opts->n_max > 65536)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "n_max is %d: must be 1 to 65536",
                          opts->n_max);
    if (opts->len_max < 1)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "len_max is %d: must be at least 1",
                          opts->len_max);
    int32_t block_tokens = ft_kvpool_block_tokens(opts->pool);
    int32_t page_tokens = opts->page_tokens != 0 ? opts->page_tokens : block_tokens;
    if (page_tokens < 1 || block_tokens % page_tokens != 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "page_tokens is %d: must divide block_tokens, which is %d", page_tokens,
                          block_tokens);
    size_t n = (size_t)opts->n_max;
    uint32_t n_buckets = 1;
    while (n_buckets < n)
        n_buckets *= 2;
    struct ft_kvseq_table *table = calloc(1, sizeof *table);
    if (table == NULL)
        goto fail_memory;
    table->pool = opts->pool;
    table->block_tokens = block_tokens;
    table->pages_per_block = block_tokens / page_tokens;
    table->n_max = opts->n_max;
    table->len_max = opts->len_max;
    size_t per_seq = (size_t)blocks_for(table, opts->len_max);
    size_t pages_per_seq = per_seq * (size_t)table->pages_per_block;
    table->seqs = calloc(n, sizeof *table->seqs);
    table->block_slab = calloc(n * per_seq, sizeof *table->block_slab);
    table->buckets = calloc(n_buckets, sizeof *table->buckets);
    if (table->seqs == NULL || table->block_slab == NULL || table->buckets == NULL)
        goto fail_memory;
    if (table->pages_per_block > 1) {
        table->page_slab = calloc(n * pages_per_seq, sizeof *table->page_slab);
        if (table->page_slab == NULL)
            goto fail_memory;
    }
    table->bucket_mask = n_buckets - 1;
    memset(table->buckets, 0xFF, n_buckets * sizeof *table->buckets);
    for (size_t i = 0; i < n; i++) {
        table->seqs[i].blocks = table->block_slab + i * per_seq;
        table->seqs[i].pages =
            table->page_slab == NULL ? table->seqs[i].blocks : table->page_slab + i * pages_per_seq;
        table->seqs[i].next = i + 1 < n ? (int32_t)i + 1 : NONE;
    }
    *out = table;
    return FT_OK;

fail_memory:
    ft_kvseq_destroy(&table);
    return ft_err_set(err, FT_E_PROC_MEMORY, MODULE,
                      "no memory for block tables of %d sequences of %d positions", opts->n_max,
                      opts->len_max);
}

void ft_kvseq_destroy(struct ft_kvseq_table **table) {
    if (*table == NULL)
        return;
    if ((*table)->buckets != NULL && (*table)->seqs != NULL && (*table)->block_slab != NULL)
        ft_kvseq_release_all(*table);
    free((*table)->seqs);
    free((*table)->block_slab);
    free((*table)->page_slab);
    free((*table)->buckets);
    free(*table);
    *table = NULL;
}

int32_t ft_kvseq_count(const struct ft_kvseq_table *table) {
    return table->n_used;
}

static int32_t *bucket_of(const struct ft_kvseq_table *table, uint64_t id) {
    uint64_t h = id * UINT64_C(0x9E3779B97F4A7C15);
    return &table->buckets[(uint32_t)(h >> 32) & table->bucket_mask];
}

struct ft_kvseq *ft_kvseq_find(const struct ft_kvseq_table *table, uint64_t id) {
    for (int32_t i = *bucket_of(table, id); i != NONE; i = table->seqs[i].next)
        if (table->seqs[i].id == id)
            return &table->seqs[i];
    return NULL;
}

enum ft_code ft_kvseq_add(struct ft_kvseq_table *table, uint64_t id, struct ft_kvseq **out,
                          struct ft_err *err) {
    FT_ASSERT(ft_kvseq_find(table, id) == NULL);
    if (table->n_used == table->n_max)
        return ft_err_set(err, FT_E_SEQ_POOL_EMPTY, MODULE,
                          "%d sequences are held, the most there can be", table->n_max);
    int32_t i = table->free_head;
    struct ft_kvseq *seq = &table->seqs[i];
    table->free_head = seq->next;
    table->n_used++;
    int32_t *bucket = bucket_of(table, id);
    *seq = (struct ft_kvseq){.id = id, .blocks = seq->blocks, .pages = seq->pages, .next = *bucket};
    *bucket = i;
    *out = seq;
    return FT_OK;
}

int32_t ft_kvseq_len(const struct ft_kvseq *seq) {
    return seq->len;
}

const int32_t *ft_kvseq_pages(const struct ft_kvseq *seq) {
    return seq->pages;
}

int32_t ft_kvseq_n_blocks(const struct ft_kvseq *seq) {
    return seq->n_blocks;
}

uint64_t ft_kvseq_stamp(const struct ft_kvseq *seq) {
    return seq->stamp;
}

void ft_kvseq_set_stamp(struct ft_kvseq *seq, uint64_t stamp) {
    seq->stamp = stamp;
}

void ft_kvseq_copy_tokens(const struct ft_kvseq_table *table, const struct ft_kvseq *seq,
                          int32_t *out) {
    for (int32_t start = 0; start < seq->len; start += table->block_tokens) {
        int32_t n = seq->len - start < table->block_tokens ? seq->len - start : table->block_tokens;
        const int32_t *tokens =
            ft_kvpool_tokens(table->pool, seq->blocks[start / table->block_tokens]);
        memcpy(out + start, tokens, (size_t)n * sizeof *out);
    }
}

/* Block i of the sequence is that of the pool from now on. */
static void set_block(const struct ft_kvseq_table *table, struct ft_kvseq *seq, int32_t i,
                      int32_t id) {
    int32_t n = table->pages_per_block;
    seq->blocks[i] = id;
    for (int32_t k = 0; n > 1 && k < n; k++)
        seq->pages[i * n + k] = id * n + k;
}

static int32_t last_sealed(const struct ft_kvseq *seq) {
    return seq->n_sealed > 0 ? seq->blocks[seq->n_sealed - 1] : NONE;
}

int32_t ft_kvseq_truncate(struct ft_kvseq_table *table, struct ft_kvseq *seq, int32_t keep) {
    FT_ASSERT(keep >= 0 && keep <= seq->len);
    int32_t n_full = keep / table->block_tokens;
    int32_t n_keep = blocks_for(table, keep);
    /* What follows will be written into the partial block: it must be this sequence's alone. */
    if (n_keep > n_full && n_full < seq->n_sealed &&
        !ft_kvpool_unseal(table->pool, seq->blocks[n_full])) {
        n_keep = n_full;
        keep = n_full * table->block_tokens;
    }
    ft_kvpool_give(table->pool, seq->blocks + n_keep, seq->n_blocks - n_keep);
    seq->n_blocks = n_keep;
    seq->len = keep;
    if (seq->n_sealed > n_full)
        seq->n_sealed = n_full;
    while (seq->n_sealed < n_full) {
        int32_t i = seq->n_sealed;
        set_block(table, seq, i, ft_kvpool_seal(table->pool, last_sealed(seq), seq->blocks[i]));
        seq->n_sealed++;
    }
    return keep;
}

/* Share whole blocks of tokens that the cache holds; only where every block so far is sealed and
 * the sequence ends with it. Returns how many blocks were added. */
static int32_t share_cached(struct ft_kvseq_table *table, struct ft_kvseq *seq,
                            const struct ft_kvseq_tokens *tokens) {
    if (seq->n_blocks != seq->n_sealed || seq->len != seq->n_sealed * table->block_tokens)
        return 0;
    int32_t n_max = (tokens->n - tokens->n_compute) / table->block_tokens;
    int32_t n = 0;
    while (n < n_max) {
        int32_t id = ft_kvpool_find(table->pool, last_sealed(seq),
                                    tokens->ids + (size_t)n * (size_t)table->block_tokens);
        if (id == NONE)
            break;
        set_block(table, seq, seq->n_blocks++, id);
        seq->n_sealed++;
        n++;
    }
    return n;
}

enum ft_code ft_kvseq_append(struct ft_kvseq_table *table, struct ft_kvseq *seq,
                             const struct ft_kvseq_tokens *tokens, int32_t *n_hit,
                             struct ft_err *err) {
    int64_t len_all = (int64_t)seq->len + tokens->n + tokens->n_reserve;
    FT_ASSERT(tokens->n >= 0 && tokens->n_reserve >= 0 && len_all <= table->len_max);
    FT_ASSERT(tokens->n_compute >= 0 && tokens->n_compute <= tokens->n);
    int32_t n_shared = share_cached(table, seq, tokens);
    int32_t n_take = blocks_for(table, len_all) - seq->n_blocks;
    if (n_take > 0) {
        enum ft_code code = ft_kvpool_take(table->pool, n_take, seq->blocks + seq->n_blocks, err);
        if (code != FT_OK) {
            seq->n_blocks -= n_shared;
            seq->n_sealed -= n_shared;
            ft_kvpool_give(table->pool, seq->blocks + seq->n_blocks, n_shared);
            return code;
        }
        for (int32_t i = 0; i < n_take; i++, seq->n_blocks++)
            set_block(table, seq, seq->n_blocks, seq->blocks[seq->n_blocks]);
    }
    for (int32_t i = n_shared * table->block_tokens; i < tokens->n; i++) {
        int32_t position = seq->len + i;
        ft_kvpool_tokens(
            table->pool,
            seq->blocks[position / table->block_tokens])[position % table->block_tokens] =
            tokens->ids[i];
    }
    seq->len += tokens->n;
    *n_hit = n_shared * table->block_tokens;
    return FT_OK;
}

static void remove_seq(struct ft_kvseq_table *table, struct ft_kvseq *seq) {
    ft_kvseq_truncate(table, seq, seq->len); /* seals what is full */
    ft_kvpool_give(table->pool, seq->blocks, seq->n_blocks);
    int32_t i = (int32_t)(seq - table->seqs);
    int32_t *link = bucket_of(table, seq->id);
    while (*link != i)
        link = &table->seqs[*link].next;
    *link = seq->next;
    seq->next = table->free_head;
    table->free_head = i;
    table->n_used--;
}

bool ft_kvseq_release(struct ft_kvseq_table *table, uint64_t id) {
    struct ft_kvseq *seq = ft_kvseq_find(table, id);
    if (seq == NULL)
        return false;
    remove_seq(table, seq);
    return true;
}

int32_t ft_kvseq_release_all(struct ft_kvseq_table *table) {
    int32_t n = table->n_used;
    for (uint32_t b = 0; b <= table->bucket_mask; b++)
        while (table->buckets[b] != NONE)
            remove_seq(table, &table->seqs[table->buckets[b]]);
    return n;
}
