/* reflection (wire): answers to grpc.reflection requests from a schema.
 * Owns:    nothing.
 * Runs in: coordinator; any thread.
 * Never:   lets a protobuf-c type out. */
#ifndef FT_WIRE_REFLECTION_H
#define FT_WIRE_REFLECTION_H

#include "common/base/arena.h"
#include "common/wire/schema.h"

#ifdef __cplusplus
extern "C" {
#endif

/* v1 and v1alpha are the same on the wire. */
#define FT_WIRE_REFLECTION_SERVICE "/grpc.reflection.v1.ServerReflection/"
#define FT_WIRE_REFLECTION_ALPHA_SERVICE "/grpc.reflection.v1alpha.ServerReflection/"

/* The ServerReflectionResponse to the ServerReflectionRequest in, appended to out. What is asked
 * for and not there is an answer too.
 * fail  FT_E_REQ_INVALID: no such message, or nothing is asked for; FT_E_REQ_EXHAUSTED */
enum ft_code ft_wire_reflection_answer(const struct ft_wire_schema *schema, struct ft_str in,
                                       struct ft_arena *arena, struct ft_buf *out,
                                       struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
