#include <check.h>
#include <stdlib.h>

#include "common/kv/kvlayout.h"
#include "common/kv/kvseq.h"
#include "support/suite.h"

/* KV memory stands in as one number per slot: a hash of every token up to that position. Reading
 * it back tells whether anything was written over, or shared that should not have been. */
enum { N_SEQS = 6, LEN_MAX = 96, N_BLOCKS_MAX = 600 };

struct world {
    struct ft_kvpool *pool;
    struct ft_kvseq_table *table;
    int32_t block_tokens, page_tokens;
    uint64_t kv[N_BLOCKS_MAX * 16];
    struct {
        int32_t tokens[LEN_MAX];
        int32_t len; /* -1: no such sequence */
    } model[N_SEQS];
};

/* Blocks of several pages. */
static void world_open_pages(struct world *w, int32_t n_blocks, int32_t block_tokens,
                             int32_t page_tokens, bool caching) {
    struct ft_kvpool_opts opts = {n_blocks, block_tokens, caching, 99};
    ck_assert_int_le(n_blocks * block_tokens, N_BLOCKS_MAX * 16);
    ck_assert_int_eq(ft_kvpool_create(&w->pool, &opts, NULL), FT_OK);
    struct ft_kvseq_opts seq_opts = {w->pool, N_SEQS, LEN_MAX, page_tokens};
    ck_assert_int_eq(ft_kvseq_create(&w->table, &seq_opts, NULL), FT_OK);
    w->block_tokens = block_tokens;
    w->page_tokens = page_tokens;
    for (int i = 0; i < N_SEQS; i++)
        w->model[i].len = -1;
}

static void world_open(struct world *w, int32_t n_blocks, int32_t block_tokens, bool caching) {
    world_open_pages(w, n_blocks, block_tokens, block_tokens, caching);
}

static void world_close(struct world *w) {
    ft_kvseq_destroy(&w->table);
    ck_assert_int_eq(ft_kvpool_free(w->pool) + ft_kvpool_cached(w->pool), ft_kvpool_total(w->pool));
    ft_kvpool_destroy(&w->pool);
}

static uint64_t *slot(struct world *w, const struct ft_kvseq *seq, int32_t position) {
    int32_t page = ft_kvseq_pages(seq)[position / w->page_tokens];
    return &w->kv[page * w->page_tokens + position % w->page_tokens];
}

static uint64_t chain(uint64_t h, int32_t token) {
    return (h ^ (uint64_t)token) * UINT64_C(1099511628211);
}

static uint64_t history(const int32_t *tokens, int32_t position) {
    uint64_t h = 1;
    for (int32_t i = 0; i <= position; i++)
        h = chain(h, tokens[i]);
    return h;
}

static void check_all(struct world *w) {
    for (int i = 0; i < N_SEQS; i++) {
        const struct ft_kvseq *seq = ft_kvseq_find(w->table, (uint64_t)i * 1000);
        ck_assert((seq != NULL) == (w->model[i].len >= 0));
        if (seq == NULL)
            continue;
        ck_assert_int_eq(ft_kvseq_len(seq), w->model[i].len);
        int32_t held[LEN_MAX];
        ft_kvseq_copy_tokens(w->table, seq, held);
        uint64_t h = 1;
        for (int32_t p = 0; p < w->model[i].len; p++) {
            h = chain(h, w->model[i].tokens[p]);
            if (held[p] != w->model[i].tokens[p] || *slot(w, seq, p) != h)
                ck_abort_msg("sequence %d, position %d: another one's KV", i, p);
        }
    }
}

/* Appends and "computes"; returns the code, *hit the shared positions. */
static enum ft_code append(struct world *w, int i, const struct ft_kvseq_tokens *in, int32_t *hit) {
    struct ft_kvseq *seq = ft_kvseq_find(w->table, (uint64_t)i * 1000);
    int32_t start = ft_kvseq_len(seq);
    struct ft_err err;
    enum ft_code code = ft_kvseq_append(w->table, seq, in, hit, &err);
    if (code != FT_OK)
        return code;
    ck_assert_int_le(*hit, in->n - in->n_compute);
    for (int32_t k = 0; k < in->n; k++)
        w->model[i].tokens[start + k] = in->ids[k];
    w->model[i].len = start + in->n;
    for (int32_t p = start + *hit; p < start + in->n; p++)
        *slot(w, seq, p) = history(w->model[i].tokens, p);
    return FT_OK;
}

