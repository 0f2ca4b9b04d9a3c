#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "support/awake.h"
#include "support/rpc_fixture.h"
#include "support/rpc_main.h"

enum { N_THREADS = 4, N_POSTS = 5000 };

static int g_fired;
static int g_n_order, g_order[4096];
static int g_last[N_THREADS];
static int g_n_signals, g_signals[3];

static void create_spinning(int64_t spin_ns) {
    struct ft_err err = {0};
    fx = (struct rpc_fixture){0};
    g_fired = g_n_order = g_n_signals = 0;
    memset(g_last, 0, sizeof g_last);
    ft_rpc_signals_block();
    ck_assert_int_eq(ft_rpc_loop_create(&fx.loop, spin_ns, &err), FT_OK);
}

static void create(void) {
    create_spinning(0);
}

static void destroy(void) {
    ft_rpc_loop_destroy(&fx.loop);
    ck_assert_ptr_null(fx.loop);
    ft_rpc_loop_destroy(&fx.loop);
}

static void fire(void *user) {
    (void)user;
    g_fired++;
}

START_TEST(step_without_events_returns_at_the_deadline) {
    int64_t awake_ns = ft_awake_ns(), start_ns = ft_clock_now_ns();
    ck_assert_int_eq(ft_rpc_loop_step(fx.loop, start_ns + 30000000), 0);
    ck_assert_int_ge(ft_clock_now_ns() - start_ns, 30000000);
    ck_assert_int_lt(ft_awake_ns() - awake_ns, 500000000);
    ck_assert_int_eq(ft_rpc_loop_step(fx.loop, 0), 0);
}
END_TEST

static void note(void *user) {
    g_order[g_n_order++] = (int)(intptr_t)user;
}

/* ---- watches -------------------------------------------------------------------------------- */

struct watched {
    struct ft_rpc_watch watch;
    int n_left;                    /* things that lie there */
    int n_looks, n_dozes, n_blind; /* n_blind: told to sleep, and not asked once more */
    bool asleep, looked;
};

static bool watched_look(void *user) {
    struct watched *watched = user;
    watched->n_looks++;
    watched->looked = true;
    return watched->n_left > 0 && watched->n_left-- > 0;
}

static void watched_doze(void *user, bool asleep) {
    struct watched *watched = user;
    ck_assert(watched->asleep != asleep);
    if (!asleep && !watched->looked)
        watched->n_blind++;
    watched->asleep = asleep;
    watched->looked = false;
    watched->n_dozes++;
}

static void watched_init(struct watched *watched, int n) {
    *watched = (struct watched){.watch = {watched_look, watched_doze, watched, NULL}, .n_left = n};
    ft_rpc_loop_watch(fx.loop, &watched->watch);
}

START_TEST(watches_are_told_before_the_loop_sleeps_and_asked_once_more) {
    struct watched a, b;
    watched_init(&a, 0);
    watched_init(&b, 0);
    ck_assert_int_eq(ft_rpc_loop_step(fx.loop, ft_clock_now_ns() + 10000000), 0);
    ck_assert(!a.asleep && !b.asleep);
    ck_assert_int_ge(a.n_dozes, 2);
    ck_assert_int_eq(a.n_blind + b.n_blind, 0);
    ft_rpc_loop_unwatch(fx.loop, &a.watch);
    int n_looks = a.n_looks, n_dozes = a.n_dozes;
    ck_assert_int_eq(ft_rpc_loop_step(fx.loop, ft_clock_now_ns() + 1000000), 0);
    ck_assert(a.n_looks == n_looks && a.n_dozes == n_dozes);
    b.n_left = 2;
    ck_assert_int_eq(ft_rpc_loop_step(fx.loop, ft_clock_now_ns() + 10000000), 2);
    ft_rpc_loop_unwatch(fx.loop, &b.watch);
}
END_TEST

START_TEST(a_watch_that_always_has_something_starves_neither_posts_nor_timers) {
    struct watched watched;
    struct ft_rpc_timer timer = {0};
    watched_init(&watched, 1000000);
    ck_assert_int_eq(ft_rpc_loop_post(fx.loop, fire, NULL), FT_OK);
    ck_assert_int_eq(ft_rpc_timer_set(fx.loop, &timer, ft_clock_now_ns(), fire, NULL), FT_OK);
    for (int i = 0; i < 100 && g_fired < 2; i++)
        ft_rpc_loop_step(fx.loop, 0);
    ck_assert_int_eq(g_fired, 2);
    ck_assert_int_gt(watched.n_left, 900000);
    ft_rpc_loop_unwatch(fx.loop, &watched.watch);
}
END_TEST

