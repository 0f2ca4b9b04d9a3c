#include <check.h>
#include <stdlib.h>

#include "common/text/detok.h"
#include "support/suite.h"

#define S(literal) ((struct ft_str){(literal), sizeof(literal) - 1})

/* Feed text in chunks of `step` bytes; out gets all that comes, chunks are checked to be UTF-8. */
struct fed {
    struct ft_buf out;
    int stop;
    size_t at; /* bytes fed when the stop matched */
};

static struct fed feed(const struct ft_str *stops, size_t n_stops, bool include, struct ft_str text,
                       size_t step) {
    struct fed fed = {.stop = -1};
    struct ft_detok detok;
    ft_buf_init(&fed.out, 0);
    ft_detok_init(&detok, stops, n_stops, include);
    for (size_t at = 0; at < text.len; at += step) {
        struct ft_str chunk = {text.ptr + at, step < text.len - at ? step : text.len - at};
        size_t before = fed.out.len;
        int stop = ft_detok_push(&detok, chunk, &fed.out);
        struct ft_str sent = {fed.out.ptr + before, fed.out.len - before};
        ck_assert_uint_eq(ft_utf8_valid_prefix(sent), sent.len);
        if (fed.stop >= 0)
            ck_assert(stop == -1 && sent.len == 0);
        if (stop >= 0) {
            fed.stop = stop;
            fed.at = at + chunk.len;
        }
    }
    ft_detok_finish(&detok, &fed.out);
    ft_detok_fini(&detok);
    return fed;
}

static void expect(const struct ft_str *stops, size_t n_stops, bool include, struct ft_str text,
                   struct ft_str want, int want_stop) {
    for (size_t step = 1; step <= 5; step++) {
        struct fed fed = feed(stops, n_stops, include, text, step);
        ck_assert_msg(ft_str_eq(ft_buf_str(&fed.out), want), "step %zu: '%.*s', want '%.*s'", step,
                      (int)fed.out.len, fed.out.ptr, (int)want.len, want.ptr);
        ck_assert_int_eq(fed.stop, want_stop);
        ft_buf_fini(&fed.out);
    }
}

START_TEST(dev55_characters_over_many_tokens_come_whole) {
    static const char *const characters[] = {"\xF0\x9F\x98\x80", "\xE4\xB8\x96", "\xC3\xA9"};
    for (size_t c = 0; c < 3; c++) {
        struct ft_buf text;
        ft_buf_init(&text, 0);
        for (int i = 0; i < 10; i++)
            ft_buf_add_c(&text, characters[c]);
        expect(NULL, 0, false, ft_buf_str(&text), ft_buf_str(&text), -1);
        ft_buf_fini(&text);
    }
}
END_TEST

/* A character that the end cuts short is one U+FFFD; whole ones before it are kept. */
START_TEST(dev26_truncated_character_becomes_one_replacement) {
    expect(NULL, 0, false, S("\xF0"), S("\xEF\xBF\xBD"), -1);
    expect(NULL, 0, false, S("\xF0\x9F"), S("\xEF\xBF\xBD"), -1);
    expect(NULL, 0, false, S("\xF0\x9F\x98"), S("\xEF\xBF\xBD"), -1);
    expect(NULL, 0, false, S("\xF0\x9F\x98\x80"), S("\xF0\x9F\x98\x80"), -1);
    expect(NULL, 0, false, S("\xF0\x9F\x98\x80\xF0"), S("\xF0\x9F\x98\x80\xEF\xBF\xBD"), -1);
    expect(NULL, 0, false, S("a\xFF\xFE\xFF"), S("a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"), -1);
}
END_TEST

