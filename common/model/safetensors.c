#include "common/model/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MODULE "safetensors"
#define LENGTH_BYTES 8u
#define PATH_MAX_BYTES 4096
#define ARENA_CHUNK_BYTES 16384
/* Of a header, for each tensor that it may list: 8 in an entry of 4 dimensions, and as many again
 * for metadata. */
#define COMMAS_PER_TENSOR 16

/* What one call of parse works on. */
struct parse {
    const char *label;
    uint64_t data_begin; /* where tensor data starts in the file */
    uint64_t data_bytes;
    struct ft_err *err;
};

static const struct {
    const char *name;
    enum ft_dtype dtype;
} k_dtypes[] = {{"F32", FT_DTYPE_F32}, {"F16", FT_DTYPE_F16}, {"BF16", FT_DTYPE_BF16}};

static enum ft_code refuse(const struct parse *p, const char *tensor, const char *reason) {
    return ft_err_set(p->err, FT_E_PROC_MODEL, MODULE, "%s: tensor %.80s: %s", p->label, tensor,
                      reason);
}

static enum ft_code read_dtype(const struct parse *p, const char *tensor, const json_t *object,
                               enum ft_dtype *out) {
    const char *name = json_string_value(json_object_get(object, "dtype"));
    if (name == NULL)
        return refuse(p, tensor, "dtype is missing or no string");
    for (size_t i = 0; i < sizeof k_dtypes / sizeof k_dtypes[0]; i++)
        if (strcmp(k_dtypes[i].name, name) == 0) {
            *out = k_dtypes[i].dtype;
            return FT_OK;
        }
    return ft_err_set(p->err, FT_E_PROC_MODEL, MODULE,
                      "%s: tensor %.80s: dtype is \"%.16s\", supported are F32, F16 and BF16",
                      p->label, tensor, name);
}

/* Dimensions, and the bytes they need, which stay below UINT64_MAX. */
static enum ft_code read_shape(const struct parse *p, const json_t *object,
                               struct ft_safetensors_entry *e) {
    const json_t *shape = json_object_get(object, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > FT_SAFETENSORS_DIMS_MAX)
        return ft_err_set(p->err, FT_E_PROC_MODEL, MODULE,
                          "%s: tensor %.80s: shape must be a list of at most %d sizes", p->label,
                          e->name, FT_SAFETENSORS_DIMS_MAX);
    e->n_dims = (int32_t)json_array_size(shape);
    uint64_t bytes = (uint64_t)ft_dtype_bytes(e->dtype);
    for (int32_t i = 0; i < e->n_dims; i++) {
        const json_t *size = json_array_get(shape, (size_t)i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return refuse(p, e->name, "shape holds something other than a size of 0 or more");
        e->dims[i] = json_integer_value(size);
        if (e->dims[i] != 0 && bytes > UINT64_MAX / (uint64_t)e->dims[i])
            return refuse(p, e->name, "shape has more elements than 64 bits can count");
        bytes *= (uint64_t)e->dims[i];
    }
    e->bytes = bytes;
    return FT_OK;
}

static enum ft_code read_offsets(const struct parse *p, const json_t *object,
                                 struct ft_safetensors_entry *e) {
    const json_t *offsets = json_object_get(object, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *second = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(second))
        return refuse(p, e->name, "data_offsets must be two integers");
    int64_t begin = json_integer_value(first), end = json_integer_value(second);
    const char *reason = NULL;
    if (begin < 0 || end < begin)
        reason = "must not be negative and must ascend";
    else if ((uint64_t)end > p->data_bytes)
        reason = "end behind the end of the file";
    else if ((uint64_t)(end - begin) != e->bytes)
        reason = "span another number of bytes than dtype and shape need";
    else if ((p->data_begin + (uint64_t)begin) % (uint64_t)ft_dtype_bytes(e->dtype) != 0)
        reason = "are not aligned to the size of an element in the file";
    if (reason != NULL)
        return ft_err_set(p->err, FT_E_PROC_MODEL, MODULE,
                          "%s: tensor %.80s: data_offsets [%" PRId64 ", %" PRId64 "] %s (%" PRIu64
                          " bytes of data in the file, %" PRIu64 " in the shape)",
                          p->label, e->name, begin, end, reason, p->data_bytes, e->bytes);
    e->begin = p->data_begin + (uint64_t)begin;
    return FT_OK;
}

static enum ft_code read_entry(const struct parse *p, const json_t *object,
                               struct ft_safetensors_entry *e) {
    if (!json_is_object(object))
        return refuse(p, e->name, "must be an object");
    if (json_object_size(object) != 3)
        return refuse(p, e->name, "must have dtype, shape and data_offsets and nothing else");
    enum ft_code code = read_dtype(p, e->name, object, &e->dtype);
    if (code == FT_OK)
        code = read_shape(p, object, e);
    if (code == FT_OK)
        code = read_offsets(p, object, e);
    return code;
}

static enum ft_code check_metadata(const struct parse *p, json_t *metadata) {
    const char *key = NULL;
    json_t *value = NULL;
    if (!json_is_object(metadata))
        return refuse(p, "__metadata__", "must be an object of strings");
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value))
            return refuse(p, "__metadata__", "must be an object of strings");
    }
    return FT_OK;
}

