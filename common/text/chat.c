#include "common/text/chat.h"

#include <limits.h>

#include "common/base/file.h"
#include "common/text/tokjson.h"
#include "common/text/utf8.h"

#define MODULE "chat"
#define CONFIG_BYTES_MAX ((size_t)4 * 1024 * 1024)

static bool has(const struct ft_tokenizer *tokenizer, const char *content) {
    return ft_tokenizer_find(tokenizer, ft_str_c(content)) >= 0;
}

/* Which format the text of a chat template writes. */
static enum ft_chat_format format_of(struct ft_str template) {
    bool llama3 = memmem(template.ptr, template.len, "<|start_header_id|>", 19) != NULL;
    bool chatml = memmem(template.ptr, template.len, "<|im_start|>", 12) != NULL;
    return llama3 == chatml ? FT_CHAT_NONE : llama3 ? FT_CHAT_LLAMA3 : FT_CHAT_CHATML;
}

/* chat_template is a string, or a list of {"name", "template"} with one named default. */
static enum ft_chat_format format_of_config(const json_t *config) {
    const json_t *template = json_object_get(config, "chat_template");
    for (size_t i = 0; i < json_array_size(template); i++) {
        const json_t *entry = json_array_get(template, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name != NULL && strcmp(name, "default") == 0)
            return format_of(ft_tokjson_str(json_object_get(entry, "template")));
    }
    return json_is_string(template) ? format_of(ft_tokjson_str(template)) : FT_CHAT_NONE;
}

/* From the files beside the model; one that cannot be read decides nothing. */
static enum ft_chat_format format_of_dir(const char *model_dir) {
    char path[PATH_MAX];
    enum ft_chat_format format = FT_CHAT_NONE;
    struct ft_buf text;
    ft_buf_init(&text, 0);
    if (ft_file_join(path, sizeof path, model_dir, "chat_template.jinja", NULL) == FT_OK &&
        ft_file_read(path, CONFIG_BYTES_MAX, &text, NULL) == FT_OK)
        format = format_of(ft_buf_str(&text));
    ft_buf_fini(&text);
    json_t *config = NULL;
    if (format == FT_CHAT_NONE &&
        ft_file_join(path, sizeof path, model_dir, "tokenizer_config.json", NULL) == FT_OK &&
        ft_tokjson_load(path, CONFIG_BYTES_MAX, &config, NULL) == FT_OK)
        format = format_of_config(config);
    json_decref(config);
    return format;
}

enum ft_chat_format ft_chat_detect(const struct ft_tokenizer *tokenizer, const char *model_dir) {
    bool llama3 = has(tokenizer, "<|start_header_id|>") && has(tokenizer, "<|end_header_id|>") &&
                  has(tokenizer, "<|eot_id|>");
    bool chatml = has(tokenizer, "<|im_start|>") && has(tokenizer, "<|im_end|>");
    if (llama3 && chatml)
        return format_of_dir(model_dir);
    return llama3 ? FT_CHAT_LLAMA3 : chatml ? FT_CHAT_CHATML : FT_CHAT_NONE;
}

const char *ft_chat_name(enum ft_chat_format format) {
    return format == FT_CHAT_LLAMA3 ? "llama3" : format == FT_CHAT_CHATML ? "chatml" : "";
}

int32_t ft_chat_end_of_turn(enum ft_chat_format format, const struct ft_tokenizer *tokenizer) {
    if (format == FT_CHAT_NONE)
        return -1;
    return ft_tokenizer_find(tokenizer,
                             ft_str_c(format == FT_CHAT_LLAMA3 ? "<|eot_id|>" : "<|im_end|>"));
}

/* What Python's str.strip, and so the official template's `trim`, takes away. */
static bool is_stripped(uint32_t code) {
    return ft_utf8_is_space(code) || (code >= 0x1C && code <= 0x1F);
}

static struct ft_str trim(struct ft_str s) {
    size_t n;
    while (s.len > 0 && is_stripped(ft_utf8_get(s, &n)))
        s = (struct ft_str){s.ptr + n, s.len - n};
    while (s.len > 0 && is_stripped(ft_utf8_get_last(s, &n)))
        s.len -= n;
    return s;
}

/* The prompt in the making. */
struct writer {
    struct ft_tokenizer *tokenizer;
    struct ft_ids *out;
    size_t first; /* out->len at the start */
    size_t tokens_max;
    struct ft_buf text;
};

static enum ft_code too_long(const struct writer *w, struct ft_err *err) {
    return ft_err_set(err, FT_E_REQ_TOO_LARGE, MODULE,
                      "the messages have more than the limit of %zu tokens", w->tokens_max);
}

static enum ft_code put_special(struct writer *w, const char *content, struct ft_err *err) {
    int32_t id = ft_tokenizer_find(w->tokenizer, ft_str_c(content));
    if (id < 0)
        return ft_err_set(err, FT_E_REQ_UNSUPPORTED, MODULE, "the vocabulary has no %s", content);
    if (w->tokens_max != 0 && w->out->len - w->first >= w->tokens_max)
        return too_long(w, err);
    if (ft_ids_push(w->out, &id, 1) != FT_OK)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for the prompt");
    return FT_OK;
}

