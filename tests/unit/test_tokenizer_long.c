/* Long words and odd texts cost no more than their length. Times are of the processor, not of the
 * clock, and compared with each other: a loaded machine or a sanitizer slows all alike. */
#include <check.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/buf.h"
#include "common/text/norm.h"
#include "common/text/tokenizer.h"
#include "support/suite.h"

#define MODEL FT_TEST_SOURCE_DIR "/models/demo-target"

static double thread_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static struct ft_buf repeat(const char *unit, size_t n) {
    struct ft_buf text;
    ft_buf_init(&text, 0);
    for (size_t i = 0; i < n; i++)
        ft_buf_add_c(&text, unit);
    return text;
}

/* The best of three, in seconds. */
static double seconds_of(struct ft_tokenizer *tokenizer, struct ft_str text) {
    const struct ft_encode_opts opts = {0};
    double best = 1e30;
    for (int i = 0; i < 3; i++) {
        struct ft_ids ids = {0};
        struct ft_err err = {0};
        double start = thread_seconds();
        enum ft_code code = ft_tokenizer_encode(tokenizer, text, &opts, &ids, &err);
        double seconds = thread_seconds() - start;
        ck_assert_msg(code == FT_OK, "%s", err.text);
        ft_ids_fini(&ids);
        best = seconds < best ? seconds : best;
    }
    return best;
}

START_TEST(dev54_long_words_are_not_quadratic) {
    static const struct {
        const char *unit;
        size_t n;
    } rows[] = {{"a", 1000000},       {"_", 200000},   {" ", 200000},  {"\xE4\xB8\xAD", 200000},
                {"ab", 500000},       {"\n", 1000000}, {"7", 1000000}, {" \n", 500000},
                {"\xCC\x81", 200000}, {"'", 1000000}};
    struct ft_tokenizer *tokenizer = NULL;
    struct ft_err err = {0};
    ck_assert_msg(ft_tokenizer_open(&tokenizer, MODEL, &err) == FT_OK, "%s", err.text);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ft_buf word = repeat(rows[i].unit, rows[i].n);
        struct ft_str eighth = {word.ptr,
                                word.len / 8 / strlen(rows[i].unit) * strlen(rows[i].unit)};
        double short_s = seconds_of(tokenizer, eighth);
        double long_s = seconds_of(tokenizer, ft_buf_str(&word));
        /* Eight times the length: 8 when linear, 64 when quadratic; below half a second it is
         * page faults that count. */
        ck_assert_msg(long_s < 5.0 && (long_s < 0.5 || long_s < 32 * short_s),
                      "row %zu: %.3f s, an eighth of it %.3f s", i, long_s, short_s);
        ft_buf_fini(&word);
    }
    ft_tokenizer_close(&tokenizer);
}
END_TEST

START_TEST(dev54_over_long_text_is_refused_after_bounded_work) {
    struct ft_tokenizer *tokenizer = NULL;
    struct ft_err err = {0};
    ck_assert_msg(ft_tokenizer_open(&tokenizer, MODEL, &err) == FT_OK, "%s", err.text);
    const struct ft_encode_opts opts = {.tokens_max = 100};
    struct ft_buf text = repeat("word. ", 2000000);
    struct ft_ids ids = {0};
    ck_assert_int_eq(ft_tokenizer_encode(tokenizer, ft_buf_str(&text), &opts, &ids, &err),
                     FT_E_REQ_TOO_LARGE);
    ck_assert_uint_lt(ids.cap, 1000); /* it stopped at the limit, not at the end */
    ck_assert_uint_eq(ids.len, 0);
    ft_ids_fini(&ids);
    ft_buf_fini(&text);
    ft_tokenizer_close(&tokenizer);
}
END_TEST

/* Marks of two classes in turn are the worst case of canonical ordering. */
START_TEST(apply_long_run_of_marks_is_not_quadratic) {
    struct ft_buf text = repeat("\xCC\x81\xCC\xA3", 250000), out, first;
    ft_buf_init(&out, 0);
    ft_buf_init(&first, 0);
    double start = thread_seconds();
    ck_assert(ft_norm_apply(FT_NORM_NFC, ft_buf_str(&text), &out) == FT_OK);
    ck_assert_double_lt(thread_seconds() - start, 5.0);
    ck_assert_uint_eq(out.len, text.len);
    ck_assert_mem_eq(out.ptr, "\xCC\xA3\xCC\xA3", 4); /* class 220 before class 230 */
    ck_assert_mem_eq(out.ptr + out.len - 4, "\xCC\x81\xCC\x81", 4);
    ck_assert(ft_norm_apply(FT_NORM_NFC, ft_buf_str(&out), &first) == FT_OK);
    ck_assert(ft_str_eq(ft_buf_str(&first), ft_buf_str(&out)));
    ft_buf_fini(&text);
    ft_buf_fini(&out);
    ft_buf_fini(&first);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tokenizer_long");
    TCase *tc = tcase_create("long");
    tcase_add_test(tc, dev54_long_words_are_not_quadratic);
    tcase_add_test(tc, dev54_over_long_text_is_refused_after_bounded_work);
    tcase_add_test(tc, apply_long_run_of_marks_is_not_quadratic);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