static int compare_begin(const void *a, const void *b) {
    const struct ft_safetensors_entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty ones first */
}

/* The entries cover the data without a hole, an overlap or a rest. */
static enum ft_code check_cover(const struct parse *p, struct ft_safetensors *out) {
    if (out->n_entries > 0)
        qsort(out->entries, out->n_entries, sizeof out->entries[0], compare_begin);
    uint64_t at = p->data_begin;
    for (size_t i = 0; i < out->n_entries; i++) {
        const struct ft_safetensors_entry *e = &out->entries[i];
        if (e->begin < at)
            return refuse(p, e->name, "data_offsets overlap those of another tensor");
        if (e->begin > at)
            return refuse(p, e->name, "data_offsets leave a gap behind the tensor before");
        at = e->begin + e->bytes;
    }
    uint64_t end = p->data_begin + p->data_bytes;
    if (at != end)
        return ft_err_set(p->err, FT_E_PROC_MODEL, MODULE,
                          "%s: the tensors end at byte %" PRIu64 ", the file has %" PRIu64,
                          p->label, at, end);
    return FT_OK;
}

static enum ft_code read_entries(const struct parse *p, json_t *root, struct ft_safetensors *out) {
    size_t n = json_object_size(root);
    if (n > FT_SAFETENSORS_TENSORS_MAX)
        return ft_err_set(p->err, FT_E_PROC_MODEL, MODULE,
                          "%s: header lists %zu tensors, limit is %u", p->label, n,
                          FT_SAFETENSORS_TENSORS_MAX);
    out->entries = ft_arena_calloc(out->arena, n == 0 ? 1 : n, sizeof out->entries[0]);
    if (out->entries == NULL)
        return ft_err_set(p->err, FT_E_PROC_MEMORY, MODULE, "%s: no memory for its header",
                          p->label);
    const char *name = NULL;
    json_t *object = NULL;
    json_object_foreach(root, name, object) {
        enum ft_code code = FT_OK;
        if (strcmp(name, "__metadata__") == 0) {
            code = check_metadata(p, object);
        } else if (name[0] == 0 || strlen(name) > FT_SAFETENSORS_NAME_MAX) {
            code = refuse(p, name, "the name must have 1 to 255 bytes");
        } else {
            struct ft_safetensors_entry *e = &out->entries[out->n_entries++];
            e->name = ft_arena_str(out->arena, ft_str_c(name)).ptr;
            if (e->name == NULL)
                code = ft_err_set(p->err, FT_E_PROC_MEMORY, MODULE, "%s: no memory for its header",
                                  p->label);
            else
                code = read_entry(p, object, e);
        }
        if (code != FT_OK)
            return code;
    }
    return check_cover(p, out);
}

/* Whether the JSON has more members than a header can need: building a tree of millions of them
 * would take seconds and gigabytes before a single one is looked at. */
