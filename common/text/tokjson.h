/* tokjson: fields of tokenizer.json, with errors that name them.
 * Owns:    nothing; values belong to the document.
 * Runs in: coordinator, workers (at open).
 * Never:   takes a value of another type for the default. */
#ifndef FT_TEXT_TOKJSON_H
#define FT_TEXT_TOKJSON_H

#include <jansson.h>
#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

/* FT_E_PROC_MODEL with a printf text. */
#define ft_tokjson_fail(err, ...) ft_err_set(err, FT_E_PROC_MODEL, "tokenizer", __VA_ARGS__)

/* "type" of a component; "" when it is not an object or has none. */
const char *ft_tokjson_type(const json_t *component);
struct ft_str ft_tokjson_str(const json_t *string);

/* A boolean field; out keeps its value when the field is absent or null. */
enum ft_code ft_tokjson_bool(const json_t *object, const char *key, bool *out, struct ft_err *err);
/* An array field; fails when it is absent. */
enum ft_code ft_tokjson_array(const json_t *object, const char *key, const json_t **out,
                              struct ft_err *err);

/* Read a file of at most bytes_max as one JSON value, with duplicate keys refused.
 * fail FT_E_REQ_NOT_FOUND, FT_E_PROC_MODEL; the text names the path. The caller gives *out back
 * with json_decref. */
enum ft_code ft_tokjson_load(const char *path, size_t bytes_max, json_t **out, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
