#include <check.h>
#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/param.h"
#include "common/base/str.h"
#include "support/suite.h"

START_TEST(utf8_prefix_stops_at_bad_bytes) {
    static const struct {
        const char *bytes;
        size_t len, valid;
    } rows[] = {
        {"", 0, 0},
        {"abc", 3, 3},
        {"a\0b", 3, 3},
        {"\xC3\xA9", 2, 2},
        {"\xC3", 1, 0},
        {"a\xF0\x9F\x98\x80", 5, 5},
        {"\xED\xA0\x80", 3, 0},
        {"\xC0\x80", 2, 0},
        {"\xF4\x90\x80\x80", 4, 0},
        {"x\xFFy", 3, 1},
        {"\xE0\x80\x80", 3, 0},
        {"\xF0\x9F\x98", 3, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ck_assert_uint_eq(ft_utf8_valid_prefix((struct ft_str){rows[i].bytes, rows[i].len}),
                          rows[i].valid);
    ck_assert_int_eq(ft_utf8_step((struct ft_str){"\xF0\x9F\x98", 3}), 0);
    ck_assert_int_eq(ft_utf8_step((struct ft_str){"\xF0\x9F\x41", 3}), -1);
}
END_TEST

START_TEST(base_name_is_the_last_part_of_a_path) {
    static const struct {
        const char *path, *name;
    } rows[] = {{"/a/model", "model"},
                {"model", "model"},
                {"/a/model//", "model"},
                {"/model", "model"},
                {"a/", "a"},
                {"/", "/"},
                {"//", "/"},
                {"", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ft_str name = ft_str_base_name(ft_str_c(rows[i].path));
        ck_assert_msg(ft_str_eq(name, ft_str_c(rows[i].name)), "'%s': '%.*s'", rows[i].path,
                      (int)name.len, name.ptr);
    }
}
END_TEST

START_TEST(err_text_is_always_utf8) {
    struct ft_err err = {0};
    ft_err_set(&err, FT_E_REQ_INVALID, "test", "bad \xFF byte\n");
    ck_assert_str_eq(err.text, "bad ? byte?");
    ft_err_prefix(&err, "file %d", 3);
    ck_assert_str_eq(err.text, "file 3: bad ? byte?");
    ck_assert_int_eq(ft_code_grpc_status(FT_E_REQ_INVALID), 3);
    ck_assert_int_eq(ft_code_exit_status(FT_E_PROC_CONFIG), 78);
}
END_TEST

START_TEST(arena_alloc_past_limit_returns_null) {
    struct ft_arena *arena = ft_arena_create(1024, 4096);
    ck_assert_ptr_nonnull(ft_arena_alloc(arena, 1000));
    ck_assert_ptr_nonnull(ft_arena_alloc(arena, 2000));
    ck_assert_ptr_null(ft_arena_alloc(arena, 5000));
    ck_assert_ptr_null(ft_arena_alloc(arena, SIZE_MAX - 3));
    ck_assert_ptr_null(ft_arena_calloc(arena, SIZE_MAX / 2, 4));
    ft_arena_reset(arena);
    ck_assert_ptr_nonnull(ft_arena_alloc(arena, 2000));
    struct ft_str s = ft_arena_str(arena, (struct ft_str){"a\0b", 3});
    ck_assert_uint_eq(s.len, 3);
    ck_assert_int_eq(s.ptr[3], 0);
    ft_arena_destroy(&arena);
    ck_assert_ptr_null(arena);
}
END_TEST

START_TEST(buf_json_escapes_everything_json_needs) {
    struct ft_buf buf;
    ft_buf_init(&buf, 0);
    ft_buf_add_json(&buf, (struct ft_str){"a\"\\\n\0\xFF\xC3\xA9", 8});
    ck_assert_str_eq(buf.ptr, "\"a\\\"\\\\\\n\\u0000\xEF\xBF\xBD\xC3\xA9\"");
    ft_buf_fini(&buf);
    ft_buf_init(&buf, 4);
    ft_buf_add_c(&buf, "12345");
    ck_assert(buf.failed);
    ft_buf_fini(&buf);
}
END_TEST

struct values {
    int32_t n;
    int64_t bytes;
    double x;
    bool on;
    char mode[FT_PARAM_STR_MAX];
};
static const struct ft_param k_rows[] = {
    {"num_things", FT_PARAM_I32, "things", 1, 16, "4", NULL, false, offsetof(struct values, n),
     "n"},
    {"cache_bytes", FT_PARAM_SIZE, "bytes", 1, 1e12, "1Mi", NULL, false,
     offsetof(struct values, bytes), "b"},
    {"ratio", FT_PARAM_F64, "", 0, 1, "0.5", NULL, false, offsetof(struct values, x), "x"},
    {"enable", FT_PARAM_BOOL, "", 0, 0, "true", NULL, false, offsetof(struct values, on), "on"},
    {"mode", FT_PARAM_STR, "", 0, 0, "fast", "fast|slow", false, offsetof(struct values, mode),
     "m"},
};
static const struct ft_param_table k_table = {k_rows, 5};

START_TEST(param_parse_accepts_every_spelling) {
    struct values v;
    struct ft_err err = {0};
    ck_assert_int_eq(ft_param_defaults(&k_table, &v, &err), FT_OK);
    ck_assert_int_eq(v.bytes, 1048576);
    char *argv[] = {"p",           "--num-things", "7",    "--set",           "ratio=0.25",
                    "--no-enable", "--mode=slow",  "left", "--cache_bytes=3K"};
    char *rest[9];
    struct ft_param_args args = {.argc = 9, .argv = argv, .rest = rest, .usage = ""};
    ck_assert_int_eq(ft_param_parse(&k_table, &v, &args, &err), FT_OK);
    ck_assert_int_eq(v.n, 7);
    ck_assert(v.x > 0.24 && v.x < 0.26);
    ck_assert(!v.on);
    ck_assert_str_eq(v.mode, "slow");
    ck_assert_int_eq(v.bytes, 3000);
    ck_assert_int_eq(args.n_rest, 1);
}
END_TEST

START_TEST(param_set_bad_names_key_value_and_limit) {
    struct values v;
    struct ft_err err = {0};
    ft_param_defaults(&k_table, &v, &err);
    ck_assert_int_ne(ft_param_set(&k_table, &v, "num_thing", "3", &err), FT_OK);
    ck_assert_ptr_nonnull(strstr(err.text, "num_things"));
    ck_assert_int_ne(ft_param_set(&k_table, &v, "num_things", "17", &err), FT_OK);
    ck_assert_ptr_nonnull(strstr(err.text, "17"));
    ck_assert_ptr_nonnull(strstr(err.text, "1 to 16 things"));
    static const char *const bad[][2] = {
        {"num_things", "x"},   {"num_things", "99999999999999999999"},
        {"ratio", "nan"},      {"ratio", "inf"},
        {"enable", "perhaps"}, {"mode", "warp"},
        {"cache_bytes", "3X"}, {"num_things", ""}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_int_eq(ft_param_set(&k_table, &v, bad[i][0], bad[i][1], &err), FT_E_PROC_CONFIG);
    ck_assert_int_eq(v.n, 4);
}
END_TEST

START_TEST(file_read_missing_and_too_large_are_told_apart) {
    struct ft_buf buf;
    struct ft_err err = {0};
    ft_buf_init(&buf, 0);
    ck_assert_int_eq(ft_file_read("/nonexistent/x", 10, &buf, &err), FT_E_REQ_NOT_FOUND);
    ck_assert_int_eq(ft_file_read(FT_TEST_SOURCE_DIR "/CMakeLists.txt", 10, &buf, &err),
                     FT_E_REQ_TOO_LARGE);
    ft_buf_fini(&buf);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("base");
    TCase *tc = tcase_create("base");
    tcase_add_test(tc, utf8_prefix_stops_at_bad_bytes);
    tcase_add_test(tc, base_name_is_the_last_part_of_a_path);
    tcase_add_test(tc, err_text_is_always_utf8);
    tcase_add_test(tc, arena_alloc_past_limit_returns_null);
    tcase_add_test(tc, buf_json_escapes_everything_json_needs);
    tcase_add_test(tc, param_parse_accepts_every_spelling);
    tcase_add_test(tc, param_set_bad_names_key_value_and_limit);
    tcase_add_test(tc, file_read_missing_and_too_large_are_told_apart);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
