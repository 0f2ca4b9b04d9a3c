#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/rpc/rpc.h"

#define THREADS_MAX 64
/* A mailbox that takes nothing is full, and the loop stuck: asked again for ten seconds. */
#define POST_TRIES 1000
#define POST_PAUSE_NS 10000000
/* How often close looks whether the last letter came. */
#define CLOSE_STEP_NS 10000000

struct list {
    struct ft_rpc_job *first, *last;
};

struct ft_rpc_offload {
    struct ft_rpc_loop *loop;
    pthread_mutex_t mutex; /* guards waiting, finished, letter_out and closing */
    pthread_cond_t work_came;
    struct list waiting, finished;
    bool letter_out; /* the loop will look at finished */
    bool closing;
    int32_t n_threads;
    struct helper {
        struct ft_rpc_offload *offload;
        int32_t thread;
        pthread_t id;
    } threads[];
};

static void append(struct list *list, struct ft_rpc_job *job) {
    job->next = NULL;
    if (list->last != NULL)
        list->last->next = job;
    else
        list->first = job;
    list->last = job;
}

static struct ft_rpc_job *pop(struct list *list) {
    struct ft_rpc_job *job = list->first;
    if (job != NULL && (list->first = job->next) == NULL)
        list->last = NULL;
    return job;
}

/* On the loop: one job at a time, because done may free its job or give another. */
static void deliver(struct ft_rpc_offload *offload) {
    for (;;) {
        pthread_mutex_lock(&offload->mutex);
        struct ft_rpc_job *job = pop(&offload->finished);
        pthread_mutex_unlock(&offload->mutex);
        if (job == NULL)
            return;
        job->done(job->user);
    }
}

static void on_letter(void *user) {
    struct ft_rpc_offload *offload = user;
    pthread_mutex_lock(&offload->mutex);
    offload->letter_out = false;
    pthread_mutex_unlock(&offload->mutex);
    deliver(offload);
}

/* letter_out is set, by this thread. */
static void post(struct ft_rpc_offload *offload) {
    static const struct timespec pause = {0, POST_PAUSE_NS};
    for (int i = 0; i < POST_TRIES; i++) {
        if (ft_rpc_loop_post(offload->loop, on_letter, offload) == FT_OK)
            return;
        nanosleep(&pause, NULL);
    }
    pthread_mutex_lock(&offload->mutex);
    offload->letter_out = false; /* the next job that ends tries again, and so does close */
    pthread_mutex_unlock(&offload->mutex);
}

static void *run(void *user) {
    const struct helper *self = user;
    struct ft_rpc_offload *offload = self->offload;
    pthread_mutex_lock(&offload->mutex);
    for (;;) {
        struct ft_rpc_job *job = pop(&offload->waiting);
        if (job == NULL && offload->closing)
            break;
        if (job == NULL) {
            pthread_cond_wait(&offload->work_came, &offload->mutex);
            continue;
        }
        pthread_mutex_unlock(&offload->mutex);
        job->work(job->user, self->thread);
        pthread_mutex_lock(&offload->mutex);
        append(&offload->finished, job);
        bool must_post = !offload->letter_out;
        offload->letter_out = true;
        if (!must_post)
            continue;
        pthread_mutex_unlock(&offload->mutex);
        post(offload);
        pthread_mutex_lock(&offload->mutex);
    }
    pthread_mutex_unlock(&offload->mutex);
    return NULL;
}

enum ft_code ft_rpc_offload_create(struct ft_rpc_offload **out, struct ft_rpc_loop *loop,
                                   int32_t n_threads, struct ft_err *err) {
    FT_ASSERT(n_threads >= 1 && n_threads <= THREADS_MAX);
    struct ft_rpc_offload *offload =
        calloc(1, sizeof *offload + (size_t)n_threads * sizeof offload->threads[0]);
    if (offload == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "rpc", "no memory");
    offload->loop = loop;
    int rc = pthread_mutex_init(&offload->mutex, NULL);
    if (rc != 0)
        goto fail_mutex;
    rc = pthread_cond_init(&offload->work_came, NULL);
    if (rc != 0)
        goto fail_cond;
    while (offload->n_threads < n_threads) {
        struct helper *helper = &offload->threads[offload->n_threads];
        *helper = (struct helper){.offload = offload, .thread = offload->n_threads};
        rc = pthread_create(&helper->id, NULL, run, helper);
        if (rc != 0) {
            ft_rpc_offload_close(&offload);
            return ft_err_set_os(err, FT_E_PROC_OS, rc, "rpc", "cannot start a thread");
        }
        offload->n_threads++;
    }
    *out = offload;
    return FT_OK;

fail_cond:
    pthread_mutex_destroy(&offload->mutex);
fail_mutex:
    free(offload);
    return ft_err_set_os(err, FT_E_PROC_OS, rc, "rpc", "cannot make helper threads");
}

void ft_rpc_offload_give(struct ft_rpc_offload *offload, struct ft_rpc_job *job) {
    pthread_mutex_lock(&offload->mutex);
    FT_ASSERT(!offload->closing);
    append(&offload->waiting, job);
    pthread_cond_signal(&offload->work_came);
    pthread_mutex_unlock(&offload->mutex);
}

void ft_rpc_offload_close(struct ft_rpc_offload **offload) {
    if (*offload == NULL)
        return;
    struct ft_rpc_offload *h = *offload;
    pthread_mutex_lock(&h->mutex);
    h->closing = true;
    pthread_cond_broadcast(&h->work_came);
    pthread_mutex_unlock(&h->mutex);
    for (int32_t i = 0; i < h->n_threads; i++)
        pthread_join(h->threads[i].id, NULL);
    while (h->letter_out) /* it names what is freed below; no other thread writes any more */
        ft_rpc_loop_step(h->loop, ft_clock_now_ns() + CLOSE_STEP_NS);
    deliver(h);
    pthread_cond_destroy(&h->work_came);
    pthread_mutex_destroy(&h->mutex);
    free(h);
    *offload = NULL;
}
