/* rpc_fixture: one loop with an echo server on a Unix socket in a fresh folder, and its client.
 * Owns:    everything in struct rpc_fixture, from setup to teardown.
 * Runs in: the suites of common/rpc, as Check's checked fixture.
 * Never:   waits for ever: each wait has a limit. */
#ifndef FT_TESTS_RPC_FIXTURE_H
#define FT_TESTS_RPC_FIXTURE_H

#include "common/base/buf.h"
#include "support/rpc_echo.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rpc_fixture {
    char folder[64];
    char path[96];      /* of the socket */
    char endpoint[112]; /* unix:PATH */
    struct rpc_echo echo;
    struct ft_rpc_loop *loop;
    struct ft_rpc_server *server;
    struct ft_rpc_client *client;
};
extern struct rpc_fixture fx;

void rpc_fixture_setup(void);
void rpc_fixture_teardown(void);
/* A further server on endpoint, started. opts may be NULL. */
struct ft_rpc_server *rpc_fixture_serve(const char *endpoint, const struct ft_rpc_server_opts *opts,
                                        int *port);
/* Close fx.server and start it again with opts (NULL: defaults). */
void rpc_fixture_restart(const struct ft_rpc_server_opts *opts);
struct ft_rpc_client *rpc_fixture_connect(const char *endpoint,
                                          const struct ft_rpc_client_opts *opts);

/* Run the loop until *value equals wanted; false when that takes longer than max_ms. */
bool rpc_wait_int(const int *value, int wanted, int max_ms);
void rpc_run_ms(int ms); /* time in which the process is held up does not count */
int64_t rpc_in_ms(int ms); /* ft_clock_now_ns time */

/* A unary call, run to its end. */
struct rpc_answer {
    struct ft_rpc_status status;
    int done;
    size_t len;
    char bytes[256]; /* the start of the reply */
};
void rpc_answer_fn(void *user, const struct ft_rpc_status *status, struct ft_str reply);
struct rpc_answer rpc_ask(struct ft_rpc_client *client, const char *path, struct ft_str message,
                          const struct ft_rpc_call_opts *opts);

/* A stream and what came of it. */
struct rpc_talk {
    struct ft_rpc_stream *stream; /* NULL once done */
    int messages, writable, done;
    size_t bytes;
    char last[64]; /* the start of the last message */
    bool in_order; /* messages carry a count, and it is right so far */
    struct ft_rpc_status status;
    void (*on_message)(struct rpc_talk *talk, struct ft_str message); /* may be NULL */
};
extern const struct ft_rpc_stream_handlers k_rpc_talk_handlers;
void rpc_talk_open(struct rpc_talk *talk, struct ft_rpc_client *client, const char *path,
                   const struct ft_rpc_call_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
