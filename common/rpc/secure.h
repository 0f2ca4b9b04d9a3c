/* secure: who may connect, and how: certificates of a server, of a client, and rules of a Unix
 * socket.
 * Owns:    what was read of certificate files, from create to destroy.
 * Runs in: every process; the loop thread only.
 * Never:   logs; prints a key. */
#ifndef FT_RPC_SECURE_H
#define FT_RPC_SECURE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Who may connect to a Unix socket. The socket's mode is the first gate, the peer's credentials
 * (SO_PEERCRED) are the second: the process's own user and root always pass. */
struct ft_rpc_socket_rule {
    unsigned mode;     /* of the socket; 0: 0600 */
    const char *group; /* that owns the socket, a name or a number; NULL or "": the process's */
    const char *users; /* who else passes: names or numbers, comma-separated; "*": everybody */
};

/* That its users and its group exist here. fail FT_E_PROC_CONFIG naming what does not */
enum ft_code ft_rpc_socket_rule_check(const struct ft_rpc_socket_rule *rule, struct ft_err *err);

/* What an endpoint as users write it is; local is reachable from this host alone: a Unix socket,
 * 127.0.0.0/8, [::1] or localhost. fail FT_E_PROC_CONFIG naming what is wrong with it */
enum ft_code ft_rpc_endpoint_check(const char *endpoint, bool *is_unix, bool *is_local,
                                   struct ft_err *err);

/* ---- a server's certificates ------------------------------------------------------------------
 */

struct ft_rpc_tls;

struct ft_rpc_tls_files {
    const char *cert;      /* PEM: the server's certificate and those between it and the root */
    const char *key;       /* PEM, not encrypted */
    const char *client_ca; /* PEM: clients must show a certificate of these; NULL or "": none asked
                            */
};

/* Read and check the files; their names are copied.
 * fail  FT_E_PROC_CONFIG naming the file: not there, no PEM, out of its time, a key of another
 *       certificate */
enum ft_code ft_rpc_tls_create(struct ft_rpc_tls **out, const struct ft_rpc_tls_files *files,
                               struct ft_err *err);
/* Read the files again if one of them has changed. Connections made from then on see the new ones;
 * those that exist go on. *changed says whether there was something new, tried once: on failure
 * what was in force stays in force until the files change again. */
enum ft_code ft_rpc_tls_reload(struct ft_rpc_tls *tls, bool *changed, struct ft_err *err);
/* When the certificate ends, seconds since 1970. */
int64_t ft_rpc_tls_expires_s(const struct ft_rpc_tls *tls);
/* After the servers that use it. */
void ft_rpc_tls_destroy(struct ft_rpc_tls **tls);

/* ---- a client's ------------------------------------------------------------------------------ */

struct ft_rpc_client_tls {
    const char *ca;        /* PEM: who may vouch for the server; NULL or "": the system's list */
    const char *cert;      /* PEM: what the client shows a server that asks; NULL or "": nothing */
    const char *key;       /* PEM, of cert */
    const char *authority; /* name to look for in the server's certificate; NULL or "": the
                              endpoint's host */
};

#ifdef __cplusplus
}
#endif
#endif
