#include "common/wire/reflection.h"

#include <stdio.h>

#include "common/wire/pb.h"
#include "grpc/reflection/v1/reflection.pb-c.h"

#define MODULE "wire"
#define NOT_FOUND 5 /* grpc_status_code */
#define ASKS(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##what
#define RESPONSE (&grpc__reflection__v1__server_reflection_response__descriptor)

static void add_error(const char *what, struct ft_str name, struct ft_buf *out) {
    Grpc__Reflection__V1__ErrorResponse m = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
    char text[256];
    int n = snprintf(text, sizeof text, "no %s '%.*s' here", what,
                     (int)(name.len < 128 ? name.len : 128), name.ptr == NULL ? "" : name.ptr);
    struct ft_str said = {text, n > 0 ? (size_t)n : 0};
    said.len = ft_utf8_valid_prefix(said);
    m.error_code = NOT_FOUND;
    m.error_message = FT_PB_BYTES(said);
    ft_pb_pack_message(RESPONSE, "error_response", &m.base, out);
}

/* The file and all that it imports; the file comes first. */
static void add_files(const struct ft_wire_schema *schema, int32_t file, struct ft_buf *out) {
    const struct ProtobufCMessageDescriptor *type =
        &grpc__reflection__v1__file_descriptor_response__descriptor;
    struct ft_buf part;
    ft_buf_init(&part, 0);
    ft_pb_pack_bytes(type, "file_descriptor_proto", schema->files[file].bytes, &part);
    for (int32_t i = 0; i < schema->n_files; i++)
        if (i != file && (schema->files[file].closure >> i & 1) != 0)
            ft_pb_pack_bytes(type, "file_descriptor_proto", schema->files[i].bytes, &part);
    ft_pb_pack_buf(RESPONSE, "file_descriptor_response", &part, out);
}

static void add_services(const struct ft_wire_schema *schema, struct ft_buf *out) {
    struct ft_buf part, name;
    ft_buf_init(&part, 0);
    ft_buf_init(&name, 0);
    for (int32_t file = 0; file < schema->n_files; file++) {
        for (int32_t i = 0; ft_wire_schema_service(schema, file, i, &name); i++) {
            Grpc__Reflection__V1__ServiceResponse m = GRPC__REFLECTION__V1__SERVICE_RESPONSE__INIT;
            m.name = FT_PB_BYTES(ft_buf_str(&name));
            ft_pb_pack_message(&grpc__reflection__v1__list_service_response__descriptor, "service",
                               &m.base, &part);
            part.failed = part.failed || name.failed;
            ft_buf_reset(&name);
        }
    }
    ft_buf_fini(&name);
    ft_pb_pack_buf(RESPONSE, "list_services_response", &part, out);
}

static void add_file_or_error(const struct ft_wire_schema *schema, int32_t file, const char *what,
                              struct ft_str name, struct ft_buf *out) {
    if (file >= 0)
        add_files(schema, file, out);
    else
        add_error(what, name, out);
}

static void add_extension_numbers(const struct ft_wire_schema *schema, struct ft_str type,
                                  struct ft_buf *out) {
    Grpc__Reflection__V1__ExtensionNumberResponse m =
        GRPC__REFLECTION__V1__EXTENSION_NUMBER_RESPONSE__INIT;
    m.base_type_name = FT_PB_BYTES(type);
    if (ft_wire_schema_find_symbol(schema, type) < 0)
        add_error("type", type, out);
    else
        ft_pb_pack_message(RESPONSE, "all_extension_numbers_response", &m.base, out);
}

enum ft_code ft_wire_reflection_answer(const struct ft_wire_schema *schema, struct ft_str in,
                                       struct ft_arena *arena, struct ft_buf *out,
                                       struct ft_err *err) {
    const void *raw;
    enum ft_code code = ft_pb_unpack(&grpc__reflection__v1__server_reflection_request__descriptor,
                                     in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Grpc__Reflection__V1__ServerReflectionRequest *m = raw;
    if (m->message_request_case == 0)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "ServerReflectionRequest asks for nothing: set message_request");
    struct ft_str name;
    ft_pb_pack_bytes(RESPONSE, "valid_host", FT_PB_STR(m->host), out);
    ft_pb_pack_bytes(RESPONSE, "original_request", in, out);
    switch (m->message_request_case) {
    case ASKS(FILE_BY_FILENAME):
        name = FT_PB_STR(m->file_by_filename);
        add_file_or_error(schema, ft_wire_schema_find_file(schema, name), "file", name, out);
        break;
    case ASKS(FILE_CONTAINING_SYMBOL):
        name = FT_PB_STR(m->file_containing_symbol);
        add_file_or_error(schema, ft_wire_schema_find_symbol(schema, name), "symbol", name, out);
        break;
    case ASKS(FILE_CONTAINING_EXTENSION):
        add_error("extension of", FT_PB_STR(m->file_containing_extension->containing_type), out);
        break;
    case ASKS(ALL_EXTENSION_NUMBERS_OF_TYPE):
        add_extension_numbers(schema, FT_PB_STR(m->all_extension_numbers_of_type), out);
        break;
    default:
        add_services(schema, out);
        break;
    }
    return FT_OK;
}
