#include "common/worker/reload.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"

#define MODULE "reload"
/* What a thread that has ended posted is there at once. */
#define CANCEL_STEPS_MAX 100
#define CANCEL_STEP_NS 10000000

struct ft_reload {
    struct ft_rpc_loop *loop;
    pthread_t thread;
    const struct ft_worker_role *role;
    struct ft_worker_params *params; /* the fresh worker's, once there is one */
    unsigned char fingerprint[FT_TOKENIZER_FINGERPRINT_BYTES];
    char old_dir[FT_PARAM_STR_MAX];
    ft_reload_fn done;
    void *user;
    bool cancelled, finished; /* loop thread only */
    /* the thread's, until it has posted */
    struct ft_worker *fresh;
    int64_t load_ns;
    struct ft_err err;
    bool posted;
};

/* Say how the tokenizer of the fresh model differs from the one that serves. */
static enum ft_code same_tokenizer(const struct ft_reload *reload, const struct ft_worker *fresh,
                                   struct ft_err *err) {
    if (memcmp(fresh->fingerprint, reload->fingerprint, sizeof fresh->fingerprint) == 0)
        return FT_OK;
    struct ft_tokenizer *ours = NULL, *other = NULL;
    char difference[200] = "its fingerprint differs";
    if (ft_tokenizer_open(&ours, reload->old_dir, NULL) == FT_OK &&
        ft_tokenizer_open(&other, reload->params->model, NULL) == FT_OK)
        ft_tokenizer_first_difference(ours, other, difference, sizeof difference);
    ft_tokenizer_close(&ours);
    ft_tokenizer_close(&other);
    return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "the model %s has another tokenizer: %s",
                      reload->params->model, difference);
}

/* The loop thread takes over: from here on nothing else refers to reload. */
static void finish(void *user) {
    struct ft_reload *reload = user;
    reload->finished = true;
    if (reload->cancelled) /* cancel has joined, and frees */
        return;
    pthread_join(reload->thread, NULL);
    reload->done(reload->user, reload->fresh, reload->load_ns, &reload->err);
    if (reload->fresh == NULL)
        free(reload->params);
    free(reload);
}

static void *load(void *user) {
    struct ft_reload *reload = user;
    int64_t begin_ns = ft_clock_now_ns();
    struct ft_worker *fresh = NULL;
    enum ft_code code = ft_worker_open(&fresh, reload->role, reload->params, &reload->err);
    if (code == FT_OK)
        code = same_tokenizer(reload, fresh, &reload->err);
    if (code != FT_OK)
        ft_worker_close(&fresh);
    if (fresh != NULL)
        fresh->params_own = reload->params;
    reload->fresh = fresh;
    reload->load_ns = ft_clock_now_ns() - begin_ns;
    reload->posted = true; /* before it is: then it is the loop's */
    ft_rpc_loop_post(reload->loop, finish, reload);
    return NULL;
}

enum ft_code ft_reload_begin(struct ft_reload **out, struct ft_rpc_loop *loop,
                             const struct ft_worker *worker, struct ft_str dir, ft_reload_fn done,
                             void *user, struct ft_err *err) {
    if (dir.len == 0 || dir.len >= FT_PARAM_STR_MAX || memchr(dir.ptr, 0, dir.len) != NULL)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "model_dir has %zu bytes: must be a path of 1 to %d", dir.len,
                          FT_PARAM_STR_MAX - 1);
    struct ft_reload *reload = calloc(1, sizeof *reload);
    struct ft_worker_params *params = malloc(sizeof *params);
    if (reload == NULL || params == NULL) {
        free(reload);
        free(params);
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory");
    }
    *params = *worker->params;
    memcpy(params->model, dir.ptr, dir.len);
    params->model[dir.len] = 0;
    *reload = (struct ft_reload){
        .loop = loop, .role = worker->role, .params = params, .done = done, .user = user};
    memcpy(reload->fingerprint, worker->fingerprint, sizeof reload->fingerprint);
    snprintf(reload->old_dir, sizeof reload->old_dir, "%s", worker->params->model);
    int failed = pthread_create(&reload->thread, NULL, load, reload);
    if (failed != 0) {
        free(reload);
        free(params);
        return ft_err_set_os(err, FT_E_PROC_OS, failed, MODULE, "no thread to load with");
    }
    *out = reload;
    return FT_OK;
}

void ft_reload_cancel(struct ft_reload **reload) {
    struct ft_reload *r = *reload;
    if (r == NULL)
        return;
    *reload = NULL;
    r->cancelled = true;
    pthread_join(r->thread, NULL);
    for (int i = 0; i < CANCEL_STEPS_MAX && r->posted && !r->finished; i++)
        ft_rpc_loop_step(r->loop, ft_clock_now_ns() + CANCEL_STEP_NS);
    if (r->fresh == NULL)
        free(r->params);
    ft_worker_close(&r->fresh);
    free(r);
}
