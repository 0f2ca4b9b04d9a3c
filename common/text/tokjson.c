#include "common/text/tokjson.h"

#include "common/base/file.h"

const char *ft_tokjson_type(const json_t *component) {
    const char *type = json_string_value(json_object_get(component, "type"));
    return type == NULL ? "" : type;
}

struct ft_str ft_tokjson_str(const json_t *string) {
    return (struct ft_str){json_string_value(string), json_string_length(string)};
}

enum ft_code ft_tokjson_bool(const json_t *object, const char *key, bool *out, struct ft_err *err) {
    const json_t *value = json_object_get(object, key);
    if (value == NULL || json_is_null(value))
        return FT_OK;
    if (!json_is_boolean(value))
        return ft_tokjson_fail(err, "%s is neither true nor false", key);
    *out = json_is_true(value);
    return FT_OK;
}

enum ft_code ft_tokjson_array(const json_t *object, const char *key, const json_t **out,
                              struct ft_err *err) {
    *out = json_object_get(object, key);
    return json_is_array(*out) ? FT_OK : ft_tokjson_fail(err, "%s is not a list", key);
}

enum ft_code ft_tokjson_load(const char *path, size_t bytes_max, json_t **out, struct ft_err *err) {
    struct ft_map map;
    enum ft_code code = ft_file_map(path, &map, err);
    if (code != FT_OK)
        return code;
    json_error_t at = {0};
    if (map.len > bytes_max)
        code = ft_tokjson_fail(err, "%s has %zu bytes, more than the limit of %zu", path, map.len,
                               bytes_max);
    else
        *out = json_loadb(map.ptr == NULL ? "" : (const char *)map.ptr, map.len,
                          JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &at);
    ft_file_unmap(&map);
    if (code == FT_OK && *out == NULL)
        code = ft_tokjson_fail(err, "%s: line %d: %s", path, at.line, at.text);
    return code;
}
