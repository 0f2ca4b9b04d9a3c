#include "common/wire/pb.h"

#include <protobuf-c/protobuf-c.h>

#define MODULE "wire"

/* Memory that one message may take while it is unpacked: a fixed part for small ones, and so many
 * bytes for each byte on the wire. The worst honest case is a list of one-byte numbers written
 * unpacked, 42 bytes of bookkeeping for two on the wire. Empty submessages by the million take
 * more, and are refused before they are counted. */
#define UNPACK_BYTES_FIXED ((size_t)256 * 1024)
#define UNPACK_BYTES_PER_BYTE 48

#define VARINT_MAX 10

struct sink {
    ProtobufCBuffer base;
    struct ft_buf *out;
};

static void append(ProtobufCBuffer *base, size_t len, const uint8_t *data) {
    ft_buf_add(((struct sink *)(void *)base)->out, data, len);
}

void ft_pb_pack(const struct ProtobufCMessage *message, struct ft_buf *out) {
    struct sink sink = {{append}, out};
    protobuf_c_message_pack_to_buffer(message, &sink.base);
}

static size_t put_varint(uint8_t *out, uint64_t value) {
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        out[n++] = (uint8_t)(value | 0x80);
    out[n++] = (uint8_t)value;
    return n;
}

static void put_header(const struct ProtobufCMessageDescriptor *parent, const char *field,
                       size_t len, struct ft_buf *out) {
    const ProtobufCFieldDescriptor *row =
        protobuf_c_message_descriptor_get_field_by_name(parent, field);
    FT_ASSERT(row != NULL);
    uint8_t header[2 * VARINT_MAX];
    size_t n = put_varint(header, (uint64_t)row->id << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
    n += put_varint(header + n, len);
    ft_buf_add(out, header, n);
}

void ft_pb_pack_message(const struct ProtobufCMessageDescriptor *parent, const char *field,
                        const struct ProtobufCMessage *message, struct ft_buf *out) {
    put_header(parent, field, protobuf_c_message_get_packed_size(message), out);
    ft_pb_pack(message, out);
}

void ft_pb_pack_bytes(const struct ProtobufCMessageDescriptor *parent, const char *field,
                      struct ft_str bytes, struct ft_buf *out) {
    put_header(parent, field, bytes.len, out);
    ft_buf_add_str(out, bytes);
}

void ft_pb_pack_buf(const struct ProtobufCMessageDescriptor *parent, const char *field,
                    struct ft_buf *part, struct ft_buf *out) {
    if (part->failed)
        out->failed = true;
    else
        ft_pb_pack_bytes(parent, field, ft_buf_str(part), out);
    ft_buf_fini(part);
}

/* ---- submessages given twice ---------------------------------------------------------------- */

/* protobuf wants two parts of one submessage merged. protobuf-c loses fields there (1.4.1, proto3
 * syntax) and copies lists once per part. No client's library writes parts, so they are refused;
 * this scan runs ahead of protobuf-c, which is then the judge of everything else: where the bytes
 * are no message the scan just ends. */

static bool get_varint(struct ft_str *in, uint64_t *out) {
    *out = 0;
    for (size_t i = 0; i < VARINT_MAX && i < in->len; i++) {
        unsigned char c = (unsigned char)in->ptr[i];
        *out |= (uint64_t)(c & 0x7F) << 7 * i;
        if (c < 0x80) {
            *in = (struct ft_str){in->ptr + i + 1, in->len - i - 1};
            return true;
        }
    }
    return false;
}

static bool skip(struct ft_str *in, uint64_t n) {
    if (n > in->len)
        return false;
    *in = (struct ft_str){in->ptr + n, in->len - (size_t)n};
    return true;
}

/* Step over the value of a field; *inner is what a length-delimited one holds, else empty. */
static bool next_value(struct ft_str *in, unsigned wire_type, struct ft_str *inner) {
    uint64_t n;
    *inner = (struct ft_str){NULL, 0};
    switch (wire_type) {
    case PROTOBUF_C_WIRE_TYPE_VARINT:
        return get_varint(in, &n);
    case PROTOBUF_C_WIRE_TYPE_64BIT:
        return skip(in, 8);
    case PROTOBUF_C_WIRE_TYPE_32BIT:
        return skip(in, 4);
    case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
        if (!get_varint(in, &n) || n > in->len)
            return false;
        *inner = (struct ft_str){in->ptr, (size_t)n};
        return skip(in, n);
    default:
        return false;
    }
}

bool ft_pb_next(struct ft_str *in, uint32_t *field, struct ft_str *value) {
    uint64_t tag;
    struct ft_str rest = *in;
    if (!get_varint(&rest, &tag) || tag >> 3 > UINT32_MAX || !next_value(&rest, tag & 7, value))
        return false;
    *field = (uint32_t)(tag >> 3);
    *in = rest;
    return true;
}

static bool has_submessages(const ProtobufCMessageDescriptor *type) {
    for (unsigned i = 0; i < type->n_fields; i++)
        if (type->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
            return true;
    return false;
}

/* Recursion is as deep as the types nest, and none holds itself. */
static enum ft_code check_parts(const ProtobufCMessageDescriptor *type, struct ft_str in,
                                struct ft_err *err) {
    uint64_t seen = 0, tag;
    struct ft_str inner;
    FT_ASSERT(type->n_fields <= 64);
    if (!has_submessages(type))
        return FT_OK;
    while (in.len > 0 && get_varint(&in, &tag) && next_value(&in, tag & 7, &inner)) {
        const ProtobufCFieldDescriptor *field =
            tag >> 3 > UINT32_MAX
                ? NULL
                : protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3));
        if (field == NULL || field->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        uint64_t bit = 1ull << (field - type->fields);
        if (field->label != PROTOBUF_C_LABEL_REPEATED && (seen & bit) != 0)
            return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "%s.%s is there twice",
                              type->short_name, field->name);
        seen |= bit;
        enum ft_code code = check_parts(field->descriptor, inner, err);
        if (code != FT_OK)
            return code;
    }
    return FT_OK;
}