START_TEST(timers_fire_in_order_of_time) {
    enum { N = 2000 };
    static struct ft_rpc_timer timers[N];
    int64_t base_ns = ft_clock_now_ns();
    uint32_t x = 12345;
    for (int i = 0; i < N; i++) {
        x = x * 1664525u + 1013904223u;
        ck_assert_int_eq(
            ft_rpc_timer_set(fx.loop, &timers[i], base_ns + (x >> 8), note, (void *)(intptr_t)i),
            FT_OK);
    }
    for (int i = 0; i < N; i += 3)
        ft_rpc_timer_cancel(fx.loop, &timers[i]);
    for (int i = 1; i < N; i += 3) /* a second set moves the timer */
        ft_rpc_timer_set(fx.loop, &timers[i], base_ns + i, note, (void *)(intptr_t)i);
    int n_wanted = N - (N + 2) / 3;
    ck_assert(rpc_wait_int(&g_n_order, n_wanted, 5000));
    for (int i = 1; i < n_wanted; i++)
        ck_assert_int_le(timers[g_order[i - 1]].at_ns, timers[g_order[i]].at_ns);
    for (int i = 0; i < n_wanted; i++) {
        ck_assert_int_ne(g_order[i] % 3, 0);
        ck_assert_uint_eq(timers[g_order[i]].heap_idx, 0);
    }
    ft_rpc_timer_cancel(fx.loop, &timers[0]); /* not set: nothing happens */
    rpc_run_ms(30);
    ck_assert_int_eq(g_n_order, n_wanted);
}
END_TEST

static struct ft_rpc_timer g_again;
static void set_again(void *user) {
    g_fired++;
    if (g_fired < 100)
        ft_rpc_timer_set(fx.loop, &g_again, 0, set_again, user);
}

START_TEST(timer_that_sets_itself_in_the_past_does_not_starve_the_loop) {
    ft_rpc_timer_set(fx.loop, &g_again, 0, set_again, NULL);
    for (int i = 0; i < 2; i++)
        ck_assert_int_gt(ft_rpc_loop_step(fx.loop, rpc_in_ms(100)), 0);
    ck_assert_int_le(g_fired, 2 * 64);
    ck_assert(rpc_wait_int(&g_fired, 100, 10000));
}
END_TEST

static struct ft_rpc_timer g_victim;
static void cancel_victim(void *user) {
    (void)user;
    ft_rpc_timer_cancel(fx.loop, &g_victim);
}

START_TEST(timer_cancelled_by_another_that_is_due_does_not_fire) {
    static struct ft_rpc_timer first;
    ft_rpc_timer_set(fx.loop, &first, 1, cancel_victim, NULL);
    ft_rpc_timer_set(fx.loop, &g_victim, 2, fire, NULL);
    rpc_run_ms(20);
    ck_assert_int_eq(g_fired, 0);
}
END_TEST

START_TEST(blocking_wait_wakes_for_a_timer) {
    static struct ft_rpc_timer timer;
    int64_t awake_ns = ft_awake_ns(), at_ns = rpc_in_ms(40);
    ft_rpc_timer_set(fx.loop, &timer, at_ns, fire, NULL);
    ck_assert_int_eq(ft_rpc_loop_step(fx.loop, INT64_MAX), 1);
    ck_assert_int_eq(g_fired, 1);
    ck_assert_int_ge(ft_clock_now_ns(), at_ns);
    ck_assert_int_lt(ft_awake_ns() - awake_ns, 500000000);
}
END_TEST

static void posted(void *user) {
    int value = (int)(intptr_t)user;
    int thread = value / N_POSTS;
    ck_assert_int_eq(value % N_POSTS, g_last[thread]);
    g_last[thread]++;
    g_fired++;
}

static void *post_many(void *user) {
    int thread = (int)(intptr_t)user;
    for (int i = 0; i < N_POSTS; i++)
        while (ft_rpc_loop_post(fx.loop, posted, (void *)(intptr_t)(thread * N_POSTS + i)) != FT_OK)
            usleep(100);
    return NULL;
}

START_TEST(posts_from_threads_arrive_once_and_in_order) {
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        pthread_create(&threads[i], NULL, post_many, (void *)(intptr_t)i);
    ck_assert(rpc_wait_int(&g_fired, N_THREADS * N_POSTS, 30000));
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
}
END_TEST

static void *post_later(void *user) {
    usleep(30000);
    ft_rpc_loop_post(fx.loop, fire, user);
    return NULL;
}

START_TEST(post_wakes_a_blocked_loop) {
    for (int64_t spin_ns = 0; spin_ns <= 100000000; spin_ns += 100000000) {
        ft_rpc_loop_destroy(&fx.loop);
        create_spinning(spin_ns); /* blocked, and spinning */
        pthread_t thread;
        pthread_create(&thread, NULL, post_later, NULL);
        ck_assert_int_eq(ft_rpc_loop_step(fx.loop, INT64_MAX), 1);
        ck_assert_int_eq(g_fired, 1);
        pthread_join(thread, NULL);
    }
}
END_TEST

static void run_nested(void *user) {
    (void)user;
    ft_rpc_loop_post(fx.loop, fire, NULL);
    ck_assert(rpc_wait_int(&g_fired, 1, 10000));
}