static void add(struct world *w, int i) {
    struct ft_kvseq *seq = NULL;
    ck_assert_int_eq(ft_kvseq_add(w->table, (uint64_t)i * 1000, &seq, NULL), FT_OK);
    w->model[i].len = 0;
}

static void truncate_to(struct world *w, int i, int32_t keep) {
    struct ft_kvseq *seq = ft_kvseq_find(w->table, (uint64_t)i * 1000);
    int32_t held = ft_kvseq_truncate(w->table, seq, keep);
    ck_assert(held == keep || (held == keep / w->block_tokens * w->block_tokens && held < keep));
    w->model[i].len = held;
}

static void run_random_pages(int32_t n_blocks, int32_t block_tokens, int32_t page_tokens,
                             bool caching, unsigned seed) {
    static struct world world;
    struct world *w = &world;
    world_open_pages(w, n_blocks, block_tokens, page_tokens, caching);
    int64_t n_hits = 0, n_empty = 0;
    for (int step = 0; step < 4000; step++) {
        int i = (int)((unsigned)rand_r(&seed) % N_SEQS);
        int op = (int)((unsigned)rand_r(&seed) % 10);
        if (w->model[i].len < 0) {
            add(w, i);
        } else if (op == 0) {
            ck_assert(ft_kvseq_release(w->table, (uint64_t)i * 1000));
            w->model[i].len = -1;
        } else if (op < 4) {
            truncate_to(w, i, (int32_t)((unsigned)rand_r(&seed) % (unsigned)(w->model[i].len + 1)));
        } else {
            /* Two symbols and runs of them, so that prefixes meet often. */
            int32_t ids[LEN_MAX], hit = 0;
            truncate_to(w, i, w->model[i].len);
            int32_t room = LEN_MAX - w->model[i].len;
            int32_t n = room == 0 ? 0 : (int32_t)((unsigned)rand_r(&seed) % (unsigned)(room + 1));
            int32_t odd = (int32_t)((unsigned)rand_r(&seed) % 200);
            for (int32_t k = 0; k < n; k++)
                ids[k] = k == odd ? 1 : 0;
            int32_t n_compute = n == 0 ? 0 : 1 + (int32_t)((unsigned)rand_r(&seed) % (unsigned)n);
            int32_t reserve = room == n ? 0 : (int32_t)((unsigned)rand_r(&seed) % 3) % (room - n);
            struct ft_kvseq_tokens in = {ids, n, op < 8 && n > 0 ? 1 : n_compute, reserve};
            int32_t available = ft_kvpool_free(w->pool) + ft_kvpool_cached(w->pool);
            if (append(w, i, &in, &hit) != FT_OK) {
                n_empty++;
                ck_assert_int_eq(ft_kvpool_free(w->pool) + ft_kvpool_cached(w->pool), available);
            }
            n_hits += hit;
        }
        check_all(w);
    }
    ck_assert((n_hits > 0) == caching);
    ck_assert_int_gt(n_empty, 0);
    world_close(w);
}

static void run_random(int32_t n_blocks, int32_t block_tokens, bool caching, unsigned seed) {
    run_random_pages(n_blocks, block_tokens, block_tokens, caching, seed);
}

START_TEST(random_operations_match_a_naive_model) {
    run_random(20, 16, true, 1);
    run_random(20, 16, false, 2);
    run_random(70, 4, true, 3);
    run_random(70, 4, false, 4);
    run_random(300, 1, true, 5);
    run_random(300, 1, false, 6);
}
END_TEST

/* Slots: a sequence is one block. Blocks of two pages can still be shared. */
START_TEST(random_operations_in_blocks_of_pages_match_a_naive_model) {
    const struct ft_kvlayout *slotted = ft_kvlayout_find("slotted");
    ck_assert_int_eq(slotted->block_tokens(LEN_MAX, 16), LEN_MAX);
    ck_assert_int_eq(slotted->block_tokens(LEN_MAX - 1, 16), LEN_MAX);
    ck_assert_int_eq(slotted->block_tokens(LEN_MAX + 1, 16), LEN_MAX + 16);
    run_random_pages(4, slotted->block_tokens(LEN_MAX, 16), 16, false, 7);
    run_random_pages(5, slotted->block_tokens(LEN_MAX, 1), 1, false, 8);
    run_random_pages(9, 32, 16, true, 9);
    run_random_pages(30, 8, 4, true, 10);
}
END_TEST

