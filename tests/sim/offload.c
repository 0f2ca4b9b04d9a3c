/* Helper threads of rpc.h on simulated time: a job takes as long as the seed says, and the loop
 * goes on meanwhile. */
#include <stdlib.h>

#include "sim/net.h"

#define US 1000
enum { THREADS_MAX = 16, WORK_US_MAX = 5000 };

struct thread {
    struct ft_rpc_offload *offload;
    int32_t index;
    struct ft_rpc_job *job; /* NULL: idle */
    struct ft_rpc_timer timer;
};

struct ft_rpc_offload {
    struct ft_rpc_loop *loop;
    struct ft_rpc_job *first, *last;
    int32_t n_threads;
    struct thread threads[THREADS_MAX];
};

static void begin(struct thread *thread);

static void end(void *user) {
    struct thread *thread = user;
    struct ft_rpc_job *job = thread->job;
    job->work(job->user, thread->index);
    thread->job = NULL;
    begin(thread);
    job->done(job->user);
}

static void begin(struct thread *thread) {
    struct ft_rpc_offload *offload = thread->offload;
    struct ft_rpc_job *job = offload->first;
    if (job == NULL || thread->job != NULL)
        return;
    offload->first = job->next;
    thread->job = job;
    ft_rpc_timer_set(offload->loop, &thread->timer,
                     net_now_ns() + (int64_t)(1 + net_below(WORK_US_MAX)) * US, end, thread);
}

enum ft_code ft_rpc_offload_create(struct ft_rpc_offload **out, struct ft_rpc_loop *loop,
                                   int32_t n_threads, struct ft_err *err) {
    (void)err;
    struct ft_rpc_offload *offload = calloc(1, sizeof *offload);
    offload->loop = loop;
    offload->n_threads = n_threads;
    for (int32_t i = 0; i < n_threads; i++)
        offload->threads[i] = (struct thread){.offload = offload, .index = i};
    *out = offload;
    return FT_OK;
}

void ft_rpc_offload_give(struct ft_rpc_offload *offload, struct ft_rpc_job *job) {
    job->next = NULL;
    if (offload->first == NULL)
        offload->first = job;
    else
        offload->last->next = job;
    offload->last = job;
    for (int32_t i = 0; i < offload->n_threads; i++)
        begin(&offload->threads[i]);
}

void ft_rpc_offload_close(struct ft_rpc_offload **offload) {
    if (*offload == NULL)
        return;
    for (int32_t i = 0; i < (*offload)->n_threads; i++) {
        struct thread *thread = &(*offload)->threads[i];
        while (thread->job != NULL) {
            ft_rpc_timer_cancel((*offload)->loop, &thread->timer);
            end(thread);
        }
    }
    free(*offload);
    *offload = NULL;
}
