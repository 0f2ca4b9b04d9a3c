#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/model/safetensors.h"
#include "support/fixtures.h"
#include "support/suite.h"

/* Data of the small files made here: a [2, 3] and a [4], both F32. */
#define DATA_BYTES 40

/* length (little-endian) + json + n_data zero bytes; the caller frees. */
static unsigned char *make_file(uint64_t length, const char *json, size_t n_data, size_t *len) {
    size_t n_json = strlen(json);
    *len = 8 + n_json + n_data;
    unsigned char *file = calloc(1, *len);
    ck_assert_ptr_nonnull(file);
    for (unsigned i = 0; i < 8; i++)
        file[i] = (unsigned char)(length >> (8 * i));
    memcpy(file + 8, json, n_json);
    return file;
}

static enum ft_code parse(const unsigned char *file, size_t len, struct ft_err *err) {
    struct ft_safetensors out = {0};
    int64_t start = ft_fixture_cpu_ns();
    enum ft_code code = ft_safetensors_parse(&out, "x.safetensors", file, len, len, err);
    ck_assert_int_lt(ft_fixture_cpu_ns() - start, FT_FIXTURE_CPU_SECOND_NS);
    ft_arena_destroy(&out.arena);
    return code;
}

/* A file of json, padded so that the data is aligned, and n_data bytes behind it. */
static unsigned char *make_padded(const char *json, size_t n_data, size_t *len) {
    char padded[2048];
    int n = snprintf(padded, sizeof padded, "%s%*s", json, (int)((8 - strlen(json) % 8) % 8), "");
    ck_assert(n > 0 && (size_t)n < sizeof padded);
    return make_file((uint64_t)n, padded, n_data, len);
}

static enum ft_code parse_json(const char *json, size_t n_data, struct ft_err *err) {
    size_t len = 0;
    unsigned char *file = make_padded(json, n_data, &len);
    enum ft_code code = parse(file, len, err);
    free(file);
    return code;
}

#define A "\"a\": {\"dtype\": \"F32\", \"shape\": [2, 3], \"data_offsets\": [0, 24]}"
#define B "\"b\": {\"dtype\": \"F32\", \"shape\": [4], \"data_offsets\": [24, 40]}"

START_TEST(parse_good_header_lists_tensors_in_file_order) {
    size_t len = 0;
    unsigned char *file =
        make_padded("{\"__metadata__\": {\"format\": \"pt\"}, " B ", " A "}", DATA_BYTES, &len);
    struct ft_safetensors out;
    struct ft_err err = {0};
    ck_assert_msg(ft_safetensors_parse(&out, "x", file, len, len, &err) == FT_OK, "%s", err.text);
    free(file); /* Nothing is borrowed. */
    ck_assert_uint_eq(out.n_entries, 2);
    ck_assert_str_eq(out.entries[0].name, "a");
    ck_assert_int_eq(out.entries[0].n_dims, 2);
    ck_assert_int_eq(out.entries[0].dims[1], 3);
    ck_assert_uint_eq(out.entries[0].begin, len - DATA_BYTES);
    ck_assert_str_eq(out.entries[1].name, "b");
    ck_assert_uint_eq(out.entries[1].begin, len - DATA_BYTES + 24);
    ck_assert_uint_eq(out.entries[1].bytes, 16);
    ft_arena_destroy(&out.arena);
}
END_TEST

START_TEST(parse_edges_that_are_allowed) {
    struct ft_err err = {0};
    ck_assert_int_eq(parse_json("{}", 0, &err), FT_OK);
    ck_assert_int_eq(parse_json("{\"s\": {\"dtype\": \"F32\", \"shape\": [], \"data_offsets\": "
                                "[0, 4]}, \"e\": {\"dtype\": \"BF16\", \"shape\": [0, "
                                "9223372036854775807], \"data_offsets\": [4, 4]}}",
                                4, &err),
                     FT_OK);
}
END_TEST

START_TEST(dev13_header_length_is_checked_against_the_file) {
    static const uint64_t lengths[] = {0,          1,          1u << 20,      (16u << 20) + 1,
                                       1ull << 63, UINT64_MAX, UINT64_MAX - 7};
    static const char json[] = "{" A ", " B "}";
    struct ft_err err = {0};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        size_t len = 0;
        unsigned char *file = make_file(lengths[i], json, DATA_BYTES, &len);
        ck_assert_int_eq(parse(file, len, &err), FT_E_PROC_MODEL);
        char number[32];
        snprintf(number, sizeof number, "%llu", (unsigned long long)lengths[i]);
        ck_assert_msg(strstr(err.text, number) != NULL, "%s", err.text);
        ck_assert_ptr_nonnull(strstr(err.text, "x.safetensors"));
        free(file);
    }
    size_t len = 0;
    unsigned char *file = make_file(sizeof json - 1, json, DATA_BYTES, &len);
    for (size_t cut = 0; cut < len; cut++) /* every length that a broken copy can leave */
        ck_assert_msg(parse(file, cut, &err) == FT_E_PROC_MODEL, "accepted %zu bytes", cut);
    file[0]++; /* one more than the file's JSON: the first data byte is no JSON */
    ck_assert_int_eq(parse(file, len, &err), FT_E_PROC_MODEL);
    free(file);
    file = make_file(len - 8 + 1, json, DATA_BYTES, &len); /* one byte past the end */
    ck_assert_int_eq(parse(file, len, &err), FT_E_PROC_MODEL);
    free(file);
}
END_TEST

