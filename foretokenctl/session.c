#include "foretokenctl/session.h"

#include <math.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "foretokenctl/env.h"
#include "foretokenctl/exit.h"

/* A service may allow more than gRPC's 4 MiB; what it says to us is ours to read. */
#define MESSAGE_MAX ((size_t)64 << 20)
#define ARENA_CHUNK ((size_t)64 << 10)
#define ARENA_MAX ((size_t)1 << 30)
#define TIMEOUT_MAX_S 1e9

static void on_signal(void *user, int signo) {
    struct ctl_session *session = user;
    if (session->signo != 0) /* the second one does not wait */
        _exit(CTL_EXIT_SIGNAL + signo);
    session->signo = signo;
    if (session->stream != NULL)
        ft_rpc_stream_cancel(session->stream);
    else
        ft_rpc_loop_stop(session->loop);
}

static int set_deadline(struct ctl_session *session, double timeout_s) {
    if (!(timeout_s >= 0 && timeout_s <= TIMEOUT_MAX_S))
        return ctl_exit_because(CTL_EXIT_USAGE, "--timeout must be 0 to 1e9 seconds");
    if (timeout_s > 0)
        session->call.deadline_ns = ft_clock_now_ns() + (int64_t)(timeout_s * 1e9);
    return CTL_EXIT_OK;
}

int ctl_session_open(struct ctl_session *session, const struct ctl_options *opts) {
    struct ft_err err = {0};
    struct ft_rpc_client_opts client = {.message_max = MESSAGE_MAX, .send_queue_max = MESSAGE_MAX};
    const char *endpoint = opts->endpoint.len > 0 ? opts->endpoint.ptr : ctl_env_endpoint();
    *session = (struct ctl_session){0};
    ft_buf_init(&session->message, 0);
    ft_buf_init(&session->reply, 0);
    int status = set_deadline(session, opts->timeout_s);
    if (status != CTL_EXIT_OK)
        return status;
    session->arena = ft_arena_create(ARENA_CHUNK, ARENA_MAX);
    if (session->arena == NULL)
        return ctl_exit_because(CTL_EXIT_OS, "no memory for replies");
    ft_rpc_signals_block();
    if (ft_rpc_loop_create(&session->loop, 0, &err) != FT_OK ||
        ft_rpc_loop_on_signal(session->loop, on_signal, session, &err) != FT_OK)
        return ctl_exit_from_err(&err);
    /* A bad endpoint is bad usage here, whatever it is to a server. */
    if (ft_rpc_client_open(&session->client, session->loop, endpoint, &client, &err) != FT_OK)
        return ctl_exit_because(err.code == FT_E_PROC_CONFIG
                                    ? CTL_EXIT_USAGE
                                    : (enum ctl_exit)ft_code_exit_status(err.code),
                                err.text);
    return CTL_EXIT_OK;
}

void ctl_session_close(struct ctl_session *session) {
    ft_rpc_client_close(&session->client);
    ft_rpc_loop_destroy(&session->loop);
    ft_arena_destroy(&session->arena);
    ft_buf_fini(&session->message);
    ft_buf_fini(&session->reply);
}

int ctl_session_end(const struct ctl_session *session, const struct ft_rpc_status *status) {
    return session->signo != 0 ? CTL_EXIT_SIGNAL + session->signo : ctl_exit_from_status(status);
}

int ctl_session_call(struct ctl_session *session, const char *path) {
    ft_buf_reset(&session->reply);
    if (session->message.failed)
        return ctl_exit_because(CTL_EXIT_OS, "no memory for the request");
    struct ft_rpc_status status = ft_rpc_client_unary_sync(
        session->client, path, ft_buf_str(&session->message), &session->call, &session->reply);
    return ctl_session_end(session, &status);
}

int ctl_session_show(const struct ctl_options *opts, const char *path,
                     ctl_session_render_fn *render) {
    struct ctl_session session;
    struct ft_buf out;
    ft_buf_init(&out, 0);
    int status = ctl_session_open(&session, opts);
    if (status == CTL_EXIT_OK)
        status = ctl_session_call(&session, path);
    if (status == CTL_EXIT_OK)
        status = render(&session, opts->json, &out);
    if (status == CTL_EXIT_OK)
        status = ctl_exit_with_output(&out);
    ft_buf_fini(&out);
    ctl_session_close(&session);
    return status;
}
