#include "common/gpu/cpu/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/clock.h"

/* A job is cut into tickets: first one large piece per thread, which keeps memory streams long,
 * then small ones, which even out threads that run at different speed. Whoever is free takes the
 * next ticket, so a thread that sleeps or lost its core is not waited for. */
#define LARGE_PERCENT 70
#define SMALL_PER_THREAD 8

/* How long the caller looks for the last pieces before it sleeps. */
#define JOIN_SPIN_US 100

struct ft_pool {
    /* generation << 32 | number of tickets << 16 | next ticket. One word, so that a late thread
     * can never take a ticket of a job it has not seen. */
    _Alignas(64) _Atomic uint64_t word;
    _Alignas(64) _Atomic uint32_t n_done; /* tickets; also what a sleeping caller waits on */
    _Atomic uint32_t caller_sleeps;
    _Alignas(64) _Atomic uint32_t n_asleep; /* threads at or near their futex */
    _Atomic uint32_t wakeups;               /* what they wait on */
    _Atomic uint32_t stop;

    /* The job; written before word is, read by holders of its tickets only. */
    _Alignas(64) ft_pool_fn fn;
    const void *arg;
    int32_t n_items, large, small;
    int32_t n_large;

    uint32_t generation;
    int32_t n_threads; /* the caller included */
    int32_t spin_us;   /* 0 where threads outnumber cores: spinning would hold up the work */
    int32_t join_spin_us;
    int32_t n_started;
    pthread_t threads[FT_POOL_THREADS_MAX];
    int32_t n_cores;
    int cores[CPU_SETSIZE];
    int caller_core; /* where the caller ran when the threads were placed; -1: not placed */
};

/* Tell the core that the loop waits for another one. */
#if defined(__x86_64__)
static void relax(void) {
    __builtin_ia32_pause();
}
#else
static void relax(void) {
}
#endif

static void futex_wait(_Atomic uint32_t *word, uint32_t seen) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static bool has_ticket(uint64_t word) {
    return (word & 0xFFFF) < ((word >> 16) & 0xFFFF);
}

static int32_t min32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static void run_ticket(struct ft_pool *pool, int32_t ticket) {
    int32_t begin, end;
    if (ticket < pool->n_large) {
        begin = ticket * pool->large;
        end = begin + pool->large;
    } else {
        begin = pool->n_large * pool->large + (ticket - pool->n_large) * pool->small;
        end = min32(begin + pool->small, pool->n_items);
    }
    pool->fn(pool->arg, begin, end);
}

/* Take and run tickets until there are none. */
static void work(struct ft_pool *pool) {
    uint64_t word = atomic_load(&pool->word);
    while (has_ticket(word)) {
        if (!atomic_compare_exchange_weak(&pool->word, &word, word + 1))
            continue;
        run_ticket(pool, (int32_t)(word & 0xFFFF));
        atomic_fetch_add(&pool->n_done, 1);
        if (atomic_load(&pool->caller_sleeps))
            futex_wake(&pool->n_done);
        word = atomic_load(&pool->word);
    }
}

static bool look_for_work(struct ft_pool *pool) {
    int64_t until_ns = ft_clock_now_ns() + (int64_t)pool->spin_us * 1000;
    do {
        for (int i = 0; i < 32; i++) {
            if (has_ticket(atomic_load_explicit(&pool->word, memory_order_relaxed)))
                return true;
            if (atomic_load_explicit(&pool->stop, memory_order_relaxed))
                return false;
            relax();
        }
    } while (ft_clock_now_ns() < until_ns);
    return false;
}

static void *thread_main(void *arg) {
    struct ft_pool *pool = arg;
    while (!atomic_load(&pool->stop)) {
        if (look_for_work(pool)) {
            work(pool);
            continue;
        }
        /* Counting first and looking again afterwards, both in the one total order, means that
         * either this thread sees the new job or its giver sees this thread. */
        atomic_fetch_add(&pool->n_asleep, 1);
        uint32_t seen = atomic_load(&pool->wakeups);
        if (!has_ticket(atomic_load(&pool->word)) && !atomic_load(&pool->stop))
            futex_wait(&pool->wakeups, seen);
        atomic_fetch_sub(&pool->n_asleep, 1);
        work(pool);
    }
    return NULL;
}

static void wake_all(struct ft_pool *pool) {
    atomic_fetch_add(&pool->wakeups, 1);
    futex_wake(&pool->wakeups);
}

/* Keep every thread on a core of its own that is not the caller's. The caller stays free, so that
 * nothing it starts later inherits a mask; when the kernel has moved it, the threads make way.
 * Where the kernel refuses, threads run where it puts them. */
