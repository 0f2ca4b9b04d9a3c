/* How text is cut into pieces, and which patterns are refused. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/text/pretok.h"
#include "common/text/regex.h"
#include "support/suite.h"
#include "unit/test_tokenizer_fixture.h"

#define S(literal) ((struct ft_str){(literal), sizeof(literal) - 1})
#define BYTE_LEVEL "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}"

static enum ft_code add_piece(void *ctx, struct ft_str piece, struct ft_err *err) {
    struct ft_buf *out = ctx;
    (void)err;
    if (out->len > 0)
        ft_buf_add_c(out, "|");
    ft_buf_add_str(out, piece);
    return FT_OK;
}

/* The pieces of text with '|' between them. Takes json. */
static void expect(json_t *json, struct ft_str text, struct ft_str want) {
    struct ft_pretok pretok;
    struct ft_err err = {0};
    ck_assert_msg(ft_pretok_init(&pretok, json, &err) == FT_OK, "%s", err.text);
    struct ft_buf out;
    ft_buf_init(&out, 0);
    struct ft_split_sink sink = {add_piece, &out};
    ck_assert_msg(ft_pretok_run(&pretok, text, &sink, &err) == FT_OK, "%s", err.text);
    ck_assert_msg(ft_str_eq(ft_buf_str(&out), want), "'%s', want '%s'", out.len == 0 ? "" : out.ptr,
                  want.ptr);
    ft_buf_fini(&out);
    ft_pretok_fini(&pretok);
    json_decref(json);
}

static json_t *split(const char *pattern, const char *behavior, bool invert) {
    return json_pack("{s:s,s:[{s:s,s:{s:s},s:s,s:b},o]}", "type", "Sequence", "pretokenizers",
                     "type", "Split", "pattern", "Regex", pattern, "behavior", behavior, "invert",
                     (int)invert, parse(BYTE_LEVEL));
}

static void expect_fixture(struct ft_str text, struct ft_str want) {
    json_t *root = tokenizer_json();
    expect(json_incref(json_object_get(root, "pre_tokenizer")), text, want);
    json_decref(root);
}

START_TEST(dev12_pieces_of_llama3) {
    expect_fixture(S(""), S(""));
    expect_fixture(S("1234567"), S("123|456|7"));
    expect_fixture(S("I'M don't"), S("I|'M| don|'t"));
    expect_fixture(S("a  b"), S("a| | b"));
    expect_fixture(S("x \n\n y"), S("x| \n\n| y"));
    expect_fixture(S("  "), S("  "));
    expect_fixture(S("foo(bar) !=\n\tx"), S("foo|(bar|)| !=\n|\tx"));
    expect_fixture(S("a   \r\n\r\nb"), S("a|   \r\n\r\n|b"));
}
END_TEST

START_TEST(dev12_pieces_of_unicode_text) {
    expect_fixture(S("\xC3\xA9\xC3\xA9 \xD9\xA1\xD9\xA2\xD9\xA3\xD9\xA4"), /* Arabic digits */
                   S("\xC3\xA9\xC3\xA9| |\xD9\xA1\xD9\xA2\xD9\xA3|\xD9\xA4"));
    expect_fixture(S("\xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82x"), /* a CJK full stop may lead */
                   S("\xE4\xBD\xA0\xE5\xA5\xBD|\xE3\x80\x82x"));
    /* U+0085, U+00A0, U+2029 and U+3000 are white space; U+180E and U+200B are not. */
    expect_fixture(S("a\xC2\x85\xC2\x85."), S("a|\xC2\x85|\xC2\x85|."));
    expect_fixture(S("a\xC2\xA0z"), S("a|\xC2\xA0z"));
    expect_fixture(S("a\xE2\x80\xA9\xE3\x80\x80"), S("a|\xE2\x80\xA9\xE3\x80\x80"));
    expect_fixture(S("1\xE1\xA0\x8E\xE2\x80\x8B!"), S("1|\xE1\xA0\x8E\xE2\x80\x8B!"));
    /* Family emoji with joiners, then a letter with combining marks, which are no letters. */
    expect_fixture(S("\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9"),
                   S("\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9"));
    expect_fixture(S("e\xCC\x81\xCC\xA3x"), S("e|\xCC\x81\xCC\xA3|x"));
    /* (?i:'s) takes the long s, whose folding is s. */
    expect_fixture(S("ab'\xC5\xBF"), S("ab|'\xC5\xBF"));
    expect_fixture(S("\0a\0\0"), S("\0a|\0\0"));
}
END_TEST

