/* Ids and pieces of the tokenizers library (Rust) on random texts: see README.md. Skipped until
 * install.sh has made the vectors. */
#include <check.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/base/file.h"
#include "common/text/pretok.h"
#include "common/text/tokenizer.h"
#include "support/suite.h"

#define VECTORS FT_TEST_BINARY_DIR "/oracle/vectors"
#define SHOWN_MAX 5

struct oracle {
    struct ft_tokenizer *tokenizer;
    struct ft_pretok pretok;
    struct ft_split unassigned; /* characters that PCRE2's Unicode does not have */
    size_t n_rows, n_wrong;
    size_t n_newer; /* differences in texts with such a character */
};

static enum ft_code note_any(void *ctx, struct ft_str piece, struct ft_err *err) {
    (void)piece;
    (void)err;
    *(bool *)ctx = true;
    return FT_OK;
}

/* The library's engine has a newer Unicode than Debian's PCRE2: a text with characters that are
 * unassigned here may come out differently. test_regex_oracle checks all the others one by one. */
static bool has_unassigned(const struct oracle *oracle, struct ft_str text) {
    bool any = false;
    struct ft_split_sink sink = {note_any, &any};
    struct ft_err err = {0};
    ck_assert_msg(ft_split_run(&oracle->unassigned, text, &sink, &err) == FT_OK, "%s", err.text);
    return any;
}

static void report(struct oracle *oracle, const char *what, struct ft_str text, const json_t *want,
                   const char *got) {
    if (has_unassigned(oracle, text)) {
        oracle->n_newer++;
        return;
    }
    if (oracle->n_wrong++ >= SHOWN_MAX)
        return;
    struct ft_buf shown;
    ft_buf_init(&shown, 0);
    ft_buf_add_json(&shown, text);
    char *expected = json_dumps(want, JSON_COMPACT);
    printf("  %s of %s\n    want %s\n    got  %s\n", what, shown.ptr, expected, got);
    free(expected);
    ft_buf_fini(&shown);
}

static void check_ids(struct oracle *oracle, struct ft_str text, bool parse_special,
                      const json_t *want) {
    const struct ft_encode_opts opts = {.parse_special = parse_special};
    struct ft_ids ids = {0};
    struct ft_err err = {0};
    enum ft_code code = ft_tokenizer_encode(oracle->tokenizer, text, &opts, &ids, &err);
    ck_assert_msg(code == FT_OK, "%s", err.text);
    bool same = ids.len == json_array_size(want);
    for (size_t i = 0; same && i < ids.len; i++)
        same = ids.ptr[i] == json_integer_value(json_array_get(want, i));
    if (!same) {
        struct ft_buf got;
        ft_buf_init(&got, 0);
        for (size_t i = 0; i < ids.len; i++)
            ft_buf_addf(&got, "%s%d", i == 0 ? "[" : ",", ids.ptr[i]);
        report(oracle, parse_special ? "ids" : "literal ids", text, want, got.ptr);
        ft_buf_fini(&got);
    }
    ft_ids_fini(&ids);
}

static enum ft_code note_piece(void *ctx, struct ft_str piece, struct ft_err *err) {
    (void)err;
    return json_array_append_new(ctx, json_integer((json_int_t)piece.len)) == 0 ? FT_OK
                                                                                : FT_E_PROC_MEMORY;
}

static void check_pieces(struct oracle *oracle, struct ft_str text, const json_t *want) {
    json_t *lengths = json_array();
    struct ft_split_sink sink = {note_piece, lengths};
    struct ft_err err = {0};
    ck_assert_msg(ft_pretok_run(&oracle->pretok, text, &sink, &err) == FT_OK, "%s", err.text);
    if (!json_equal(lengths, want)) {
        char *got = json_dumps(lengths, JSON_COMPACT);
        report(oracle, "pieces", text, want, got);
        free(got);
    }
    json_decref(lengths);
}

static void open_oracle(struct oracle *oracle, const char *dir) {
    char path[4096];
    struct ft_err err = {0};
    ck_assert_msg(ft_tokenizer_open(&oracle->tokenizer, dir, &err) == FT_OK, "%s", err.text);
    ck_assert(ft_file_join(path, sizeof path, dir, "tokenizer.json", &err) == FT_OK);
    json_t *root = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(root);
    enum ft_code code =
        ft_pretok_init(&oracle->pretok, json_object_get(root, "pre_tokenizer"), &err);
    ck_assert_msg(code == FT_OK, "%s", err.text);
    json_decref(root);
    code = ft_split_init(&oracle->unassigned, ft_str_c("\\p{Cn}"), &err);
    ck_assert_msg(code == FT_OK, "%s", err.text);
    oracle->unassigned.behavior = FT_SPLIT_REMOVED;
    oracle->unassigned.invert = true;
}

/* Returns the number of differences. */
static size_t check_dir(const char *dir) {
    char path[4096];
    struct oracle oracle = {0};
    open_oracle(&oracle, dir);
    ck_assert(ft_file_join(path, sizeof path, dir, "vectors.jsonl", NULL) == FT_OK);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    json_t *row;
    while ((row = json_loadf(file, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL)) != NULL) {
        const json_t *in = json_object_get(row, "text");
        struct ft_str text = {json_string_value(in), json_string_length(in)};
        check_ids(&oracle, text, true, json_object_get(row, "ids"));
        check_ids(&oracle, text, false, json_object_get(row, "literal"));
        check_pieces(&oracle, text, json_object_get(row, "pieces"));
        oracle.n_rows++;
        json_decref(row);
    }
    fclose(file);
    ft_split_fini(&oracle.unassigned);
    ft_pretok_fini(&oracle.pretok);
    ft_tokenizer_close(&oracle.tokenizer);
    ck_assert_uint_ge(oracle.n_rows, 100);
    ck_assert_uint_le(oracle.n_newer, 2 + oracle.n_rows / 100);
    if (oracle.n_wrong > 0)
        printf("  %s: %zu differences in %zu texts\n", dir, oracle.n_wrong, oracle.n_rows);
    return oracle.n_wrong;
}

START_TEST(dev12_random_unicode_matches_the_library) {
    DIR *dir = opendir(VECTORS);
    ck_assert_ptr_nonnull(dir);
    size_t n_dirs = 0, n_wrong = 0;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strchr(entry->d_name, '.') != NULL)
            continue; /* not a case's folder */
        char path[4096];
        ck_assert(ft_file_join(path, sizeof path, VECTORS, entry->d_name, NULL) == FT_OK);
        n_wrong += check_dir(path);
        n_dirs++;
    }
    closedir(dir);
    ck_assert_uint_ge(n_dirs, 40);
    ck_assert_uint_eq(n_wrong, 0);
}
END_TEST

int main(void) {
    DIR *dir = opendir(VECTORS);
    if (dir == NULL) {
        puts("skipped: run tests/oracle/install.sh with the build folder first");
        return 77;
    }
    closedir(dir);
    Suite *suite = suite_create("tokenizer_oracle");
    TCase *tc = tcase_create("oracle");
    tcase_add_test(tc, dev12_random_unicode_matches_the_library);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
