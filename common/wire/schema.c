#include "common/wire/schema.h"

#include <descriptors.h> /* made in the build: ft_wire_descriptors[] */

#include "common/wire/pb.h"

#define MODULE "wire"
#define SERVICE_FIELD 6 /* of FileDescriptorProto */
#define NAME_FIELD 1    /* of whatever has a name */

/* Fields of google/protobuf/descriptor.proto whose messages declare a name, by what they stand in.
 */
enum scope { SCOPE_FILE, SCOPE_MESSAGE, SCOPE_ENUM, SCOPE_SERVICE, SCOPE_LEAF };
static const struct {
    enum scope in;
    uint32_t field;
    enum scope is;
} k_declares[] = {
    {SCOPE_FILE, 4, SCOPE_MESSAGE},    {SCOPE_FILE, 5, SCOPE_ENUM},
    {SCOPE_FILE, 6, SCOPE_SERVICE},    {SCOPE_FILE, 7, SCOPE_LEAF}, /* extensions */
    {SCOPE_MESSAGE, 2, SCOPE_LEAF},                                 /* fields */
    {SCOPE_MESSAGE, 3, SCOPE_MESSAGE}, {SCOPE_MESSAGE, 4, SCOPE_ENUM},
    {SCOPE_MESSAGE, 6, SCOPE_LEAF},    {SCOPE_MESSAGE, 8, SCOPE_LEAF}, /* extensions, oneofs */
    {SCOPE_ENUM, 2, SCOPE_LEAF},       {SCOPE_SERVICE, 2, SCOPE_LEAF},
};

struct ft_str ft_wire_schema_builtin(void) {
    return (struct ft_str){(const char *)ft_wire_descriptors, sizeof ft_wire_descriptors};
}

static struct ft_str text_field(struct ft_str message, uint32_t wanted) {
    struct ft_str value, found = {"", 0};
    uint32_t field;
    while (ft_pb_next(&message, &field, &value))
        if (field == wanted)
            found = value;
    return found;
}

int32_t ft_wire_schema_find_file(const struct ft_wire_schema *schema, struct ft_str name) {
    for (int32_t i = 0; i < schema->n_files; i++)
        if (ft_str_eq(schema->files[i].name, name))
            return i;
    return -1;
}

enum ft_code ft_wire_schema_read(struct ft_wire_schema *out, struct ft_str set,
                                 struct ft_err *err) {
    struct ft_str file, import;
    uint32_t field;
    *out = (struct ft_wire_schema){0};
    while (ft_pb_next(&set, &field, &file)) {
        if (field != 1)
            continue;
        int32_t i = out->n_files;
        if (i == FT_WIRE_SCHEMA_FILES_MAX)
            return ft_err_set(err, FT_E_PROC_INTERNAL, MODULE, "more than %d descriptors", i);
        out->files[i].bytes = file;
        out->files[i].name = text_field(file, NAME_FIELD);
        out->files[i].package = text_field(file, 2);
        out->files[i].closure = 1u << i;
        while (ft_pb_next(&file, &field, &import)) {
            if (field != 3)
                continue;
            int32_t k = ft_wire_schema_find_file(out, import);
            if (k < 0)
                return ft_err_set(err, FT_E_PROC_INTERNAL, MODULE, "descriptor of %.*s is missing",
                                  (int)import.len, import.ptr);
            out->files[i].closure |= out->files[k].closure;
        }
        out->n_files++;
    }
    return set.len == 0 ? FT_OK
                        : ft_err_set(err, FT_E_PROC_INTERNAL, MODULE, "these are no descriptors");
}

/* Take "name" or "name." off the symbol's front. */
static bool take_name(struct ft_str *symbol, struct ft_str name) {
    if (name.len == 0 || symbol->len < name.len || memcmp(symbol->ptr, name.ptr, name.len) != 0)
        return false;
    if (symbol->len > name.len && symbol->ptr[name.len] != '.')
        return false;
    size_t n = symbol->len > name.len ? name.len + 1 : name.len;
    *symbol = (struct ft_str){symbol->ptr + n, symbol->len - n};
    return true;
}

/* Recursion is as deep as the symbol has dots. */
static bool declares(struct ft_str message, enum scope scope, struct ft_str symbol) {
    struct ft_str value;
    uint32_t field;
    while (ft_pb_next(&message, &field, &value)) {
        for (size_t i = 0; i < sizeof k_declares / sizeof k_declares[0]; i++) {
            if (k_declares[i].in != scope || k_declares[i].field != field)
                continue;
            struct ft_str rest = symbol;
            if (take_name(&rest, text_field(value, NAME_FIELD)) &&
                (rest.len == 0 || declares(value, k_declares[i].is, rest)))
                return true;
            /* The values of an enum are names of the scope that it stands in. */
            if (k_declares[i].is == SCOPE_ENUM && declares(value, SCOPE_ENUM, symbol))
                return true;
        }
    }
    return false;
}

int32_t ft_wire_schema_find_symbol(const struct ft_wire_schema *schema, struct ft_str symbol) {
    if (symbol.len == 0 || symbol.len > FT_WIRE_SYMBOL_MAX || symbol.ptr[symbol.len - 1] == '.')
        return -1;
    for (int32_t i = 0; i < schema->n_files; i++) {
        struct ft_str rest = symbol, package = schema->files[i].package;
        bool inside = package.len == 0 || (take_name(&rest, package) && rest.len > 0);
        if (inside && declares(schema->files[i].bytes, SCOPE_FILE, rest))
            return i;
    }
    return -1;
}

bool ft_wire_schema_service(const struct ft_wire_schema *schema, int32_t file, int32_t i,
                            struct ft_buf *out) {
    struct ft_str bytes = schema->files[file].bytes, service;
    uint32_t field;
    while (ft_pb_next(&bytes, &field, &service)) {
        if (field != SERVICE_FIELD || i-- > 0)
            continue;
        ft_buf_add_str(out, schema->files[file].package);
        if (schema->files[file].package.len > 0)
            ft_buf_add_c(out, ".");
        ft_buf_add_str(out, text_field(service, NAME_FIELD));
        return true;
    }
    return false;
}
