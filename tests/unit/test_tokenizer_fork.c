/* Forks of one tokenizer, each in a thread of its own, give the ids of the original. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/text/tokenizer.h"
#include "support/suite.h"

#define MODEL FT_TEST_SOURCE_DIR "/models/demo-target"

enum { THREADS = 4, TEXTS = 40, LONG = 1 << 16 };

static const struct ft_encode_opts k_opts = {.add_special = true, .parse_special = true};
static struct ft_tokenizer *g_original;
static char g_texts[TEXTS][LONG];
static size_t g_lens[TEXTS];
static struct ft_ids g_wanted[TEXTS];

static void open_original(void) {
    struct ft_err err = {0};
    ck_assert_msg(ft_tokenizer_open(&g_original, MODEL, &err) == FT_OK, "%s", err.text);
}

static void close_original(void) {
    ft_tokenizer_close(&g_original);
}

static struct ft_tokenizer *fork_original(void) {
    struct ft_tokenizer *fork = NULL;
    struct ft_err err = {0};
    ck_assert_msg(ft_tokenizer_fork(&fork, g_original, &err) == FT_OK, "%s", err.text);
    return fork;
}

/* Words of all lengths, digits, spaces and line ends. */
static void make_texts(void) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz     0123456789.,\n'";
    uint32_t h = 7;
    for (int i = 0; i < TEXTS; i++) {
        g_lens[i] = (size_t)LONG >> (i % 12);
        for (size_t j = 0; j < g_lens[i]; j++) {
            h = h * 1664525u + 1013904223u;
            g_texts[i][j] = letters[(h >> 16) % (sizeof letters - 1)];
        }
    }
}

static enum ft_code encode(struct ft_tokenizer *tokenizer, int i, struct ft_ids *out) {
    return ft_tokenizer_encode(tokenizer, (struct ft_str){g_texts[i], g_lens[i]}, &k_opts, out,
                               NULL);
}

/* Returns a static text when something differs. */
static void *compare_all(void *fork) {
    const char *trouble = NULL;
    for (int i = 0; i < TEXTS; i++) {
        struct ft_ids ids = {0};
        if (encode(fork, i, &ids) != FT_OK)
            trouble = "encode fails";
        else if (ids.len != g_wanted[i].len ||
                 memcmp(ids.ptr, g_wanted[i].ptr, ids.len * sizeof *ids.ptr) != 0)
            trouble = "other ids than the original's";
        ft_ids_fini(&ids);
    }
    return (void *)(uintptr_t)trouble;
}

START_TEST(forks_in_threads_give_the_ids_of_the_original) {
    struct ft_tokenizer *forks[THREADS];
    pthread_t threads[THREADS];
    make_texts();
    for (int i = 0; i < TEXTS; i++)
        ck_assert_int_eq(encode(g_original, i, &g_wanted[i]), FT_OK);
    for (int t = 0; t < THREADS; t++) {
        forks[t] = fork_original();
        ck_assert_int_eq(pthread_create(&threads[t], NULL, compare_all, forks[t]), 0);
    }
    const char *trouble = compare_all(g_original); /* meanwhile */
    ck_assert_msg(trouble == NULL, "%s", trouble);
    for (int t = 0; t < THREADS; t++) {
        void *of_thread = NULL;
        pthread_join(threads[t], &of_thread);
        ck_assert_msg(of_thread == NULL, "thread %d: %s", t, (const char *)of_thread);
        ft_tokenizer_close(&forks[t]);
    }
    for (int i = 0; i < TEXTS; i++)
        ft_ids_fini(&g_wanted[i]);
}
END_TEST

static bool after_some(void *left) {
    return --*(int *)left < 0;
}

START_TEST(encode_that_is_told_to_stop_leaves_no_ids) {
    struct ft_tokenizer *fork = fork_original();
    int left = 100;
    int32_t before = 5;
    struct ft_ids ids = {0};
    make_texts();
    ck_assert_int_eq(ft_ids_push(&ids, &before, 1), FT_OK);
    ft_tokenizer_set_stop(fork, after_some, &left);
    ck_assert_int_eq(encode(fork, 0, &ids), FT_E_REQ_CANCELLED);
    ck_assert_uint_eq(ids.len, 1);
    ck_assert_int_eq(left, -1); /* and does no more */
    ft_tokenizer_set_stop(fork, NULL, NULL);
    ck_assert_int_eq(encode(fork, 0, &ids), FT_OK);
    ck_assert_uint_gt(ids.len, 1000);
    ft_ids_fini(&ids);
    ft_tokenizer_close(&fork);
}
END_TEST

START_TEST(fork_that_is_closed_leaves_the_original_whole) {
    struct ft_tokenizer *fork = fork_original();
    struct ft_ids ids = {0}, again = {0};
    make_texts();
    ck_assert_int_eq(encode(fork, 3, &ids), FT_OK);
    ft_tokenizer_close(&fork);
    ck_assert_ptr_null(fork);
    ck_assert_int_eq(encode(g_original, 3, &again), FT_OK);
    ck_assert_uint_eq(ids.len, again.len);
    ck_assert_mem_eq(ids.ptr, again.ptr, ids.len * sizeof *ids.ptr);
    ft_ids_fini(&ids);
    ft_ids_fini(&again);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tokenizer_fork");
    TCase *tc = tcase_create("fork");
    tcase_add_checked_fixture(tc, open_original, close_original);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, forks_in_threads_give_the_ids_of_the_original);
    tcase_add_test(tc, encode_that_is_told_to_stop_leaves_no_ids);
    tcase_add_test(tc, fork_that_is_closed_leaves_the_original_whole);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
