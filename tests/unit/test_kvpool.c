#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/kv/kvhash.h"
#include "common/kv/kvpool.h"
#include "support/suite.h"

static struct ft_kvpool *make(int32_t n_blocks, int32_t block_tokens, bool caching) {
    struct ft_kvpool_opts opts = {n_blocks, block_tokens, caching, 7};
    struct ft_kvpool *pool = NULL;
    struct ft_err err;
    ck_assert_int_eq(ft_kvpool_create(&pool, &opts, &err), FT_OK);
    return pool;
}

static void fill(struct ft_kvpool *pool, int32_t id, int32_t first) {
    int32_t *tokens = ft_kvpool_tokens(pool, id);
    for (int32_t i = 0; i < ft_kvpool_block_tokens(pool); i++)
        tokens[i] = first + i;
}

START_TEST(create_with_bad_sizes_names_the_option) {
    struct ft_kvpool *pool = NULL;
    struct ft_err err;
    struct ft_kvpool_opts opts = {0, 16, true, 1};
    ck_assert_int_eq(ft_kvpool_create(&pool, &opts, &err), FT_E_PROC_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.text, "n_blocks is 0"));
    opts = (struct ft_kvpool_opts){4, FT_KVPOOL_BLOCK_TOKENS_MAX + 1, true, 1};
    ck_assert_int_eq(ft_kvpool_create(&pool, &opts, &err), FT_E_PROC_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.text, "block_tokens is 16777217"));
    ck_assert_ptr_null(pool);
}
END_TEST

START_TEST(take_more_than_free_takes_nothing) {
    struct ft_kvpool *pool = make(4, 16, true);
    int32_t ids[5] = {-1, -1, -1, -1, -1};
    struct ft_err err;
    ck_assert_int_eq(ft_kvpool_take(pool, 3, ids, &err), FT_OK);
    int32_t more[2] = {-7, -7};
    ck_assert_int_eq(ft_kvpool_take(pool, 2, more, &err), FT_E_SEQ_POOL_EMPTY);
    ck_assert_ptr_nonnull(strstr(err.text, "2 KV blocks are needed, 1 of 4 are free"));
    ck_assert_int_eq(more[0], -7);
    ck_assert_int_eq(ft_kvpool_free(pool), 1);
    ft_kvpool_give(pool, ids, 3);
    ck_assert_int_eq(ft_kvpool_free(pool), 4);
    ck_assert_int_eq(ft_kvpool_cached(pool), 0);
    ft_kvpool_destroy(&pool);
}
END_TEST

START_TEST(seal_then_give_keeps_contents_until_take_needs_them) {
    struct ft_kvpool *pool = make(3, 4, true);
    int32_t ids[3];
    ck_assert_int_eq(ft_kvpool_take(pool, 2, ids, NULL), FT_OK);
    fill(pool, ids[0], 10);
    fill(pool, ids[1], 20);
    ck_assert_int_eq(ft_kvpool_seal(pool, -1, ids[0]), ids[0]);
    ck_assert_int_eq(ft_kvpool_seal(pool, ids[0], ids[1]), ids[1]);
    ft_kvpool_give(pool, ids, 2);
    ck_assert_int_eq(ft_kvpool_free(pool), 1);
    ck_assert_int_eq(ft_kvpool_cached(pool), 2);

    /* Two blocks are taken: the free one, then the child, which is older than its parent. */
    int32_t taken[2];
    ck_assert_int_eq(ft_kvpool_take(pool, 2, taken, NULL), FT_OK);
    ck_assert_int_eq(taken[1], ids[1]);
    int32_t first[4] = {10, 11, 12, 13}, second[4] = {20, 21, 22, 23};
    int32_t hit = ft_kvpool_find(pool, -1, first);
    ck_assert_int_eq(hit, ids[0]);
    ck_assert_int_eq(ft_kvpool_find(pool, hit, second), -1);
    ck_assert_int_eq(ft_kvpool_take(pool, 1, taken, NULL), FT_E_SEQ_POOL_EMPTY);
    ft_kvpool_destroy(&pool);
}
END_TEST

