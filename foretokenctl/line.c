#include "foretokenctl/line.h"

#include <inttypes.h>
#include <jansson.h>

#include "foretokenctl/flag_table.h"

#define MODULE "line"
#define REJECT(...) ft_err_set(err, FT_E_REQ_INVALID, MODULE, __VA_ARGS__)

static enum ft_code no_memory(struct ft_err *err) {
    return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for a line");
}

static enum ft_code copy_string(struct ft_arena *arena, const json_t *value, struct ft_str *out,
                                struct ft_err *err) {
    *out =
        ft_arena_str(arena, (struct ft_str){json_string_value(value), json_string_length(value)});
    return out->ptr == NULL ? no_memory(err) : FT_OK;
}

/* ---- input ---------------------------------------------------------------------------------- */

static enum ft_code take_chat(struct ctl_line *line, const json_t *list, struct ft_err *err) {
    size_t n = json_array_size(list);
    struct ft_arena *arena = line->opts.arena;
    struct ft_wire_chat_message *messages = ft_arena_calloc(arena, n, sizeof *messages);
    if (messages == NULL)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        const json_t *role = json_object_get(json_array_get(list, i), "role");
        const json_t *content = json_object_get(json_array_get(list, i), "content");
        if (!json_is_string(role) || !json_is_string(content))
            return REJECT("chat[%zu]: must be {\"role\": \"...\", \"content\": \"...\"}", i);
        enum ft_code code = copy_string(arena, role, &messages[i].role, err);
        if (code == FT_OK)
            code = copy_string(arena, content, &messages[i].content, err);
        if (code != FT_OK)
            return code;
    }
    line->opts.request.input =
        (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_CHAT, .messages = messages, .n_messages = n};
    return FT_OK;
}

static enum ft_code take_ids(struct ctl_line *line, const json_t *list, struct ft_err *err) {
    size_t n = json_array_size(list);
    int32_t *ids = ft_arena_calloc(line->opts.arena, n, sizeof *ids);
    if (ids == NULL)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < INT32_MIN || id > INT32_MAX)
            return REJECT("token_ids[%zu]: must be a whole number of 32 bits", i);
        ids[i] = (int32_t)id;
    }
    line->opts.request.input =
        (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_IDS, .ids = ids, .n_ids = n};
    return FT_OK;
}

static enum ft_code take_input(struct ctl_line *line, const char *key, const json_t *value,
                               struct ft_err *err) {
    struct ft_wire_prompt *input = &line->opts.request.input;
    if (input->kind != FT_WIRE_INPUT_NONE)
        return REJECT("takes only one of text, token_ids and chat");
    if (strcmp(key, "text") == 0 && json_is_string(value)) {
        input->kind = FT_WIRE_INPUT_TEXT;
        return copy_string(line->opts.arena, value, &input->text, err);
    }
    if (strcmp(key, "chat") == 0 && json_is_array(value))
        return take_chat(line, value, err);
    if (strcmp(key, "token_ids") == 0 && json_is_array(value))
        return take_ids(line, value, err);
    return REJECT("%s: must be a %s", key, strcmp(key, "text") == 0 ? "string" : "list");
}

/* ---- flags ---------------------------------------------------------------------------------- */

static enum ft_code wrong_type(const struct ctl_flag *flag, struct ft_err *err) {
    static const char *const wanted[] = {
        [CTL_FLAG_BOOL] = "true or false",
        [CTL_FLAG_F32] = "a number",
        [CTL_FLAG_F64] = "a number",
        [CTL_FLAG_I32] = "a whole number",
        [CTL_FLAG_U32] = "a whole number",
        [CTL_FLAG_U64] = "a whole number, or its digits",
        [CTL_FLAG_STR] = "a string",
        [CTL_FLAG_STRS] = "a list of strings",
        [CTL_FLAG_IDS] = "a list of ids",
        [CTL_FLAG_REALS] = "a list of numbers",
        [CTL_FLAG_BIASES] = "{\"ID\": number}",
    };
    return REJECT("%s: must be %s", flag->name, wanted[flag->kind]);
}

/* A value that stands alone, or in a list, as text that the command line could have. false: it is
 * of another type. */
static bool spell(enum ctl_flag_kind kind, const json_t *value, char *out, size_t size) {
    switch (kind) {
    case CTL_FLAG_BOOL:
        snprintf(out, size, "%s", json_is_true(value) ? "true" : "false");
        return json_is_boolean(value);
    case CTL_FLAG_F32:
    case CTL_FLAG_F64:
    case CTL_FLAG_REALS:
        snprintf(out, size, "%.17g", json_number_value(value));
        return json_is_number(value);
    case CTL_FLAG_U64: /* past 2^63 only a string can say it */
        if (json_is_string(value) && json_string_length(value) < size) {
            snprintf(out, size, "%s", json_string_value(value));
            return true;
        }
        snprintf(out, size, "%" PRId64, (int64_t)json_integer_value(value));
        return json_is_integer(value);
    default:
        snprintf(out, size, "%" PRId64, (int64_t)json_integer_value(value));
        return json_is_integer(value);
    }
}

/* Set a flag by its text; what is wrong with it is said of the line's key, which is no flag. */
static enum ft_code set_text(struct ctl_line *line, const struct ctl_flag *flag, const char *text,
                             struct ft_err *err) {
    struct ft_err own = {0};
    enum ft_code code = ctl_flag_set(flag, &line->opts, text, &own);
    const char *is = strstr(own.text, " is ");
    if (code == FT_E_REQ_INVALID && is != NULL)
        return REJECT("%s%s", flag->name, is);
    if (code != FT_OK && err != NULL)
        *err = own;
    return code;
}

