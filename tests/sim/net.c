/* Time, events, timers and processes. */
#include "sim/net.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "sim/net_internal.h"

enum { EVENTS_MAX = 1 << 16 };

static struct {
    uint64_t random;
    int64_t now_ns, spent_ns;
    uint64_t serial;
    struct net_event *heap[EVENTS_MAX];
    size_t n_events;
    struct ft_rpc_loop *loops;
    uint32_t duplicates; /* percent */
    bool shares_channels;
} g;

/* ---- chance and time ------------------------------------------------------------------------ */

static uint64_t next_u64(void) {
    uint64_t z = (g.random += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

uint32_t net_below(uint32_t n) {
    return (uint32_t)((next_u64() >> 32) * n >> 32);
}

bool net_chance(uint32_t percent) {
    return net_below(100) < percent;
}

uint64_t ft_clock_random_u64(void) {
    return next_u64() | 1;
}

int64_t ft_clock_now_ns(void) {
    return g.now_ns + g.spent_ns;
}

int64_t ft_clock_unix_ms(void) {
    return ft_clock_now_ns() / 1000000;
}

int64_t net_now_ns(void) {
    return ft_clock_now_ns();
}

void net_spend_ns(int64_t ns) {
    g.spent_ns += ns;
}

/* Tens of microseconds; rarely a millisecond, so that calls overtake each other. */
int64_t net_latency_ns(void) {
    return net_below(50) == 0 ? 200000 + net_below(1000000) : 5000 + net_below(40000);
}

void net_set_duplicates(uint32_t percent) {
    g.duplicates = percent;
}

void net_reset(uint64_t seed) {
    FT_ASSERT(g.loops == NULL);
    while (g.n_events > 0) {
        struct net_event *event = g.heap[--g.n_events];
        if (event->call != NULL)
            net_call_unref(event->call);
        free(event);
    }
    g.random = seed * UINT64_C(0xD6E8FEB86659FD93) + 1;
    g.now_ns = 1000000000;
    g.spent_ns = 0;
    g.serial = 0;
    g.duplicates = 0;
    g.shares_channels = (seed & 1) == 0;
}

bool net_shares_channels(void) {
    return g.shares_channels;
}

/* ---- events --------------------------------------------------------------------------------- */

static bool before(const struct net_event *a, const struct net_event *b) {
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->serial < b->serial;
}

void net_push(struct net_event *event) {
    FT_ASSERT(g.n_events < EVENTS_MAX);
    size_t i = g.n_events++;
    for (; i > 0 && before(event, g.heap[(i - 1) / 2]); i = (i - 1) / 2)
        g.heap[i] = g.heap[(i - 1) / 2];
    g.heap[i] = event;
}

static struct net_event *pop(void) {
    struct net_event *top = g.heap[0], *last = g.heap[--g.n_events];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= g.n_events)
            break;
        if (child + 1 < g.n_events && before(g.heap[child + 1], g.heap[child]))
            child++;
        if (!before(g.heap[child], last))
            break;
        g.heap[i] = g.heap[child];
        i = child;
    }
    g.heap[i] = last;
    return top;
}

struct net_event *net_send(struct ft_rpc_call *call, int direction, struct ft_str message,
                           void (*fn)(struct net_event *event)) {
    struct net_event *event = calloc(1, sizeof *event + message.len);
    int64_t at_ns = ft_clock_now_ns() + net_latency_ns();
    if (at_ns <= call->last_at_ns[direction])
        at_ns = call->last_at_ns[direction] + 1;
    call->last_at_ns[direction] = at_ns;
    event->at_ns = at_ns;
    event->serial = ++g.serial;
    event->loop = direction == 0 ? call->server_loop : call->client_loop;
    event->call = call;
    event->fn = fn;
    event->len = message.len;
    if (message.len > 0)
        memcpy(event->bytes, message.ptr, message.len);
    call->refs++;
    net_push(event);
    return event;
}

void net_maybe_duplicate(const struct net_event *event) {
    if (net_below(100) >= g.duplicates)
        return;
    struct net_event *copy = malloc(sizeof *copy + event->len);
    memcpy(copy, event, sizeof *copy + event->len);
    copy->at_ns += 1 + (int64_t)(net_below(2) == 0 ? net_below(2000) : net_below(5000000));
    copy->serial = ++g.serial;
    copy->call->refs++;
    net_push(copy);
}

/* ---- timers --------------------------------------------------------------------------------- */

enum ft_code ft_rpc_timer_set(struct ft_rpc_loop *loop, struct ft_rpc_timer *timer, int64_t at_ns,
                              ft_rpc_fn fn, void *user) {
    if (timer->heap_idx == 0) {
        FT_ASSERT(loop->n_timers < NET_TIMERS_MAX);
        loop->timers[loop->n_timers++] = timer;
        timer->heap_idx = loop->n_timers;
    }
    timer->at_ns = at_ns;
    timer->fn = fn;
    timer->user = user;
    return FT_OK;
}

void ft_rpc_timer_cancel(struct ft_rpc_loop *loop, struct ft_rpc_timer *timer) {
    if (timer->heap_idx == 0)
        return;
    struct ft_rpc_timer *last = loop->timers[--loop->n_timers];
    loop->timers[timer->heap_idx - 1] = last;
    last->heap_idx = timer->heap_idx;
    timer->heap_idx = 0;
}

