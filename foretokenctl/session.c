#include "foretokenctl/session.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "foretokenctl/env.h"
#include "foretokenctl/exit.h"

/* A service may allow more than gRPC's 4 MiB; what it says to us is ours to read. */
#define MESSAGE_MAX ((size_t)64 << 20)
#define ARENA_CHUNK ((size_t)64 << 10)
#define ARENA_MAX ((size_t)1 << 30)
#define TIMEOUT_MAX_S 1e9
#define TOKEN_FILE_MAX 4096
#define MODULE "session"
#define STATUS_UNAVAILABLE 14

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

/* A flag, or what the environment says in its place. */
static const char *either(struct ft_str flag, const char *otherwise) {
    return flag.len > 0 ? flag.ptr : otherwise;
}

/* The token, from flag, file or environment, into token; a flag comes before the environment. */
static enum ft_code find_token(const struct ctl_options *opts, struct ft_buf *token,
                               struct ft_err *err) {
    const char *text = opts->token.ptr, *file = opts->token_file.ptr;
    if (opts->token.len > 0 && opts->token_file.len > 0)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "--token and --token-file are both given: one of them at most");
    if (opts->token.len == 0 && opts->token_file.len == 0) {
        text = ctl_env_token();
        file = ctl_env_token_file();
    }
    if (text != NULL && text[0] != 0)
        ft_buf_add_c(token, text);
    else if (file != NULL && file[0] != 0 &&
             ft_file_read(file, TOKEN_FILE_MAX, token, err) != FT_OK)
        return err->code;
    while (token->len > 0 && strchr(" \t\r\n", token->ptr[token->len - 1]) != NULL)
        token->ptr[--token->len] = 0;
    if (file != NULL && file[0] != 0 && token->len == 0)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "%s: no token in it", file);
    if (token->failed)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for the token");
    for (size_t i = 0; i < token->len; i++)
        if (token->ptr[i] <= 0x20 || token->ptr[i] > 0x7e)
            return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                              "the token has a byte that is not printable ASCII, at %zu", i);
    return FT_OK;
}

/* To a server a file that is not there is a bad configuration; here it is a missing input. */
static enum ft_code find_files(const struct ft_rpc_client_tls *tls, struct ft_err *err) {
    const char *const paths[] = {tls->ca, tls->cert, tls->key};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (paths[i][0] != 0 && access(paths[i], R_OK) != 0)
            return ctl_exit_unopened(err, errno, paths[i]);
    return FT_OK;
}

static enum ft_code open_client(struct ctl_session *session, const struct ctl_options *opts,
                                const struct ft_buf *token, struct ft_err *err) {
    struct ft_rpc_client_opts client = {.message_max = MESSAGE_MAX, .send_queue_max = MESSAGE_MAX};
    struct ft_rpc_client_tls tls = {.ca = either(opts->cacert, ctl_env_cacert()),
                                    .cert = either(opts->cert, ctl_env_cert()),
                                    .key = either(opts->key, ctl_env_key()),
                                    .authority = either(opts->tls_name, "")};
    bool implied = tls.ca[0] != 0 || tls.cert[0] != 0 || tls.key[0] != 0;
    bool wanted = opts->tls;
    if (!opts->has_tls && ctl_env_tls(&wanted, err) != FT_OK)
        return err->code;
    if (wanted || (!opts->has_tls && implied))
        client.tls = &tls;
    if (client.tls != NULL && find_files(&tls, err) != FT_OK)
        return err->code;
    client.bearer = token->ptr;
    session->tls = client.tls != NULL;
    return ft_rpc_client_open(&session->client, session->loop,
                              either(opts->endpoint, ctl_env_endpoint()), &client, err);
}

/* From here on the loop alone takes signals: whatever may wait for another process, as reading the
 * token may, comes before it. */
static enum ft_code open_loop(struct ctl_session *session, struct ft_err *err) {
    ft_rpc_signals_block();
    if (ft_rpc_loop_create(&session->loop, 0, err) != FT_OK)
        return err->code;
    return ft_rpc_loop_on_signal(session->loop, on_signal, session, err);
}

int ctl_session_open(struct ctl_session *session, const struct ctl_options *opts) {
    struct ft_err err = {0};
    struct ft_buf token;
    *session = (struct ctl_session){0};
    ft_buf_init(&session->message, 0);
    ft_buf_init(&session->reply, 0);
    int status = set_deadline(session, opts->timeout_s);
    if (status != CTL_EXIT_OK)
        return status;
    session->arena = ft_arena_create(ARENA_CHUNK, ARENA_MAX);
    if (session->arena == NULL)
        return ctl_exit_because(CTL_EXIT_OS, "no memory for replies");
    ft_buf_init(&token, 0);
    enum ft_code code = find_token(opts, &token, &err);
    if (code == FT_OK)
        code = open_loop(session, &err);
    if (code == FT_OK)
        code = open_client(session, opts, &token, &err);
    if (token.ptr != NULL)
        explicit_bzero(token.ptr, token.cap);
    ft_buf_fini(&token);
    /* A bad endpoint is bad usage here, whatever it is to a server. */
    if (code != FT_OK)
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

/* What a mismatch of TLS looks like from here: a connection that ends before anything was said. */
static const char *tls_hint(const struct ctl_session *session, const struct ft_rpc_status *status) {
    if (status->code != STATUS_UNAVAILABLE || strstr(status->text, "failed to connect") == NULL)
        return NULL;
    if (strstr(status->text, "certificate verify failed") != NULL)
        return "no authority of --cacert, or of this system without it, vouches for the service";
    if (strstr(status->text, "Peer name") != NULL)
        return "the service's certificate is for another name; --tls-name NAME accepts that one";
    if (session->tls && strstr(status->text, "wrong version number") != NULL)
        return "the service does not speak TLS";
    if (strstr(status->text, "Socket closed") == NULL && strstr(status->text, "reset") == NULL)
        return NULL;
    return session->tls ? "does the service want a certificate? then give --cert and --key"
                        : "does the service speak TLS? then give --tls or --cacert FILE";
}

int ctl_session_end(const struct ctl_session *session, const struct ft_rpc_status *status) {
    if (session->signo != 0)
        return CTL_EXIT_SIGNAL + session->signo;
    int exit_status = ctl_exit_from_status(status);
    const char *hint = tls_hint(session, status);
    if (hint != NULL)
        fprintf(stderr, "foretokenctl: %s\n", hint);
    return exit_status;
}

int ctl_session_call(struct ctl_session *session, const char *path) {
    ft_buf_reset(&session->reply);
    if (session->message.failed)
        return ctl_exit_because(CTL_EXIT_OS, "no memory for the request");
    struct ft_rpc_status status = ft_rpc_client_unary_sync(
        session->client, path, ft_buf_str(&session->message), &session->call, &session->reply);
    return ctl_session_end(session, &status);
}

int ctl_session_show(const struct ctl_options *opts, const char *path, ctl_session_fill_fn *fill,
                     ctl_session_render_fn *render) {
    struct ctl_session session;
    struct ft_buf out;
    ft_buf_init(&out, 0);
    int status = ctl_session_open(&session, opts);
    if (status == CTL_EXIT_OK) {
        if (fill != NULL)
            fill(opts, &session.message);
        status = ctl_session_call(&session, path);
    }
    if (status == CTL_EXIT_OK) {
        status = render(&session, opts->json, &out);
        int printed = ctl_exit_with_output(&out);
        status = status != CTL_EXIT_OK ? status : printed;
    }
    ft_buf_fini(&out);
    ctl_session_close(&session);
    return status;
}