START_TEST(find_compares_tokens_and_all_before_them) {
    struct ft_kvpool *pool = make(8, 2, true);
    int32_t ids[4];
    ck_assert_int_eq(ft_kvpool_take(pool, 4, ids, NULL), FT_OK);
    fill(pool, ids[0], 1); /* 1 2 | 5 6 */
    fill(pool, ids[1], 5);
    fill(pool, ids[2], 3); /* 3 4 | 5 6: the same second block behind another first one */
    fill(pool, ids[3], 5);
    ft_kvpool_seal(pool, -1, ids[0]);
    ft_kvpool_seal(pool, ids[0], ids[1]);
    ft_kvpool_seal(pool, -1, ids[2]);
    ck_assert_int_eq(ft_kvpool_seal(pool, ids[2], ids[3]), ids[3]);
    int32_t five[2] = {5, 6};
    ck_assert_int_eq(ft_kvpool_find(pool, ids[0], five), ids[1]);
    ck_assert_int_eq(ft_kvpool_find(pool, ids[2], five), ids[3]);
    ck_assert_int_eq(ft_kvpool_find(pool, -1, five), -1);
    ck_assert_int_eq(ft_kvpool_refs(pool, ids[1]), 2);
    ft_kvpool_destroy(&pool);
}
END_TEST

struct keyed {
    uint64_t hash;
    int32_t token;
};

static int by_hash(const void *a, const void *b) {
    uint64_t x = ((const struct keyed *)a)->hash, y = ((const struct keyed *)b)->hash;
    return x < y ? -1 : x > y;
}

/* Two blocks of two tokens with the same hash: first tokens whose hashes lie so close that a
 * second token makes up for the difference. */
static void collide(uint64_t seed, int32_t a[2], int32_t b[2]) {
    enum { N = 1 << 19 };
    static struct keyed keyed[N];
    uint64_t root = ft_kvhash_mix(seed);
    for (int32_t i = 0; i < N; i++)
        keyed[i] = (struct keyed){ft_kvhash_next(root, i), i};
    qsort(keyed, N, sizeof keyed[0], by_hash);
    for (int32_t i = 1; i < N; i++) {
        uint64_t gap = keyed[i].hash - keyed[i - 1].hash;
        if (gap >= INT32_MAX)
            continue;
        a[0] = keyed[i].token;
        a[1] = 0;
        b[0] = keyed[i - 1].token;
        b[1] = (int32_t)gap;
        ck_assert_uint_eq(ft_kvhash_next(ft_kvhash_next(root, a[0]), a[1]),
                          ft_kvhash_next(ft_kvhash_next(root, b[0]), b[1]));
        return;
    }
    ck_abort_msg("no collision");
}

START_TEST(find_is_not_fooled_by_equal_hashes) {
    struct ft_kvpool *pool = make(8, 2, true);
    int32_t ids[3], a[2], b[2], child[2] = {5, 6};
    collide(7, a, b); /* the seed of make() */
    ck_assert_int_eq(ft_kvpool_take(pool, 3, ids, NULL), FT_OK);
    memcpy(ft_kvpool_tokens(pool, ids[0]), a, sizeof a);
    memcpy(ft_kvpool_tokens(pool, ids[1]), b, sizeof b);
    memcpy(ft_kvpool_tokens(pool, ids[2]), child, sizeof child);
    ck_assert_int_eq(ft_kvpool_seal(pool, -1, ids[0]), ids[0]);
    ck_assert_int_eq(ft_kvpool_find(pool, -1, b), -1);
    ck_assert_int_eq(ft_kvpool_seal(pool, -1, ids[1]), ids[1]);
    ck_assert_int_eq(ft_kvpool_find(pool, -1, a), ids[0]);
    ck_assert_int_eq(ft_kvpool_find(pool, -1, b), ids[1]);
    /* The same block behind both has the same hash, and is another one. */
    ck_assert_int_eq(ft_kvpool_seal(pool, ids[0], ids[2]), ids[2]);
    ck_assert_int_eq(ft_kvpool_find(pool, ids[1], child), -1);
    ck_assert_int_eq(ft_kvpool_find(pool, ids[0], child), ids[2]);
    ft_kvpool_destroy(&pool);
}
END_TEST

START_TEST(seal_of_a_twin_shares_the_first_and_frees_the_second) {
    struct ft_kvpool *pool = make(2, 4, true);
    int32_t ids[2];
    ck_assert_int_eq(ft_kvpool_take(pool, 2, ids, NULL), FT_OK);
    fill(pool, ids[0], 9);
    fill(pool, ids[1], 9);
    ck_assert_int_eq(ft_kvpool_seal(pool, -1, ids[0]), ids[0]);
    ck_assert_int_eq(ft_kvpool_seal(pool, -1, ids[1]), ids[0]);
    ck_assert_int_eq(ft_kvpool_refs(pool, ids[0]), 2);
    ck_assert_int_eq(ft_kvpool_free(pool), 1);
    ck_assert(!ft_kvpool_unseal(pool, ids[0]));
    ft_kvpool_give(pool, &ids[0], 1);
    ck_assert(ft_kvpool_unseal(pool, ids[0]));
    int32_t tokens[4] = {9, 10, 11, 12};
    ck_assert_int_eq(ft_kvpool_find(pool, -1, tokens), -1);
    ft_kvpool_give(pool, &ids[0], 1);
    ck_assert_int_eq(ft_kvpool_free(pool), 2);
    ft_kvpool_destroy(&pool);
}
END_TEST

