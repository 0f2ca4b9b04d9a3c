/* guard: who may call the coordinator: its certificates and its bearer tokens, kept up to date with
 * their files, and the limits of each token.
 * Owns:    what it read of the files, from open to close.
 * Runs in: coordinator; loop thread only.
 * Never:   logs a token or a key. */
#ifndef CO_GUARD_H
#define CO_GUARD_H

#include "common/base/file.h"
#include "common/rpc/rpc.h"
#include "coordinator/tokens.h"

#ifdef __cplusplus
extern "C" {
#endif

struct co_app;

struct co_guard {
    struct ft_rpc_tls *tls; /* NULL: plain */
    bool asks_tokens;
    struct co_tokens tokens;
    struct ft_file_stamp tokens_stamp;
    struct ft_rpc_timer timer; /* of the next look at the files */
    int64_t warned_ns;         /* of the last line about refused callers */
    uint64_t n_refused;        /* callers and peers turned away since then */
};

/* Read the files that app->config names, and look at them again from time to time.
 * fail FT_E_PROC_CONFIG naming the file */
enum ft_code co_guard_open(struct co_app *app, struct ft_err *err);
/* After the server. */
void co_guard_close(struct co_app *app);
/* Look at the files now: what has changed comes into force, what is wrong is logged and does not.
 */
void co_guard_reload(struct co_app *app);

/* The hooks of struct ft_rpc_server_opts. Health needs no token, the admin service a right.
 * fail FT_E_REQ_UNAUTHENTICATED, FT_E_REQ_DENIED */
enum ft_code co_guard_admit(struct ft_rpc_call *call, void *service, struct ft_err *err);
void co_guard_peer_refused(void *service, uint32_t uid);

/* The token of an admitted call; NULL: the service asks for none. */
struct co_token *co_guard_token(const struct co_app *app, const struct ft_rpc_call *call);
/* n requests of that priority more: within its token's limits, of which they are taken.
 * fail FT_E_REQ_EXHAUSTED, the call then says when to come again; FT_E_REQ_DENIED */
enum ft_code co_guard_take(struct co_app *app, struct ft_rpc_call *call, int32_t n,
                           int32_t priority, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
