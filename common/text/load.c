#include "common/text/load.h"

#include "common/text/tokjson.h"

/* Fields of the model whose other values would change ids. */
static enum ft_code check_model(const json_t *model, struct ft_err *err) {
    const char *type = ft_tokjson_type(model);
    if (strcmp(type, "BPE") != 0)
        return ft_tokjson_fail(err, "type '%s' is not supported, only BPE is", type);
    /* Off when absent, null, "" or 0. */
    static const char *const off[] = {"unk_token", "dropout", "continuing_subword_prefix",
                                      "end_of_word_suffix"};
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++) {
        const json_t *value = json_object_get(model, off[i]);
        if (json_string_length(value) != 0)
            return ft_tokjson_fail(err, "%s '%s' is not supported", off[i],
                                   json_string_value(value));
        if (json_number_value(value) != 0.0)
            return ft_tokjson_fail(err, "%s %g is not supported", off[i], json_number_value(value));
    }
    bool byte_fallback = false;
    enum ft_code code = ft_tokjson_bool(model, "byte_fallback", &byte_fallback, err);
    if (code == FT_OK && byte_fallback)
        return ft_tokjson_fail(err, "byte_fallback true is not supported");
    return code;
}

static enum ft_code load_vocab(const json_t *model, struct ft_vocab *vocab, struct ft_err *err) {
    json_t *tokens = json_object_get(model, "vocab");
    if (!json_is_object(tokens))
        return ft_tokjson_fail(err, "vocab is not an object");
    size_t n_tokens = json_object_size(tokens);
    if (ft_strmap_reserve(&vocab->contents, n_tokens) != FT_OK ||
        ft_strmap_reserve(&vocab->pieces, n_tokens) != FT_OK)
        return ft_err_set(err, FT_E_PROC_MEMORY, "tokenizer", "no memory for the vocabulary");
    const char *content;
    json_t *id;
    json_object_foreach(tokens, content, id) {
        if (!json_is_integer(id))
            return ft_tokjson_fail(err, "vocab: the id of '%.64s' is not an integer", content);
        enum ft_code code = ft_vocab_add(vocab, ft_str_c(content), json_integer_value(id), err);
        if (code != FT_OK)
            return ft_err_prefix(err, "vocab");
    }
    return FT_OK;
}

/* "left right" or ["left", "right"]. */
static bool split_merge(const json_t *merge, struct ft_str *left, struct ft_str *right) {
    if (json_is_array(merge)) {
        const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
        *left = ft_tokjson_str(a);
        *right = ft_tokjson_str(b);
        return json_array_size(merge) == 2 && left->len > 0 && right->len > 0;
    }
    struct ft_str whole = ft_tokjson_str(merge);
    const char *space = whole.len == 0 ? NULL : memchr(whole.ptr, ' ', whole.len);
    if (space == NULL)
        return false;
    *left = (struct ft_str){whole.ptr, (size_t)(space - whole.ptr)};
    *right = (struct ft_str){space + 1, whole.len - left->len - 1};
    return left->len > 0 && right->len > 0 && memchr(right->ptr, ' ', right->len) == NULL;
}

static enum ft_code load_merge(const json_t *merge, int32_t rank, const struct ft_vocab *vocab,
                               struct ft_bpe *bpe, struct ft_err *err) {
    struct ft_str left, right;
    if (!split_merge(merge, &left, &right))
        return ft_tokjson_fail(err,
                               "merges[%d] is neither \"left right\" nor [\"left\", "
                               "\"right\"]",
                               rank);
    if (left.len + right.len > FT_VOCAB_TOKEN_BYTES_MAX)
        return ft_tokjson_fail(err, "merges[%d] makes a token of more than %d bytes", rank,
                               FT_VOCAB_TOKEN_BYTES_MAX);
    char joined[FT_VOCAB_TOKEN_BYTES_MAX];
    memcpy(joined, left.ptr, left.len);
    memcpy(joined + left.len, right.ptr, right.len);
    int32_t a = ft_strmap_get(&vocab->contents, left);
    int32_t b = ft_strmap_get(&vocab->contents, right);
    int32_t result = ft_strmap_get(&vocab->contents, (struct ft_str){joined, left.len + right.len});
    if (a < 0 || b < 0 || result < 0)
        return ft_tokjson_fail(err, "merges[%d]: %s is not in the vocabulary", rank,
                               a < 0   ? "the left part"
                               : b < 0 ? "the right part"
                                       : "the result");
    ft_bpe_add(bpe, a, b, rank, result);
    return FT_OK;
}

enum ft_code ft_load_model(const json_t *model, struct ft_vocab *vocab, struct ft_bpe *bpe,
                           struct ft_err *err) {
    const json_t *merges = NULL;
    bool ignore_merges = false;
    enum ft_code code = check_model(model, err);
    if (code == FT_OK)
        code = ft_tokjson_bool(model, "ignore_merges", &ignore_merges, err);
    if (code == FT_OK)
        code = ft_tokjson_array(model, "merges", &merges, err);
    size_t n_merges = json_array_size(merges);
    if (code == FT_OK && n_merges > FT_VOCAB_ID_MAX)
        code =
            ft_tokjson_fail(err, "merges has %zu entries, more than %d", n_merges, FT_VOCAB_ID_MAX);
    if (code == FT_OK)
        code = load_vocab(model, vocab, err);
    if (code != FT_OK)
        return ft_err_prefix(err, "model");
    code = ft_bpe_init(bpe, vocab, n_merges, err);
    if (code != FT_OK)
        return code;
    bpe->ignore_merges = ignore_merges;
    for (size_t i = 0; code == FT_OK && i < n_merges; i++)
        code = load_merge(json_array_get(merges, i), (int32_t)i, vocab, bpe, err);
    if (code == FT_OK)
        return FT_OK;
    ft_bpe_fini(bpe);
    return ft_err_prefix(err, "model");
}