static bool is_crowded(const unsigned char *json, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += json[i] == ',';
    return n > (size_t)COMMAS_PER_TENSOR * FT_SAFETENSORS_TENSORS_MAX;
}

/* The length of the JSON, once it is known to lie within the file and the limits. */
static enum ft_code read_length(const struct parse *p, const unsigned char *bytes, size_t len,
                                uint64_t file_bytes, uint64_t *out) {
    uint64_t n = 0;
    for (unsigned i = 0; i < LENGTH_BYTES && i < len; i++)
        n |= (uint64_t)bytes[i] << (8 * i);
    const char *reason = NULL;
    if (len < LENGTH_BYTES || file_bytes < LENGTH_BYTES)
        reason = "the file is too short to have one";
    else if (n > FT_SAFETENSORS_HEADER_MAX)
        reason = "the limit is 16777216";
    else if (n > file_bytes - LENGTH_BYTES || n > len - LENGTH_BYTES)
        reason = "the file is shorter";
    else if (n < 2 || bytes[LENGTH_BYTES] != '{')
        reason = "no JSON object follows";
    if (reason != NULL)
        return ft_err_set(p->err, FT_E_PROC_MODEL, MODULE,
                          "%s: header length is %" PRIu64 ", but %s (file of %" PRIu64 " bytes)",
                          p->label, n, reason, file_bytes);
    *out = n;
    return FT_OK;
}

enum ft_code ft_safetensors_parse(struct ft_safetensors *out, const char *label,
                                  const unsigned char *bytes, size_t len, uint64_t file_bytes,
                                  struct ft_err *err) {
    struct parse p = {.label = label, .err = err};
    uint64_t n = 0;
    enum ft_code code = read_length(&p, bytes, len, file_bytes, &n);
    if (code != FT_OK)
        return code;
    p.data_begin = LENGTH_BYTES + n;
    p.data_bytes = file_bytes - p.data_begin;
    if (is_crowded(bytes + LENGTH_BYTES, (size_t)n))
        return ft_err_set(err, FT_E_PROC_MODEL, MODULE,
                          "%s: header has more members than %u tensors need", label,
                          FT_SAFETENSORS_TENSORS_MAX);
    json_error_t where;
    json_t *root =
        json_loadb((const char *)bytes + LENGTH_BYTES, (size_t)n, JSON_REJECT_DUPLICATES, &where);
    if (root == NULL)
        return ft_err_set(err, FT_E_PROC_MODEL, MODULE, "%s: header, byte %d: %s", label,
                          where.position, where.text);
    struct ft_safetensors file = {.arena = ft_arena_create(ARENA_CHUNK_BYTES, 0)};
    if (file.arena == NULL)
        code = ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "%s: no memory for its header", label);
    else
        code = read_entries(&p, root, &file);
    json_decref(root);
    if (code != FT_OK) {
        ft_arena_destroy(&file.arena);
        return code;
    }
    *out = file;
    return FT_OK;
}

enum ft_code ft_safetensors_open(struct ft_safetensors *out, const char *dir, const char *name,
                                 struct ft_err *err) {
    char path[PATH_MAX_BYTES];
    enum ft_code code = ft_file_join(path, sizeof path, dir, name, err);
    if (code != FT_OK)
        return code;
    struct ft_map map = {NULL, 0};
    code = ft_file_map(path, &map, err);
    if (code == FT_E_REQ_NOT_FOUND)
        return ft_err_set(err, code, MODULE, "%s: no such file", name);
    if (code != FT_OK)
        return code;
    struct ft_safetensors file = {0};
    code = ft_safetensors_parse(&file, name, map.ptr, map.len, map.len, err);
    if (code != FT_OK) {
        ft_file_unmap(&map);
        return code;
    }
    file.map = map;
    *out = file;
    return FT_OK;
}

void ft_safetensors_close(struct ft_safetensors *file) {
    ft_arena_destroy(&file->arena);
    ft_file_unmap(&file->map);
    *file = (struct ft_safetensors){0};
}
