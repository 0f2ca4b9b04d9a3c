/* session (ctl): one connection to the service, for the time of one command.
 * Owns:    loop, client, buffers and the arena of decoded replies, from open to close.
 * Runs in: foretokenctl; one thread.
 * Never:   prints but for errors. */
#ifndef CTL_SESSION_H
#define CTL_SESSION_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/rpc/rpc.h"
#include "foretokenctl/flags.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ctl_session {
    struct ft_rpc_loop *loop;
    struct ft_rpc_client *client;
    struct ft_arena *arena;
    struct ft_buf message, reply;
    struct ft_rpc_call_opts call;
    struct ft_rpc_stream *stream; /* the running one, which a signal cancels; set by its opener */
    int signo;                    /* the signal that came, 0 */
    bool tls;                     /* spoken */
};

/* Exit status, 0 when open. Either way close it. */
int ctl_session_open(struct ctl_session *session, const struct ctl_options *opts);
void ctl_session_close(struct ctl_session *session);

/* A unary call of session->message; the reply is in session->reply. Exit status. */
int ctl_session_call(struct ctl_session *session, const char *path);
/* Exit status after a call that ended so; a signal comes first, without a message. */
int ctl_session_end(const struct ctl_session *session, const struct ft_rpc_status *status);

/* What a reply looks like to a user, added to out. Exit status; it has said why it failed. */
typedef int ctl_session_render_fn(struct ctl_session *session, bool json, struct ft_buf *out);

/* What a command asks, added to message. */
typedef void ctl_session_fill_fn(const struct ctl_options *opts, struct ft_buf *message);

/* A whole command: call path with what fill (NULL: nothing) asks, render the reply and print it.
 * Exit status. */
int ctl_session_show(const struct ctl_options *opts, const char *path, ctl_session_fill_fn *fill,
                     ctl_session_render_fn *render);

#ifdef __cplusplus
}
#endif
#endif
