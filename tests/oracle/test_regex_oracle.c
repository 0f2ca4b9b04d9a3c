/* Which characters a class of Oniguruma takes, for every character there is: see README.md. Skipped
 * until install.sh has made the reference. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/text/regex.h"
#include "common/text/split.h"
#include "common/text/utf8.h"
#include "support/suite.h"

#define CLASSES FT_TEST_BINARY_DIR "/oracle/vectors/classes.jsonl"
#define N_CODES 0x110000

struct set {
    bool has[N_CODES];
};

static enum ft_code mark(void *ctx, struct ft_str piece, struct ft_err *err) {
    struct set *set = ctx;
    (void)err;
    for (size_t i = 0; i < piece.len;) {
        size_t n;
        set->has[ft_utf8_get((struct ft_str){piece.ptr + i, piece.len - i}, &n)] = true;
        i += n;
    }
    return FT_OK;
}

static struct ft_buf all_characters(void) {
    struct ft_buf text;
    ft_buf_init(&text, 0);
    for (uint32_t code = 0; code < N_CODES; code++) {
        char bytes[4];
        if (code < 0xD800 || code > 0xDFFF)
            ft_buf_add(&text, bytes, ft_utf8_put(code, bytes));
    }
    ck_assert(!text.failed);
    return text;
}

static struct set *matched(struct ft_str pattern, struct ft_str text) {
    struct ft_buf translated;
    struct ft_split split;
    struct ft_err err = {0};
    ft_buf_init(&translated, 0);
    ck_assert_msg(ft_regex_translate(pattern, &translated, &err) == FT_OK, "%s", err.text);
    ck_assert_msg(ft_split_init(&split, ft_buf_str(&translated), &err) == FT_OK, "%s", err.text);
    split.behavior = FT_SPLIT_REMOVED;
    split.invert = true;
    struct set *set = calloc(1, sizeof *set);
    ck_assert_ptr_nonnull(set);
    struct ft_split_sink sink = {mark, set};
    ck_assert_msg(ft_split_run(&split, text, &sink, &err) == FT_OK, "%s", err.text);
    ft_split_fini(&split);
    ft_buf_fini(&translated);
    return set;
}

/* The library's engine has a newer Unicode than Debian's PCRE2. What PCRE2 takes for unassigned may
 * differ, and U+1171E, which was recategorised from Mn to Mc. */
static size_t count_differences(const struct set *ours, const struct set *theirs,
                                const struct set *unassigned, const char *pattern) {
    size_t n = 0;
    for (uint32_t code = 0; code < N_CODES; code++) {
        if (ours->has[code] == theirs->has[code] || unassigned->has[code] || code == 0x1171E)
            continue;
        if (n++ < 10)
            printf("  %s: U+%04X %s\n", pattern, code, ours->has[code] ? "too much" : "missing");
    }
    return n;
}

START_TEST(dev12_classes_match_the_library) {
    struct ft_buf text = all_characters();
    struct set *unassigned = matched(ft_str_c("\\p{Cn}"), ft_buf_str(&text));
    FILE *file = fopen(CLASSES, "r");
    ck_assert_ptr_nonnull(file);
    size_t n_patterns = 0, n_wrong = 0;
    json_t *row;
    while ((row = json_loadf(file, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL)) != NULL) {
        const char *pattern = json_string_value(json_object_get(row, "pattern"));
        const json_t *reference = json_object_get(row, "matched");
        struct set *theirs = calloc(1, sizeof *theirs);
        ck_assert_ptr_nonnull(theirs);
        mark(theirs, (struct ft_str){json_string_value(reference), json_string_length(reference)},
             NULL);
        struct set *ours = matched(ft_str_c(pattern), ft_buf_str(&text));
        n_wrong += count_differences(ours, theirs, unassigned, pattern);
        n_patterns++;
        free(ours);
        free(theirs);
        json_decref(row);
    }
    fclose(file);
    free(unassigned);
    ft_buf_fini(&text);
    ck_assert_uint_ge(n_patterns, 30);
    ck_assert_uint_eq(n_wrong, 0);
}
END_TEST

int main(void) {
    FILE *file = fopen(CLASSES, "r");
    if (file == NULL) {
        puts("skipped: run tests/oracle/install.sh with the build folder first");
        return 77;
    }
    fclose(file);
    Suite *suite = suite_create("regex_oracle");
    TCase *tc = tcase_create("oracle");
    tcase_add_test(tc, dev12_classes_match_the_library);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
