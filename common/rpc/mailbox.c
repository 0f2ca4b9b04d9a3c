#include "common/rpc/rpc_internal.h"

#include <stdlib.h>

/* Closures that may wait at once: compute threads post one at a time, so this many means that the
 * loop is stuck. */
#define LETTERS_MAX ((size_t)65536)

static void deliver(struct ft_rpc_mailbox *box) {
    pthread_mutex_lock(&box->mutex);
    /* Taken out, because a closure may run the loop, and so come here again. */
    struct ft_rpc_letter *letters = box->letters;
    size_t n = box->n, cap = box->cap;
    box->letters = NULL;
    box->n = box->cap = 0;
    box->wake_pending = false;
    pthread_mutex_unlock(&box->mutex);

    for (size_t i = 0; i < n; i++)
        letters[i].fn(letters[i].user);

    pthread_mutex_lock(&box->mutex);
    if (box->cap == 0) {
        box->letters = letters;
        box->cap = cap;
        letters = NULL;
    }
    pthread_mutex_unlock(&box->mutex);
    free(letters);
}

static void on_wake(void *owner, bool ok) {
    (void)ok;
    deliver(owner);
}

enum ft_code ft_rpc_mailbox_init(struct ft_rpc_mailbox *box, grpc_completion_queue *cq,
                                 struct ft_err *err) {
    box->tag = (struct ft_rpc_tag){on_wake, box};
    int rc = pthread_mutex_init(&box->mutex, NULL);
    if (rc != 0)
        return ft_err_set_os(err, FT_E_PROC_OS, rc, "rpc", "cannot create a mutex");
    box->channel = grpc_lame_client_channel_create("wake", GRPC_STATUS_UNAVAILABLE, "wake");
    grpc_slice path = grpc_slice_from_static_string("/wake");
    box->call = grpc_channel_create_call(box->channel, NULL, GRPC_PROPAGATE_DEFAULTS, cq, path,
                                         NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    return FT_OK;
}

static enum ft_code push(struct ft_rpc_mailbox *box, ft_rpc_fn fn, void *user) {
    if (box->n == box->cap) {
        size_t cap = box->cap == 0 ? 64 : box->cap * 2;
        if (cap > LETTERS_MAX)
            return FT_E_REQ_EXHAUSTED;
        struct ft_rpc_letter *letters = realloc(box->letters, cap * sizeof letters[0]);
        if (letters == NULL)
            return FT_E_PROC_MEMORY;
        box->letters = letters;
        box->cap = cap;
    }
    box->letters[box->n++] = (struct ft_rpc_letter){fn, user};
    return FT_OK;
}

enum ft_code ft_rpc_mailbox_post(struct ft_rpc_mailbox *box, ft_rpc_fn fn, void *user) {
    pthread_mutex_lock(&box->mutex);
    enum ft_code code = push(box, fn, user);
    if (code == FT_OK && !box->wake_pending) {
        box->wake_pending = true;
        /* An empty batch completes at once: the queue has no other way to be woken. Under the
         * lock, so that the loop cannot be destroyed while this thread is still inside. */
        grpc_call_error e = grpc_call_start_batch(box->call, NULL, 0, &box->tag, NULL);
        FT_ASSERT(e == GRPC_CALL_OK);
    }
    pthread_mutex_unlock(&box->mutex);
    return code;
}

void ft_rpc_mailbox_fini(struct ft_rpc_mailbox *box) {
    deliver(box);
    grpc_call_unref(box->call);
    grpc_channel_destroy(box->channel);
    free(box->letters);
    pthread_mutex_destroy(&box->mutex);
}
