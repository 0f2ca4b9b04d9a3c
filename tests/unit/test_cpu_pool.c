#include <check.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/gpu/cpu/pool.h"
#include "support/suite.h"

#define ITEMS_MAX 5000

struct job {
    _Atomic int counts[ITEMS_MAX];
    int32_t n_items, grain;
    _Atomic int n_short; /* pieces below the grain */
};

static void count_items(const void *arg, int32_t begin, int32_t end) {
    struct job *job = *(struct job *const *)arg;
    if (end - begin < job->grain && end != job->n_items)
        atomic_fetch_add(&job->n_short, 1);
    for (int32_t i = begin; i < end; i++)
        atomic_fetch_add(&job->counts[i], 1);
}

static struct ft_pool *make_pool(int32_t n_threads, int32_t spin_us) {
    struct ft_pool *pool = NULL;
    struct ft_err err = {0};
    ck_assert_msg(ft_pool_create(&pool, n_threads, spin_us, &err) == FT_OK, "%s", err.text);
    return pool;
}

static void run_job(struct ft_pool *pool, struct job *job, int32_t n_items, int32_t grain) {
    for (int32_t i = 0; i < ITEMS_MAX; i++)
        atomic_store(&job->counts[i], 0);
    job->n_items = n_items;
    job->grain = grain;
    ft_pool_run(pool, count_items, &job, n_items, grain);
    for (int32_t i = 0; i < ITEMS_MAX; i++)
        if (atomic_load(&job->counts[i]) != (i < n_items))
            ck_abort_msg("item %d of %d ran %d times", i, n_items, atomic_load(&job->counts[i]));
    ck_assert_int_eq(atomic_load(&job->n_short), 0);
}

START_TEST(run_computes_every_item_once) {
    static const int32_t sizes[] = {0, 1, 2, 3, 7, 16, 17, 100, 1279, ITEMS_MAX};
    static const int32_t grains[] = {1, 2, 8, 100, ITEMS_MAX};
    static struct job job;
    for (int32_t n_threads = 0; n_threads <= 5; n_threads++) {
        struct ft_pool *pool = make_pool(n_threads, 50);
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            for (size_t g = 0; g < sizeof grains / sizeof grains[0]; g++)
                run_job(pool, &job, sizes[s], grains[g]);
        ft_pool_destroy(&pool);
        ck_assert_ptr_null(pool);
    }
}
END_TEST

/* Jobs that follow each other at once, and after the threads fell asleep. */
START_TEST(run_after_sleep_and_in_a_row_is_complete) {
    static struct job job;
    struct ft_pool *pool = make_pool(3, 20);
    for (int32_t i = 0; i < 300; i++) {
        run_job(pool, &job, 1 + i * 7 % 200, 1);
        if (i % 50 == 0)
            usleep(2000);
    }
    ft_pool_destroy(&pool);
}
END_TEST

static void nothing(const void *arg, int32_t begin, int32_t end) {
    (void)arg;
    (void)begin;
    (void)end;
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

START_TEST(idle_pool_takes_no_cpu) {
    struct ft_pool *pool = make_pool(2, 100);
    ft_pool_run(pool, nothing, NULL, 1000, 1);
    usleep(20000);
    double before = cpu_seconds();
    usleep(300000);
    ck_assert_double_lt(cpu_seconds() - before, 0.01);
    ft_pool_destroy(&pool);
}
END_TEST

START_TEST(create_leaves_the_callers_affinity_alone) {
    cpu_set_t before, after;
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    struct ft_pool *pool = make_pool(0, 50);
    ck_assert_int_eq(ft_pool_n_threads(pool), CPU_COUNT(&before));
    ft_pool_run(pool, nothing, NULL, 1000, 1);
    ck_assert_int_eq(sched_getaffinity(0, sizeof after, &after), 0);
    ck_assert(CPU_EQUAL(&before, &after));
    ft_pool_destroy(&pool);
}
END_TEST

/* All threads on one core: nobody may wait for a thread that cannot run. */
START_TEST(more_threads_than_cores_still_finish) {
    static struct job job;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    struct ft_pool *pool = make_pool(4, 1000000);
    for (int32_t i = 0; i < 200; i++)
        run_job(pool, &job, 64, 1);
    ft_pool_destroy(&pool);
}
END_TEST

START_TEST(create_with_bad_count_names_value_and_limit) {
    static const int32_t bad[] = {-1, FT_POOL_THREADS_MAX + 1};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ft_pool *pool = NULL;
        struct ft_err err = {0};
        char value[16];
        snprintf(value, sizeof value, " %d,", bad[i]);
        ck_assert_int_eq(ft_pool_create(&pool, bad[i], 50, &err), FT_E_PROC_CONFIG);
        ck_assert_ptr_null(pool);
        ck_assert_msg(strstr(err.text, "n_threads") != NULL && strstr(err.text, value) != NULL &&
                          strstr(err.text, "256") != NULL,
                      "%s", err.text);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cpu_pool");
    TCase *tcase = tcase_create("pool");
    tcase_add_test(tcase, run_computes_every_item_once);
    tcase_add_test(tcase, run_after_sleep_and_in_a_row_is_complete);
    tcase_add_test(tcase, idle_pool_takes_no_cpu);
    tcase_add_test(tcase, create_leaves_the_callers_affinity_alone);
    tcase_add_test(tcase, more_threads_than_cores_still_finish);
    tcase_add_test(tcase, create_with_bad_count_names_value_and_limit);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