START_TEST(unsealed_parent_loses_its_children_even_when_its_id_returns) {
    struct ft_kvpool *pool = make(4, 2, true);
    int32_t ids[2];
    ck_assert_int_eq(ft_kvpool_take(pool, 2, ids, NULL), FT_OK);
    fill(pool, ids[0], 1);
    fill(pool, ids[1], 3);
    ft_kvpool_seal(pool, -1, ids[0]);
    ft_kvpool_seal(pool, ids[0], ids[1]);
    ft_kvpool_give(pool, &ids[1], 1); /* the child is cached now */
    ck_assert(ft_kvpool_unseal(pool, ids[0]));
    fill(pool, ids[0], 50); /* other contents under the same id */
    ck_assert_int_eq(ft_kvpool_seal(pool, -1, ids[0]), ids[0]);
    int32_t child[2] = {3, 4};
    ck_assert_int_eq(ft_kvpool_find(pool, ids[0], child), -1);
    ft_kvpool_destroy(&pool);
}
END_TEST

START_TEST(prefix_caching_off_finds_and_keeps_nothing) {
    struct ft_kvpool *pool = make(2, 2, false);
    int32_t id;
    ck_assert_int_eq(ft_kvpool_take(pool, 1, &id, NULL), FT_OK);
    fill(pool, id, 1);
    ck_assert_int_eq(ft_kvpool_seal(pool, -1, id), id);
    int32_t tokens[2] = {1, 2};
    ck_assert_int_eq(ft_kvpool_find(pool, -1, tokens), -1);
    ft_kvpool_give(pool, &id, 1);
    ck_assert_int_eq(ft_kvpool_free(pool), 2);
    ck_assert_int_eq(ft_kvpool_cached(pool), 0);
    ft_kvpool_destroy(&pool);
}
END_TEST

/* Random take and give against a plain count of owners. */
START_TEST(random_take_and_give_never_lends_a_block_twice) {
    enum { N = 37 };
    struct ft_kvpool *pool = make(N, 4, true);
    bool held[N] = {false};
    int32_t n_held = 0;
    unsigned seed = 12345;
    for (int step = 0; step < 20000; step++) {
        int32_t ids[8];
        int32_t n = (int32_t)(rand_r(&seed) % 8);
        if (rand_r(&seed) % 2 == 0) {
            enum ft_code code = ft_kvpool_take(pool, n, ids, NULL);
            ck_assert_int_eq(code, n <= N - n_held ? FT_OK : FT_E_SEQ_POOL_EMPTY);
            for (int32_t i = 0; code == FT_OK && i < n; i++) {
                ck_assert(!held[ids[i]]);
                held[ids[i]] = true;
                n_held++;
            }
        } else {
            int32_t n_give = 0;
            for (int32_t id = (int32_t)(rand_r(&seed) % N); id < N && n_give < n; id++)
                if (held[id])
                    ids[n_give++] = id;
            for (int32_t i = 0; i < n_give; i++)
                held[ids[i]] = false;
            ft_kvpool_give(pool, ids, n_give);
            n_held -= n_give;
        }
        ck_assert_int_eq(ft_kvpool_free(pool), N - n_held);
    }
    ft_kvpool_destroy(&pool);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kvpool");
    TCase *tc = tcase_create("kvpool");
    tcase_add_test(tc, create_with_bad_sizes_names_the_option);
    tcase_add_test(tc, take_more_than_free_takes_nothing);
    tcase_add_test(tc, seal_then_give_keeps_contents_until_take_needs_them);
    tcase_add_test(tc, find_compares_tokens_and_all_before_them);
    tcase_add_test(tc, find_is_not_fooled_by_equal_hashes);
    tcase_add_test(tc, seal_of_a_twin_shares_the_first_and_frees_the_second);
    tcase_add_test(tc, unsealed_parent_loses_its_children_even_when_its_id_returns);
    tcase_add_test(tc, prefix_caching_off_finds_and_keeps_nothing);
    tcase_add_test(tc, random_take_and_give_never_lends_a_block_twice);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
