/* acceptor: takes connections on a Unix socket, looks at who connects, and hands gRPC those that
 * may. gRPC can listen by itself but never says which user is at the other end.
 * Owns:    the listening socket, its lock and a thread that waits for it, from open to close.
 * Runs in: every process; its thread touches nothing but the socket and the mailbox of the loop.
 * Never:   is included from outside common/rpc. */
#ifndef FT_RPC_ACCEPTOR_H
#define FT_RPC_ACCEPTOR_H

#include <sys/types.h>

#include "common/rpc/endpoint.h"
#include "common/rpc/secure.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_rpc_loop;
struct ft_rpc_acceptor;

/* On the loop thread: fd is connected, non-blocking and the callee's; it comes from uid. Or, fd -1,
 * uid was turned away. */
typedef void (*ft_rpc_accepted_fn)(void *user, int fd, uid_t uid);

/* Bind endpoint, a Unix socket; connections wait until begin.
 * fail FT_E_PROC_CONFIG: another server lives there, or the rule names nobody; FT_E_PROC_OS */
enum ft_code ft_rpc_acceptor_open(struct ft_rpc_acceptor **out,
                                  const struct ft_rpc_endpoint *endpoint,
                                  const struct ft_rpc_socket_rule *rule, struct ft_err *err);
enum ft_code ft_rpc_acceptor_begin(struct ft_rpc_acceptor *acceptor, struct ft_rpc_loop *loop,
                                   ft_rpc_accepted_fn fn, void *user, struct ft_err *err);
/* No connection comes any more; what was accepted and not yet told of is closed. Runs the loop. */
void ft_rpc_acceptor_end(struct ft_rpc_acceptor *acceptor);
/* Also removes the socket. After end, when begin was called. */
void ft_rpc_acceptor_close(struct ft_rpc_acceptor **acceptor);

#ifdef __cplusplus
}
#endif
#endif
