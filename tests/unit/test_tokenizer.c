/* What encode and decode do on the fixture; what open refuses is in test_tokenizer_load.c. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "support/fixtures.h"
#include "support/suite.h"
#include "unit/test_tokenizer_fixture.h"

#define S(literal) ((struct ft_str){(literal), sizeof(literal) - 1})

static struct ft_tokenizer *s_bytes; /* no merges: every byte is a token */

static void setup(void) {
    s_bytes = open_json(tokenizer_json(), NULL);
}

static void teardown(void) {
    ft_tokenizer_close(&s_bytes);
}

/* A tokenizer for which each of the pieces (in the characters of the file) is one token when the
 * pre-tokenizer makes it. */
static struct ft_tokenizer *with_pieces(const char *const *pieces) {
    json_t *root = tokenizer_json();
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    for (int i = 0; pieces[i] != NULL; i++)
        json_object_set_new(vocab, pieces[i], json_integer(264 + i));
    set_field(root, "model.ignore_merges", json_true());
    return open_json(root, NULL);
}

/* Spaces are written G-dot in the file, newlines C-dot. */
#define SP "\xC4\xA0"
#define NL "\xC4\x8A"

START_TEST(dev12_regex_of_the_file_is_honoured) {
    static const char *const pieces[] = {
        "123", "456",  "1234567", "I'",   "'M",  SP "don", "'t", "don't",
        SP SP, SP "b", SP NL NL,  SP "y", NL NL, SP SP SP, "ab", "'\xC3\x85\xC2\xBF",
        NULL};
    struct ft_tokenizer *t = with_pieces(pieces);
    ck_assert_str_eq(encode_pieces(t, S("1234567")), "123|456|7");
    ck_assert_str_eq(encode_pieces(t, S("I'M don't")), "I|'M| don|'t");
    ck_assert_str_eq(encode_pieces(t, S("a  b")), "a| | b");
    ck_assert_str_eq(encode_pieces(t, S("x \n\n y")), "x| \n\n| y");
    ck_assert_str_eq(encode_pieces(t, S("  ")), "  ");
    ck_assert_str_eq(encode_pieces(t, S("   ")), "   ");
    /* (?i:'s) takes the long s, U+017F, for its folding is s. */
    ck_assert_str_eq(encode_pieces(t, S("ab'\xC5\xBF")), "ab|'\xC5\xBF");
    ft_tokenizer_close(&t);
}
END_TEST

START_TEST(dev25_nul_is_an_ordinary_byte) {
    ck_assert_str_eq(encode_text(s_bytes, S("ab\0cd"), false, false), "97 98 0 99 100");
    struct ft_buf text;
    ft_buf_init(&text, 0);
    ft_tokenizer_decode(s_bytes, (const int32_t[]){0, 98, 0}, 3, false, &text);
    ck_assert(ft_str_eq(ft_buf_str(&text), S("\0b\0")));
    ft_buf_fini(&text);
}
END_TEST

START_TEST(dev32_ignore_merges_takes_whole_pieces_first) {
    for (int flag = 0; flag < 2; flag++) {
        json_t *root = tokenizer_json();
        set_field(root, "model.vocab.hello", json_integer(264));
        set_field(root, "model.ignore_merges", json_boolean(flag));
        struct ft_tokenizer *t = open_json(root, NULL);
        ck_assert_str_eq(encode_text(t, S("hello"), false, false),
                         flag ? "264" : "104 101 108 108 111");
        ft_tokenizer_close(&t);
    }
}
END_TEST

START_TEST(dev51_bytes_of_tokens_are_never_cleaned_up) {
    static const char *const pieces[] = {SP "a", SP SP ".", NL NL SP, SP ",", NULL};
    static const char *const configs[] = {"{\"clean_up_tokenization_spaces\": true}",
                                          "{\"clean_up_tokenization_spaces\": false}", NULL};
    for (size_t c = 0; c < 3; c++) {
        json_t *root = tokenizer_json();
        for (int i = 0; pieces[i] != NULL; i++)
            json_object_set_new(json_object_get(json_object_get(root, "model"), "vocab"), pieces[i],
                                json_integer(264 + i));
        struct ft_tokenizer *t = open_json(root, configs[c]);
        struct ft_buf text;
        ft_buf_init(&text, 0);
        ft_tokenizer_decode(t, (const int32_t[]){264, 265, 266, 267, 264}, 5, true, &text);
        ck_assert_str_eq(text.ptr, " a  .\n\n  , a");
        ft_buf_fini(&text);
        ft_tokenizer_close(&t);
    }
}
END_TEST

