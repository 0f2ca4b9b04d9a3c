/* tls: what a server's listeners take from struct ft_rpc_tls.
 * Owns:    one reference's memory of what it was given last, in struct ft_rpc_tls_feed.
 * Runs in: every process; the fetch of a feed on any thread of gRPC, the rest on the loop thread.
 * Never:   is included from outside common/rpc. */
#ifndef FT_RPC_TLS_H
#define FT_RPC_TLS_H

#include <grpc/grpc_security.h>

#include "common/rpc/secure.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Each listener asks for itself whether there is something new; must outlive the server. */
struct ft_rpc_tls_feed {
    struct ft_rpc_tls *tls;
    uint64_t generation; /* given last; guarded by the mutex of tls */
};
grpc_server_credentials *ft_rpc_tls_server_credentials(struct ft_rpc_tls_feed *feed);

/* Credentials of a channel. fail FT_E_PROC_CONFIG naming the file */
enum ft_code ft_rpc_tls_client_credentials(grpc_channel_credentials **out,
                                           const struct ft_rpc_client_tls *files,
                                           struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