/* ---- unpacking ------------------------------------------------------------------------------ */

struct budget {
    struct ft_arena *arena;
    size_t left;
    bool spent;      /* the message asked for more than its budget */
    bool arena_full; /* the arena had no more */
};

static void *take(void *user, size_t bytes) {
    struct budget *budget = user;
    if (bytes > budget->left) {
        budget->spent = true;
        return NULL;
    }
    budget->left -= bytes;
    void *p = ft_arena_alloc(budget->arena, bytes);
    budget->arena_full = p == NULL;
    return p;
}

static void give(void *user, void *p) {
    (void)user; /* the arena forgets all at once */
    (void)p;
}

enum ft_code ft_pb_unpack(const struct ProtobufCMessageDescriptor *type, struct ft_str in,
                          struct ft_arena *arena, const void **message, struct ft_err *err) {
    if (in.len > (SIZE_MAX - UNPACK_BYTES_FIXED) / UNPACK_BYTES_PER_BYTE)
        return ft_err_set(err, FT_E_REQ_TOO_LARGE, MODULE, "%s has %zu bytes", type->short_name,
                          in.len);
    enum ft_code code = check_parts(type, in, err);
    if (code != FT_OK)
        return code;
    struct budget budget = {.arena = arena,
                            .left = UNPACK_BYTES_FIXED + in.len * UNPACK_BYTES_PER_BYTE};
    ProtobufCAllocator allocator = {take, give, &budget};
    const ProtobufCMessage *made =
        protobuf_c_message_unpack(type, &allocator, in.len, (const uint8_t *)in.ptr);
    if (made != NULL) {
        *message = made;
        return FT_OK;
    }
    if (budget.arena_full)
        return ft_pb_arena_full(type->short_name, err);
    if (budget.spent)
        return ft_err_set(err, FT_E_REQ_TOO_LARGE, MODULE,
                          "%s of %zu bytes takes more than %d bytes of memory per byte",
                          type->short_name, in.len, UNPACK_BYTES_PER_BYTE);
    return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "%zu bytes are no %s", in.len,
                      type->short_name);
}

enum ft_code ft_pb_arena_full(const char *message, struct ft_err *err) {
    return ft_err_set(err, FT_E_REQ_EXHAUSTED, MODULE, "no memory left to decode %s", message);
}

enum ft_code ft_pb_check_count(const char *field, size_t n, size_t max, struct ft_err *err) {
    if (n <= max)
        return FT_OK;
    return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "%s has %zu entries, at most %zu", field, n,
                      max);
}