static const char bos_template[] =
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
    "\"<|begin_of_text|>\"}}, {\"Sequence\": {\"id\": \"A\"}}], \"special_tokens\": "
    "{\"<|begin_of_text|>\": {\"ids\": [256]}}}";

START_TEST(dev52_bos_is_added_once) {
    json_t *root = tokenizer_json();
    set_field(root, "post_processor", parse(bos_template));
    struct ft_tokenizer *t = open_json(root, NULL);
    ck_assert_str_eq(encode_text(t, S("a"), true, true), "256 97");
    ck_assert_str_eq(encode_text(t, S("<|begin_of_text|>a"), true, true), "256 97");
    ck_assert_str_eq(encode_text(t, S("<|begin_of_text|>a"), false, true), "256 97");
    ck_assert_str_eq(encode_text(t, S("a"), false, true), "97");
    ck_assert_str_eq(encode_text(t, S(""), true, true), "256");
    ck_assert_str_eq(encode_text(t, S("a<|begin_of_text|>"), true, true), "256 97 256");
    /* Written out by a user who may not write special tokens, it is text. */
    ck_assert_str_eq(encode_text(t, S("<|"), true, false), "256 60 124");
    ck_assert_int_eq(
        strncmp(encode_text(t, S("<|begin_of_text|>a"), true, false), "256 60 124", 10), 0);
    ft_tokenizer_close(&t);
}
END_TEST

/* add_bos_token counts where the post-processor is silent, and only there. */
START_TEST(dev52_add_bos_token_of_the_config_is_honoured) {
    static const char string[] = "{\"add_bos_token\": true, \"bos_token\": \"<|begin_of_text|>\"}";
    static const char object[] =
        "{\"add_bos_token\": true, \"bos_token\": {\"content\": \"<|begin_of_text|>\"}}";
    static const char off[] = "{\"add_bos_token\": false, \"bos_token\": \"<|begin_of_text|>\"}";
    const char *const configs[] = {string, object, off, NULL};
    static const char *const want[] = {"256 97", "256 97", "97", "97"};
    for (size_t i = 0; i < 4; i++) {
        struct ft_tokenizer *t = open_json(tokenizer_json(), configs[i]);
        ck_assert_str_eq(encode_text(t, S("a"), true, true), want[i]);
        ck_assert_str_eq(encode_text(t, S("<|begin_of_text|>a"), true, true), "256 97");
        ft_tokenizer_close(&t);
    }
    json_t *root = tokenizer_json();
    set_field(root, "post_processor", parse(bos_template));
    struct ft_tokenizer *t = open_json(root, off);
    ck_assert_str_eq(encode_text(t, S("a"), true, true), "256 97");
    ft_tokenizer_close(&t);
}
END_TEST

START_TEST(dev30_empty_text_is_no_token_or_bos) {
    ck_assert_str_eq(encode_text(s_bytes, S(""), true, true), "");
    ck_assert_str_eq(encode_text(s_bytes, S("\0"), true, true), "0");
    ck_assert_str_eq(encode_text(s_bytes, S(" "), true, true), "32");
}
END_TEST

START_TEST(encode_special_tokens_in_text_only_when_asked) {
    ck_assert_str_eq(encode_text(s_bytes, S("a<|eot_id|>b"), false, true), "97 258 98");
    ck_assert_str_eq(encode_text(s_bytes, S("<|eot_id|>"), false, false),
                     "60 124 101 111 116 95 105 100 124 62");
    ck_assert_str_eq(encode_text(s_bytes, S("<|eot_id|"), false, true),
                     "60 124 101 111 116 95 105 100 124");
    ck_assert(ft_tokenizer_is_special(s_bytes, 258));
    ck_assert(!ft_tokenizer_is_special(s_bytes, 97));
    ck_assert(!ft_tokenizer_is_special(s_bytes, -1));
    ck_assert(!ft_tokenizer_is_special(s_bytes, INT32_MAX));
    ck_assert_int_eq(ft_tokenizer_find(s_bytes, S("<|eot_id|>")), 258);
    ck_assert_int_eq(ft_tokenizer_find(s_bytes, S("<|eot_id|")), -1);
    ck_assert_int_eq(ft_tokenizer_find(s_bytes, S("")), -1);
}
END_TEST