START_TEST(slot_is_one_piece_of_memory_from_the_first_token_on) {
    static struct world w;
    world_open_pages(&w, 3, LEN_MAX, 16, false);
    for (int i = 0; i < 3; i++) {
        int32_t ids[LEN_MAX] = {0}, hit;
        add(&w, i);
        struct ft_kvseq_tokens in = {ids, 1, 1, 0};
        ck_assert_int_eq(append(&w, i, &in, &hit), FT_OK);
        ck_assert_int_eq(ft_kvpool_free(w.pool), 2 - i);
        in.n = LEN_MAX - 1; /* it grows without asking the pool */
        ck_assert_int_eq(append(&w, i, &in, &hit), FT_OK);
        ck_assert_int_eq(ft_kvpool_free(w.pool), 2 - i);
        const int32_t *pages = ft_kvseq_pages(ft_kvseq_find(w.table, (uint64_t)i * 1000));
        ck_assert_int_eq(pages[0] % (LEN_MAX / 16), 0);
        for (int32_t p = 1; p < LEN_MAX / 16; p++)
            ck_assert_int_eq(pages[p], pages[0] + p);
        check_all(&w);
    }
    world_close(&w);
}
END_TEST

START_TEST(truncate_keeps_the_partial_block) {
    static struct world w;
    world_open(&w, 8, 16, true);
    add(&w, 0);
    int32_t ids[40] = {0}, hit;
    for (int i = 0; i < 40; i++)
        ids[i] = i;
    struct ft_kvseq_tokens in = {ids, 40, 1, 0};
    ck_assert_int_eq(append(&w, 0, &in, &hit), FT_OK);
    struct ft_kvseq *seq = ft_kvseq_find(w.table, 0);
    int32_t second = ft_kvseq_pages(seq)[1];
    ck_assert_int_eq(ft_kvseq_truncate(w.table, seq, 17), 17);
    ck_assert_int_eq(ft_kvseq_n_blocks(seq), 2);
    ck_assert_int_eq(ft_kvseq_pages(seq)[1], second);
    ck_assert_int_eq(ft_kvseq_truncate(w.table, seq, 16), 16);
    ck_assert_int_eq(ft_kvseq_n_blocks(seq), 1);
    ck_assert_int_eq(ft_kvseq_truncate(w.table, seq, 0), 0);
    ck_assert_int_eq(ft_kvseq_n_blocks(seq), 0);
    w.model[0].len = 0;
    world_close(&w);
}
END_TEST

/* A reservation that assumes one token per step writes past the block table. */
START_TEST(dev08_append_reserves_every_block_it_crosses) {
    static const int32_t sizes[] = {1, 4, 16};
    for (size_t s = 0; s < 3; s++) {
        for (int32_t len = 1; len <= 33; len++) {
            for (int32_t k = 1; k <= 16; k++) {
                static struct world w;
                int32_t bt = sizes[s];
                int32_t need = (len + k + 1 + bt - 1) / bt;
                world_open(&w, need, bt, true);
                add(&w, 0);
                int32_t ids[LEN_MAX] = {0}, hit;
                struct ft_kvseq_tokens prompt = {ids, len, 1, 0};
                struct ft_kvseq_tokens round = {ids, k + 1, k + 1, 0};
                struct ft_kvseq_tokens more = {ids, bt, bt, 0};
                ck_assert_int_eq(append(&w, 0, &prompt, &hit), FT_OK);
                ck_assert_int_eq(append(&w, 0, &round, &hit), FT_OK);
                ck_assert_int_eq(ft_kvseq_n_blocks(ft_kvseq_find(w.table, 0)), need);
                ck_assert_int_eq(append(&w, 0, &more, &hit), FT_E_SEQ_POOL_EMPTY);
                check_all(&w);
                world_close(&w);
            }
        }
    }
}
END_TEST

START_TEST(reserve_makes_later_appends_certain) {
    static struct world w;
    world_open(&w, 3, 16, true);
    add(&w, 0);
    add(&w, 1);
    int32_t ids[48] = {0}, hit;
    struct ft_kvseq_tokens first = {ids, 15, 1, 20};
    ck_assert_int_eq(append(&w, 0, &first, &hit), FT_OK);
    struct ft_kvseq_tokens other = {ids, 1, 1, 0};
    ck_assert_int_eq(append(&w, 1, &other, &hit), FT_E_SEQ_POOL_EMPTY);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(append(&w, 0, &other, &hit), FT_OK);
    ck_assert_int_eq(ft_kvseq_len(ft_kvseq_find(w.table, 0)), 35);
    world_close(&w);
}
END_TEST

