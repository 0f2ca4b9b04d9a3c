/* Ids of the tokenizers library for the demo and the bench vocabulary. */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/text/tokenizer.h"
#include "support/suite.h"

/* The ids of in are those of want from its id `skip` on. */
static void check_ids(struct ft_tokenizer *tokenizer, struct ft_str in, bool add_special,
                      const json_t *want, size_t skip) {
    const struct ft_encode_opts opts = {.add_special = add_special, .parse_special = true};
    struct ft_ids ids = {0};
    struct ft_err err = {0};
    ck_assert_msg(ft_tokenizer_encode(tokenizer, in, &opts, &ids, &err) == FT_OK, "%s", err.text);
    ck_assert_msg(ids.len == json_array_size(want) - skip, "'%s': %zu ids, want %zu", in.ptr,
                  ids.len, json_array_size(want) - skip);
    for (size_t k = 0; k < ids.len; k++)
        ck_assert_msg(ids.ptr[k] == json_integer_value(json_array_get(want, k + skip)),
                      "'%s': id %zu is %d", in.ptr, k, ids.ptr[k]);
    if (!add_special) {
        struct ft_buf text;
        ft_buf_init(&text, 0);
        ft_tokenizer_decode(tokenizer, ids.ptr, ids.len, false, &text);
        ck_assert(ft_str_eq(ft_buf_str(&text), in));
        ft_buf_fini(&text);
    }
    ft_ids_fini(&ids);
}

/* The vectors have the BOS of the post-processor, twice where the text begins with one; ours is
 * never doubled. */
static void check_vectors(const char *model_dir, const char *file) {
    struct ft_tokenizer *tokenizer = NULL;
    struct ft_err err = {0};
    ck_assert_msg(ft_tokenizer_open(&tokenizer, model_dir, &err) == FT_OK, "%s", err.text);
    json_error_t at;
    json_t *rows = json_load_file(file, JSON_ALLOW_NUL, &at);
    ck_assert_msg(rows != NULL, "%s: %s", file, at.text);
    ck_assert_uint_gt(json_array_size(rows), 50);
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        const json_t *want = json_object_get(row, "ids"), *text = json_object_get(row, "text");
        struct ft_str in = {json_string_value(text), json_string_length(text)};
        bool doubled = json_equal(json_array_get(want, 0), json_array_get(want, 1));
        check_ids(tokenizer, in, true, want, doubled ? 1 : 0);
        check_ids(tokenizer, in, false, want, 1);
    }
    json_decref(rows);
    ft_tokenizer_close(&tokenizer);
}

START_TEST(encode_demo_vectors_match) {
    check_vectors(FT_TEST_SOURCE_DIR "/models/demo-target",
                  FT_TEST_SOURCE_DIR "/tests/data/demo-tokenizer-vectors.json");
}
END_TEST

START_TEST(encode_bench_vectors_match) {
    char dir[4096];
    snprintf(dir, sizeof dir, "%s/bench-target", getenv("FORETOKEN_BENCH_MODELS"));
    check_vectors(dir, FT_TEST_SOURCE_DIR "/tests/data/bench-tokenizer-vectors.json");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tokenizer_vectors");
    TCase *tc = tcase_create("vectors");
    tcase_add_test(tc, encode_demo_vectors_match);
    if (getenv("FORETOKEN_BENCH_MODELS") != NULL)
        tcase_add_test(tc, encode_bench_vectors_match);
    else
        puts("encode_bench_vectors_match skipped: FORETOKEN_BENCH_MODELS is not set");
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
