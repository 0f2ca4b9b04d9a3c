/* What open refuses, and that it says why. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/fixtures.h"
#include "support/awake.h"
#include "support/suite.h"
#include "unit/test_tokenizer_fixture.h"

/* Takes root. */
static void refuse_json(json_t *root, const char *config, const char *text) {
    struct ft_tokenizer *tokenizer = NULL;
    struct ft_err err = {0};
    int64_t start = ft_awake_ns();
    ck_assert_int_eq(try_open_json(root, config, &tokenizer, &err), FT_E_PROC_MODEL);
    ck_assert_int_lt(ft_awake_ns() - start, 1000000000);
    ck_assert_ptr_null(tokenizer);
    ck_assert_msg(strstr(err.text, text) != NULL, "want '%s' in: %s", text, err.text);
    ck_assert_msg(strstr(err.text, config == NULL ? "tokenizer.json: " : "tokenizer_config.json: "),
                  "%s", err.text);
}

static void refuse(const char *path, const char *value, const char *text) {
    json_t *root = tokenizer_json();
    set_field(root, path, parse(value));
    refuse_json(root, NULL, text);
}

START_TEST(open_other_components_are_refused_by_name) {
    refuse("model", "null", "model: type '' is not supported");
    refuse("model.type", "\"Unigram\"", "model: type 'Unigram' is not supported, only BPE is");
    refuse("model.unk_token", "\"<unk>\"", "unk_token '<unk>' is not supported");
    refuse("model.dropout", "0.1", "dropout 0.1 is not supported");
    refuse("model.byte_fallback", "true", "byte_fallback true is not supported");
    refuse("model.byte_fallback", "\"no\"", "byte_fallback is neither true nor false");
    refuse("model.continuing_subword_prefix", "\"##\"", "continuing_subword_prefix '##'");
    refuse("model.end_of_word_suffix", "\"</w>\"", "end_of_word_suffix '</w>'");
    refuse("model.ignore_merges", "1", "ignore_merges is neither");
    refuse("model.vocab", "[]", "model: vocab is not an object");
    refuse("model.merges", "null", "model: merges is not a list");
    refuse("normalizer", "{\"type\": \"Lowercase\"}", "normalizer: type 'Lowercase'");
    refuse("normalizer",
           "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, "
           "{\"type\": \"Prepend\"}]}",
           "normalizer: normalizers[1]: type 'Prepend'");
    refuse("normalizer", "{\"type\": \"Sequence\"}", "normalizers is not a list");
    refuse("pre_tokenizer", "{\"type\": \"BertPreTokenizer\"}", "type 'BertPreTokenizer'");
    refuse("pre_tokenizer", "null", "pre_tokenizer: type ''");
    refuse("decoder", "null", "decoder: type ''");
    refuse("decoder", "{\"type\": \"WordPiece\"}", "decoder: type 'WordPiece'");
    refuse("decoder", "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Strip\"}]}",
           "decoder: type 'Strip'");
    refuse("post_processor", "{\"type\": \"BertProcessing\"}", "post_processor: type 'BertProc");
    refuse("post_processor",
           "{\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"},"
           "{\"type\": \"RobertaProcessing\"}]}",
           "post_processor: processors[1]: type 'RobertaProcessing'");
}
END_TEST

START_TEST(open_templates_are_checked) {
    refuse("post_processor", "{\"type\": \"TemplateProcessing\"}", "single is not a list");
    refuse("post_processor", "{\"type\": \"TemplateProcessing\", \"single\": []}", "0 sequences");
    refuse("post_processor",
           "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\"}}, "
           "{\"Sequence\": {\"id\": \"A\"}}]}",
           "2 sequences");
    refuse("post_processor", "{\"type\": \"TemplateProcessing\", \"single\": [{\"Odd\": 1}]}",
           "single[0] is neither");
    refuse("post_processor",
           "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"x\"}}]}",
           "special token 'x' is not in special_tokens");
    refuse("post_processor",
           "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"x\"}}], "
           "\"special_tokens\": {\"x\": {\"ids\": [99999]}}}",
           "id of special token 'x' is not in the vocabulary");
}
END_TEST

START_TEST(open_vocabulary_entries_are_checked) {
    refuse("model.vocab.a", "\"97\"", "the id of 'a' is not an integer");
    refuse("model.vocab.a", "-1", "id of token \"a\" is -1, not 0 to 4194303");
    refuse("model.vocab.a", "4194304", "id of token \"a\" is 4194304");
    refuse("model.vocab.a", "9223372036854775807", "id of token \"a\" is 9223372036854775807");
    refuse("model.vocab.a", "98", "id 98 is both \"a\" and \"b\"");
    refuse("model.vocab", "{\"\": 0}", "token 0 has 0 bytes");
    refuse("model.vocab", "{\"a\": 0}", "no token for the byte 0x00");
    json_t *root = tokenizer_json();
    json_object_del(json_object_get(json_object_get(root, "model"), "vocab"), "a");
    refuse_json(root, NULL, "no token for the byte 0x61");
}
END_TEST