START_TEST(decode_skips_special_tokens_when_asked) {
    const int32_t ids[] = {256, 97, 258, 98, 5000, -1};
    struct ft_buf text;
    ft_buf_init(&text, 0);
    ft_tokenizer_decode(s_bytes, ids, 6, true, &text);
    ck_assert_str_eq(text.ptr, "ab");
    ft_buf_reset(&text);
    ft_tokenizer_decode(s_bytes, ids, 6, false, &text);
    ck_assert_str_eq(text.ptr, "<|begin_of_text|>a<|eot_id|>b");
    ft_buf_fini(&text);
}
END_TEST

START_TEST(encode_not_utf8_names_the_byte) {
    const struct ft_encode_opts opts = {0};
    struct ft_ids ids = {0};
    struct ft_err err = {0};
    ck_assert_int_eq(ft_tokenizer_encode(s_bytes, S("ab\xC3"), &opts, &ids, &err),
                     FT_E_REQ_INVALID);
    ck_assert_str_eq(err.text, "the text is not UTF-8 at byte 2");
    ck_assert_uint_eq(ids.len, 0);
}
END_TEST

START_TEST(dev31_token_limit_is_exact_and_leaves_ids_alone) {
    json_t *root = tokenizer_json();
    set_field(root, "post_processor", parse(bos_template));
    struct ft_tokenizer *t = open_json(root, NULL);
    const int32_t before = 7;
    struct ft_ids ids = {0};
    struct ft_err err = {0};
    ck_assert(ft_ids_push(&ids, &before, 1) == FT_OK);
    struct ft_encode_opts opts = {.add_special = true, .tokens_max = 4};
    ck_assert_int_eq(ft_tokenizer_encode(t, S("abcd"), &opts, &ids, &err), FT_E_REQ_TOO_LARGE);
    ck_assert_msg(strstr(err.text, "limit of 4 tokens") != NULL, "%s", err.text);
    ck_assert_uint_eq(ids.len, 1);
    ck_assert_int_eq(ft_tokenizer_encode(t, S("abc"), &opts, &ids, &err), FT_OK);
    ck_assert_uint_eq(ids.len, 5);
    ck_assert_int_eq(ids.ptr[0], 7);
    ck_assert_int_eq(ids.ptr[1], 256);
    ft_ids_fini(&ids);
    ft_tokenizer_close(&t);
}
END_TEST

START_TEST(encode_lowest_rank_then_leftmost_merges_first) {
    static const char *const merges[][2] = {{"b", "c"}, {"a", "b"},   {"a", "bc"},
                                            {"a", "a"}, {"aa", "aa"}, {NULL, NULL}};
    json_t *root = tokenizer_json();
    add_merges(root, merges, true);
    struct ft_tokenizer *t = open_json(root, NULL);
    ck_assert_str_eq(encode_text(t, S("abc"), false, false), "266");
    ck_assert_str_eq(encode_text(t, S("ab"), false, false), "265");
    ck_assert_str_eq(encode_text(t, S("aab"), false, false), "97 265");
    ck_assert_str_eq(encode_text(t, S("aaa"), false, false), "267 97");
    ck_assert_str_eq(encode_text(t, S("aaaaa"), false, false), "268 97");
    ck_assert_str_eq(encode_text(t, S("aaaaaa"), false, false), "268 267");
    ft_tokenizer_close(&t);
}
END_TEST

/* The same ids for both ways to write merges, on a thousand random strings. */
START_TEST(dev53_merges_as_strings_and_as_pairs_agree) {
    static const char *const merges[][2] = {{"h", "e"}, {"l", "l"},    {"he", "ll"}, {"hell", "o"},
                                            {SP, "w"},  {SP "w", "o"}, {"o", "r"},   {NL, NL},
                                            {"e", "l"}, {"lo", "l"},   {NULL, NULL}};
    json_t *strings = tokenizer_json(), *pairs = tokenizer_json();
    set_field(strings, "model.vocab.lo", json_integer(300));
    set_field(pairs, "model.vocab.lo", json_integer(300));
    add_merges(strings, merges, false);
    add_merges(pairs, merges, true);
    struct ft_tokenizer *a = open_json(strings, NULL), *b = open_json(pairs, NULL);
    ck_assert_str_eq(encode_text(a, S("hello world\n\n"), false, false), "267 269 114 108 100 271");
    uint32_t random = 1;
    for (int i = 0; i < 1000; i++) {
        char text[24], first[256];
        size_t len = (size_t)i % sizeof text;
        for (size_t k = 0; k < len; k++) {
            random = random * 1664525u + 1013904223u;
            text[k] = "helo wr\n"[random >> 29];
        }
        snprintf(first, sizeof first, "%s",
                 encode_text(a, (struct ft_str){text, len}, false, false));
        ck_assert_str_eq(first, encode_text(b, (struct ft_str){text, len}, false, false));
    }
    char difference[256];
    ck_assert(!ft_tokenizer_first_difference(a, b, difference, sizeof difference));
    ft_tokenizer_close(&a);
    ft_tokenizer_close(&b);
}
END_TEST

