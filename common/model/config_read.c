#include "common/model/config_read.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"

#define MODULE "config"

/* Real configs are a few KB, the index of a model of 1024 layers below 3 MB. What is refused for
 * another reason must be so within a second, so there is no room for more. */
#define JSON_BYTES_MAX (4u << 20)
#define PATH_MAX_BYTES 4096
/* Of a value that a message shows; the reason behind it must still fit. */
#define VALUE_SHOWN_MAX 48
#define DIR_SHOWN_MAX 96

bool ft_config_read_has(const struct ft_config_reader *reader, const char *key) {
    const json_t *value = json_object_get(reader->object, key);
    return value != NULL && !json_is_null(value);
}

bool ft_config_read_names(const struct ft_config_reader *reader, const char *key) {
    return json_object_get(reader->object, key) != NULL;
}

/* value as JSON in out, cut with "..." where it is long. */
static void show_value(const json_t *value, char out[VALUE_SHOWN_MAX + 4]) {
    if (json_is_object(value) || json_is_array(value)) {
        snprintf(out, VALUE_SHOWN_MAX, "%s of %zu", json_is_object(value) ? "an object" : "a list",
                 json_is_object(value) ? json_object_size(value) : json_array_size(value));
        return;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    bool is_long = text != NULL && strlen(text) > VALUE_SHOWN_MAX;
    snprintf(out, VALUE_SHOWN_MAX + 4, "%.*s%s", VALUE_SHOWN_MAX, text == NULL ? "?" : text,
             is_long ? "..." : "");
    free(text);
}

enum ft_code ft_config_read_refuse(const struct ft_config_reader *reader, const char *key,
                                   struct ft_err *err, const char *format, ...) {
    char reason[FT_ERR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    const json_t *value = json_object_get(reader->object, key);
    if (value == NULL)
        return ft_err_set(err, FT_E_PROC_MODEL, MODULE, "%s: %s%s is missing, %s", reader->file,
                          reader->prefix, key, reason);
    char shown[VALUE_SHOWN_MAX + 4];
    show_value(value, shown);
    return ft_err_set(err, FT_E_PROC_MODEL, MODULE, "%s: %s%s is %s, %s", reader->file,
                      reader->prefix, key, shown, reason);
}

enum ft_code ft_config_read_i32(const struct ft_config_reader *reader, const char *key, int32_t min,
                                int32_t max, int32_t *out, struct ft_err *err) {
    const json_t *value = json_object_get(reader->object, key);
    if (!json_is_integer(value) || json_integer_value(value) < min ||
        json_integer_value(value) > max)
        return ft_config_read_refuse(reader, key, err, "must be an integer from %d to %d", min,
                                     max);
    *out = (int32_t)json_integer_value(value);
    return FT_OK;
}

enum ft_code ft_config_read_f32(const struct ft_config_reader *reader, const char *key, double min,
                                double max, float *out, struct ft_err *err) {
    const json_t *value = json_object_get(reader->object, key);
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    if (!(number >= min && number <= max)) /* Written so that NaN is refused. */
        return ft_config_read_refuse(reader, key, err, "must be a number from %g to %g", min, max);
    *out = (float)number;
    return FT_OK;
}

enum ft_code ft_config_read_str(const struct ft_config_reader *reader, const char *key,
                                const char **out, struct ft_err *err) {
    const json_t *value = json_object_get(reader->object, key);
    if (!json_is_string(value))
        return ft_config_read_refuse(reader, key, err, "must be a string");
    *out = json_string_value(value);
    return FT_OK;
}

enum ft_code ft_config_read_bool(const struct ft_config_reader *reader, const char *key, bool *out,
                                 struct ft_err *err) {
    if (!ft_config_read_has(reader, key))
        return FT_OK;
    const json_t *value = json_object_get(reader->object, key);
    if (!json_is_boolean(value))
        return ft_config_read_refuse(reader, key, err, "must be true or false");
    *out = json_is_true(value);
    return FT_OK;
}

enum ft_code ft_config_read_object(const struct ft_config_reader *reader, const char *key,
                                   const char *prefix, struct ft_config_reader *out,
                                   struct ft_err *err) {
    const json_t *value = json_object_get(reader->object, key);
    if (!json_is_object(value))
        return ft_config_read_refuse(reader, key, err, "must be an object");
    *out = (struct ft_config_reader){.file = reader->file, .prefix = prefix, .object = value};
    return FT_OK;
}

enum ft_code ft_config_read_text(const char *text, size_t len, const char *name, json_t **out,
                                 struct ft_err *err) {
    json_error_t where;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
    if (root == NULL)
        return ft_err_set(err, FT_E_PROC_MODEL, MODULE, "%s: line %d: %s", name, where.line,
                          where.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return ft_err_set(err, FT_E_PROC_MODEL, MODULE, "%s: must be a JSON object", name);
    }
    *out = root;
    return FT_OK;
}

enum ft_code ft_config_read_file(const char *dir, const char *name, json_t **out,
                                 struct ft_err *err) {
    char path[PATH_MAX_BYTES];
    enum ft_code code = ft_file_join(path, sizeof path, dir, name, err);
    if (code != FT_OK)
        return code;
    struct ft_buf text;
    ft_buf_init(&text, 0);
    code = ft_file_read(path, JSON_BYTES_MAX, &text, err);
    if (code == FT_E_REQ_NOT_FOUND)
        code = ft_err_set(err, code, MODULE, "%s: no such file", name);
    if (code == FT_E_REQ_TOO_LARGE)
        code = ft_err_set(err, FT_E_PROC_MODEL, MODULE, "%s: larger than the limit of %u bytes",
                          name, JSON_BYTES_MAX);
    if (code == FT_OK)
        code = ft_config_read_text(text.len == 0 ? "" : text.ptr, text.len, name, out, err);
    ft_buf_fini(&text);
    return code;
}

enum ft_code ft_config_read_in_dir(const char *dir, enum ft_code code, struct ft_err *err) {
    size_t len = strlen(dir);
    bool is_long = len > DIR_SHOWN_MAX;
    ft_err_prefix(err, "%s%s", is_long ? "..." : "", is_long ? dir + len - DIR_SHOWN_MAX : dir);
    if (code != FT_E_PROC_OS && code != FT_E_PROC_MEMORY)
        code = FT_E_PROC_MODEL;
    if (err != NULL)
        err->code = code;
    return code;
}
