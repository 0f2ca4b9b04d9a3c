#include "common/text/pretok.h"

#include "common/text/regex.h"
#include "common/text/tokjson.h"

/* ByteLevel's own pattern, where use_regex is set. */
#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

static enum ft_code add_split(struct ft_pretok *pretok, struct ft_str pattern, bool quoted,
                              enum ft_split_behavior behavior, bool invert, struct ft_err *err) {
    if (pretok->n_splits == FT_PRETOK_SPLITS_MAX)
        return ft_tokjson_fail(err, "more than %d splits", FT_PRETOK_SPLITS_MAX);
    struct ft_buf translated;
    ft_buf_init(&translated, 0);
    enum ft_code code = FT_OK;
    if (quoted)
        ft_regex_quote(pattern, &translated);
    else
        code = ft_regex_translate(pattern, &translated, err);
    if (code == FT_OK && translated.failed)
        code = ft_err_set(err, FT_E_PROC_MEMORY, "tokenizer", "no memory for a regex");
    struct ft_split *split = &pretok->splits[pretok->n_splits];
    if (code == FT_OK)
        code = ft_split_init(split, ft_buf_str(&translated), err);
    ft_buf_fini(&translated);
    if (code != FT_OK)
        return code;
    split->behavior = behavior;
    split->invert = invert;
    pretok->n_splits++;
    return FT_OK;
}