START_TEST(dev07_swapped_tokens_are_named) {
    json_t *root = tokenizer_json();
    set_field(root, "model.vocab.a", json_integer('b'));
    set_field(root, "model.vocab.b", json_integer('a'));
    struct ft_tokenizer *t = open_json(root, NULL);
    char text[256];
    ck_assert(ft_tokenizer_first_difference(s_bytes, t, text, sizeof text));
    ck_assert_str_eq(text, "id 97 is \"a\" here and \"b\" there");
    ck_assert_mem_ne(ft_tokenizer_fingerprint(s_bytes), ft_tokenizer_fingerprint(t),
                     FT_TOKENIZER_FINGERPRINT_BYTES);
    ft_tokenizer_close(&t);

    root = tokenizer_json();
    json_array_remove(json_object_get(root, "added_tokens"), 7);
    t = open_json(root, NULL);
    ck_assert(ft_tokenizer_first_difference(s_bytes, t, text, sizeof text));
    ck_assert_msg(strstr(text, "here and absent there") != NULL, "%s", text);
    ft_tokenizer_close(&t);

    root = tokenizer_json();
    json_object_set_new(json_array_get(json_object_get(root, "added_tokens"), 2), "special",
                        json_false());
    t = open_json(root, NULL);
    ck_assert(ft_tokenizer_first_difference(s_bytes, t, text, sizeof text));
    ck_assert_str_eq(text, "id 258 is \"<|eot_id|>\" (special) here and \"<|eot_id|>\" there");
    ft_tokenizer_close(&t);
}
END_TEST