START_TEST(run_each_behavior_as_the_library) {
    static const struct {
        const char *behavior, *plain, *inverted;
    } rows[] = {
        {"Removed", "the|final|countdown", "-|-|-"},
        {"Isolated", "the|-|final|-|-|countdown", "the|-|final|-|-|countdown"},
        {"MergedWithPrevious", "the-|final-|-|countdown", "the|-final|-|-countdown"},
        {"MergedWithNext", "the|-final|-|-countdown", "the-|final-|-|countdown"},
        {"Contiguous", "the|-|final|--|countdown", "the|-|final|--|countdown"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        expect(split("-", rows[i].behavior, false), S("the-final--countdown"),
               ft_str_c(rows[i].plain));
        expect(split("-", rows[i].behavior, true), S("the-final--countdown"),
               ft_str_c(rows[i].inverted));
    }
}
END_TEST

START_TEST(run_sequence_cuts_the_pieces_of_the_step_before) {
    expect(parse("{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", "
                 "\"individual_digits\": true}, {\"type\": \"ByteLevel\", \"add_prefix_space\": "
                 "false, \"use_regex\": true}]}"),
           S("abc 12  \xC2\xBD x"), S("abc| |1|2|  |\xC2\xBD| x"));
    expect(parse("{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, " BYTE_LEVEL
                 "]}"),
           S("a12b"), S("a|12|b"));
    expect(parse("{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
                 "{\"String\": \".*\"}, \"behavior\": \"Isolated\"}, {\"type\": \"ByteLevel\", "
                 "\"use_regex\": false}]}"),
           S("a.*b.c"), S(" a| .*| b.c"));
}
END_TEST

START_TEST(run_empty_matches_cut_and_advance) {
    expect(split("(?=[A-Z])", "Isolated", false), S("oneTwo\xC3\x89Three"),
           S("one|Two\xC3\x89|Three"));
    expect(split("x*", "Isolated", false), S("axxb"), S("a|xx|b"));
    expect(split("b*", "Isolated", false), S(""), S(""));
}
END_TEST

static void refuse(const char *pattern, const char *text) {
    struct ft_buf out;
    struct ft_err err = {0};
    ft_buf_init(&out, 0);
    enum ft_code code = ft_regex_translate(ft_str_c(pattern), &out, &err);
    struct ft_split compiled;
    if (code == FT_OK && ft_split_init(&compiled, ft_buf_str(&out), &err) == FT_OK) {
        ft_split_fini(&compiled);
        ck_abort_msg("'%s' is taken as '%s'", pattern, out.ptr);
    }
    ck_assert_int_eq(err.code, FT_E_PROC_MODEL);
    ck_assert_msg(strstr(err.text, text) != NULL, "'%s': %s", pattern, err.text);
    ft_buf_fini(&out);
}

START_TEST(dev12_constructs_that_engines_read_differently_are_refused) {
    refuse("a\\b", "'\\b' at offset 1 is not supported");
    refuse("\\h", "'\\h'");
    refuse("^a", "'^'");
    refuse("a$", "'$'");
    refuse("(a)\\1", "'\\1'");
    refuse("[a[b]]", "inside a class");
    refuse("[[:alpha:]]", "inside a class");
    refuse("[a&&b]", "inside a class");
    refuse("[]a]", "starts with ']'");
    refuse("[\\s-z]", "range with a set");
    refuse("[!-\\w]", "range with a set");
    refuse("[abc", "without an end");
    refuse("[\\W]", "'\\W' at offset 1 in a class");
    refuse("(?i:\xC3\xA9)", "under (?i)");
    refuse("(?i:[\xC3\xA9])", "under (?i)");
    refuse("(?i:ss)", "under (?i)");
    refuse("(?i)x\\p{Lu}", "under (?i)");
    refuse("a(?i)b|c", "in the middle of a group");
    refuse("(?x: a)", "'(?x'");
    refuse("(?<name>a)", "'(?<'");
    refuse("(?~a)", "'(?~'");
    refuse("a{2}+", "'{2}+'");
    refuse("a{2}?", "'{2}?'");
    refuse("\\p{Alnum}", "regex: ");
    refuse("\\p{X}", "not a known property");
    refuse("\\pL", "has no {name}");
    refuse("\\xe9", "is a byte");
    refuse("\\u12", "not a code point");
    refuse("\\x{}", "not a code point");
    refuse("(a", "not closed");
    refuse("a)", "closes no group");
    refuse("a\\", "'\\' at offset 1");
    refuse("((((((((((((((((((((((((((((((((((a))))))))))))))))))))))))))))))))))", "too deeply");
    refuse("a**", "regex: ");
}
END_TEST

static void refuse_json(const char *json, const char *text) {
    struct ft_pretok pretok;
    struct ft_err err = {0};
    json_t *root = parse(json);
    ck_assert_int_eq(ft_pretok_init(&pretok, root, &err), FT_E_PROC_MODEL);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s: %s", json, err.text);
    json_decref(root);
}

START_TEST(dev12_unknown_pretokenizers_are_refused_by_name) {
    refuse_json("null", "type '' is not supported");
    refuse_json("{\"type\": \"Metaspace\"}", "type 'Metaspace' is not supported");
    refuse_json("{\"type\": \"Sequence\"}", "pretokenizers is not a list");
    refuse_json("{\"type\": \"Sequence\", \"pretokenizers\": []}", "there is no ByteLevel");
    refuse_json("{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Whitespace\"}]}",
                "pre_tokenizer: pretokenizers[0]: type 'Whitespace'");
    refuse_json("{\"type\": \"Sequence\", \"pretokenizers\": [" BYTE_LEVEL ", {\"type\": "
                "\"Digits\"}]}",
                "pretokenizers[1]: type 'Digits' after ByteLevel");
    refuse_json("{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": \"Odd\"}",
                "behavior 'Odd'");
    refuse_json("{\"type\": \"Split\", \"pattern\": \"a\", \"behavior\": \"Isolated\"}",
                "neither a Regex nor a String");
    refuse_json("{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}, \"behavior\": "
                "\"Isolated\"}",
                "not closed");
    refuse_json("{\"type\": \"ByteLevel\", \"use_regex\": 1}", "use_regex is neither");
}
END_TEST

/* A group that repeats needs a stack; a megabyte of it is cut rightly or refused, never wrongly. */
START_TEST(run_long_backtracking_is_right_or_an_error) {
    size_t n = 1 << 20;
    char *text = malloc(n);
    ck_assert_ptr_nonnull(text);
    memset(text, 'a', n);
    json_t *json = split("(?:a|b|ab)+c|a", "Removed", true);
    struct ft_pretok pretok;
    struct ft_err err = {0};
    ck_assert(ft_pretok_init(&pretok, json, &err) == FT_OK);
    struct ft_buf out;
    ft_buf_init(&out, 0);
    struct ft_split_sink sink = {add_piece, &out};
    enum ft_code code = ft_pretok_run(&pretok, (struct ft_str){text, 2000}, &sink, &err);
    ck_assert_msg(code == FT_OK && out.len == 3999, "%s", err.text);
    ft_buf_reset(&out);
    text[n - 1] = 'c';
    code = ft_pretok_run(&pretok, (struct ft_str){text, n}, &sink, &err);
    if (code == FT_OK)
        ck_assert_uint_eq(out.len, n);
    else
        ck_assert_msg(code == FT_E_REQ_TOO_LARGE && strstr(err.text, "too long a piece") != NULL,
                      "%s", err.text);
    ft_buf_fini(&out);
    ft_pretok_fini(&pretok);
    json_decref(json);
    free(text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tokenizer_pretok");
    TCase *tc = tcase_create("pretok");
    tcase_add_test(tc, dev12_pieces_of_llama3);
    tcase_add_test(tc, dev12_pieces_of_unicode_text);
    tcase_add_test(tc, run_each_behavior_as_the_library);
    tcase_add_test(tc, run_sequence_cuts_the_pieces_of_the_step_before);
    tcase_add_test(tc, run_empty_matches_cut_and_advance);
    tcase_add_test(tc, dev12_constructs_that_engines_read_differently_are_refused);
    tcase_add_test(tc, dev12_unknown_pretokenizers_are_refused_by_name);
    tcase_add_test(tc, run_long_backtracking_is_right_or_an_error);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
