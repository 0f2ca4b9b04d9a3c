#include "common/rpc/rpc_internal.h"

#include <stdlib.h>

/* Owners hold a timer or two per request and per worker; more is a leak of ours. */
#define TIMERS_MAX ((size_t)1 << 20)

static void put(struct ft_rpc_timers *timers, size_t idx, struct ft_rpc_timer *timer) {
    timers->heap[idx] = timer;
    timer->heap_idx = idx;
}

static void sift_up(struct ft_rpc_timers *timers, size_t idx) {
    struct ft_rpc_timer *timer = timers->heap[idx];
    while (idx > 1 && timers->heap[idx / 2]->at_ns > timer->at_ns) {
        put(timers, idx, timers->heap[idx / 2]);
        idx /= 2;
    }
    put(timers, idx, timer);
}

static void sift_down(struct ft_rpc_timers *timers, size_t idx) {
    struct ft_rpc_timer *timer = timers->heap[idx];
    for (;;) {
        size_t child = 2 * idx;
        if (child > timers->n)
            break;
        if (child < timers->n && timers->heap[child + 1]->at_ns < timers->heap[child]->at_ns)
            child++;
        if (timers->heap[child]->at_ns >= timer->at_ns)
            break;
        put(timers, idx, timers->heap[child]);
        idx = child;
    }
    put(timers, idx, timer);
}

static enum ft_code reserve_one(struct ft_rpc_timers *timers) {
    if (timers->n + 1 < timers->cap)
        return FT_OK;
    size_t cap = timers->cap == 0 ? 64 : timers->cap * 2;
    if (cap > TIMERS_MAX)
        return FT_E_PROC_MEMORY;
    struct ft_rpc_timer **heap = realloc(timers->heap, cap * sizeof heap[0]);
    if (heap == NULL)
        return FT_E_PROC_MEMORY;
    timers->heap = heap;
    timers->cap = cap;
    return FT_OK;
}

static void drop(struct ft_rpc_timers *timers, struct ft_rpc_timer *timer) {
    size_t idx = timer->heap_idx;
    struct ft_rpc_timer *last = timers->heap[timers->n--];
    timer->heap_idx = 0;
    if (last == timer)
        return;
    put(timers, idx, last);
    sift_up(timers, idx);
    sift_down(timers, last->heap_idx);
}

enum ft_code ft_rpc_timer_set(struct ft_rpc_loop *loop, struct ft_rpc_timer *timer, int64_t at_ns,
                              ft_rpc_fn fn, void *user) {
    struct ft_rpc_timers *timers = &loop->timers;
    if (timer->heap_idx == 0) {
        enum ft_code code = reserve_one(timers);
        if (code != FT_OK)
            return code;
        put(timers, ++timers->n, timer);
    }
    timer->at_ns = at_ns;
    timer->fn = fn;
    timer->user = user;
    sift_up(timers, timer->heap_idx);
    sift_down(timers, timer->heap_idx);
    return FT_OK;
}

void ft_rpc_timer_cancel(struct ft_rpc_loop *loop, struct ft_rpc_timer *timer) {
    if (timer->heap_idx != 0)
        drop(&loop->timers, timer);
}

int64_t ft_rpc_timers_next(const struct ft_rpc_timers *timers) {
    return timers->n == 0 ? INT64_MAX : timers->heap[1]->at_ns;
}

int ft_rpc_timers_run(struct ft_rpc_timers *timers, int64_t now_ns) {
    int n_run = 0;
    /* A timer that sets itself again in the past gets its turn at the next pass. */
    for (size_t n_left = timers->n; n_left > 0 && timers->n > 0; n_left--) {
        struct ft_rpc_timer *timer = timers->heap[1];
        if (timer->at_ns > now_ns)
            break;
        drop(timers, timer);
        n_run++;
        timer->fn(timer->user);
    }
    return n_run;
}

void ft_rpc_timers_fini(struct ft_rpc_timers *timers) {
    for (size_t i = 1; i <= timers->n; i++)
        timers->heap[i]->heap_idx = 0;
    free(timers->heap);
    *timers = (struct ft_rpc_timers){0};
}
