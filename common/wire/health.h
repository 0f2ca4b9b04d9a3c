/* health (wire): messages of grpc.health.v1.Health as plain values.
 * Owns:    nothing; decoded texts live in the arena that was passed in.
 * Runs in: coordinator, foretokenctl.
 * Never:   lets a protobuf-c type out. */
#ifndef FT_WIRE_HEALTH_H
#define FT_WIRE_HEALTH_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FT_WIRE_HEALTH_SERVICE "/grpc.health.v1.Health/"

enum ft_wire_health { /* HealthCheckResponse.ServingStatus */
                      FT_WIRE_HEALTH_UNKNOWN,
                      FT_WIRE_HEALTH_SERVING,
                      FT_WIRE_HEALTH_NOT_SERVING,
                      FT_WIRE_HEALTH_SERVICE_UNKNOWN
};

void ft_wire_encode_health_request(struct ft_str service, struct ft_buf *out);
/* fail FT_E_REQ_INVALID: no such message, or the service's name is not UTF-8 */
enum ft_code ft_wire_decode_health_request(struct ft_str in, struct ft_arena *arena,
                                           struct ft_str *service, struct ft_err *err);
void ft_wire_encode_health(enum ft_wire_health status, struct ft_buf *out);
/* A number that has no name is UNKNOWN. */
enum ft_code ft_wire_decode_health(struct ft_str in, struct ft_arena *arena,
                                   enum ft_wire_health *status, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
