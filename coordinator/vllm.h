/* vllm: the service vllm.grpc.engine.VllmEngine as a facade: requests are those of
 * foretoken.v1.Inference from admission to the last token, in other messages.
 * Owns:    nothing.
 * Runs in: coordinator; loop thread only.
 * Never:   schedules or samples; passes over what it does not support. */
#ifndef CO_VLLM_H
#define CO_VLLM_H

#include "common/rpc/rpc.h"
#include "common/wire/inference.h"

#ifdef __cplusplus
extern "C" {
#endif

struct co_app;
struct co_request;

/* A GenerateRequest of theirs as one of ours. */
enum ft_code co_vllm_decode(const struct co_app *app, struct ft_str message, struct ft_arena *arena,
                            struct ft_wire_generate *out, struct ft_err *err);
/* Say what message says to the client of r: of a stream a chunk, and at the end of each output
 * what completes it.
 * out   is_out  the chunk is on its way, whatever became of the rest */
enum ft_code co_vllm_send(struct co_request *r, const struct ft_wire_generated *message, bool last,
                          bool *is_out);

/* Handlers; service is the app. Generate is in service.c. */
void co_vllm_health_check(struct ft_rpc_call *call, void *service, struct ft_str message);
void co_vllm_abort(struct ft_rpc_call *call, void *service, struct ft_str message);
void co_vllm_model_info(struct ft_rpc_call *call, void *service, struct ft_str message);
void co_vllm_server_info(struct ft_rpc_call *call, void *service, struct ft_str message);
void co_vllm_loads(struct ft_rpc_call *call, void *service, struct ft_str message);

#ifdef __cplusplus
}
#endif
#endif
