#include "coordinator/retry.h"

/* A mean over about the last eight requests: what they ask for changes. */
#define WEIGHT 8
/* More than any queue holds; what is beyond it gets the longest time anyway. */
#define TURNED_AWAY_MAX 65536

static void learn(int64_t *mean, int64_t sample) {
    if (sample < 1)
        sample = 1; /* 0 stands for nothing known */
    *mean = *mean == 0 ? sample : *mean + (sample - *mean) / WEIGHT;
}

void co_retry_ended(struct co_retry *retry, int64_t service_ns, int64_t total_ns) {
    if (service_ns >= 0)
        learn(&retry->service_ns, service_ns);
    learn(&retry->total_ns, total_ns);
    if (retry->n_turned_away > 0)
        retry->n_turned_away--;
}

/* n times mean / n_at_once, within bounds. */
static int32_t wait_ms(int64_t mean_ns, int64_t n, int32_t n_at_once) {
    if (mean_ns == 0)
        return CO_RETRY_MS_UNKNOWN;
    double ms = (double)mean_ns * 1e-6 * (double)n / (double)(n_at_once > 0 ? n_at_once : 1);
    if (ms < CO_RETRY_MS_MIN)
        return CO_RETRY_MS_MIN;
    return ms > CO_RETRY_MS_MAX ? CO_RETRY_MS_MAX : (int32_t)ms;
}

int32_t co_retry_queue_ms(struct co_retry *retry, int32_t n_lacking, int32_t n_running) {
    int64_t n = (int64_t)retry->n_turned_away + n_lacking;
    retry->n_turned_away = n < TURNED_AWAY_MAX ? (int32_t)n : TURNED_AWAY_MAX;
    return wait_ms(retry->service_ns, n, n_running);
}

int32_t co_retry_client_ms(const struct co_retry *retry, int32_t n_lacking, int32_t n_own) {
    return wait_ms(retry->total_ns, n_lacking, n_own);
}