static enum ft_code set_one(struct ctl_line *line, const struct ctl_flag *flag, const json_t *value,
                            struct ft_err *err) {
    char text[64];
    if (!spell(flag->kind, value, text, sizeof text))
        return wrong_type(flag, err);
    return set_text(line, flag, text, err);
}

/* Strings keep a NUL, which no command line has. */
static enum ft_code set_strings(struct ctl_line *line, const struct ctl_flag *flag,
                                const json_t *value, struct ft_err *err) {
    bool alone = json_is_string(value);
    size_t n = alone ? 1 : json_array_size(value);
    struct ft_str *list = ft_arena_calloc(line->opts.arena, n, sizeof *list);
    if (list == NULL)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = alone ? value : json_array_get(value, i);
        if (!json_is_string(item))
            return wrong_type(flag, err);
        enum ft_code code = copy_string(line->opts.arena, item, &list[i], err);
        if (code != FT_OK)
            return code;
    }
    void *slot = (char *)&line->opts + flag->offset;
    if (flag->kind == CTL_FLAG_STR) {
        *(struct ft_str *)slot = list[0];
    } else {
        *(struct ft_str **)slot = list;
        *(size_t *)(void *)((char *)&line->opts + flag->mark) = n;
    }
    return FT_OK;
}

/* The list of the command line gives way. */
static enum ft_code set_list(struct ctl_line *line, const struct ctl_flag *flag,
                             const json_t *value, struct ft_err *err) {
    memset((char *)&line->opts + flag->offset, 0, sizeof(void *));
    memset((char *)&line->opts + flag->mark, 0, sizeof(size_t));
    enum ft_code code = FT_OK;
    for (size_t i = 0; code == FT_OK && i < json_array_size(value); i++)
        code = set_one(line, flag, json_array_get(value, i), err);
    return code;
}

static enum ft_code set_biases(struct ctl_line *line, const struct ctl_flag *flag, json_t *value,
                               struct ft_err *err) {
    const char *id;
    json_t *bias;
    enum ft_code code = set_list(line, flag, NULL, err);
    json_object_foreach(value, id, bias) {
        char text[64];
        if (!json_is_number(bias) || strlen(id) > 20)
            return wrong_type(flag, err);
        snprintf(text, sizeof text, "%s:%.17g", id, json_number_value(bias));
        code = set_text(line, flag, text, err);
        if (code != FT_OK)
            return code;
    }
    return code;
}

static enum ft_code set_flag(struct ctl_line *line, const char *key, json_t *value,
                             struct ft_err *err) {
    const struct ctl_flag *flag = ctl_flag_find(key);
    if (strcmp(key, "request_id") == 0) {
        if (!json_is_string(value))
            return wrong_type(flag, err);
        return copy_string(line->opts.arena, value, &line->opts.request.request_id, err);
    }
    if (flag == NULL || (flag->commands & CTL_REQUEST) != CTL_REQUEST || flag->commands == CTL_ALL)
        return REJECT("unknown key \"%.60s\"", key);
    switch (flag->kind) {
    case CTL_FLAG_STR:
        return json_is_string(value) ? set_strings(line, flag, value, err) : wrong_type(flag, err);
    case CTL_FLAG_STRS:
        return json_is_string(value) || json_is_array(value) ? set_strings(line, flag, value, err)
                                                             : wrong_type(flag, err);
    case CTL_FLAG_IDS:
    case CTL_FLAG_REALS:
        return json_is_array(value) ? set_list(line, flag, value, err) : wrong_type(flag, err);
    case CTL_FLAG_BIASES:
        return json_is_object(value) ? set_biases(line, flag, value, err) : wrong_type(flag, err);
    default:
        return set_one(line, flag, value, err);
    }
}

/* ---- the object ----------------------------------------------------------------------------- */

static enum ft_code take_custom_id(struct ctl_line *line, const json_t *value, struct ft_err *err) {
    if (value == NULL || json_is_null(value))
        return FT_OK;
    if (!json_is_string(value) && !json_is_integer(value))
        return REJECT("custom_id: must be a string or a whole number");
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    if (text == NULL)
        return no_memory(err);
    line->custom_id = ft_arena_str(line->opts.arena, ft_str_c(text));
    free(text);
    return line->custom_id.ptr == NULL ? no_memory(err) : FT_OK;
}

static enum ft_code take_object(struct ctl_line *line, json_t *root, struct ft_err *err) {
    const char *key;
    json_t *value;
    enum ft_code code = take_custom_id(line, json_object_get(root, "custom_id"), err);
    json_object_foreach(root, key, value) {
        if (code != FT_OK)
            return code;
        if (json_is_null(value) || strcmp(key, "custom_id") == 0)
            continue;
        bool input =
            strcmp(key, "text") == 0 || strcmp(key, "chat") == 0 || strcmp(key, "token_ids") == 0;
        code = input ? take_input(line, key, value, err) : set_flag(line, key, value, err);
    }
    if (code == FT_OK && line->opts.request.input.kind == FT_WIRE_INPUT_NONE)
        code = REJECT("needs one of text, token_ids and chat");
    return code;
}

enum ft_code ctl_line_read(const struct ctl_options *base, struct ft_arena *arena,
                           struct ft_str text, struct ctl_line *out, struct ft_err *err) {
    json_error_t where;
    *out = (struct ctl_line){.opts = *base};
    out->opts.arena = arena;
    out->opts.request.stream = false;
    json_t *root = json_loadb(text.ptr, text.len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &where);
    if (root == NULL)
        return REJECT("column %d: %s", where.column, where.text);
    enum ft_code code =
        json_is_object(root) ? take_object(out, root, err) : REJECT("must be a JSON object");
    json_decref(root);
    return code;
}
