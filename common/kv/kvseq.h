/* kvseq: the sequences of one worker: which blocks hold which positions of which tokens.
 * Owns:    the block tables; holds blocks of the pool until truncate or release.
 * Runs in: draft_worker, target_worker; loop thread only.
 * Never:   allocates after create; touches KV memory; writes into a block that is sealed. */
#ifndef FT_KV_KVSEQ_H
#define FT_KV_KVSEQ_H

#include "common/kv/kvpool.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_kvseq;
struct ft_kvseq_table;

struct ft_kvseq_opts {
    struct ft_kvpool *pool; /* borrowed; must outlive the table */
    int32_t n_max;          /* sequences at one time */
    int32_t len_max;        /* positions of one sequence */
    int32_t page_tokens;    /* of KV memory, a divisor of the pool's block_tokens (kvlayout.h);
                               0: a block is a page */
};

/* fail FT_E_PROC_CONFIG names the option; FT_E_PROC_MEMORY */
enum ft_code ft_kvseq_create(struct ft_kvseq_table **out, const struct ft_kvseq_opts *opts,
                             struct ft_err *err);
void ft_kvseq_destroy(struct ft_kvseq_table **table); /* releases every sequence */

int32_t ft_kvseq_count(const struct ft_kvseq_table *table);
/* NULL when there is none. Pointers stay good until the sequence is released. */
struct ft_kvseq *ft_kvseq_find(const struct ft_kvseq_table *table, uint64_t id);
/* A new, empty sequence; id must be unknown. fail FT_E_SEQ_POOL_EMPTY: the table is full */
enum ft_code ft_kvseq_add(struct ft_kvseq_table *table, uint64_t id, struct ft_kvseq **out,
                          struct ft_err *err);

int32_t ft_kvseq_len(const struct ft_kvseq *seq); /* positions held */
/* Page table: position i lies in pages[i / page_tokens] of KV memory. */
const int32_t *ft_kvseq_pages(const struct ft_kvseq *seq);
int32_t ft_kvseq_n_blocks(const struct ft_kvseq *seq);
/* Token ids of all positions, [len]. */
void ft_kvseq_copy_tokens(const struct ft_kvseq_table *table, const struct ft_kvseq *seq,
                          int32_t *out);

/* A number of the caller's, 0 at first: the step that last named the sequence. */
uint64_t ft_kvseq_stamp(const struct ft_kvseq *seq);
void ft_kvseq_set_stamp(struct ft_kvseq *seq, uint64_t stamp);

/* Keep the first `keep` positions, 0 .. len: gives back whole blocks past them, keeps the partial
 * last one, and seals the full ones, so that other sequences can find them. Returns the length
 * held now: keep, or, when the partial block is shared and therefore may not be written, the start
 * of that block. Everything kept must have been computed. */
int32_t ft_kvseq_truncate(struct ft_kvseq_table *table, struct ft_kvseq *seq, int32_t keep);

struct ft_kvseq_tokens {
    const int32_t *ids; /* [n] */
    int32_t n;
    int32_t n_compute; /* 0 .. n: the last so many must be computed, whatever the cache holds */
    int32_t n_reserve; /* positions to reserve behind them, for later appends */
};

/* Append tokens: takes ceil((len + n + n_reserve) / block_tokens) blocks in all, or none; whole
 * leading blocks that the cache holds are shared instead of taken.
 * out   n_hit  of the n tokens, the first so many are computed already; a multiple of
 *              block_tokens, at most n - n_compute
 * fail  FT_E_SEQ_POOL_EMPTY: sequence and pool unchanged. len + n + n_reserve past len_max is a
 *       programmer error. */
enum ft_code ft_kvseq_append(struct ft_kvseq_table *table, struct ft_kvseq *seq,
                             const struct ft_kvseq_tokens *tokens, int32_t *n_hit,
                             struct ft_err *err);

/* Give back everything; full blocks stay in the cache. False when id is unknown. */
bool ft_kvseq_release(struct ft_kvseq_table *table, uint64_t id);
int32_t ft_kvseq_release_all(struct ft_kvseq_table *table); /* returns how many there were */

#ifdef __cplusplus
}
#endif
#endif