static struct ft_rpc_timer *first_timer(struct ft_rpc_loop **loop) {
    struct ft_rpc_timer *first = NULL;
    for (struct ft_rpc_loop *l = g.loops; l != NULL; l = l->next)
        for (size_t i = 0; !l->dead && i < l->n_timers; i++)
            if (first == NULL || l->timers[i]->at_ns < first->at_ns) {
                first = l->timers[i];
                *loop = l;
            }
    return first;
}

/* ---- processes ------------------------------------------------------------------------------ */

enum ft_code ft_rpc_loop_create(struct ft_rpc_loop **out, int64_t spin_ns, struct ft_err *err) {
    (void)spin_ns;
    (void)err;
    struct ft_rpc_loop *loop = calloc(1, sizeof *loop);
    loop->next = g.loops;
    g.loops = loop;
    *out = loop;
    return FT_OK;
}

void ft_rpc_loop_destroy(struct ft_rpc_loop **loop) {
    if (*loop == NULL)
        return;
    net_kill(*loop);
    /* What is on its way to it arrives nowhere. */
    for (size_t i = 0; i < g.n_events; i++)
        if (g.heap[i]->loop == *loop)
            g.heap[i]->loop = NULL;
    struct ft_rpc_loop **link = &g.loops;
    while (*link != *loop)
        link = &(*link)->next;
    *link = (*loop)->next;
    free(*loop);
    *loop = NULL;
}

void ft_rpc_loop_watch(struct ft_rpc_loop *loop, struct ft_rpc_watch *watch) {
    watch->next = loop->watches;
    loop->watches = watch;
}

void ft_rpc_loop_unwatch(struct ft_rpc_loop *loop, struct ft_rpc_watch *watch) {
    struct ft_rpc_watch **at = &loop->watches;
    while (*at != NULL && *at != watch)
        at = &(*at)->next;
    if (*at != NULL)
        *at = watch->next;
}

/* A process always sleeps between two events, and a message in shared memory is there when the one
 * that rings for it arrives: that is when it was put, in the time of the simulation. */
static void look(struct ft_rpc_loop *loop) {
    bool found = true;
    while (found && !loop->dead) {
        found = false;
        for (struct ft_rpc_watch *w = loop->watches; w != NULL && !found; w = w->next)
            found = w->look(w->user);
    }
}

static void fall_asleep(struct ft_rpc_loop *loop) {
    for (struct ft_rpc_watch *w = loop->watches; w != NULL && !loop->dead; w = w->next)
        w->doze(w->user, true);
}

void ft_rpc_loop_stop(struct ft_rpc_loop *loop) {
    (void)loop;
}

/* Nothing here has threads: no metrics are served, no model is reloaded. */
enum ft_code ft_rpc_loop_post(struct ft_rpc_loop *loop, ft_rpc_fn fn, void *user) {
    (void)loop, (void)fn, (void)user;
    FT_ASSERT(false);
    return FT_E_PROC_INTERNAL;
}

int ft_rpc_loop_step(struct ft_rpc_loop *loop, int64_t deadline_ns) {
    (void)loop, (void)deadline_ns;
    FT_ASSERT(false);
    return 0;
}

enum ft_code ft_rpc_loop_on_signal(struct ft_rpc_loop *loop, ft_rpc_signal_fn fn, void *user,
                                   struct ft_err *err) {
    (void)loop, (void)fn, (void)user, (void)err;
    return FT_OK;
}

void net_kill(struct ft_rpc_loop *loop) {
    if (loop->dead)
        return;
    loop->dead = true;
    net_cut_calls(loop);
}

void net_stall(struct ft_rpc_loop *loop, int64_t until_ns) {
    if (loop->busy_until_ns < until_ns)
        loop->busy_until_ns = until_ns;
}

static void run_event(struct net_event *event) {
    struct ft_rpc_loop *loop = event->loop;
    if (loop != NULL && !loop->dead && loop->busy_until_ns > g.now_ns) {
        event->at_ns = loop->busy_until_ns; /* keeps its serial, and so its place */
        net_push(event);
        return;
    }
    struct ft_rpc_call *call = event->call;
    if (loop != NULL && !loop->dead) {
        bool rings = event->rings;
        event->fn(event); /* frees or keeps the event */
        if (rings)
            look(loop);
        fall_asleep(loop);
        if (!loop->dead && g.spent_ns > 0)
            net_stall(loop, g.now_ns + g.spent_ns);
    } else {
        free(event);
    }
    g.spent_ns = 0;
    net_call_unref(call);
}

bool net_step(void) {
    struct ft_rpc_loop *loop = NULL;
    struct ft_rpc_timer *timer = first_timer(&loop);
    if (g.n_events == 0 && timer == NULL)
        return false;
    if (timer != NULL && (g.n_events == 0 || timer->at_ns <= g.heap[0]->at_ns)) {
        if (timer->at_ns > g.now_ns)
            g.now_ns = timer->at_ns;
        ft_rpc_timer_cancel(loop, timer);
        timer->fn(timer->user);
        fall_asleep(loop);
        g.spent_ns = 0;
        return true;
    }
    struct net_event *event = pop();
    if (event->at_ns > g.now_ns)
        g.now_ns = event->at_ns;
    run_event(event);
    return true;
}
