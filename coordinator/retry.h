/* retry: when a client that was turned away should come again, from what requests took so far.
 * Owns:    nothing: numbers in, milliseconds out.
 * Runs in: coordinator; loop thread only.
 * Never:   promises a place: it says when one is likely to be free. */
#ifndef CO_RETRY_H
#define CO_RETRY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bounds of what a client is told: shorter is a busy loop, longer is as good as "some time". */
#define CO_RETRY_MS_MIN 20
#define CO_RETRY_MS_MAX 60000
/* While no request has ended yet: about the length of a short answer. */
#define CO_RETRY_MS_UNKNOWN 500

struct co_retry {
    int64_t service_ns;    /* mean time from a place to the end, of late; 0: none has ended yet */
    int64_t total_ns;      /* mean time from arrival to the end */
    int32_t n_turned_away; /* requests refused for the queue that nobody's end has made up for */
};

/* A request ended. service_ns: since it had a place, or -1 when it never had one. */
void co_retry_ended(struct co_retry *retry, int64_t service_ns, int64_t total_ns);

/* The queue lacks n_lacking places, n_running requests run. Places come free one by one, each
 * service / n_running after the last; those who were turned away before have the first of them, so
 * that not all of them come again at once. Counts these n_lacking among them. */
int32_t co_retry_queue_ms(struct co_retry *retry, int32_t n_lacking, int32_t n_running);

/* One client lacks n_lacking of its share and has n_own requests: so many of its own must end. */
int32_t co_retry_client_ms(const struct co_retry *retry, int32_t n_lacking, int32_t n_own);

#ifdef __cplusplus
}
#endif
#endif
