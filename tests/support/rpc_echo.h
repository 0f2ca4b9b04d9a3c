/* rpc_echo: a service that shows every kind of call, for the suites of common/rpc and for clients
 * of other languages.
 * Owns:    its counters.
 * Runs in: tests; loop thread.
 * Never:   fails by itself. */
#ifndef FT_TESTS_RPC_ECHO_H
#define FT_TESTS_RPC_ECHO_H

#include "common/rpc/rpc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* /test.Echo/Unary   the message back
 * /test.Echo/Fail    message "CODE TEXT": ends with that status
 * /test.Echo/Meta    value of request metadata x-key back, and in the trailer x-back
 * /test.Echo/Peer   the peer's address back
 * /test.Echo/Mute    ends OK without a reply
 * /test.Echo/Hang    unary, never answers
 * /test.Echo/Stream  message "COUNT BYTES": streams COUNT messages of BYTES 's', paced by the
 * reader /test.Echo/Flood   message "COUNT BYTES": sends COUNT messages at once until send fails
 * /test.Echo/Bidi    each message back; OK after the half-close; "close CODE" ends at once
 * /test.Echo/Sink    bidi, reads and says nothing until the half-close, then the count */
struct rpc_echo {
    int opened, messages, half_closed, writable, cancelled, gone;
    enum ft_code last_send; /* of Flood and Bidi */
    int flood_sent;
    struct ft_rpc_call *hanging; /* the last call that Hang did not answer, while it lives */
    int64_t deadline_ns;         /* of the last call */
};

extern const struct ft_rpc_method k_rpc_echo_methods[];
extern const size_t k_rpc_echo_n_methods;

#ifdef __cplusplus
}
#endif
#endif
