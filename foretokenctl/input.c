#include "foretokenctl/input.h"

#include <jansson.h>

#include "common/base/file.h"

#define MODULE "input"
/* Far past what a service takes, which then says what its limit is. */
#define FILE_BYTES_MAX ((size_t)64 << 20)

static enum ft_code no_memory(struct ft_err *err) {
    return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for the prompt");
}

static enum ft_code read_file(struct ctl_options *opts, struct ft_str path, struct ft_str *out,
                              struct ft_err *err) {
    struct ft_buf buf;
    ft_buf_init(&buf, 0);
    enum ft_code code = ft_file_read(path.ptr, FILE_BYTES_MAX, &buf, err);
    if (code == FT_OK) {
        *out = ft_arena_str(opts->arena, ft_buf_str(&buf));
        if (out->ptr == NULL)
            code = no_memory(err);
    }
    ft_buf_fini(&buf);
    return code;
}

struct ft_str ctl_input_unmarked(struct ft_str text) {
    bool marked = text.len >= 3 && memcmp(text.ptr, "\xEF\xBB\xBF", 3) == 0;
    return marked ? (struct ft_str){text.ptr + 3, text.len - 3} : text;
}

/* "role: content" */
static enum ft_code chat_from_flags(struct ctl_options *opts, struct ft_wire_prompt *out,
                                    struct ft_err *err) {
    struct ft_wire_chat_message *messages =
        ft_arena_calloc(opts->arena, opts->n_chat, sizeof *messages);
    if (messages == NULL)
        return no_memory(err);
    for (size_t i = 0; i < opts->n_chat; i++) {
        const char *text = opts->chat[i].ptr;
        const char *colon = strchr(text, ':');
        if (colon == NULL)
            return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                              "--chat is '%.80s': must be 'ROLE: CONTENT'", text);
        const char *content = colon + 1 + (colon[1] == ' ');
        messages[i].role = (struct ft_str){text, (size_t)(colon - text)};
        messages[i].content = ft_str_c(content);
    }
    *out = (struct ft_wire_prompt){
        .kind = FT_WIRE_INPUT_CHAT, .messages = messages, .n_messages = opts->n_chat};
    return FT_OK;
}

static enum ft_code json_text(struct ctl_options *opts, const json_t *message, size_t at,
                              const char *key, struct ft_str *out, struct ft_err *err) {
    const json_t *value = json_object_get(message, key);
    if (!json_is_string(value))
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "--chat-file: message %zu has no \"%s\" that is a string", at, key);
    *out = ft_arena_str(opts->arena,
                        (struct ft_str){json_string_value(value), json_string_length(value)});
    return out->ptr == NULL ? no_memory(err) : FT_OK;
}

static enum ft_code chat_from_json(struct ctl_options *opts, const json_t *root,
                                   struct ft_wire_prompt *out, struct ft_err *err) {
    const json_t *list = json_is_object(root) ? json_object_get(root, "messages") : root;
    if (!json_is_array(list))
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "--chat-file: must be a list of {\"role\", \"content\"}");
    size_t n = json_array_size(list);
    struct ft_wire_chat_message *messages = ft_arena_calloc(opts->arena, n, sizeof *messages);
    if (messages == NULL)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        const json_t *message = json_array_get(list, i);
        enum ft_code code = json_text(opts, message, i, "role", &messages[i].role, err);
        if (code == FT_OK)
            code = json_text(opts, message, i, "content", &messages[i].content, err);
        if (code != FT_OK)
            return code;
    }
    *out =
        (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_CHAT, .messages = messages, .n_messages = n};
    return FT_OK;
}

static enum ft_code chat_from_file(struct ctl_options *opts, struct ft_wire_prompt *out,
                                   struct ft_err *err) {
    struct ft_str text;
    json_error_t where;
    enum ft_code code = read_file(opts, opts->chat_file, &text, err);
    if (code != FT_OK)
        return code;
    text = ctl_input_unmarked(text);
    json_t *root = json_loadb(text.ptr, text.len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &where);
    if (root == NULL)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "--chat-file: line %d: %s", where.line,
                          where.text);
    code = chat_from_json(opts, root, out, err);
    json_decref(root);
    return code;
}

static enum ft_code check_one_source(const struct ctl_options *opts, bool argument,
                                     struct ft_err *err) {
    int sources = argument + opts->has_prompt + opts->has_prompt_file + opts->has_chat_file +
                  (opts->n_chat > 0) + (opts->n_ids > 0);
    if (sources == 1)
        return FT_OK;
    return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                      "%s one of TEXT, --prompt, --prompt-file, --chat, --chat-file, --token-ids",
                      sources == 0 ? "needs" : "takes only");
}

enum ft_code ctl_input_read(struct ctl_options *opts, struct ft_wire_prompt *out,
                            struct ft_err *err) {
    bool argument = opts->n_words > 1;
    if (opts->n_words > 2)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "takes one TEXT: put more than one word in quotes");
    enum ft_code code = check_one_source(opts, argument, err);
    if (code != FT_OK)
        return code;
    if (opts->n_chat > 0)
        return chat_from_flags(opts, out, err);
    if (opts->has_chat_file)
        return chat_from_file(opts, out, err);
    if (opts->n_ids > 0) {
        *out = (struct ft_wire_prompt){
            .kind = FT_WIRE_INPUT_IDS, .ids = opts->ids, .n_ids = opts->n_ids};
        return FT_OK;
    }
    *out = (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_TEXT,
                                   .text = argument ? opts->words[1] : opts->prompt};
    return opts->has_prompt_file ? read_file(opts, opts->prompt_file, &out->text, err) : FT_OK;
}
