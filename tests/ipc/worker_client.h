/* worker_client: what a coordinator does with one worker, step by step, for tests.
 * Owns:    client, region mapping, replies; the loop too when it made it.
 * Runs in: tests; one thread.
 * Never:   waits longer than 20 s: the test fails. */
#ifndef FT_TESTS_WORKER_CLIENT_H
#define FT_TESTS_WORKER_CLIENT_H

#include "common/ipc/region.h"
#include "common/rpc/rpc.h"
#include "common/wire/worker.h"

enum { WORKER_REPLIES_MAX = 256 };

struct worker_client {
    struct ft_rpc_loop *loop;
    bool owns_loop;
    struct ft_rpc_client *client;
    const char *service, *step_method;
    uint64_t coordinator_epoch;
    struct ft_arena *arena; /* of everything received since open */
    struct ft_wire_describe describe;
    struct ft_region *region;
    char region_name[FT_REGION_NAME_MAX];
    struct ft_rpc_stream *stream;       /* NULL once done */
    struct ft_rpc_status stream_status; /* once done */
    uint64_t step_id;                   /* of the last step sent */
    uint32_t generation;                /* the same */
    struct ft_wire_step_reply replies[WORKER_REPLIES_MAX];
    int n_replies;
};

/* role "target" or "draft"; loop NULL: one of its own. */
void worker_client_open(struct worker_client *c, struct ft_rpc_loop *loop, const char *endpoint,
                        const char *role);
void worker_client_close(struct worker_client *c);

/* A unary call; waits for the worker when it is not up yet. reply may be NULL. */
struct ft_rpc_status worker_client_call(struct worker_client *c, const char *method,
                                        struct ft_str request, struct ft_buf *reply);
void worker_client_describe(struct worker_client *c); /* fails the test unless OK */
struct ft_rpc_status worker_client_attach(struct worker_client *c, bool mapped);
void worker_client_stream(struct worker_client *c);
/* Describe, Attach, map, Attach mapped, stream. */
void worker_client_connect(struct worker_client *c);

void worker_client_send(struct worker_client *c, const struct ft_wire_seq_step *seqs, size_t n);
void worker_client_send_raw(struct worker_client *c, struct ft_str message);
void worker_client_wait_replies(struct worker_client *c, int n); /* in all, since open */
void worker_client_wait_stream_end(struct worker_client *c);
/* send, wait, results. */
const struct ft_wire_seq_result *worker_client_step(struct worker_client *c,
                                                    const struct ft_wire_seq_step *seqs, size_t n);
const float *worker_client_row(const struct worker_client *c, const struct ft_wire_seq_result *r,
                               int32_t i); /* of the last step */

struct ft_rpc_status worker_client_release(struct worker_client *c, const uint64_t *ids, size_t n);
struct ft_wire_worker_stats worker_client_stats(struct worker_client *c);
void worker_client_run_ms(struct worker_client *c, int ms);

#endif
