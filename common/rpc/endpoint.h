/* endpoint: addresses as users write them, and who may listen on a Unix socket's path.
 * Owns:    the lock file of struct ft_rpc_socket_lock, from take to give.
 * Runs in: every process; the loop thread only.
 * Never:   is included from outside common/rpc. */
#ifndef FT_RPC_ENDPOINT_H
#define FT_RPC_ENDPOINT_H

#include <stdbool.h>

#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_rpc_endpoint {
    bool is_unix;
    char path[108];    /* of a Unix socket */
    char host[256];    /* of TCP, without brackets */
    int port;          /* of TCP */
    char address[300]; /* as a gRPC server wants it */
    char target[300];  /* as a gRPC client wants it: no name look-up for plain addresses */
};
/* fail FT_E_PROC_CONFIG naming what is wrong with text */
enum ft_code ft_rpc_endpoint_parse(struct ft_rpc_endpoint *out, const char *text,
                                   struct ft_err *err);
/* Reachable from this host alone: a Unix socket, 127.0.0.0/8, ::1 or localhost. */
bool ft_rpc_endpoint_is_local(const struct ft_rpc_endpoint *endpoint);
/* After gRPC refused to listen: why, as an errno (0: not known). */
int ft_rpc_endpoint_bind_errno(const struct ft_rpc_endpoint *endpoint);

/* gRPC unlinks whatever socket it finds at a path and, when it stops, whatever lies there then. So
 * a lock file beside the path, locked for the server's life, decides who owns it. */
struct ft_rpc_socket_lock {
    int fd;
    char path[108 + 8]; /* of the lock file */
};
/* fail FT_E_PROC_CONFIG: another server lives there, or the path is not a socket; FT_E_PROC_OS */
enum ft_code ft_rpc_socket_lock_take(struct ft_rpc_socket_lock *lock, const char *path,
                                     struct ft_err *err);
void ft_rpc_socket_lock_give(struct ft_rpc_socket_lock *lock);

#ifdef __cplusplus
}
#endif
#endif
