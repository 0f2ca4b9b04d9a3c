/* The file of bearer tokens: what it may say, who is found in it, and rates. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/tokens.h"
#include "support/suite.h"

#define SECOND 1000000000LL
/* printf TEXT | sha256sum */
#define HASH_ALPHA "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8" /* alpha */
#define HASH_BETA "f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753"  /* beta */

static struct co_tokens parse(const char *text) {
    struct co_tokens tokens = {0};
    struct ft_err err = {0};
    ck_assert_msg(co_tokens_parse(&tokens, ft_str_c(text), "FILE", &err) == FT_OK, "%s", err.text);
    return tokens;
}

START_TEST(parse_reads_names_rights_and_limits) {
    struct co_tokens tokens = parse("# who\n\n  team-a \tsha256:" HASH_ALPHA
                                    " max_requests=8 requests_per_minute=60 min_priority=-5\r\n"
                                    "ops sha256:" HASH_BETA " admin");
    ck_assert_uint_eq(tokens.n, 2);
    struct co_token *a = co_tokens_find(&tokens, ft_str_c("alpha"));
    struct co_token *b = co_tokens_find(&tokens, ft_str_c("beta"));
    ck_assert_ptr_eq(a, &tokens.rows[0]);
    ck_assert_ptr_eq(b, &tokens.rows[1]);
    ck_assert_str_eq(a->name, "team-a");
    ck_assert(!a->admin && b->admin);
    ck_assert_int_eq(a->max_requests, 8);
    ck_assert_int_eq(a->requests_per_minute, 60);
    ck_assert_int_eq(a->min_priority, -5);
    ck_assert_int_eq(b->max_requests, 0);
    ck_assert_int_eq(b->min_priority, INT32_MIN);
    co_tokens_fini(&tokens);
}
END_TEST

START_TEST(find_of_anything_else_finds_nobody) {
    struct co_tokens tokens = parse("a sha256:" HASH_ALPHA);
    static const char *const others[] = {"",      "alph",     "alpha ",
                                         "Alpha", HASH_ALPHA, "sha256:" HASH_ALPHA};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        ck_assert_ptr_null(co_tokens_find(&tokens, ft_str_c(others[i])));
    ck_assert_ptr_null(co_tokens_find(&tokens, (struct ft_str){"alpha\0", 6}));
    for (int i = 0; i < 4096; i++) { /* some of these begin as the hash of alpha does */
        char other[16];
        snprintf(other, sizeof other, "x%d", i);
        ck_assert_ptr_null(co_tokens_find(&tokens, ft_str_c(other)));
    }
    char *large = calloc(1, CO_TOKEN_BYTES_MAX + 1);
    ck_assert_ptr_null(co_tokens_find(&tokens, (struct ft_str){large, CO_TOKEN_BYTES_MAX + 1}));
    free(large);
    co_tokens_fini(&tokens);
}
END_TEST

START_TEST(parse_of_a_bad_line_names_it_and_never_the_token) {
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "no token in it"},
        {"# nothing\n", "no token in it"},
        {"a", "line 1: after the name comes sha256:"},
        {"a SECRET", "line 1: after the name comes sha256:"},
        {"ok sha256:" HASH_ALPHA "\nb sha256:SECRET", "line 2: after the name"},
        {"a sha256:" HASH_ALPHA "00", "line 1: after the name"},
        {"a sha256:x" HASH_ALPHA, "line 1: after the name"},
        {"a:b sha256:" HASH_ALPHA, "line 1: the name"},
        {"\xff sha256:" HASH_ALPHA, "line 1: the name"},
        {"a sha256:" HASH_ALPHA " root", "and nothing else"},
        {"a sha256:" HASH_ALPHA " max_requests=0", "and nothing else"},
        {"a sha256:" HASH_ALPHA " max_requests=", "and nothing else"},
        {"a sha256:" HASH_ALPHA " max_requests=+1", "and nothing else"},
        {"a sha256:" HASH_ALPHA " max_requests=2147483648", "and nothing else"},
        {"a sha256:" HASH_ALPHA " max_requests=99999999999999", "and nothing else"},
        {"a sha256:" HASH_ALPHA " min_priority=x", "and nothing else"},
        {"a sha256:" HASH_ALPHA "\na sha256:" HASH_BETA, "line 2: the name stands"},
        {"a sha256:" HASH_ALPHA "\nb sha256:" HASH_ALPHA, "line 2: the token stands"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct co_tokens tokens = {0};
        struct ft_err err = {0};
        ck_assert_int_eq(co_tokens_parse(&tokens, ft_str_c(rows[i].text), "FILE", &err),
                         FT_E_PROC_CONFIG);
        ck_assert_msg(strstr(err.text, rows[i].says) != NULL, "%zu: %s", i, err.text);
        ck_assert_msg(strstr(err.text, "FILE") != NULL, "%s", err.text);
        ck_assert_msg(strstr(err.text, "SECRET") == NULL && strstr(err.text, HASH_ALPHA) == NULL,
                      "%s", err.text);
        ck_assert_ptr_null(tokens.rows);
    }
}
END_TEST

