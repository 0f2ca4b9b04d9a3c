/* reflection: tells clients without our protos what the service offers.
 * Owns:    what it read of the descriptors, once, from the first call on.
 * Runs in: coordinator; loop thread only.
 * Never:   tells of what is not served here. */
#ifndef CO_REFLECTION_H
#define CO_REFLECTION_H

#include "common/rpc/rpc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Handlers of both versions' one bidirectional method. */
void co_reflection_message(struct ft_rpc_call *call, void *service, struct ft_str message);
void co_reflection_half_close(struct ft_rpc_call *call, void *service);

#ifdef __cplusplus
}
#endif
#endif