START_TEST(open_added_tokens_are_checked) {
    refuse("added_tokens", "{}", "added_tokens is not a list");
    refuse("added_tokens", "[1]", "added_tokens[0]: id and content must be");
    refuse("added_tokens", "[{\"id\": 300, \"content\": \"\"}]", "token 300 has 0 bytes");
    refuse("added_tokens", "[{\"id\": 97, \"content\": \"<x>\"}]",
           "added_tokens[0]: id 97 is both \"a\" and \"<x>\"");
    refuse("added_tokens", "[{\"id\": 300, \"content\": \"a\"}]",
           "token \"a\" has both id 97 and id 300");
    refuse("added_tokens", "[{\"id\": 300, \"content\": \"<x>\", \"single_word\": true}]",
           "single_word true is not supported");
    refuse("added_tokens", "[{\"id\": 300, \"content\": \"<x>\", \"special\": 1}]",
           "special is neither");
    refuse("added_tokens",
           "[{\"id\": 300, \"content\": \"<x>\"}, {\"id\": 300, \"content\": "
           "\"<x>\"}]",
           "added tokens 300 and 300 have the same content");
}
END_TEST

START_TEST(dev53_malformed_merges_name_their_index) {
    static const char *const bad[] = {"\"ab\"",
                                      "\"a b c\"",
                                      "\" b\"",
                                      "\"a \"",
                                      "\"\"",
                                      "[\"a\"]",
                                      "[]",
                                      "7",
                                      "null",
                                      "{}",
                                      "[\"a\", \"b\", \"c\"]",
                                      "[\"a\", 1]",
                                      "[\"\", \"b\"]"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        static const char *const good[][2] = {{"h", "e"}, {"l", "l"}, {NULL, NULL}};
        json_t *root = tokenizer_json();
        add_merges(root, good, i % 2 == 0);
        json_array_append_new(json_object_get(json_object_get(root, "model"), "merges"),
                              parse(bad[i]));
        refuse_json(root, NULL, "model: merges[2] is neither");
    }
}
END_TEST

START_TEST(dev53_merges_outside_the_vocabulary_name_their_index) {
    refuse("model.merges", "[\"a b\"]", "merges[0]: the result is not in the vocabulary");
    refuse("model.merges", "[[\"a\", \"zz\"]]", "merges[0]: the right part");
    refuse("model.merges", "[[\"zz\", \"a\"]]", "merges[0]: the left part");
}
END_TEST

START_TEST(open_broken_files_are_refused) {
    static const char *const files[] = {"", "{", "[]", "nonsense",
                                        "{\"model\": {\"vocab\": {\"a\": 1, \"a\": 2}}}"};
    static const char *const texts[] = {"line 1", "line 1", "not a JSON object", "line 1",
                                        "duplicate"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        const char *dir = ft_fixture_temp_dir();
        struct ft_tokenizer *tokenizer = NULL;
        struct ft_err err = {0};
        ft_fixture_write_text(dir, "tokenizer.json", files[i]);
        ck_assert_int_eq(ft_tokenizer_open(&tokenizer, dir, &err), FT_E_PROC_MODEL);
        ck_assert_msg(strstr(err.text, texts[i]) != NULL, "%s", err.text);
        ck_assert_msg(strstr(err.text, "tokenizer.json") != NULL, "%s", err.text);
        ft_fixture_remove_dir(dir);
    }
    struct ft_tokenizer *tokenizer = NULL;
    struct ft_err err = {0};
    ck_assert_int_eq(ft_tokenizer_open(&tokenizer, "/nonexistent", &err), FT_E_PROC_MODEL);
    ck_assert_msg(strstr(err.text, "/nonexistent/tokenizer.json") != NULL, "%s", err.text);
    ck_assert_int_eq(ft_tokenizer_open(&tokenizer, "/nonexistent", NULL), FT_E_PROC_MODEL);
}
END_TEST

START_TEST(dev52_bad_bos_configuration_is_refused) {
    refuse_json(tokenizer_json(), "{\"add_bos_token\": true}",
                "bos_token is not in the vocabulary");
    refuse_json(tokenizer_json(), "{\"add_bos_token\": true, \"bos_token\": \"<s>\"}",
                "bos_token is not in the vocabulary");
    refuse_json(tokenizer_json(), "{\"add_bos_token\": \"yes\"}", "add_bos_token is neither");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tokenizer_load");
    TCase *tc = tcase_create("load");
    tcase_add_test(tc, open_other_components_are_refused_by_name);
    tcase_add_test(tc, open_templates_are_checked);
    tcase_add_test(tc, open_vocabulary_entries_are_checked);
    tcase_add_test(tc, open_added_tokens_are_checked);
    tcase_add_test(tc, dev53_malformed_merges_name_their_index);
    tcase_add_test(tc, dev53_merges_outside_the_vocabulary_name_their_index);
    tcase_add_test(tc, open_broken_files_are_refused);
    tcase_add_test(tc, dev52_bad_bos_configuration_is_refused);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