START_TEST(closure_may_run_the_loop) {
    ft_rpc_loop_post(fx.loop, run_nested, NULL);
    ft_rpc_loop_step(fx.loop, rpc_in_ms(1000));
    ck_assert_int_eq(g_fired, 1);
}
END_TEST

START_TEST(posts_that_were_not_handled_run_at_destroy) {
    ft_rpc_loop_post(fx.loop, fire, NULL);
    ft_rpc_loop_destroy(&fx.loop);
    ck_assert_int_eq(g_fired, 1);
}
END_TEST

START_TEST(posts_past_the_limit_are_refused) {
    enum ft_code code = FT_OK;
    int n = 0;
    for (; n < 1000000 && code == FT_OK; n++)
        code = ft_rpc_loop_post(fx.loop, fire, NULL);
    ck_assert_int_eq(code, FT_E_REQ_EXHAUSTED);
    ck_assert(rpc_wait_int(&g_fired, n - 1, 5000));
    ck_assert_int_eq(ft_rpc_loop_post(fx.loop, fire, NULL), FT_OK);
}
END_TEST

static void stop(void *user) {
    ft_rpc_loop_stop(user);
}

START_TEST(run_returns_after_stop) {
    static struct ft_rpc_timer timer;
    ft_rpc_timer_set(fx.loop, &timer, rpc_in_ms(20), stop, fx.loop);
    ft_rpc_loop_run(fx.loop);
    ft_rpc_loop_stop(fx.loop);
    ft_rpc_loop_run(fx.loop); /* stopped before it ran */
    ft_rpc_timer_set(fx.loop, &timer, rpc_in_ms(20), stop, fx.loop);
    ft_rpc_loop_run(fx.loop); /* the stop is used up */
    ck_assert_int_ge(ft_clock_now_ns(), timer.at_ns);
}
END_TEST

static void on_signal(void *user, int signo) {
    ck_assert_ptr_eq(user, g_signals);
    g_signals[g_n_signals++] = signo;
}

START_TEST(signals_are_delivered_on_the_loop) {
    static const int sent[] = {SIGHUP, SIGTERM, SIGINT};
    struct ft_err err = {0};
    ck_assert_int_eq(ft_rpc_loop_on_signal(fx.loop, on_signal, g_signals, &err), FT_OK);
    for (int i = 0; i < 3; i++) {
        kill(getpid(), sent[i]);
        ck_assert(rpc_wait_int(&g_n_signals, i + 1, 10000));
        ck_assert_int_eq(g_signals[i], sent[i]);
    }
}
END_TEST

/* No signal waits to be read any more. The thread that reads posts right behind that. */
static bool signal_was_taken(int signo) {
    sigset_t pending;
    for (int i = 0; i < 5000; i++) {
        sigpending(&pending);
        if (!sigismember(&pending, signo)) {
            usleep(20000);
            return true;
        }
        usleep(1000);
    }
    return false;
}

START_TEST(signal_behind_the_last_step_is_dropped) {
    struct ft_err err = {0};
    ck_assert_int_eq(ft_rpc_loop_on_signal(fx.loop, on_signal, g_signals, &err), FT_OK);
    kill(getpid(), SIGTERM);
    ck_assert(signal_was_taken(SIGTERM));
    ft_rpc_loop_post(fx.loop, fire, NULL);
    ft_rpc_loop_destroy(&fx.loop);
    ck_assert_int_eq(g_fired, 1);
    ck_assert_int_eq(g_n_signals, 0);
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("rpc_loop");
    TCase *t = tcase_create("loop");
    tcase_add_checked_fixture(t, create, destroy);
    tcase_add_test(t, step_without_events_returns_at_the_deadline);
    tcase_add_test(t, watches_are_told_before_the_loop_sleeps_and_asked_once_more);
    tcase_add_test(t, a_watch_that_always_has_something_starves_neither_posts_nor_timers);
    tcase_add_test(t, timers_fire_in_order_of_time);
    tcase_add_test(t, timer_that_sets_itself_in_the_past_does_not_starve_the_loop);
    tcase_add_test(t, timer_cancelled_by_another_that_is_due_does_not_fire);
    tcase_add_test(t, blocking_wait_wakes_for_a_timer);
    tcase_add_test(t, posts_from_threads_arrive_once_and_in_order);
    tcase_add_test(t, post_wakes_a_blocked_loop);
    tcase_add_test(t, closure_may_run_the_loop);
    tcase_add_test(t, posts_that_were_not_handled_run_at_destroy);
    tcase_add_test(t, posts_past_the_limit_are_refused);
    tcase_add_test(t, run_returns_after_stop);
    tcase_add_test(t, signals_are_delivered_on_the_loop);
    tcase_add_test(t, signal_behind_the_last_step_is_dropped);
    suite_add_tcase(s, t);
    return s;
}
