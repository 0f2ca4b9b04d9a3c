#include <stdatomic.h>
#include <string.h>

#include "common/base/clock.h"
#include "support/rpc_fixture.h"
#include "support/rpc_main.h"

enum { JOBS = 2000, THREADS = 4 };

static struct job {
    struct ft_rpc_job job;
    int worked, finished;
    int32_t thread;
} g_jobs[JOBS];
static struct ft_rpc_offload *g_offload;
static int g_n_done, g_order[JOBS];
static atomic_bool g_release;

static void create(void) {
    struct ft_err err = {0};
    fx = (struct rpc_fixture){0};
    memset(g_jobs, 0, sizeof g_jobs);
    g_n_done = 0;
    atomic_store(&g_release, false);
    ck_assert_int_eq(ft_rpc_loop_create(&fx.loop, 0, &err), FT_OK);
}

static void destroy(void) {
    ft_rpc_offload_close(&g_offload);
    ft_rpc_offload_close(&g_offload);
    ft_rpc_loop_destroy(&fx.loop);
}

static void start(int32_t n_threads) {
    struct ft_err err = {0};
    ck_assert_msg(ft_rpc_offload_create(&g_offload, fx.loop, n_threads, &err) == FT_OK, "%s",
                  err.text);
}

static void work(void *user, int32_t thread) {
    struct job *job = user;
    job->worked++;
    job->thread = thread;
}

static void done(void *user) {
    struct job *job = user;
    job->finished++;
    g_order[g_n_done++] = (int)(job - g_jobs);
}

static void give(int i, void (*fn)(void *, int32_t)) {
    g_jobs[i].job = (struct ft_rpc_job){.work = fn, .done = done, .user = &g_jobs[i]};
    ft_rpc_offload_give(g_offload, &g_jobs[i].job);
}

START_TEST(every_job_is_worked_and_done_exactly_once) {
    start(THREADS);
    for (int i = 0; i < JOBS; i++)
        give(i, work);
    ck_assert(rpc_wait_int(&g_n_done, JOBS, 20000));
    for (int i = 0; i < JOBS; i++) {
        ck_assert_int_eq(g_jobs[i].worked, 1);
        ck_assert_int_eq(g_jobs[i].finished, 1);
        ck_assert_int_ge(g_jobs[i].thread, 0);
        ck_assert_int_lt(g_jobs[i].thread, THREADS);
    }
    rpc_run_ms(5);
    ck_assert_int_eq(g_n_done, JOBS);
}
END_TEST

START_TEST(one_thread_keeps_the_order) {
    start(1);
    for (int i = 0; i < JOBS; i++)
        give(i, work);
    ck_assert(rpc_wait_int(&g_n_done, JOBS, 20000));
    for (int i = 0; i < JOBS; i++)
        ck_assert_int_eq(g_order[i], i);
}
END_TEST

static void wait_for_release(void *user, int32_t thread) {
    while (!atomic_load(&g_release))
        ;
    work(user, thread);
}

static void count(void *user) {
    ++*(int *)user;
}

/* The loop handles events as long as the job runs, which is until it has. */
START_TEST(loop_goes_on_while_a_job_works) {
    static struct ft_rpc_timer timer;
    int n_fired = 0;
    start(1);
    give(0, wait_for_release);
    for (int i = 0; i < 100; i++) {
        ft_rpc_timer_set(fx.loop, &timer, ft_clock_now_ns(), count, &n_fired);
        ck_assert(rpc_wait_int(&n_fired, i + 1, 5000));
    }
    ck_assert_int_eq(g_n_done, 0);
    atomic_store(&g_release, true);
    ck_assert(rpc_wait_int(&g_n_done, 1, 5000));
}
END_TEST

START_TEST(close_waits_for_jobs_that_run_and_for_those_that_wait) {
    start(2);
    atomic_store(&g_release, true);
    for (int i = 0; i < 100; i++)
        give(i, wait_for_release);
    ft_rpc_offload_close(&g_offload);
    ck_assert_ptr_null(g_offload);
    ck_assert_int_eq(g_n_done, 100);
    for (int i = 0; i < 100; i++)
        ck_assert(g_jobs[i].worked == 1 && g_jobs[i].finished == 1);
}
END_TEST

static int g_n_chain;

static void give_another(void *user) {
    done(user);
    if (++g_n_chain < 50) {
        give(g_n_chain, work);
        g_jobs[g_n_chain].job.done = give_another;
    }
}

START_TEST(job_may_be_given_from_the_end_of_another) {
    start(2);
    g_n_chain = 0;
    g_jobs[0].job = (struct ft_rpc_job){.work = work, .done = give_another, .user = &g_jobs[0]};
    ft_rpc_offload_give(g_offload, &g_jobs[0].job);
    ck_assert(rpc_wait_int(&g_n_chain, 50, 20000));
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("rpc_offload");
    TCase *tc = tcase_create("offload");
    tcase_add_checked_fixture(tc, create, destroy);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, every_job_is_worked_and_done_exactly_once);
    tcase_add_test(tc, one_thread_keeps_the_order);
    tcase_add_test(tc, loop_goes_on_while_a_job_works);
    tcase_add_test(tc, close_waits_for_jobs_that_run_and_for_those_that_wait);
    tcase_add_test(tc, job_may_be_given_from_the_end_of_another);
    suite_add_tcase(s, tc);
    return s;
}
