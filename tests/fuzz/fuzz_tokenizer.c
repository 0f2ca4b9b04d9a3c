/* Mutated tokenizer.json files through open, and random texts through those that open, for a few
 * seconds. Open may refuse with a reason; it may not crash, and what it takes must work. */
#include <check.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "support/fixtures.h"
#include "support/suite.h"
#include "unit/test_tokenizer_fixture.h"

#define FUZZ_NS 1500000000 /* of each test */
#define TEXT_MAX 256

static uint64_t s_random = 88172645463325252u;

static uint64_t below(uint64_t n) { /* xorshift64 */
    s_random ^= s_random << 13;
    s_random ^= s_random >> 7;
    s_random ^= s_random << 17;
    return s_random % n;
}

/* A tokenizer with every component that is known. */
static json_t *rich_json(void) {
    static const char *const merges[][2] = {{"h", "e"}, {"he", "l"}, {"a", "a"}, {NULL, NULL}};
    json_t *root = tokenizer_json();
    add_merges(root, merges, true);
    json_array_append_new(json_object_get(json_object_get(root, "model"), "merges"),
                          json_string("aa a"));
    set_field(root, "model.vocab.aaa", json_integer(267));
    set_field(root, "normalizer",
              parse("{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}]}"));
    set_field(root, "post_processor",
              parse("{\"type\": \"Sequence\", \"processors\": [{\"type\": \"TemplateProcessing\", "
                    "\"single\": [{\"SpecialToken\": {\"id\": \"b\"}}, {\"Sequence\": {}}], "
                    "\"special_tokens\": {\"b\": {\"ids\": [256]}}}]}"));
    json_array_append_new(
        json_object_get(root, "added_tokens"),
        parse("{\"id\": 268, \"content\": \"<l>\", \"lstrip\": true, \"normalized\": true}"));
    return root;
}

static json_t *odd_value(void) {
    static const char *const values[] = {"null",
                                         "true",
                                         "-1",
                                         "0",
                                         "97",
                                         "263",
                                         "264",
                                         "2147483648",
                                         "9223372036854775807",
                                         "1e308",
                                         "\"\"",
                                         "\"a\"",
                                         "\"a b\"",
                                         "\"\\u0000\"",
                                         "\"\\uD83D\\uDE00\"",
                                         "\"<|eot_id|>\"",
                                         "[]",
                                         "{}",
                                         "[\"a\", \"a\"]",
                                         "[[[[]]]]",
                                         "{\"type\": \"Sequence\"}",
                                         "\"Sequence\"",
                                         "\"ByteLevel\"",
                                         "\"Split\"",
                                         "\"NFKD\"",
                                         "{\"Regex\": \"(a|aa)+$\"}",
                                         "{\"Regex\": \"[^\\\\s\\\\p{L}]+|(?i:'s)|x{2,}\"}",
                                         "{\"String\": \"a\"}",
                                         "{\"type\": \"ByteLevel\"}",
                                         "{\"type\": \"Digits\", \"individual_digits\": true}",
                                         "\"(?:a|b|ab)*c\"",
                                         "\"\\\\p{Han}*\"",
                                         "\"(?<=a)|b?\"",
                                         "\"[a-\\\\x{10ffff}]\""};
    return parse(values[below(sizeof values / sizeof values[0])]);
}

/* Change one value somewhere below node. */
static void mutate_json(json_t *node) {
    for (int depth = 0; depth < 6; depth++) {
        bool here = below(4) == 0;
        if (json_array_size(node) > 0) {
            size_t i = (size_t)below(json_array_size(node));
            json_t *child = json_array_get(node, i);
            if (here || json_array_size(child) + json_object_size(child) == 0) {
                json_array_set_new(node, i, odd_value());
                return;
            }
            node = child;
        } else if (json_object_size(node) > 0) {
            void *at = json_object_iter(node);
            for (uint64_t skip = below(json_object_size(node)); skip > 0; skip--)
                at = json_object_iter_next(node, at);
            json_t *child = json_object_iter_value(at);
            if (here || json_array_size(child) + json_object_size(child) == 0) {
                json_object_iter_set_new(node, at, odd_value());
                return;
            }
            node = child;
        } else {
            return;
        }
    }
}

static void mutate_bytes(char *text, size_t *len) {
    for (uint64_t n = 1 + below(4); n > 0 && *len > 8; n--) {
        size_t at = (size_t)below(*len - 4);
        size_t some = 1 + (size_t)below(4);
        switch (below(4)) {
        case 0:
            text[at] = (char)(text[at] ^ (1 << below(8)));
            break;
        case 1:
            text[at] = "\"{}[],:\\0-9"[below(11)];
            break;
        case 2:
            memmove(text + at, text + at + some, *len - at - some);
            *len -= some;
            break;
        default:
            *len = below(40) == 0 ? at : *len;
        }
    }
}

/* Valid UTF-8 with what the tokenizers know, and sometimes not. */
static struct ft_str random_text(char out[TEXT_MAX]) {
    static const char *const parts[] = {
        "a",   "aa",       "he",        "hel",          " ",
        "\n",  "1",        "'s",        "<|eot_id|>",   "<|eot",
        "<l>", "\xC3\xA9", "e\xCC\x81", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80",
        "_",   "  ",       "\xC2\x85"};
    size_t len = 0;
    for (uint64_t n = below(24); n > 0; n--) {
        const char *part = parts[below(sizeof parts / sizeof parts[0])];
        memcpy(out + len, part, strlen(part));
        len += strlen(part);
    }
    if (below(4) == 0 && len > 0)
        out[below(len)] = (char)below(256);
    return (struct ft_str){out, len};
}