static enum ft_code add_split_json(struct ft_pretok *pretok, const json_t *json,
                                   struct ft_err *err) {
    const json_t *pattern = json_object_get(json, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex");
    const json_t *string = json_object_get(pattern, "String");
    const json_t *text = regex != NULL ? regex : string;
    if (json_object_size(pattern) != 1 || json_string_length(text) == 0)
        return ft_tokjson_fail(err, "pattern is neither a Regex nor a String");
    const char *name = json_string_value(json_object_get(json, "behavior"));
    enum ft_split_behavior behavior;
    if (name == NULL || !ft_split_parse(name, &behavior))
        return ft_tokjson_fail(err, "behavior '%s' is not supported", name == NULL ? "" : name);
    bool invert = false;
    enum ft_code code = ft_tokjson_bool(json, "invert", &invert, err);
    if (code != FT_OK)
        return code;
    return add_split(pretok, ft_tokjson_str(text), regex == NULL, behavior, invert, err);
}

static enum ft_code add_digits(struct ft_pretok *pretok, const json_t *json, struct ft_err *err) {
    bool individual = false;
    enum ft_code code = ft_tokjson_bool(json, "individual_digits", &individual, err);
    if (code != FT_OK)
        return code;
    return add_split(pretok, ft_str_c("\\p{N}"), false,
                     individual ? FT_SPLIT_ISOLATED : FT_SPLIT_CONTIGUOUS, false, err);
}

static enum ft_code add_byte_level(struct ft_pretok *pretok, const json_t *json,
                                   struct ft_err *err) {
    bool use_regex = true, add_prefix = true;
    enum ft_code code = ft_tokjson_bool(json, "use_regex", &use_regex, err);
    if (code == FT_OK)
        code = ft_tokjson_bool(json, "add_prefix_space", &add_prefix, err);
    if (code != FT_OK)
        return code;
    pretok->has_byte_level = true;
    pretok->add_prefix = add_prefix;
    pretok->prefix_at = pretok->n_splits;
    if (!use_regex)
        return FT_OK;
    return add_split(pretok, ft_str_c(GPT2_PATTERN), false, FT_SPLIT_ISOLATED, false, err);
}

static enum ft_code add(struct ft_pretok *pretok, const json_t *json, struct ft_err *err) {
    const char *type = ft_tokjson_type(json);
    if (pretok->has_byte_level)
        return ft_tokjson_fail(err, "type '%s' after ByteLevel is not supported", type);
    if (strcmp(type, "Split") == 0)
        return add_split_json(pretok, json, err);
    if (strcmp(type, "Digits") == 0)
        return add_digits(pretok, json, err);
    if (strcmp(type, "ByteLevel") == 0)
        return add_byte_level(pretok, json, err);
    return ft_tokjson_fail(err, "type '%s' is not supported", type);
}

static enum ft_code add_all(struct ft_pretok *pretok, const json_t *json, struct ft_err *err) {
    if (strcmp(ft_tokjson_type(json), "Sequence") != 0)
        return add(pretok, json, err);
    const json_t *list;
    enum ft_code code = ft_tokjson_array(json, "pretokenizers", &list, err);
    for (size_t i = 0; code == FT_OK && i < json_array_size(list); i++) {
        code = add(pretok, json_array_get(list, i), err);
        if (code != FT_OK)
            ft_err_prefix(err, "pretokenizers[%zu]", i);
    }
    return code;
}

enum ft_code ft_pretok_init(struct ft_pretok *pretok, const json_t *json, struct ft_err *err) {
    *pretok = (struct ft_pretok){0};
    ft_buf_init(&pretok->prefixed, 0);
    enum ft_code code = add_all(pretok, json, err);
    if (code == FT_OK && !pretok->has_byte_level)
        code = ft_tokjson_fail(err, "there is no ByteLevel; other vocabularies are not supported");
    if (code == FT_OK)
        return FT_OK;
    ft_err_prefix(err, "pre_tokenizer");
    ft_pretok_fini(pretok);
    return code;
}

enum ft_code ft_pretok_fork(struct ft_pretok *pretok, const struct ft_pretok *original,
                            struct ft_err *err) {
    enum ft_code code = FT_OK;
    *pretok = *original;
    ft_buf_init(&pretok->prefixed, 0);
    for (pretok->n_splits = 0; pretok->n_splits < original->n_splits; pretok->n_splits++) {
        size_t i = pretok->n_splits;
        code = ft_split_fork(&pretok->splits[i], &original->splits[i], err);
        if (code != FT_OK)
            break;
    }
    if (code != FT_OK)
        ft_pretok_fini(pretok);
    return code;
}

void ft_pretok_fini(struct ft_pretok *pretok) {
    for (size_t i = 0; i < pretok->n_splits; i++)
        ft_split_fini(&pretok->splits[i]);
    ft_buf_fini(&pretok->prefixed);
    *pretok = (struct ft_pretok){0};
}

/* What is left to do with a piece: splits from stage on, then the sink. */
struct stage {
    struct ft_pretok *pretok;
    size_t at;
    const struct ft_split_sink *sink;
};

static enum ft_code enter(void *ctx, struct ft_str piece, struct ft_err *err) {
    const struct stage *stage = ctx;
    struct ft_pretok *pretok = stage->pretok;
    if (pretok->add_prefix && stage->at == pretok->prefix_at && piece.ptr[0] != ' ') {
        ft_buf_reset(&pretok->prefixed);
        ft_buf_add_c(&pretok->prefixed, " ");
        ft_buf_add_str(&pretok->prefixed, piece);
        if (pretok->prefixed.failed)
            return ft_err_set(err, FT_E_PROC_MEMORY, "tokenizer", "no memory for a piece");
        piece = ft_buf_str(&pretok->prefixed);
    }
    if (stage->at == pretok->n_splits)
        return stage->sink->piece(stage->sink->ctx, piece, err);
    struct stage next = {pretok, stage->at + 1, stage->sink};
    struct ft_split_sink sink = {enter, &next};
    return ft_split_run(&pretok->splits[stage->at], piece, &sink, err);
}

enum ft_code ft_pretok_run(struct ft_pretok *pretok, struct ft_str text,
                           const struct ft_split_sink *sink, struct ft_err *err) {
    struct stage first = {pretok, 0, sink};
    return text.len == 0 ? FT_OK : enter(&first, text, err);
}