START_TEST(dev13_shape_overflow_is_refused) {
    static const char *const shapes[] = {"[8589934592, 8589934592]", "[9223372036854775807, 2]",
                                         "[4611686018427387904, 4]", "[4294967296, 4294967296]",
                                         "[65536, 65536, 65536, 65536]"};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        char json[256];
        struct ft_err err = {0};
        snprintf(json, sizeof json,
                 "{\"a\": {\"dtype\": \"F32\", \"shape\": %s, \"data_offsets\": [0, 0]}}",
                 shapes[i]);
        ck_assert_int_eq(parse_json(json, 0, &err), FT_E_PROC_MODEL);
        ck_assert_msg(strstr(err.text, "tensor a: shape") != NULL, "%s", err.text);
    }
}
END_TEST

START_TEST(dev13_bad_entry_names_tensor_and_reason) {
    static const struct {
        const char *json, *word;
    } rows[] = {
        {"{\"a\": {\"dtype\": \"F33\", \"shape\": [2, 3], \"data_offsets\": [0, 40]}}", "F33"},
        {"{\"a\": {\"dtype\": \"F8_E4M3\", \"shape\": [40], \"data_offsets\": [0, 40]}}",
         "F8_E4M3"},
        {"{\"a\": {\"dtype\": 3, \"shape\": [10], \"data_offsets\": [0, 40]}}", "dtype"},
        {"{\"a\": {\"shape\": [10], \"data_offsets\": [0, 40]}}", "nothing else"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [10], \"data_offsets\": [0, 40], \"x\": 1}}",
         "nothing else"},
        {"{\"a\": [1]}", "object"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": 10, \"data_offsets\": [0, 40]}}", "shape"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [-10], \"data_offsets\": [0, 40]}}", "shape"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [10.0], \"data_offsets\": [0, 40]}}", "shape"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [\"10\"], \"data_offsets\": [0, 40]}}", "shape"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1, 1, 1, 1, 10], \"data_offsets\": [0, 40]}}",
         "at most 4"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [11], \"data_offsets\": [0, 40]}}", "span"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [9], \"data_offsets\": [0, 40]}}", "span"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [10], \"data_offsets\": [40, 0]}}", "ascend"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [10], \"data_offsets\": [-40, 0]}}", "negative"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [10], \"data_offsets\": [1, 41]}}", "behind"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [10], \"data_offsets\": [0, "
         "9223372036854775807]}}",
         "behind"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [10], \"data_offsets\": [0]}}", "two integers"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [10], \"data_offsets\": [0, 4e1]}}",
         "two integers"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [10], \"data_offsets\": {\"0\": 1}}}",
         "two integers"},
        {"{\"a\": {\"dtype\": \"F16\", \"shape\": [1], \"data_offsets\": [1, 3]}}", "aligned"},
        {"{\"\": {\"dtype\": \"F32\", \"shape\": [10], \"data_offsets\": [0, 40]}}", "name"},
        {"{" A ", \"b\": {\"dtype\": \"F32\", \"shape\": [5], \"data_offsets\": [20, 40]}}",
         "tensor b: data_offsets overlap"},
        {"{" A ", \"b\": {\"dtype\": \"F32\", \"shape\": [6], \"data_offsets\": [0, 24]}}",
         "overlap"},
        {"{" A ", \"b\": {\"dtype\": \"F32\", \"shape\": [3], \"data_offsets\": [28, 40]}}",
         "tensor b: data_offsets leave a gap"},
        {"{" B "}", "tensor b: data_offsets leave a gap"},
        {"{" A "}", "tensors end"},
        {"{}", "tensors end"},
        {"{" A ", " A ", " B "}", "duplicate"},
        {"{\"__metadata__\": {\"x\": 1}, " A ", " B "}", "__metadata__"},
        {"{\"__metadata__\": \"x\", " A ", " B "}", "__metadata__"},
        {"{" A ", " B "}}", "byte"},
        {"{" A ", " B, "byte"},
        {"[" A "]", "no JSON object"},
        {" {" A ", " B "}", "no JSON object"},
        {"{\"a\\u0000\": 1}", "byte"},
        {"{\"a\xff\": 1}", "byte"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ft_err err = {0};
        ck_assert_msg(parse_json(rows[i].json, DATA_BYTES, &err) == FT_E_PROC_MODEL, "accepted %s",
                      rows[i].json);
        ck_assert_msg(strstr(err.text, rows[i].word) != NULL, "%s: \"%s\" is not in: %s",
                      rows[i].json, rows[i].word, err.text);
    }
}
END_TEST

START_TEST(dev13_deep_or_huge_json_is_refused_quickly) {
    struct ft_buf json;
    struct ft_err err = {0};
    ft_buf_init(&json, 0);
    ft_buf_add_c(&json, "{\"a\": ");
    for (int i = 0; i < 5000000; i++)
        ft_buf_add_c(&json, "[");
    size_t len = 0;
    unsigned char *file = make_file(json.len, json.ptr, 0, &len);
    ck_assert_int_eq(parse(file, len, &err), FT_E_PROC_MODEL);
    free(file);
    ft_buf_fini(&json);
    /* The limit is looked at before any byte of the JSON: a sparse file of 101 MB. */
    const char *dir = ft_fixture_temp_dir();
    const unsigned char head[9] = {0x40, 0x23, 0x05, 0x06, 0, 0, 0, 0, '{'}; /* 101,000,000 */
    ft_fixture_write(dir, "model.safetensors", head, sizeof head);
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    ck_assert_int_eq(truncate(path, 101000100), 0);
    struct ft_safetensors out;
    int64_t start = ft_fixture_cpu_ns();
    ck_assert_int_eq(ft_safetensors_open(&out, dir, "model.safetensors", &err), FT_E_PROC_MODEL);
    ck_assert_int_lt(ft_fixture_cpu_ns() - start, FT_FIXTURE_CPU_SECOND_NS / 10);
    ck_assert_msg(strstr(err.text, "101000000") != NULL, "%s", err.text);
    ft_fixture_remove_dir(dir);
}
END_TEST

/* The worst that the limits let through: one long string, or members just short of the count. */
START_TEST(dev13_largest_header_is_refused_quickly) {
    size_t n = 16u << 20, len = 0;
    char *json = malloc(n + 1);
    ck_assert_ptr_nonnull(json);
    struct ft_err err = {0};
    memset(json, 'a', n);
    memcpy(json, "{\"", 2);
    json[n] = 0;
    unsigned char *file = make_file(n, json, 0, &len);
    ck_assert_int_eq(parse(file, len, &err), FT_E_PROC_MODEL);
    free(file);
    size_t at = 0;
    for (int i = 0; at < n - 32; i++)
        at += (size_t)snprintf(json + at, n - at, "%s\"%d\":1", i == 0 ? "{" : ",", i);
    json[at] = '}';
    json[at + 1] = 0;
    file = make_file(at + 1, json, 0, &len);
    ck_assert_int_eq(parse(file, len, &err), FT_E_PROC_MODEL);
    ck_assert_ptr_nonnull(strstr(err.text, "more members"));
    free(file);
    free(json);
}
END_TEST

START_TEST(dev13_too_many_tensors_are_refused) {
    struct ft_buf json;
    struct ft_err err = {0};
    ft_buf_init(&json, 0);
    for (int i = 0; i <= 32768; i++)
        ft_buf_addf(&json, "%s\"%d\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}",
                    i == 0 ? "{" : ",", i);
    ft_buf_add_c(&json, "}");
    size_t len = 0;
    unsigned char *file = make_file(json.len, json.ptr, 0, &len);
    struct ft_safetensors out = {0};
    ck_assert_int_eq(ft_safetensors_parse(&out, "x", file, len, len, &err), FT_E_PROC_MODEL);
    ck_assert_ptr_nonnull(strstr(err.text, "32768"));
    free(file);
    ft_buf_fini(&json);
}
END_TEST

START_TEST(open_bad_path_is_told_apart) {
    struct ft_safetensors out;
    struct ft_err err = {0};
    const char *dir = ft_fixture_temp_dir();
    ck_assert_int_eq(ft_safetensors_open(&out, dir, "x.safetensors", &err), FT_E_REQ_NOT_FOUND);
    ck_assert_str_eq(err.text, "x.safetensors: no such file");
    ft_fixture_write(dir, "x.safetensors", "", 0);
    ck_assert_int_eq(ft_safetensors_open(&out, dir, "x.safetensors", &err), FT_E_PROC_MODEL);
    ck_assert_msg(strstr(err.text, "too short") != NULL, "%s", err.text);
    ft_fixture_remove_dir(dir);
}
END_TEST

static Suite *make_suite(void) {
    Suite *suite = suite_create("safetensors");
    TCase *tcase = tcase_create("safetensors");
    tcase_add_test(tcase, parse_good_header_lists_tensors_in_file_order);
    tcase_add_test(tcase, parse_edges_that_are_allowed);
    tcase_add_test(tcase, open_bad_path_is_told_apart);
    tcase_add_test(tcase, dev13_header_length_is_checked_against_the_file);
    tcase_add_test(tcase, dev13_shape_overflow_is_refused);
    tcase_add_test(tcase, dev13_bad_entry_names_tensor_and_reason);
    tcase_add_test(tcase, dev13_deep_or_huge_json_is_refused_quickly);
    tcase_add_test(tcase, dev13_largest_header_is_refused_quickly);
    tcase_add_test(tcase, dev13_too_many_tensors_are_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void) {
    return suite_run(make_suite());
}