START_TEST(dev24_whole_prompt_cached_leaves_tokens_to_compute) {
    for (int32_t len = 1; len <= 64; len++) {
        static struct world w;
        world_open(&w, 16, 16, true);
        int32_t ids[64], hit = -1;
        for (int i = 0; i < 64; i++)
            ids[i] = 100 + i;
        struct ft_kvseq_tokens in = {ids, len, 1, 0};
        add(&w, 0);
        ck_assert_int_eq(append(&w, 0, &in, &hit), FT_OK);
        ck_assert_int_eq(hit, 0);
        truncate_to(&w, 0, len);
        add(&w, 1);
        ck_assert_int_eq(append(&w, 1, &in, &hit), FT_OK);
        ck_assert_int_eq(hit, (len - 1) / 16 * 16);
        check_all(&w);
        truncate_to(&w, 1, len); /* the last block meets its twin */
        check_all(&w);
        world_close(&w);
    }
}
END_TEST

START_TEST(dev06_truncate_into_a_shared_block_never_writes_it) {
    static struct world w;
    world_open(&w, 16, 16, true);
    int32_t ids[33], hit;
    for (int i = 0; i < 33; i++)
        ids[i] = i;
    struct ft_kvseq_tokens in = {ids, 33, 1, 0};
    for (int i = 0; i < 2; i++) {
        add(&w, i);
        ck_assert_int_eq(append(&w, i, &in, &hit), FT_OK);
        truncate_to(&w, i, 33);
    }
    ck_assert_int_eq(hit, 32);
    struct ft_kvseq *seq = ft_kvseq_find(w.table, 1000);
    ck_assert_int_eq(ft_kvseq_truncate(w.table, seq, 20), 16); /* shared: the block is dropped */
    w.model[1].len = 16;
    int32_t other[10] = {77, 77, 77};
    struct ft_kvseq_tokens more = {other, 10, 1, 0};
    ck_assert_int_eq(append(&w, 1, &more, &hit), FT_OK);
    check_all(&w);
    /* Alone with its blocks the same truncate keeps the partial one. */
    ck_assert_int_eq(ft_kvseq_truncate(w.table, ft_kvseq_find(w.table, 0), 20), 20);
    w.model[0].len = 20;
    ck_assert_int_eq(append(&w, 0, &more, &hit), FT_OK);
    check_all(&w);
    world_close(&w);
}
END_TEST

START_TEST(add_past_the_table_fails_and_release_makes_room) {
    static struct world w;
    world_open(&w, 4, 16, true);
    for (int i = 0; i < N_SEQS; i++)
        add(&w, i);
    struct ft_kvseq *seq = NULL;
    struct ft_err err;
    ck_assert_int_eq(ft_kvseq_add(w.table, 5, &seq, &err), FT_E_SEQ_POOL_EMPTY);
    ck_assert(!ft_kvseq_release(w.table, 5));
    ck_assert(ft_kvseq_release(w.table, 2000));
    ck_assert_int_eq(ft_kvseq_add(w.table, 5, &seq, &err), FT_OK);
    ck_assert_int_eq(ft_kvseq_release_all(w.table), N_SEQS);
    ck_assert_int_eq(ft_kvseq_count(w.table), 0);
    world_close(&w);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kvseq");
    TCase *tc = tcase_create("kvseq");
    tcase_add_test(tc, random_operations_match_a_naive_model);
    tcase_add_test(tc, random_operations_in_blocks_of_pages_match_a_naive_model);
    tcase_add_test(tc, slot_is_one_piece_of_memory_from_the_first_token_on);
    tcase_add_test(tc, truncate_keeps_the_partial_block);
    tcase_add_test(tc, dev08_append_reserves_every_block_it_crosses);
    tcase_add_test(tc, reserve_makes_later_appends_certain);
    tcase_add_test(tc, dev24_whole_prompt_cached_leaves_tokens_to_compute);
    tcase_add_test(tc, dev06_truncate_into_a_shared_block_never_writes_it);
    tcase_add_test(tc, add_past_the_table_fails_and_release_makes_room);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