/* Table 3-8 to 3-11 of the Unicode standard: one U+FFFD for each maximal subpart. */
START_TEST(push_bad_bytes_replaces_maximal_subparts) {
#define R "\xEF\xBF\xBD"
    expect(NULL, 0, false, S("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), S(R R R R R R R R "A"), -1);
    expect(NULL, 0, false, S("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), S(R R R R R R R R "A"), -1);
    expect(NULL, 0, false, S("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), S(R R R R R "A" R R "B"), -1);
    expect(NULL, 0, false, S("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), S(R R R R "A"), -1);
#undef R
}
END_TEST

START_TEST(dev22_stop_over_tokens_is_cut_at_its_start) {
    const struct ft_str dea[] = {S("dea")}, two[] = {S("cd"), S("dea")}, never[] = {S("deaX")};
    struct ft_str cycle = S("bcdeabcdeabcdeabcdeabcdeabcdea");
    expect(dea, 1, false, cycle, S("bc"), 0);
    expect(two, 2, false, cycle, S("b"), 0);
    expect(never, 1, false, cycle, cycle, -1);
    expect(dea, 1, true, cycle, S("bcdea"), 0);
}
END_TEST

/* Nothing that a later match takes back is ever sent, and nothing else is held. */
START_TEST(dev22_only_a_possible_stop_is_held_back) {
    const struct ft_str stops[] = {S("dea"), S("xxy")};
    struct ft_detok detok;
    struct ft_buf out;
    ft_buf_init(&out, 0);
    ft_detok_init(&detok, stops, 2, false);
    /* After "ded" the last d may begin a stop; the x shows that it did not, but may itself. */
    static const struct {
        const char *push;
        size_t n_sent;
    } rows[] = {{"abc", 3}, {"d", 3}, {"e", 3}, {"d", 5}, {"x", 6},
                {"x", 6},   {"x", 7}, {"", 7},  {"z", 10}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_int_eq(ft_detok_push(&detok, ft_str_c(rows[i].push), &out), -1);
        ck_assert_uint_eq(out.len, rows[i].n_sent);
    }
    ck_assert_str_eq(out.ptr, "abcdedxxxz");
    ft_detok_fini(&detok);
    ft_buf_fini(&out);
}
END_TEST

START_TEST(push_two_stops_complete_takes_the_earliest_start) {
    const struct ft_str stops[] = {S("cX"), S("bcXd"), S("b"), S("bc"), S("bc")};
    struct fed fed = feed(stops, 2, true, S("abcXd"), 5);
    ck_assert_int_eq(fed.stop, 1);
    ck_assert(ft_str_eq(ft_buf_str(&fed.out), S("abcXd")));
    ft_buf_fini(&fed.out);
    fed = feed(stops, 2, true, S("abcXd"), 1); /* here "cX" is complete first */
    ck_assert_int_eq(fed.stop, 0);
    ck_assert(ft_str_eq(ft_buf_str(&fed.out), S("abcX")));
    ft_buf_fini(&fed.out);
    fed = feed(stops + 2, 3, true, S("abcd"), 4); /* one start: the longest, of equals the first */
    ck_assert_int_eq(fed.stop, 1);
    ck_assert(ft_str_eq(ft_buf_str(&fed.out), S("abc")));
    ft_buf_fini(&fed.out);
}
END_TEST

START_TEST(dev25_nul_bytes_are_ordinary) {
    const struct ft_str stops[] = {S("\0b")};
    expect(NULL, 0, false, S("\0b\0b"), S("\0b\0b"), -1);
    expect(stops, 1, false, S("a\0\0b"), S("a\0"), 0);
    expect(stops, 1, false, S("a\0"), S("a\0"), -1);
}
END_TEST

/* Stops match on bytes: one may begin or end inside a character. */
START_TEST(push_stop_inside_a_character_leaves_valid_text) {
    const struct ft_str stops[] = {S("\x98\x80")};
    expect(stops, 1, false, S("a\xF0\x9F\x98\x80z"), S("a\xEF\xBF\xBD"), 0);
    expect(stops, 1, true, S("a\xF0\x9F\x98\x80z"), S("a\xF0\x9F\x98\x80"), 0);
    expect(stops, 1, false, S("a\xF0\x9F\x98\x81z"), S("a\xF0\x9F\x98\x81z"), -1);
}
END_TEST

START_TEST(dev51_spaces_and_punctuation_are_never_trimmed) {
    static const char *const tokens[] = {" a", "  .", "\n\n ", " ,"};
    for (size_t order = 0; order < 256; order++) {
        struct ft_detok detok;
        struct ft_buf out, want;
        ft_buf_init(&out, 0);
        ft_buf_init(&want, 0);
        ft_detok_init(&detok, NULL, 0, false);
        for (size_t i = 0; i < 4; i++) {
            const char *token = tokens[order >> (2 * i) & 3];
            ft_buf_add_c(&want, token);
            ft_detok_push(&detok, ft_str_c(token), &out);
        }
        ft_detok_finish(&detok, &out);
        ck_assert(ft_str_eq(ft_buf_str(&out), ft_buf_str(&want)));
        ft_detok_fini(&detok);
        ft_buf_fini(&out);
        ft_buf_fini(&want);
    }
}
END_TEST

/* Pushes text, early or not; what matched, and in out all that came so far. */
static int push_early(struct ft_detok *detok, bool is_early, struct ft_str text,
                      struct ft_buf *out) {
    detok->is_early = is_early;
    return ft_detok_push(detok, text, out);
}

START_TEST(stop_counts_by_where_it_ends) {
    static const struct ft_str stops[] = {{"s a", 3}, {"bc", 2}, {"bcd", 3}};
    static const struct {
        struct ft_str early, late, text;
        int stop;
    } rows[] = {
        {{"this a", 6}, {"x", 1}, {"this ax", 7}, -1},
        {{"this", 4}, {" ab", 3}, {"thi", 3}, 0}, /* begins before it counts */
        {{"abc", 3}, {"x", 1}, {"abcx", 4}, -1},  /* held back, for bcd */
        {{"abc", 3}, {"d", 1}, {"a", 1}, 2},
        {{"abc", 3}, {"ebc", 3}, {"abce", 4}, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ft_detok detok;
        struct ft_buf out;
        ft_buf_init(&out, 0);
        ft_detok_init(&detok, stops, 3, false);
        ck_assert_int_eq(push_early(&detok, true, rows[i].early, &out), -1);
        ck_assert_int_eq(push_early(&detok, false, rows[i].late, &out), rows[i].stop);
        ft_detok_finish(&detok, &out);
        ck_assert_msg(ft_str_eq(ft_buf_str(&out), rows[i].text), "row %zu: '%.*s'", i, (int)out.len,
                      out.ptr);
        ft_detok_fini(&detok);
        ft_buf_fini(&out);
    }
}
END_TEST

START_TEST(push_empty_stop_never_matches) {
    const struct ft_str stops[] = {S(""), S("b")};
    expect(stops, 2, false, S("ab"), S("a"), 1);
    expect(stops, 1, false, S("ab"), S("ab"), -1);
}
END_TEST

/* What is held is bounded by the stops, so a long text costs the same for each token. */
START_TEST(push_long_text_holds_little) {
    char stop[FT_DETOK_STOP_BYTES_MAX];
    memset(stop, 'a', sizeof stop);
    stop[sizeof stop - 1] = 'b';
    struct ft_str stops[FT_DETOK_STOPS_MAX];
    for (size_t i = 0; i < FT_DETOK_STOPS_MAX; i++)
        stops[i] = (struct ft_str){stop + i, sizeof stop - i};
    struct ft_detok detok;
    struct ft_buf out;
    ft_buf_init(&out, 0);
    ft_detok_init(&detok, stops, FT_DETOK_STOPS_MAX, false);
    for (size_t i = 1; i <= 3000; i++) {
        ck_assert_int_eq(ft_detok_push(&detok, S("a"), &out), -1);
        ck_assert_uint_eq(out.len, i < sizeof stop ? 0 : i - (sizeof stop - 1));
    }
    ck_assert_int_ge(ft_detok_push(&detok, S("b"), &out), 0);
    ck_assert_uint_eq(out.len, 3000 - (sizeof stop - 1));
    ft_detok_fini(&detok);
    ft_buf_fini(&out);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("detok");
    TCase *tc = tcase_create("detok");
    tcase_add_test(tc, dev55_characters_over_many_tokens_come_whole);
    tcase_add_test(tc, dev26_truncated_character_becomes_one_replacement);
    tcase_add_test(tc, push_bad_bytes_replaces_maximal_subparts);
    tcase_add_test(tc, dev22_stop_over_tokens_is_cut_at_its_start);
    tcase_add_test(tc, dev22_only_a_possible_stop_is_held_back);
    tcase_add_test(tc, push_two_stops_complete_takes_the_earliest_start);
    tcase_add_test(tc, dev25_nul_bytes_are_ordinary);
    tcase_add_test(tc, push_stop_inside_a_character_leaves_valid_text);
    tcase_add_test(tc, dev51_spaces_and_punctuation_are_never_trimmed);
    tcase_add_test(tc, stop_counts_by_where_it_ends);
    tcase_add_test(tc, push_empty_stop_never_matches);
    tcase_add_test(tc, push_long_text_holds_little);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