START_TEST(parse_past_the_most_tokens_is_refused) {
    char *text = malloc((CO_TOKENS_MAX + 1) * 96);
    size_t len = 0;
    for (int i = 0; i <= CO_TOKENS_MAX; i++)
        len += (size_t)sprintf(text + len, "n%d sha256:%064x\n", i, i);
    struct co_tokens tokens = {0};
    struct ft_err err = {0};
    ck_assert_int_eq(co_tokens_parse(&tokens, (struct ft_str){text, len}, "FILE", &err),
                     FT_E_PROC_CONFIG);
    ck_assert_msg(strstr(err.text, "line 4097") != NULL, "%s", err.text);
    free(text);
}
END_TEST

START_TEST(rate_is_a_minute_of_requests_that_fills_up_evenly) {
    struct co_tokens tokens = parse("a sha256:" HASH_ALPHA " requests_per_minute=6");
    struct co_token *a = &tokens.rows[0];
    int64_t wait_ms = 0, now = a->allowance_ns;
    for (int i = 0; i < 6; i++)
        ck_assert(co_token_take(a, 1, now, &wait_ms));
    ck_assert(!co_token_take(a, 1, now, &wait_ms));
    ck_assert_int_ge(wait_ms, 9999);
    ck_assert_int_le(wait_ms, 10001);
    ck_assert(!co_token_take(a, 1, now + 9 * SECOND, &wait_ms));
    ck_assert_int_ge(wait_ms, 999);
    ck_assert_int_le(wait_ms, 1001);
    ck_assert(co_token_take(a, 1, now + 11 * SECOND, &wait_ms));
    ck_assert(!co_token_take(a, 6, now + 12 * SECOND, &wait_ms)); /* none is taken */
    ck_assert(co_token_take(a, 6, now + 600 * SECOND, &wait_ms)); /* never more than a minute's */
    ck_assert(!co_token_take(a, 1, now + 600 * SECOND, &wait_ms));
    ck_assert(!co_token_take(a, 7, now + 6000 * SECOND, &wait_ms));
    ck_assert_int_eq(wait_ms, -1); /* never */
    co_tokens_fini(&tokens);
}
END_TEST

START_TEST(file_read_again_gives_no_second_allowance) {
    struct co_tokens old = parse("a sha256:" HASH_ALPHA " requests_per_minute=6");
    struct co_tokens fresh = parse("b sha256:" HASH_BETA " requests_per_minute=6\n"
                                   "a sha256:" HASH_ALPHA " requests_per_minute=8");
    int64_t wait_ms, now = old.rows[0].allowance_ns;
    ck_assert(co_token_take(&old.rows[0], 6, now, &wait_ms));
    co_tokens_inherit(&fresh, &old);
    ck_assert(!co_token_take(&fresh.rows[1], 1, now, &wait_ms));
    ck_assert(co_token_take(&fresh.rows[0], 6, fresh.rows[0].allowance_ns, &wait_ms));
    co_tokens_fini(&old);
    co_tokens_fini(&fresh);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tokens");
    TCase *t = tcase_create("tokens");
    tcase_add_test(t, parse_reads_names_rights_and_limits);
    tcase_add_test(t, find_of_anything_else_finds_nobody);
    tcase_add_test(t, parse_of_a_bad_line_names_it_and_never_the_token);
    tcase_add_test(t, parse_past_the_most_tokens_is_refused);
    tcase_add_test(t, rate_is_a_minute_of_requests_that_fills_up_evenly);
    tcase_add_test(t, file_read_again_gives_no_second_allowance);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