struct added_flags {
    bool special, normalized, lstrip, rstrip, single_word;
};

static enum ft_code read_flags(const json_t *json, struct added_flags *flags, struct ft_err *err) {
    const struct {
        const char *key;
        bool *value;
    } fields[] = {{"special", &flags->special},
                  {"normalized", &flags->normalized},
                  {"lstrip", &flags->lstrip},
                  {"rstrip", &flags->rstrip},
                  {"single_word", &flags->single_word}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        enum ft_code code = ft_tokjson_bool(json, fields[i].key, fields[i].value, err);
        if (code != FT_OK)
            return code;
    }
    if (flags->single_word)
        return ft_tokjson_fail(err, "single_word true is not supported");
    return FT_OK;
}

/* The form in which a normalized token stands in normalised text. */
static enum ft_code normalize_content(const struct ft_normalizer *normalizer,
                                      struct ft_vocab *vocab, struct ft_str *content,
                                      struct ft_err *err) {
    struct ft_buf text;
    ft_buf_init(&text, 0);
    enum ft_code code = ft_normalizer_run(normalizer, *content, &text);
    if (code == FT_OK) {
        *content = ft_arena_str(vocab->arena, ft_buf_str(&text));
        code = content->ptr == NULL ? FT_E_PROC_MEMORY : FT_OK;
    }
    ft_buf_fini(&text);
    return code == FT_OK ? FT_OK : ft_err_set(err, code, "tokenizer", "no memory for a token");
}

static enum ft_code load_added(const json_t *json, const struct ft_normalizer *normalizer,
                               struct ft_vocab *vocab, struct ft_added *plain,
                               struct ft_added *normalized, struct ft_err *err) {
    const json_t *id = json_object_get(json, "id"), *content = json_object_get(json, "content");
    if (!json_is_integer(id) || !json_is_string(content))
        return ft_tokjson_fail(err, "id and content must be an integer and a string");
    struct added_flags flags = {0};
    enum ft_code code = read_flags(json, &flags, err);
    if (code == FT_OK)
        code = ft_vocab_add_text(vocab, ft_tokjson_str(content), json_integer_value(id),
                                 flags.special, err);
    if (code != FT_OK)
        return code;
    struct ft_added_token token = {.id = (int32_t)json_integer_value(id),
                                   .special = flags.special,
                                   .lstrip = flags.lstrip,
                                   .rstrip = flags.rstrip};
    token.content = ft_vocab_token(vocab, token.id)->content;
    if (flags.normalized)
        code = normalize_content(normalizer, vocab, &token.content, err);
    if (code != FT_OK)
        return code;
    if (ft_added_add(flags.normalized ? normalized : plain, token) != FT_OK)
        return ft_err_set(err, FT_E_PROC_MEMORY, "tokenizer", "no memory for added tokens");
    return FT_OK;
}

enum ft_code ft_load_added(const json_t *list, const struct ft_normalizer *normalizer,
                           struct ft_vocab *vocab, struct ft_added *plain,
                           struct ft_added *normalized, struct ft_err *err) {
    if (list != NULL && !json_is_null(list) && !json_is_array(list))
        return ft_tokjson_fail(err, "added_tokens is not a list");
    for (size_t i = 0; i < json_array_size(list); i++) {
        enum ft_code code =
            load_added(json_array_get(list, i), normalizer, vocab, plain, normalized, err);
        if (code != FT_OK)
            return ft_err_prefix(err, "added_tokens[%zu]", i);
    }
    enum ft_code code = ft_added_seal(plain, err);
    return code == FT_OK ? ft_added_seal(normalized, err) : code;
}

static enum ft_code check_decoder(const json_t *json, struct ft_err *err) {
    const char *type = ft_tokjson_type(json);
    if (strcmp(type, "ByteLevel") == 0 || strcmp(type, "Fuse") == 0)
        return FT_OK;
    return ft_tokjson_fail(err, "type '%s' is not supported", type);
}

enum ft_code ft_load_decoder(const json_t *json, struct ft_err *err) {
    const json_t *list;
    if (strcmp(ft_tokjson_type(json), "Sequence") != 0) {
        enum ft_code code = check_decoder(json, err);
        return code == FT_OK ? FT_OK : ft_err_prefix(err, "decoder");
    }
    enum ft_code code = ft_tokjson_array(json, "decoders", &list, err);
    for (size_t i = 0; code == FT_OK && i < json_array_size(list); i++)
        code = check_decoder(json_array_get(list, i), err);
    return code == FT_OK ? FT_OK : ft_err_prefix(err, "decoder");
}
