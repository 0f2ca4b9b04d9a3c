/* The real Llama-3.1 vocabulary. Skipped until install.sh has fetched it. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/text/tokenizer.h"
#include "support/suite.h"

#define LLAMA3 FT_TEST_BINARY_DIR "/oracle/vectors/llama3_1"
#define N_MODEL_TOKENS 128000

static struct ft_tokenizer *s_llama3;

static void setup(void) {
    struct ft_err err = {0};
    ck_assert_msg(ft_tokenizer_open(&s_llama3, LLAMA3, &err) == FT_OK, "%s", err.text);
}

static void teardown(void) {
    ft_tokenizer_close(&s_llama3);
}

static size_t encode(struct ft_str text, struct ft_ids *ids) {
    const struct ft_encode_opts opts = {0};
    struct ft_err err = {0};
    ids->len = 0;
    ck_assert_msg(ft_tokenizer_encode(s_llama3, text, &opts, ids, &err) == FT_OK, "%s", err.text);
    return ids->len;
}

/* 588 of the tokens cannot be reached by merges. A few hundred others are no single piece. */
START_TEST(dev32_every_whole_piece_is_its_token) {
    struct ft_ids ids = {0};
    ck_assert_uint_eq(encode(ft_str_c(" Vi\xE1\xBB\x87t"), &ids), 1);
    ck_assert_int_eq(ids.ptr[0], 101798);
    size_t n_same = 0, n_text = 0;
    for (int32_t id = 0; id < N_MODEL_TOKENS; id++) {
        struct ft_str bytes = ft_tokenizer_bytes(s_llama3, id);
        if (ft_utf8_valid_prefix(bytes) != bytes.len)
            continue; /* a part of a character is no text */
        n_text++;
        n_same += encode(bytes, &ids) == 1 && ids.ptr[0] == id;
    }
    printf("%zu of %zu tokens that are text encode to themselves\n", n_same, n_text);
    ck_assert_uint_ge(n_text, 126000);
    ck_assert_uint_ge(n_same * 1000, n_text * 995);
    ft_ids_fini(&ids);
}
END_TEST

START_TEST(dev54_long_words_take_little_time) {
    static const struct {
        const char *unit;
        size_t n;
    } rows[] = {{"a", 1000000},       {"_", 200000},   {" ", 200000}, {"\xE4\xB8\xAD", 200000},
                {"\xCC\x81", 500000}, {"\n", 1000000}, {"1", 1000000}};
    struct ft_ids ids = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ft_buf text, back;
        ft_buf_init(&text, 0);
        ft_buf_init(&back, 0);
        for (size_t k = 0; k < rows[i].n; k++)
            ft_buf_add_c(&text, rows[i].unit);
        int64_t start = ft_clock_now_ns();
        encode(ft_buf_str(&text), &ids);
        double seconds = (double)(ft_clock_now_ns() - start) * 1e-9;
        printf("%zu x '%s': %zu tokens, %.3f s\n", rows[i].n, rows[i].unit, ids.len, seconds);
        ck_assert_double_lt(seconds, 5.0);
        ft_tokenizer_decode(s_llama3, ids.ptr, ids.len, false, &back);
        ck_assert(ft_str_eq(ft_buf_str(&text), ft_buf_str(&back)));
        ft_buf_fini(&text);
        ft_buf_fini(&back);
    }
    ft_ids_fini(&ids);
}
END_TEST

START_TEST(open_takes_well_under_a_second) {
    struct ft_tokenizer *tokenizer = NULL;
    int64_t start = ft_clock_now_ns();
    ck_assert(ft_tokenizer_open(&tokenizer, LLAMA3, NULL) == FT_OK);
    double seconds = (double)(ft_clock_now_ns() - start) * 1e-9;
    printf("open: %.3f s\n", seconds);
    ck_assert_int_eq(ft_tokenizer_vocab_size(tokenizer), 128256);
    ck_assert_double_lt(seconds, 5.0); /* a loaded machine, sanitizers */
    ft_tokenizer_close(&tokenizer);
}
END_TEST

int main(void) {
    FILE *file = fopen(LLAMA3 "/tokenizer.json", "r");
    if (file == NULL) {
        puts("skipped: run tests/oracle/install.sh with the build folder first");
        return 77;
    }
    fclose(file);
    Suite *suite = suite_create("tokenizer_llama3");
    TCase *tc = tcase_create("llama3");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, dev32_every_whole_piece_is_its_token);
    tcase_add_test(tc, dev54_long_words_take_little_time);
    tcase_add_test(tc, open_takes_well_under_a_second);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
