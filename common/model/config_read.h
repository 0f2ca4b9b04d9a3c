/* config_read: typed, range-checked access to the keys of one JSON object of a model file.
 * Owns:    nothing; borrows the parsed object and the names.
 * Runs in: workers, coordinator; at start.
 * Never:   coerces: 4096.0 is no integer, "true" no boolean. */
#ifndef FT_MODEL_CONFIG_READ_H
#define FT_MODEL_CONFIG_READ_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_config_reader {
    const char *file;   /* for messages: "config.json" */
    const char *prefix; /* for messages: "" or "rope_scaling." */
    const json_t *object;
};

/* false: the key is absent or null. Most keys mean the same then; in transformers an absent key has
 * the default of its configuration class and null is none, so where that default is a number, ask
 * ft_config_read_names as well. */
bool ft_config_read_has(const struct ft_config_reader *reader, const char *key);
/* The key is there, be it null. */
bool ft_config_read_names(const struct ft_config_reader *reader, const char *key);

/* Each reads a required key. fail FT_E_PROC_MODEL names file, key, value and what is due; out is
 * untouched. */
enum ft_code ft_config_read_i32(const struct ft_config_reader *reader, const char *key, int32_t min,
                                int32_t max, int32_t *out, struct ft_err *err);
enum ft_code ft_config_read_f32(const struct ft_config_reader *reader, const char *key, double min,
                                double max, float *out, struct ft_err *err);
/* out  borrowed from the object */
enum ft_code ft_config_read_str(const struct ft_config_reader *reader, const char *key,
                                const char **out, struct ft_err *err);
/* An absent key leaves out as it is. */
enum ft_code ft_config_read_bool(const struct ft_config_reader *reader, const char *key, bool *out,
                                 struct ft_err *err);
/* The object at key, for reading its keys under "key."; prefix is the caller's text for it. */
enum ft_code ft_config_read_object(const struct ft_config_reader *reader, const char *key,
                                   const char *prefix, struct ft_config_reader *out,
                                   struct ft_err *err);

/* Refuse key: "file: key is VALUE, " and the reason. */
enum ft_code ft_config_read_refuse(const struct ft_config_reader *reader, const char *key,
                                   struct ft_err *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Put the end of dir's path before the text of err, and turn a FT_E_REQ_* code, which speaks of one
 * file, into FT_E_PROC_MODEL. Returns the code. */
enum ft_code ft_config_read_in_dir(const char *dir, enum ft_code code, struct ft_err *err);

/* The whole of dir/name as one JSON object, duplicate keys refused; the caller gives it to
 * json_decref. fail FT_E_REQ_NOT_FOUND when there is no such file, FT_E_PROC_MODEL, FT_E_PROC_OS */
enum ft_code ft_config_read_file(const char *dir, const char *name, json_t **out,
                                 struct ft_err *err);
/* The same from memory; name is for messages. Nothing of text is borrowed. */
enum ft_code ft_config_read_text(const char *text, size_t len, const char *name, json_t **out,
                                 struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
