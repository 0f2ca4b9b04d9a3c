/* pb (wire): the few calls into protobuf-c that the message files share.
 * Owns:    nothing; what unpack makes lives in the arena.
 * Runs in: every process, any thread; one arena or buffer at a time.
 * Never:   calls malloc while unpacking; is included outside common/wire. */
#ifndef FT_WIRE_PB_H
#define FT_WIRE_PB_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ProtobufCMessage;
struct ProtobufCMessageDescriptor;

/* Text and bytes as protobuf-c holds them, and back; both borrow. */
#define FT_PB_BYTES(str) ((ProtobufCBinaryData){(str).len, (uint8_t *)(uintptr_t)(str).ptr})
#define FT_PB_STR(bytes) ((struct ft_str){(const char *)(bytes).data, (bytes).len})

/* Append message to out. */
void ft_pb_pack(const struct ProtobufCMessage *message, struct ft_buf *out);
/* Append message, or bytes, as one value of parent's length-delimited field of that name. Fields
 * may stand in any order on the wire, so a message that would need arrays of pointers is its
 * scalar fields packed at once and the others appended one by one. */
void ft_pb_pack_message(const struct ProtobufCMessageDescriptor *parent, const char *field,
                        const struct ProtobufCMessage *message, struct ft_buf *out);
void ft_pb_pack_bytes(const struct ProtobufCMessageDescriptor *parent, const char *field,
                      struct ft_str bytes, struct ft_buf *out);
/* The same for the bytes of a submessage that was put together in part, which is emptied. A part
 * that failed makes out fail. */
void ft_pb_pack_buf(const struct ProtobufCMessageDescriptor *parent, const char *field,
                    struct ft_buf *part, struct ft_buf *out);

/* Parse in as a message of that type; all of it lies in the arena. Unknown fields are dropped.
 * out   message  the generated struct, whose .base is a ProtobufCMessage
 * fail  FT_E_REQ_INVALID: no such message. FT_E_REQ_TOO_LARGE: it would take far more memory than
 *       its bytes justify. FT_E_REQ_EXHAUSTED: the arena is full. */
enum ft_code ft_pb_unpack(const struct ProtobufCMessageDescriptor *type, struct ft_str in,
                          struct ft_arena *arena, const void **message, struct ft_err *err);

/* Step over the next field of the message in. value is what a length-delimited field holds, else
 * empty. false: in is empty, or what it begins with is no field. */
bool ft_pb_next(struct ft_str *in, uint32_t *field, struct ft_str *value);

/* The same failure for what is laid out in the arena after unpacking. */
enum ft_code ft_pb_arena_full(const char *message, struct ft_err *err);
/* FT_OK when n <= max, else FT_E_REQ_INVALID naming the field. */
enum ft_code ft_pb_check_count(const char *field, size_t n, size_t max, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
