#include "common/rpc/rpc_internal.h"

#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <openssl/crypto.h>
#include <sched.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"

/* Events that one step handles before it returns to its caller. */
#define STEP_EVENTS_MAX 64
/* Looks at the watches, which cost a load each, for one at gRPC, which costs a system call. */
#define LOOKS_PER_POLL 8

static void log_line(gpr_log_func_args *args) {
    ft_debug("grpc_line severity %s file %s line %d text %s",
             gpr_log_severity_string(args->severity), args->file, args->line, args->message);
}

/* gRPC reads its environment and its log settings once, at the first grpc_init. It is never shut
 * down: grpc_shutdown joins threads, one of which may sleep in epoll_wait for 10 s after a write
 * that had to wait, and a process that ends has nothing to gain from it. */
static void start_library(void) {
    static bool started;
    if (started)
        return;
    started = true;
    gpr_set_log_function(log_line);
    gpr_set_log_verbosity(ft_log_level() >= FT_LOG_DEBUG ? GPR_LOG_SEVERITY_INFO
                                                         : GPR_LOG_SEVERITY_ERROR);
    /* Threads of gRPC may be in a handshake when the process ends: OpenSSL must not take itself
     * down under them. Has to be OpenSSL's first call. */
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    /* Reads of 8 KiB chunks cost twice the time of whole reads for messages of 64 KiB. */
    setenv("GRPC_EXPERIMENTS", "-tcp_read_chunks", 0);
    grpc_init();
}

enum ft_code ft_rpc_loop_create(struct ft_rpc_loop **out, int64_t spin_ns, struct ft_err *err) {
    struct ft_rpc_loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "rpc", "no memory for the event loop");
    start_library();
    loop->cq = grpc_completion_queue_create_for_next(NULL);
    loop->spin_ns = spin_ns;
    enum ft_code code = ft_rpc_mailbox_init(&loop->mailbox, loop->cq, err);
    if (code != FT_OK) {
        grpc_completion_queue_shutdown(loop->cq);
        grpc_completion_queue_destroy(loop->cq);
        free(loop);
        return code;
    }
    *out = loop;
    return FT_OK;
}

void ft_rpc_loop_destroy(struct ft_rpc_loop **loop) {
    struct ft_rpc_loop *l = *loop;
    if (l == NULL)
        return;
    *loop = NULL;
    ft_rpc_signals_end(l->signals);
    ft_rpc_mailbox_fini(&l->mailbox);
    ft_rpc_signals_close(&l->signals);
    grpc_completion_queue_shutdown(l->cq);
    /* A wake that was never handled is all that can still come. */
    while (grpc_completion_queue_next(l->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type !=
           GRPC_QUEUE_SHUTDOWN)
        ;
    grpc_completion_queue_destroy(l->cq);
    ft_rpc_timers_fini(&l->timers);
    free(l);
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

static void doze(struct ft_rpc_loop *loop, bool asleep) {
    if (loop->dozing == asleep)
        return;
    loop->dozing = asleep;
    for (struct ft_rpc_watch *watch = loop->watches; watch != NULL; watch = watch->next)
        watch->doze(watch->user, asleep);
}

static bool look(struct ft_rpc_loop *loop) {
    for (struct ft_rpc_watch *watch = loop->watches; watch != NULL; watch = watch->next)
        if (watch->look(watch->user)) {
            /* The list may be another one now. */
            loop->looked = true;
            loop->last_event_ns = ft_clock_now_ns();
            return true;
        }
    return false;
}

/* Nothing was there: give the core to whoever wants it, who may be the one that we wait for. */
static bool yield(struct ft_rpc_loop *loop) {
    int n_looks = loop->watches != NULL ? LOOKS_PER_POLL : 1;
    for (int i = 0; i < n_looks; i++) {
        sched_yield();
        if (look(loop))
            return true;
    }
    return false;
}

/* Handle one event, or the timers that are due. false: deadline_ns came first. */
static bool poll_once(struct ft_rpc_loop *loop, int64_t deadline_ns) {
    for (;;) {
        int64_t now_ns = ft_clock_now_ns();
        bool looked = loop->looked; /* two that always answer each other leave gRPC its turn */
        if ((!looked && look(loop)) || ft_rpc_timers_run(&loop->timers, now_ns) > 0)
            return true;
        int64_t until_ns = ft_rpc_timers_next(&loop->timers);
        if (deadline_ns < until_ns)
            until_ns = deadline_ns;
        bool spin = looked || now_ns >= until_ns || now_ns - loop->last_event_ns < loop->spin_ns;
        gpr_timespec until = spin ? gpr_inf_past(GPR_CLOCK_MONOTONIC) : ft_rpc_timespec(until_ns);
        doze(loop, !spin);
        if (!spin && look(loop)) {
            doze(loop, false);
            return true;
        }
        grpc_event event = grpc_completion_queue_next(loop->cq, until, NULL);
        doze(loop, false);
        loop->looked = false;
        if (event.type == GRPC_QUEUE_TIMEOUT && spin && !looked && yield(loop))
            return true;
        if (event.type == GRPC_OP_COMPLETE) {
            struct ft_rpc_tag *tag = event.tag;
            tag->fn(tag->owner, event.success != 0);
            loop->last_event_ns = ft_clock_now_ns();
            return true;
        }
        if (now_ns >= deadline_ns && !looked)
            return false;
    }
}

void ft_rpc_loop_run(struct ft_rpc_loop *loop) {
    while (!loop->stop)
        poll_once(loop, INT64_MAX);
    loop->stop = false;
}

void ft_rpc_loop_stop(struct ft_rpc_loop *loop) {
    loop->stop = true;
}

int ft_rpc_loop_step(struct ft_rpc_loop *loop, int64_t deadline_ns) {
    int n = 0;
    if (poll_once(loop, deadline_ns))
        for (n = 1; n < STEP_EVENTS_MAX && poll_once(loop, INT64_MIN); n++)
            ;
    return n;
}

enum ft_code ft_rpc_loop_post(struct ft_rpc_loop *loop, ft_rpc_fn fn, void *user) {
    return ft_rpc_mailbox_post(&loop->mailbox, fn, user);
}

bool ft_rpc_batch_start(grpc_call *call, const grpc_op *ops, size_t n_ops, struct ft_rpc_tag *tag) {
    grpc_call_error e = grpc_call_start_batch(call, ops, n_ops, tag, NULL);
    if (e == GRPC_CALL_OK)
        return true;
    ft_debug("rpc_batch_refused op %d why %s", (int)ops[0].op, grpc_call_error_to_string(e));
    grpc_call_cancel_with_status(call, GRPC_STATUS_INTERNAL, "batch refused", NULL);
    return false;
}

gpr_timespec ft_rpc_timespec(int64_t at_ns) {
    if (at_ns == INT64_MAX)
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    gpr_timespec t = {.clock_type = GPR_CLOCK_MONOTONIC};
    if (at_ns > 0) {
        t.tv_sec = at_ns / GPR_NS_PER_SEC;
        t.tv_nsec = (int32_t)(at_ns % GPR_NS_PER_SEC);
    }
    return t;
}

int64_t ft_rpc_time_ns(gpr_timespec t) {
    t = gpr_convert_clock_type(t, GPR_CLOCK_MONOTONIC);
    if (t.tv_sec >= INT64_MAX / GPR_NS_PER_SEC)
        return INT64_MAX;
    return t.tv_sec * GPR_NS_PER_SEC + t.tv_nsec;
}