/* Ids are in range; a text that is not UTF-8 is refused; nothing else is. */
static void encode_some(struct ft_tokenizer *tokenizer) {
    for (int i = 0; i < 4; i++) {
        char bytes[TEXT_MAX];
        struct ft_str text = random_text(bytes);
        struct ft_ids ids = {0};
        struct ft_err err = {0};
        const struct ft_encode_opts opts = {.add_special = below(2) == 0,
                                            .parse_special = below(2) == 0};
        enum ft_code code = ft_tokenizer_encode(tokenizer, text, &opts, &ids, &err);
        if (ft_utf8_valid_prefix(text) == text.len)
            ck_assert_msg(code == FT_OK || code == FT_E_REQ_TOO_LARGE, "%s", err.text);
        else
            ck_assert_int_eq(code, FT_E_REQ_INVALID);
        for (size_t k = 0; k < ids.len; k++)
            ck_assert(ft_tokenizer_bytes(tokenizer, ids.ptr[k]).len > 0);
        ft_ids_fini(&ids);
    }
}

static bool try_open(const char *dir, const char *text, size_t len) {
    struct ft_tokenizer *tokenizer = NULL;
    struct ft_err err = {0};
    ft_fixture_write(dir, "tokenizer.json", text, len);
    enum ft_code code = ft_tokenizer_open(&tokenizer, dir, &err);
    if (code != FT_OK) {
        ck_assert_int_eq(code, FT_E_PROC_MODEL);
        ck_assert_uint_gt(strlen(err.text), 0);
        return false;
    }
    encode_some(tokenizer);
    ft_tokenizer_close(&tokenizer);
    return true;
}

START_TEST(open_mutated_values_is_safe) {
    const char *dir = ft_fixture_temp_dir();
    json_t *root = rich_json();
    size_t n_opened = 0, n_refused = 0;
    for (int64_t end = ft_clock_now_ns() + FUZZ_NS; ft_clock_now_ns() < end;) {
        json_t *mutant = json_deep_copy(root);
        for (uint64_t n = 1 + below(2); n > 0; n--)
            mutate_json(mutant);
        char *text = json_dumps(mutant, JSON_ENCODE_ANY);
        ck_assert_ptr_nonnull(text);
        if (try_open(dir, text, strlen(text)))
            n_opened++;
        else
            n_refused++;
        free(text);
        json_decref(mutant);
    }
    printf("values: %zu opened, %zu refused\n", n_opened, n_refused);
    ck_assert(n_opened > 0 && n_refused > 0);
    json_decref(root);
    ft_fixture_remove_dir(dir);
}
END_TEST

START_TEST(open_mutated_bytes_is_safe) {
    const char *dir = ft_fixture_temp_dir();
    json_t *root = rich_json();
    char *text = json_dumps(root, JSON_COMPACT);
    ck_assert_ptr_nonnull(text);
    size_t n_opened = 0, n_refused = 0;
    for (int64_t end = ft_clock_now_ns() + FUZZ_NS; ft_clock_now_ns() < end;) {
        size_t len = strlen(text);
        char *mutant = strdup(text);
        ck_assert_ptr_nonnull(mutant);
        mutate_bytes(mutant, &len);
        if (try_open(dir, mutant, len))
            n_opened++;
        else
            n_refused++;
        free(mutant);
    }
    printf("bytes: %zu opened, %zu refused\n", n_opened, n_refused);
    ck_assert(n_opened > 0 && n_refused > 0);
    free(text);
    json_decref(root);
    ft_fixture_remove_dir(dir);
}
END_TEST

/* What is encoded decodes to itself, whatever the bytes; the demo model has no normalizer. */
START_TEST(encode_random_bytes_round_trips) {
    struct ft_tokenizer *tokenizer = NULL;
    struct ft_err err = {0};
    ck_assert_msg(ft_tokenizer_open(&tokenizer, ft_fixture_source("models/demo-target"), &err) ==
                      FT_OK,
                  "%s", err.text);
    struct ft_buf back;
    ft_buf_init(&back, 0);
    for (int64_t end = ft_clock_now_ns() + FUZZ_NS; ft_clock_now_ns() < end;) {
        char bytes[TEXT_MAX];
        struct ft_str text = random_text(bytes);
        text.len = ft_utf8_valid_prefix(text);
        const struct ft_encode_opts opts = {.parse_special = below(2) == 0};
        struct ft_ids ids = {0};
        ck_assert(ft_tokenizer_encode(tokenizer, text, &opts, &ids, &err) == FT_OK);
        ft_buf_reset(&back);
        ft_tokenizer_decode(tokenizer, ids.ptr, ids.len, false, &back);
        ck_assert(ft_str_eq(ft_buf_str(&back), text));
        ft_ids_fini(&ids);
    }
    ft_buf_fini(&back);
    ft_tokenizer_close(&tokenizer);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fuzz_tokenizer");
    TCase *tc = tcase_create("fuzz");
    tcase_add_test(tc, open_mutated_values_is_safe);
    tcase_add_test(tc, open_mutated_bytes_is_safe);
    tcase_add_test(tc, encode_random_bytes_round_trips);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