/* One run of plain text between special tokens: the parts are tokenized as one. */
static enum ft_code put_text(struct writer *w, const struct ft_str *parts, size_t n_parts,
                             struct ft_err *err) {
    ft_buf_reset(&w->text);
    for (size_t i = 0; i < n_parts; i++)
        ft_buf_add_str(&w->text, parts[i]);
    if (w->text.failed)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for the prompt");
    struct ft_encode_opts opts = {0};
    if (w->tokens_max != 0) {
        opts.tokens_max = w->tokens_max - (w->out->len - w->first);
        if (opts.tokens_max == 0)
            return too_long(w, err);
    }
    enum ft_code code = ft_tokenizer_encode(w->tokenizer, ft_buf_str(&w->text), &opts, w->out, err);
    return code == FT_E_REQ_TOO_LARGE && w->tokens_max != 0 ? too_long(w, err) : code;
}

static enum ft_code llama3_header(struct writer *w, struct ft_str role, struct ft_err *err) {
    enum ft_code code = put_special(w, "<|start_header_id|>", err);
    if (code == FT_OK)
        code = put_text(w, &role, 1, err);
    return code == FT_OK ? put_special(w, "<|end_header_id|>", err) : code;
}

static enum ft_code llama3_message(struct writer *w, const struct ft_chat_message *message,
                                   struct ft_err *err) {
    const struct ft_str parts[] = {ft_str_c("\n\n"), trim(message->content)};
    enum ft_code code = llama3_header(w, message->role, err);
    if (code == FT_OK)
        code = put_text(w, parts, 2, err);
    return code == FT_OK ? put_special(w, "<|eot_id|>", err) : code;
}

static enum ft_code llama3(struct writer *w, const struct ft_chat_message *messages,
                           size_t n_messages, struct ft_err *err) {
    const struct ft_str blank = ft_str_c("\n\n");
    enum ft_code code = FT_OK;
    if (has(w->tokenizer, "<|begin_of_text|>"))
        code = put_special(w, "<|begin_of_text|>", err);
    for (size_t i = 0; code == FT_OK && i < n_messages; i++)
        code = llama3_message(w, &messages[i], err);
    if (code == FT_OK)
        code = llama3_header(w, ft_str_c("assistant"), err);
    return code == FT_OK ? put_text(w, &blank, 1, err) : code;
}

static enum ft_code chatml_message(struct writer *w, const struct ft_chat_message *message,
                                   struct ft_err *err) {
    const struct ft_str parts[] = {message->role, ft_str_c("\n"), message->content};
    const struct ft_str newline = ft_str_c("\n");
    enum ft_code code = put_special(w, "<|im_start|>", err);
    if (code == FT_OK)
        code = put_text(w, parts, 3, err);
    if (code == FT_OK)
        code = put_special(w, "<|im_end|>", err);
    return code == FT_OK ? put_text(w, &newline, 1, err) : code;
}

static enum ft_code chatml(struct writer *w, const struct ft_chat_message *messages,
                           size_t n_messages, struct ft_err *err) {
    const struct ft_str header = ft_str_c("assistant\n");
    enum ft_code code = FT_OK;
    for (size_t i = 0; code == FT_OK && i < n_messages; i++)
        code = chatml_message(w, &messages[i], err);
    if (code == FT_OK)
        code = put_special(w, "<|im_start|>", err);
    return code == FT_OK ? put_text(w, &header, 1, err) : code;
}

static enum ft_code check_message(const struct ft_chat_message *message, size_t i,
                                  struct ft_err *err) {
    static const char *const roles[] = {"system", "user", "assistant"};
    bool known = false;
    for (size_t k = 0; k < sizeof roles / sizeof roles[0]; k++)
        known = known || ft_str_eq(message->role, ft_str_c(roles[k]));
    if (!known)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "messages[%zu].role is '%.*s', not system, user or assistant", i,
                          (int)(message->role.len < 32 ? message->role.len : 32),
                          message->role.len == 0 ? "" : message->role.ptr);
    size_t n_valid = ft_utf8_valid_prefix(message->content);
    if (n_valid != message->content.len)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "messages[%zu].content is not UTF-8 at byte %zu", i, n_valid);
    return FT_OK;
}

enum ft_code ft_chat_encode(enum ft_chat_format format, struct ft_tokenizer *tokenizer,
                            const struct ft_chat_message *messages, size_t n_messages,
                            size_t tokens_max, struct ft_ids *out, struct ft_err *err) {
    if (format == FT_CHAT_NONE)
        return ft_err_set(err, FT_E_REQ_UNSUPPORTED, MODULE,
                          "the model has no chat format that is known (llama3, chatml)");
    if (n_messages == 0)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "messages is empty");
    for (size_t i = 0; i < n_messages; i++) {
        enum ft_code code = check_message(&messages[i], i, err);
        if (code != FT_OK)
            return code;
    }
    struct writer w = {
        .tokenizer = tokenizer, .out = out, .first = out->len, .tokens_max = tokens_max};
    ft_buf_init(&w.text, 0);
    enum ft_code code = format == FT_CHAT_LLAMA3 ? llama3(&w, messages, n_messages, err)
                                                 : chatml(&w, messages, n_messages, err);
    ft_buf_fini(&w.text);
    if (code != FT_OK)
        out->len = w.first;
    return code;
}