/* Written down once: workers of another build must agree on it. */
START_TEST(fingerprint_of_the_demo_pair_is_stable) {
    struct ft_tokenizer *target = NULL, *draft = NULL;
    ck_assert(ft_tokenizer_open(&target, ft_fixture_source("models/demo-target"), NULL) == FT_OK);
    ck_assert(ft_tokenizer_open(&draft, ft_fixture_source("models/demo-draft"), NULL) == FT_OK);
    ck_assert_mem_eq(ft_tokenizer_fingerprint(target), ft_tokenizer_fingerprint(draft),
                     FT_TOKENIZER_FINGERPRINT_BYTES);
    ck_assert_int_eq(ft_tokenizer_vocab_size(target), 4096);
    char hex[2 * FT_TOKENIZER_FINGERPRINT_BYTES + 1];
    for (size_t i = 0; i < FT_TOKENIZER_FINGERPRINT_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", ft_tokenizer_fingerprint(target)[i]);
    ck_assert_str_eq(hex, "86de8c810fd03c0bf20cd3f5a22b85463a935b4fb25acd95fff5ba212e421292");
    ft_tokenizer_close(&target);
    ft_tokenizer_close(&draft);
    ft_tokenizer_close(&draft); /* nothing is left to close */
}
END_TEST

/* The decoder of byte-level BPE writes them so, whatever list they stand in. */
START_TEST(added_token_that_the_model_has_keeps_its_bytes) {
    json_t *root = tokenizer_json();
    json_array_append_new(json_object_get(root, "added_tokens"),
                          parse("{\"id\": 32, \"content\": \"\u0120\", \"special\": false}"));
    struct ft_tokenizer *tokenizer = open_json(root, NULL);
    ck_assert(ft_str_eq(ft_tokenizer_bytes(tokenizer, 32), ft_str_c(" ")));
    ck_assert_str_eq(encode_text(tokenizer, ft_str_c("a b"), false, false), "97 32 98");
    ck_assert_str_eq(encode_pieces(tokenizer, ft_str_c("a b")), "a| |b");
    ft_tokenizer_close(&tokenizer);
}
END_TEST

START_TEST(encode_added_tokens_longest_first_and_stripping) {
    json_t *root = tokenizer_json();
    json_t *added = json_object_get(root, "added_tokens");
    json_array_append_new(added, parse("{\"id\": 264, \"content\": \"<|eot\"}"));
    json_array_append_new(added, parse("{\"id\": 265, \"content\": \"<r>\", \"rstrip\": true}"));
    json_array_append_new(added, parse("{\"id\": 266, \"content\": \"<l>\", \"lstrip\": true}"));
    struct ft_tokenizer *t = open_json(root, NULL);
    ck_assert_str_eq(encode_text(t, S("<|eot_id|><|eot"), false, true), "258 264");
    /* The longer special token hides the shorter one, even as text. */
    ck_assert_str_eq(encode_text(t, S("<|eot_id|>"), false, false),
                     "60 124 101 111 116 95 105 100 124 62");
    ck_assert_str_eq(encode_text(t, S("a <r> \n\xE3\x80\x80 b"), false, true), "97 32 265 98");
    ck_assert_str_eq(encode_text(t, S("a \xC2\xA0<l> b"), false, true), "97 266 32 98");
    ck_assert_str_eq(encode_text(t, S("<r> <l>"), false, true), "265 266");
    ft_tokenizer_close(&t);
}
END_TEST

START_TEST(encode_normalized_text_and_tokens) {
    json_t *root = tokenizer_json();
    set_field(root, "normalizer", parse("{\"type\": \"NFC\"}"));
    json_array_append_new(json_object_get(root, "added_tokens"),
                          parse("{\"id\": 264, \"content\": \"n\\u0303o\", \"normalized\": true}"));
    json_array_append_new(json_object_get(root, "added_tokens"),
                          parse("{\"id\": 265, \"content\": \"e\\u0301!\"}"));
    struct ft_tokenizer *t = open_json(root, NULL);
    ck_assert_str_eq(encode_text(t, S("e\xCC\x81"), false, false), "195 169");
    ck_assert_str_eq(encode_text(t, S("x\xC3\xB1o"), false, false), "120 264");
    ck_assert_str_eq(encode_text(t, S("e\xCC\x81!"), false, false), "265");
    ck_assert_str_eq(encode_text(t, S("\xC3\xA9!"), false, false), "195 169 33");
    ck_assert_str_eq(encode_text(t, S("a\0e\xCC\x81"), false, false), "97 0 195 169");
    ft_tokenizer_close(&t);
}
END_TEST

START_TEST(encode_byte_level_adds_its_prefix_space) {
    json_t *root = tokenizer_json();
    set_field(root, "pre_tokenizer",
              parse("{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"use_regex\": true}"));
    struct ft_tokenizer *t = open_json(root, NULL);
    ck_assert_str_eq(encode_text(t, S("ab"), false, true), "32 97 98");
    ck_assert_str_eq(encode_text(t, S(" ab"), false, true), "32 97 98");
    ck_assert_str_eq(encode_text(t, S("a<|eot_id|>b"), false, true), "32 97 258 32 98");
    ft_tokenizer_close(&t);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tokenizer");
    TCase *tc = tcase_create("tokenizer");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, dev12_regex_of_the_file_is_honoured);
    tcase_add_test(tc, dev25_nul_is_an_ordinary_byte);
    tcase_add_test(tc, dev32_ignore_merges_takes_whole_pieces_first);
    tcase_add_test(tc, dev51_bytes_of_tokens_are_never_cleaned_up);
    tcase_add_test(tc, dev52_bos_is_added_once);
    tcase_add_test(tc, dev52_add_bos_token_of_the_config_is_honoured);
    tcase_add_test(tc, dev30_empty_text_is_no_token_or_bos);
    tcase_add_test(tc, encode_special_tokens_in_text_only_when_asked);
    tcase_add_test(tc, decode_skips_special_tokens_when_asked);
    tcase_add_test(tc, encode_not_utf8_names_the_byte);
    tcase_add_test(tc, dev31_token_limit_is_exact_and_leaves_ids_alone);
    tcase_add_test(tc, encode_lowest_rank_then_leftmost_merges_first);
    tcase_add_test(tc, dev53_merges_as_strings_and_as_pairs_agree);
    tcase_add_test(tc, dev07_swapped_tokens_are_named);
    tcase_add_test(tc, fingerprint_of_the_demo_pair_is_stable);
    tcase_add_test(tc, added_token_that_the_model_has_keeps_its_bytes);
    tcase_add_test(tc, encode_added_tokens_longest_first_and_stripping);
    tcase_add_test(tc, encode_normalized_text_and_tokens);
    tcase_add_test(tc, encode_byte_level_adds_its_prefix_space);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
