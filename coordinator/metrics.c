#include "coordinator/metrics.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/log.h"
#include "common/rpc/http.h"

/* How long a scrape waits for a fresh text before it takes the last one: workers answer between two
 * steps, and at most a second late (see peer.c). */
#define FRESH_WAIT_S 2
#define TEXT_BYTES_MAX ((size_t)1 << 20)

struct co_metrics {
    struct co_app *app;
    struct ft_http *http;
    struct co_readiness_listener listener;

    /* loop thread only */
    int n_asked; /* workers that have not answered */
    struct ft_wire_worker_stats target, draft;

    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t fresh;
    struct ft_buf text;
    uint64_t serial; /* of text, 0: none yet */
    bool asked;      /* the loop thread was told to make one */
    bool closing;
    bool is_ready;
    char state[FT_ERR_TEXT_MAX + 32];
};

/* ---- loop thread ---------------------------------------------------------------------------- */

static void on_readiness(void *user, const struct co_readiness *readiness) {
    struct co_metrics *metrics = user;
    pthread_mutex_lock(&metrics->lock);
    metrics->is_ready = readiness->state == CO_READINESS_READY;
    snprintf(metrics->state, sizeof metrics->state, "%s%s%s\n", co_readiness_name(readiness->state),
             readiness->reason[0] != 0 ? ": " : "", readiness->reason);
    pthread_mutex_unlock(&metrics->lock);
}

static void publish(struct co_metrics *metrics) {
    struct ft_buf text, old;
    ft_buf_init(&text, TEXT_BYTES_MAX);
    co_metrics_render(metrics->app, &metrics->target, &metrics->draft, &text);
    pthread_mutex_lock(&metrics->lock);
    old = text;
    if (!text.failed) {
        old = metrics->text;
        metrics->text = text;
        metrics->serial++;
    }
    metrics->asked = false;
    pthread_cond_broadcast(&metrics->fresh);
    pthread_mutex_unlock(&metrics->lock);
    ft_buf_fini(&old);
}

static void answered(struct co_metrics *metrics, const struct ft_wire_worker_stats *stats,
                     struct ft_wire_worker_stats *out) {
    *out = stats != NULL ? *stats : (struct ft_wire_worker_stats){0};
    if (--metrics->n_asked == 0 && !metrics->closing) /* written by this thread alone */
        publish(metrics);
}

static void target_said(void *user, const struct ft_wire_worker_stats *stats) {
    struct co_metrics *metrics = user;
    answered(metrics, stats, &metrics->target);
}

static void draft_said(void *user, const struct ft_wire_worker_stats *stats) {
    struct co_metrics *metrics = user;
    answered(metrics, stats, &metrics->draft);
}

static void make_text(void *user) {
    struct co_metrics *metrics = user;
    struct co_app *app = metrics->app;
    if (metrics->closing)
        return;
    metrics->n_asked = 1; /* both may answer at once */
    if (app->target != NULL) {
        metrics->n_asked++;
        co_peer_stats(app->target, target_said, metrics);
    }
    if (app->draft != NULL) {
        metrics->n_asked++;
        co_peer_stats(app->draft, draft_said, metrics);
    }
    if (--metrics->n_asked == 0)
        publish(metrics);
}

/* ---- the server's thread -------------------------------------------------------------------- */

static void get_metrics(struct co_metrics *metrics, struct ft_http_reply *reply) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += FRESH_WAIT_S;
    pthread_mutex_lock(&metrics->lock);
    uint64_t serial = metrics->serial;
    if (!metrics->asked && !metrics->closing)
        metrics->asked = ft_rpc_loop_post(metrics->app->loop, make_text, metrics) == FT_OK;
    int waited = 0;
    while (metrics->asked && metrics->serial == serial && !metrics->closing && waited == 0)
        waited = pthread_cond_timedwait(&metrics->fresh, &metrics->lock, &until);
    if (metrics->serial > 0)
        ft_buf_add_str(reply->body, ft_buf_str(&metrics->text));
    pthread_mutex_unlock(&metrics->lock);
    reply->status = reply->body->len > 0 ? 200 : 503;
    reply->type = "text/plain; version=0.0.4; charset=utf-8";
}

static void get_health(struct co_metrics *metrics, struct ft_http_reply *reply) {
    pthread_mutex_lock(&metrics->lock);
    reply->status = metrics->is_ready ? 200 : 503;
    ft_buf_add_c(reply->body, metrics->state);
    pthread_mutex_unlock(&metrics->lock);
}

static void on_get(void *user, const char *path, struct ft_http_reply *reply) {
    if (strcmp(path, "/metrics") == 0)
        get_metrics(user, reply);
    else if (strcmp(path, "/healthz") == 0)
        get_health(user, reply);
    else if (strcmp(path, "/") == 0)
        ft_buf_add_c(reply->body, "/metrics\n/healthz\n");
    if (strcmp(path, "/") == 0)
        reply->status = 200;
}

/* ---- open and close -------------------------------------------------------------------------- */

static void init_locks(struct co_metrics *metrics) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&metrics->fresh, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&metrics->lock, NULL);
}

enum ft_code co_metrics_open(struct co_metrics **out, struct co_app *app, struct ft_err *err) {
    const char *listen = app->config.metrics_listen;
    if (listen[0] == 0)
        return FT_OK;
    struct co_metrics *metrics = calloc(1, sizeof *metrics);
    if (metrics == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "metrics", "no memory");
    metrics->app = app;
    ft_buf_init(&metrics->text, TEXT_BYTES_MAX);
    init_locks(metrics);
    on_readiness(metrics, &app->readiness);
    struct ft_err why = {0};
    enum ft_code code = ft_http_open(&metrics->http, listen, on_get, metrics, &why);
    if (code != FT_OK) {
        co_metrics_destroy(&metrics);
        if (strcmp(listen, CO_METRICS_LISTEN_DEFAULT) == 0) { /* nobody asked for it */
            ft_warn("metrics-off reason %s", why.text);
            return FT_OK;
        }
        *err = why;
        return ft_err_prefix(err, "metrics_listen");
    }
    co_readiness_listen(&app->readiness, &metrics->listener, on_readiness, metrics);
    ft_info("metrics listen %s port %d", listen, ft_http_port(metrics->http));
    *out = metrics;
    return FT_OK;
}

void co_metrics_stop(struct co_metrics *metrics) {
    if (metrics == NULL)
        return;
    co_readiness_unlisten(&metrics->app->readiness, &metrics->listener);
    pthread_mutex_lock(&metrics->lock);
    metrics->closing = true;
    pthread_cond_broadcast(&metrics->fresh);
    pthread_mutex_unlock(&metrics->lock);
    ft_http_close(&metrics->http);
}

void co_metrics_destroy(struct co_metrics **metrics) {
    if (*metrics == NULL)
        return;
    ft_http_close(&(*metrics)->http);
    ft_buf_fini(&(*metrics)->text);
    pthread_cond_destroy(&(*metrics)->fresh);
    pthread_mutex_destroy(&(*metrics)->lock);
    free(*metrics);
    *metrics = NULL;
}
