#include "common/text/post.h"

#include "common/text/tokjson.h"

/* Append the ids that a SpecialToken of the template stands for. */
static enum ft_code push_special(const json_t *json, const json_t *special,
                                 const struct ft_vocab *vocab, struct ft_ids *out,
                                 struct ft_err *err) {
    const char *name = json_string_value(json_object_get(special, "id"));
    const json_t *entry =
        name == NULL ? NULL : json_object_get(json_object_get(json, "special_tokens"), name);
    const json_t *ids;
    if (entry == NULL)
        return ft_tokjson_fail(err, "special token '%s' is not in special_tokens",
                               name == NULL ? "" : name);
    enum ft_code code = ft_tokjson_array(entry, "ids", &ids, err);
    for (size_t i = 0; code == FT_OK && i < json_array_size(ids); i++) {
        json_int_t value = json_integer_value(json_array_get(ids, i));
        int32_t id = (int32_t)value;
        if (!json_is_integer(json_array_get(ids, i)) || value < 0 || value > FT_VOCAB_ID_MAX ||
            ft_vocab_token(vocab, id) == NULL)
            return ft_tokjson_fail(err, "id of special token '%s' is not in the vocabulary", name);
        code = ft_ids_push(out, &id, 1);
        if (code != FT_OK)
            return ft_err_set(err, code, "tokenizer", "no memory for the template");
    }
    return code;
}

static enum ft_code load_template(const json_t *json, const struct ft_vocab *vocab,
                                  struct ft_post *out, struct ft_err *err) {
    const json_t *single;
    enum ft_code code = ft_tokjson_array(json, "single", &single, err);
    size_t n_sequences = 0;
    for (size_t i = 0; code == FT_OK && i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        const json_t *special = json_object_get(item, "SpecialToken");
        if (special != NULL)
            code = push_special(json, special, vocab, n_sequences == 0 ? &out->before : &out->after,
                                err);
        else if (json_object_get(item, "Sequence") != NULL)
            n_sequences++;
        else
            code = ft_tokjson_fail(err, "single[%zu] is neither a SpecialToken nor a Sequence", i);
    }
    if (code == FT_OK && n_sequences != 1)
        code = ft_tokjson_fail(err, "single has %zu sequences, not 1", n_sequences);
    out->given = true;
    return code;
}

static enum ft_code load_one(const json_t *json, const struct ft_vocab *vocab, struct ft_post *out,
                             struct ft_err *err) {
    const char *type = ft_tokjson_type(json);
    if (strcmp(type, "ByteLevel") == 0) /* only trims offsets, which nobody asks for */
        return FT_OK;
    if (strcmp(type, "TemplateProcessing") != 0)
        return ft_tokjson_fail(err, "type '%s' is not supported", type);
    if (out->given)
        return ft_tokjson_fail(err, "a second TemplateProcessing is not supported");
    return load_template(json, vocab, out, err);
}

static enum ft_code load_all(const json_t *json, const struct ft_vocab *vocab, struct ft_post *out,
                             struct ft_err *err) {
    if (strcmp(ft_tokjson_type(json), "Sequence") != 0)
        return load_one(json, vocab, out, err);
    const json_t *list;
    enum ft_code code = ft_tokjson_array(json, "processors", &list, err);
    for (size_t i = 0; code == FT_OK && i < json_array_size(list); i++) {
        code = load_one(json_array_get(list, i), vocab, out, err);
        if (code != FT_OK)
            ft_err_prefix(err, "processors[%zu]", i);
    }
    return code;
}

enum ft_code ft_post_init(struct ft_post *post, const json_t *json, const struct ft_vocab *vocab,
                          struct ft_err *err) {
    *post = (struct ft_post){0};
    if (json == NULL || json_is_null(json))
        return FT_OK;
    enum ft_code code = load_all(json, vocab, post, err);
    if (code == FT_OK)
        return FT_OK;
    ft_post_fini(post);
    return ft_err_prefix(err, "post_processor");
}

void ft_post_fini(struct ft_post *post) {
    ft_ids_fini(&post->before);
    ft_ids_fini(&post->after);
    *post = (struct ft_post){0};
}