static void place_threads(struct ft_pool *pool) {
    int core = sched_getcpu();
    if (core == pool->caller_core || pool->n_threads > pool->n_cores)
        return;
    pool->caller_core = core;
    int32_t at = 0;
    while (at < pool->n_cores && pool->cores[at] != core)
        at++;
    for (int32_t i = 0; i < pool->n_started; i++) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)pool->cores[(at + 1 + i) % pool->n_cores], &set);
        (void)pthread_setaffinity_np(pool->threads[i], sizeof set, &set);
    }
}

static void join(struct ft_pool *pool, uint32_t n_tickets) {
    int64_t until_ns = ft_clock_now_ns() + (int64_t)pool->join_spin_us * 1000;
    uint32_t n_done;
    for (int i = 1; (n_done = atomic_load(&pool->n_done)) != n_tickets; i++) {
        relax();
        if (i % 32 != 0 || ft_clock_now_ns() < until_ns)
            continue;
        atomic_store(&pool->caller_sleeps, 1);
        n_done = atomic_load(&pool->n_done);
        if (n_done != n_tickets)
            futex_wait(&pool->n_done, n_done);
        atomic_store(&pool->caller_sleeps, 0);
    }
}

void ft_pool_run(struct ft_pool *pool, ft_pool_fn fn, const void *arg, int32_t n_items,
                 int32_t grain) {
    if (n_items <= 0)
        return;
    if (pool->n_threads == 1 || n_items <= grain) {
        fn(arg, 0, n_items);
        return;
    }
    place_threads(pool);
    int32_t large = (int32_t)((int64_t)n_items * LARGE_PERCENT / 100 / pool->n_threads);
    pool->n_large = large >= grain && large > 0 ? pool->n_threads : 0;
    pool->large = large;
    int32_t rest = n_items - pool->n_large * large;
    int32_t n_small = SMALL_PER_THREAD * pool->n_threads;
    pool->small = rest / n_small + (rest % n_small != 0);
    if (pool->small < grain)
        pool->small = grain;
    pool->fn = fn;
    pool->arg = arg;
    pool->n_items = n_items;
    int32_t n_tickets = pool->n_large + rest / pool->small + (rest % pool->small != 0);

    atomic_store(&pool->n_done, 0);
    pool->generation++;
    atomic_store(&pool->word, (uint64_t)pool->generation << 32 | (uint64_t)n_tickets << 16);
    if (atomic_load(&pool->n_asleep) > 0)
        wake_all(pool);
    work(pool);
    join(pool, (uint32_t)n_tickets);
}

static enum ft_code start_threads(struct ft_pool *pool, struct ft_err *err) {
    sigset_t all, before;
    sigfillset(&all);
    /* Signals are the owner's business: threads start with all of them blocked. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = 0;
    while (rc == 0 && pool->n_started < pool->n_threads - 1) {
        rc = pthread_create(&pool->threads[pool->n_started], NULL, thread_main, pool);
        pool->n_started += rc == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return ft_err_set_os(err, FT_E_PROC_OS, rc, "pool", "cannot start compute thread %d of %d",
                             pool->n_started + 1, pool->n_threads - 1);
    return FT_OK;
}

static void find_cores(struct ft_pool *pool) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (int core = 0; core < CPU_SETSIZE; core++)
            if (CPU_ISSET((size_t)core, &set))
                pool->cores[pool->n_cores++] = core;
}

enum ft_code ft_pool_create(struct ft_pool **out, int32_t n_threads, int32_t spin_us,
                            struct ft_err *err) {
    if (n_threads < 0 || n_threads > FT_POOL_THREADS_MAX)
        return ft_err_set(err, FT_E_PROC_CONFIG, "pool", "n_threads is %d, limit 0 .. %d",
                          n_threads, FT_POOL_THREADS_MAX);
    struct ft_pool *pool = aligned_alloc(64, sizeof *pool);
    if (pool == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "pool", "no memory for %zu bytes", sizeof *pool);
    *pool = (struct ft_pool){.caller_core = -1};
    find_cores(pool);
    int32_t n_cores = pool->n_cores > 0 ? pool->n_cores : 1;
    pool->n_threads = n_threads > 0 ? n_threads : min32(n_cores, FT_POOL_THREADS_MAX);
    if (pool->n_threads <= pool->n_cores) {
        pool->spin_us = spin_us;
        pool->join_spin_us = JOIN_SPIN_US;
    }
    enum ft_code code = start_threads(pool, err);
    if (code != FT_OK) {
        ft_pool_destroy(&pool);
        return code;
    }
    *out = pool;
    return FT_OK;
}

void ft_pool_destroy(struct ft_pool **pool) {
    if (*pool == NULL)
        return;
    atomic_store(&(*pool)->stop, 1);
    wake_all(*pool);
    for (int32_t i = 0; i < (*pool)->n_started; i++)
        pthread_join((*pool)->threads[i], NULL);
    free(*pool);
    *pool = NULL;
}

int32_t ft_pool_n_threads(const struct ft_pool *pool) {
    return pool->n_threads;
}
