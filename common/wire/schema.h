/* schema (wire): what the protos of this build declare, from their compiled descriptors: which file
 * has which symbol, and what it imports.
 * Owns:    nothing; all of it points into the descriptors.
 * Runs in: coordinator; any thread.
 * Never:   interprets more of a descriptor than names. */
#ifndef FT_WIRE_SCHEMA_H
#define FT_WIRE_SCHEMA_H

#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FT_WIRE_SCHEMA_FILES_MAX 32 /* a set of files is a mask of so many bits */
#define FT_WIRE_SYMBOL_MAX 512      /* bytes of a symbol that is looked for */

struct ft_wire_schema {
    struct {
        struct ft_str bytes; /* a google.protobuf.FileDescriptorProto */
        struct ft_str name, package;
        uint32_t closure; /* the files that it imports, those of these, and itself */
    } files[FT_WIRE_SCHEMA_FILES_MAX];
    int32_t n_files;
};

/* The public protos of this build, a google.protobuf.FileDescriptorSet. */
struct ft_str ft_wire_schema_builtin(void);
/* fail FT_E_PROC_INTERNAL: not a set of at most so many files, each after those it imports */
enum ft_code ft_wire_schema_read(struct ft_wire_schema *out, struct ft_str set, struct ft_err *err);

/* Index of the file of that name, or of the one that declares the symbol ("pkg.Message.field",
 * "pkg.Service.Method"); -1: none. */
int32_t ft_wire_schema_find_file(const struct ft_wire_schema *schema, struct ft_str name);
int32_t ft_wire_schema_find_symbol(const struct ft_wire_schema *schema, struct ft_str symbol);
/* Full name of service number i of a file, appended to out; false: it has fewer. */
bool ft_wire_schema_service(const struct ft_wire_schema *schema, int32_t file, int32_t i,
                            struct ft_buf *out);

#ifdef __cplusplus
}
#endif
#endif
