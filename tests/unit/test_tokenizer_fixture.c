#include "unit/test_tokenizer_fixture.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "support/fixtures.h"

#define FIRST_MERGED_ID 264

json_t *tokenizer_json(void) {
    return ft_fixture_json(ft_fixture_model("r7"), "tokenizer.json");
}

json_t *parse(const char *json) {
    json_error_t at;
    json_t *value = json_loads(json, JSON_DECODE_ANY | JSON_ALLOW_NUL, &at);
    ck_assert_msg(value != NULL, "%s: %s", json, at.text);
    return value;
}

void set_field(json_t *root, const char *path, json_t *value) {
    char key[64];
    const char *dot = strchr(path, '.');
    if (dot == NULL) {
        ck_assert_int_eq(json_object_set_new(root, path, value), 0);
        return;
    }
    snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
    set_field(json_object_get(root, key), dot + 1, value);
}

void add_merges(json_t *root, const char *const (*merges)[2], bool pairs) {
    json_t *model = json_object_get(root, "model");
    json_t *vocab = json_object_get(model, "vocab"), *list = json_object_get(model, "merges");
    for (int i = 0; merges[i][0] != NULL; i++) {
        char joined[128];
        snprintf(joined, sizeof joined, "%s%s", merges[i][0], merges[i][1]);
        json_object_set_new(vocab, joined, json_integer(FIRST_MERGED_ID + i));
        json_array_append_new(list, pairs ? json_pack("[ss]", merges[i][0], merges[i][1])
                                          : json_sprintf("%s %s", merges[i][0], merges[i][1]));
    }
}

enum ft_code try_open_json(json_t *root, const char *config, struct ft_tokenizer **out,
                           struct ft_err *err) {
    const char *dir = ft_fixture_temp_dir();
    char *text = json_dumps(root, JSON_ENCODE_ANY);
    ck_assert_ptr_nonnull(text);
    ft_fixture_write_text(dir, "tokenizer.json", text);
    if (config != NULL)
        ft_fixture_write_text(dir, "tokenizer_config.json", config);
    enum ft_code code = ft_tokenizer_open(out, dir, err);
    ft_fixture_remove_dir(dir);
    free(text);
    json_decref(root);
    return code;
}

struct ft_tokenizer *open_json(json_t *root, const char *config) {
    struct ft_tokenizer *tokenizer = NULL;
    struct ft_err err = {0};
    ck_assert_msg(try_open_json(root, config, &tokenizer, &err) == FT_OK, "%s", err.text);
    return tokenizer;
}

static struct ft_ids encode(struct ft_tokenizer *tokenizer, struct ft_str text, bool add_special,
                            bool parse_special) {
    const struct ft_encode_opts opts = {.add_special = add_special, .parse_special = parse_special};
    struct ft_ids ids = {0};
    struct ft_err err = {0};
    enum ft_code code = ft_tokenizer_encode(tokenizer, text, &opts, &ids, &err);
    ck_assert_msg(code == FT_OK, "%s", err.text);
    return ids;
}

const char *encode_text(struct ft_tokenizer *tokenizer, struct ft_str text, bool add_special,
                        bool parse_special) {
    static char out[4096];
    struct ft_ids ids = encode(tokenizer, text, add_special, parse_special);
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < ids.len && n < sizeof out; i++)
        n += (size_t)snprintf(out + n, sizeof out - n, i == 0 ? "%d" : " %d", ids.ptr[i]);
    ft_ids_fini(&ids);
    return out;
}

const char *encode_pieces(struct ft_tokenizer *tokenizer, struct ft_str text) {
    static char out[4096];
    struct ft_ids ids = encode(tokenizer, text, false, false);
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < ids.len && n < sizeof out; i++) {
        struct ft_str bytes = ft_tokenizer_bytes(tokenizer, ids.ptr[i]);
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%.*s", i == 0 ? "" : "|", (int)bytes.len,
                              bytes.ptr);
    }
    ft_ids_fini(&ids);
    return out;
}
