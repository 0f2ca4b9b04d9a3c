#include "common/text/normalizer.h"

#include "common/text/tokjson.h"

static enum ft_code add(struct ft_normalizer *normalizer, const json_t *json, struct ft_err *err) {
    const char *type = ft_tokjson_type(json);
    enum ft_norm_form form;
    if (!ft_norm_parse(type, &form))
        return ft_tokjson_fail(err, "type '%s' is not supported", type);
    if (normalizer->n_forms == FT_NORMALIZER_FORMS_MAX)
        return ft_tokjson_fail(err, "more than %d in a row", FT_NORMALIZER_FORMS_MAX);
    normalizer->forms[normalizer->n_forms++] = form;
    return FT_OK;
}

static enum ft_code add_all(struct ft_normalizer *normalizer, const json_t *json,
                            struct ft_err *err) {
    if (strcmp(ft_tokjson_type(json), "Sequence") != 0)
        return add(normalizer, json, err);
    const json_t *list;
    enum ft_code code = ft_tokjson_array(json, "normalizers", &list, err);
    for (size_t i = 0; code == FT_OK && i < json_array_size(list); i++) {
        code = add(normalizer, json_array_get(list, i), err);
        if (code != FT_OK)
            ft_err_prefix(err, "normalizers[%zu]", i);
    }
    return code;
}

enum ft_code ft_normalizer_init(struct ft_normalizer *normalizer, const json_t *json,
                                struct ft_err *err) {
    *normalizer = (struct ft_normalizer){0};
    if (json == NULL || json_is_null(json))
        return FT_OK;
    enum ft_code code = add_all(normalizer, json, err);
    return code == FT_OK ? FT_OK : ft_err_prefix(err, "normalizer");
}

enum ft_code ft_normalizer_run(const struct ft_normalizer *normalizer, struct ft_str text,
                               struct ft_buf *out) {
    struct ft_buf steps[2];
    ft_buf_init(&steps[0], 0);
    ft_buf_init(&steps[1], 0);
    enum ft_code code = FT_OK;
    for (size_t i = 0; code == FT_OK && i < normalizer->n_forms; i++) {
        struct ft_buf *step = &steps[i % 2];
        ft_buf_reset(step);
        code = ft_norm_apply(normalizer->forms[i], text, step);
        text = ft_buf_str(step);
    }
    if (code == FT_OK)
        ft_buf_add_str(out, text);
    ft_buf_fini(&steps[0]);
    ft_buf_fini(&steps[1]);
    return code == FT_OK && out->failed ? FT_E_PROC_MEMORY : code;
}
