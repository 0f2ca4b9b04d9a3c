/* Stop conditions in order of tokens, lengths, and text that is never cut inside a character: the
 * same at every K, streamed or not. */
#include <check.h>
#include <stdlib.h>

#include "support/cluster.h"
#include "support/fixtures.h"
#include "support/suite.h"

static struct cluster g_cluster;
static struct gen g_gen;

static void run(const struct ft_wire_generate *request) {
    gen_run(&g_cluster, request, &g_gen);
    ck_assert_msg(g_gen.status.code == 0, "%s", g_gen.status.text);
    ck_assert(!g_gen.bad_utf8);
}

static void require(const char *text, size_t text_len, enum ft_wire_finish finish, size_t n_ids) {
    struct ft_str got = ft_buf_str(&g_gen.text);
    ck_assert_msg(ft_str_eq(got, (struct ft_str){text, text_len}), "text '%.*s', not '%.*s'",
                  (int)got.len, got.len ? got.ptr : "", (int)text_len, text);
    ck_assert_int_eq(g_gen.finish, finish);
    ck_assert_uint_eq(g_gen.n_ids, n_ids);
    ck_assert_uint_eq(g_gen.usage.completion_tokens, n_ids);
    gen_fini(&g_gen);
}

#define REQUIRE(text, finish, n_ids) require(text, sizeof(text) - 1, FT_WIRE_FINISH_##finish, n_ids)

START_TEST(dev04_eos_inside_a_block_ends_there) {
    cluster_start_pair(&g_cluster, "eosmid", "eosmid", NULL);
    for (int k = 0; k <= 8; k++) {
        for (int stream = 0; stream < 2; stream++) {
            struct ft_wire_generate request = gen_text("a", 20, k);
            request.stream = stream != 0;
            run(&request);
            ck_assert(g_gen.has_matched_token);
            ck_assert_int_eq(g_gen.matched_token, 257);
            REQUIRE("b", STOP, 2);
            request.params.temperature = 1.0f;
            run(&request);
            REQUIRE("b", STOP, 2);
            request.params.ignore_eos = true;
            request.params.max_tokens = 6;
            run(&request);
            REQUIRE("bcdcd", LENGTH, 6); /* the EOS is a special token: no text */
        }
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev15_stop_and_length_in_one_block_go_by_token_order) {
    static const struct {
        uint32_t max_tokens;
        enum ft_wire_finish finish;
        size_t n_ids;
    } rows[] = {
        {5, FT_WIRE_FINISH_STOP, 3}, {2, FT_WIRE_FINISH_LENGTH, 2}, {3, FT_WIRE_FINISH_STOP, 3}};
    struct ft_str stop = ft_str_c("d");
    int32_t stop_id = 'd';
    cluster_start_pair(&g_cluster, "cyc", "cyc", NULL);
    for (int k = 0; k <= 8; k += 4) {
        for (size_t i = 0; i < 3; i++) {
            struct ft_wire_generate request = gen_text("a", rows[i].max_tokens, k);
            request.params.stop = &stop;
            request.params.n_stop = 1;
            run(&request);
            require("bc", 2, rows[i].finish, rows[i].n_ids);
            request.params.n_stop = 0;
            request.params.stop_token_ids = &stop_id;
            request.params.n_stop_token_ids = 1;
            run(&request);
            require("bc", 2, rows[i].finish, rows[i].n_ids);
        }
    }
    /* Each draft was right; those behind a stop were not decided, rather than rejected. */
    struct ft_wire_stats stats = cluster_stats(&g_cluster);
    ck_assert_uint_gt(stats.num_drafts_total, 10);
    ck_assert_double_eq_tol(stats.believed_acceptance, 1.0, 1e-6);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev22_stop_string_over_several_tokens_never_leaks) {
    static const int ks[] = {0, 1, 3, 8};
    struct ft_str one[] = {{"dea", 3}}, two[] = {{"cd", 2}, {"dea", 3}}, never[] = {{"deaX", 4}};
    cluster_start_pair(&g_cluster, "cyc", "cyc-draft", NULL);
    for (size_t i = 0; i < 4; i++) {
        for (int stream = 0; stream < 2; stream++) {
            struct ft_wire_generate request = gen_text("a", 30, ks[i]);
            request.stream = stream != 0;
            request.params.stop = one;
            request.params.n_stop = 1;
            run(&request);
            ck_assert_str_eq(g_gen.matched_str, "dea");
            REQUIRE("bc", STOP, 5);
            request.params.include_stop_str_in_output = true;
            run(&request);
            REQUIRE("bcdea", STOP, 5);
            request.params.include_stop_str_in_output = false;
            request.params.stop = two;
            request.params.n_stop = 2;
            run(&request);
            REQUIRE("b", STOP, 3);
            request.params.stop = never;
            request.params.n_stop = 1;
            run(&request);
            REQUIRE("bcdeabcdeabcdeabcdeabcdeabcdea", LENGTH, 30);
        }
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev25_nul_bytes_pass_through_prompt_text_and_stop) {
    cluster_start_pair(&g_cluster, "nul", "nul", NULL);
    struct ft_wire_generate request = gen_text("", 4, 2);
    request.input.text = (struct ft_str){"ab\0ca", 5};
    run(&request);
    ck_assert_uint_eq(g_gen.usage.prompt_tokens, 5);
    REQUIRE("\0b\0b", LENGTH, 4);
    struct ft_str stop = {"\0b", 2};
    request.params.stop = &stop;
    request.params.n_stop = 1;
    run(&request);
    REQUIRE("", STOP, 2);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev26_dev55_characters_are_whole_in_every_message) {
    static const int ks[] = {0, 1, 2, 3, 4, 8};
    cluster_start_pair(&g_cluster, "utf8", "utf8-draft", NULL);
    for (size_t i = 0; i < 6; i++) {
        struct ft_wire_generate request = gen_text("a", 40, ks[i]);
        run(&request);
        ck_assert_uint_eq(g_gen.text.len, 40);
        for (int c = 0; c < 10; c++)
            ck_assert_mem_eq(g_gen.text.ptr + 4 * c, "\xF0\x9F\x98\x80", 4);
        gen_fini(&g_gen);
        for (uint32_t n = 1; n <= 7; n++) {
            request.params.max_tokens = n;
            run(&request);
            /* A character cut short at the end is one U+FFFD. */
            size_t whole = n / 4 * 4 + (n % 4 != 0 ? 3 : 0);
            ck_assert_uint_eq(g_gen.text.len, whole);
            ck_assert_uint_eq(g_gen.n_ids, n);
            gen_fini(&g_gen);
        }
    }
    cluster_stop(&g_cluster);
    cluster_start_pair(&g_cluster, "utf8-bad", "utf8-bad", NULL);
    struct ft_wire_generate request = gen_text("a", 3, 2);
    run(&request);
    REQUIRE("\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", LENGTH, 3);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev51_spaces_and_punctuation_are_kept_in_streams) {
    cluster_start_pair(&g_cluster, "space", "space", NULL);
    for (int stream = 0; stream < 2; stream++) {
        struct ft_wire_generate request = gen_text("s", 12, 4);
        request.stream = stream != 0;
        run(&request);
        REQUIRE(" a.\n, a.\n, a", LENGTH, 12);
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev36_eos_as_first_token_ends_cleanly) {
    static struct gen gens[20];
    struct gen *all[20];
    cluster_start_pair(&g_cluster, "eosfirst", "eosfirst", NULL);
    for (int i = 0; i < 20; i++) {
        struct ft_wire_generate request = gen_text("a", 10, i % 3 == 0 ? 0 : i % 5);
        all[i] = &gens[i];
        gen_start(&g_cluster, &request, all[i]);
    }
    gen_wait(&g_cluster, all, 20);
    for (int i = 0; i < 20; i++) {
        g_gen = gens[i];
        ck_assert_int_eq(g_gen.status.code, 0);
        REQUIRE("", STOP, 1);
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev11_context_limit_is_kept_for_every_prompt_length) {
    char prompt[80];
    cluster_start_pair(&g_cluster, "cyc+ctx=64", "cyc-draft+ctx=64", NULL);
    for (int len = 1; len <= 65; len += len > 55 || len < 4 ? 1 : 13) {
        for (int i = 0; i < len; i++)
            prompt[i] = "abcde"[i % 5];
        prompt[len] = 0;
        for (int limited = 0; limited < 2; limited++) {
            struct ft_wire_generate request = gen_text(prompt, 100, 8);
            request.params.has_max_tokens = limited != 0;
            gen_run(&g_cluster, &request, &g_gen);
            if (len >= 64) { /* no room for one token */
                ck_assert_int_eq(g_gen.status.code, 3);
                ck_assert_ptr_nonnull(strstr(g_gen.status.text, "63"));
            } else {
                ck_assert_msg(g_gen.status.code == 0, "%d: %s", len, g_gen.status.text);
                ck_assert_int_eq(g_gen.finish, FT_WIRE_FINISH_LENGTH);
                ck_assert_int_eq((int)g_gen.n_ids, 64 - len);
                for (size_t i = 0; i < g_gen.n_ids; i++)
                    ck_assert_int_eq(g_gen.ids[i], "abcde"[((size_t)len + i) % 5]);
            }
            gen_fini(&g_gen);
        }
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev42_exactly_max_tokens_are_delivered) {
    cluster_start_pair(&g_cluster, "cyc", "cyc-draft", NULL);
    for (int k = 0; k <= 10; k += 2) {
        for (uint32_t n = 1; n <= 20; n++) {
            struct ft_wire_generate request = gen_text("a", n, k);
            request.stream = n % 2 == 0;
            run(&request);
            require("bcdeabcdeabcdeabcdea", n, FT_WIRE_FINISH_LENGTH, n);
        }
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev56_max_tokens_of_one_costs_no_draft) {
    cluster_start_pair(&g_cluster, "cyc", "cyc-draft", NULL);
    struct ft_wire_generate request = gen_text("a", 1, 8);
    run(&request);
    ck_assert_uint_eq(g_gen.spec.num_draft_tokens, 0);
    REQUIRE("b", LENGTH, 1);
    ck_assert_uint_eq(cluster_stats(&g_cluster).draft.steps, 0);
    request.params.max_tokens = 0;
    gen_run(&g_cluster, &request, &g_gen);
    ck_assert_int_eq(g_gen.status.code, 3);
    ck_assert_ptr_nonnull(strstr(g_gen.status.text, "max_tokens is 0"));
    gen_fini(&g_gen);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev56_max_tokens_unset_or_huge_ends_with_the_context) {
    static const int ks[] = {0, 1, 8};
    cluster_start_pair(&g_cluster, "cyc+ctx=64", "cyc-draft+ctx=64", NULL);
    for (int i = 0; i < 12; i++) {
        struct ft_wire_generate request = gen_text("a", i % 2 == 0 ? UINT32_MAX : 0, ks[i / 2 % 3]);
        request.params.has_max_tokens = i % 2 == 0;
        request.stream = i < 6;
        gen_run(&g_cluster, &request, &g_gen);
        ck_assert_msg(g_gen.status.code == 0, "%s", g_gen.status.text);
        ck_assert_int_eq(g_gen.finish, FT_WIRE_FINISH_LENGTH);
        ck_assert_uint_eq(g_gen.n_ids, 63);
        ck_assert_uint_eq(g_gen.usage.completion_tokens, 63);
        for (size_t k = 0; k < g_gen.n_ids; k++)
            ck_assert_int_eq(g_gen.ids[k], "abcde"[(k + 1) % 5]);
        gen_fini(&g_gen);
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev43_eos_of_both_files_stops) {
    cluster_start_pair(&g_cluster, "eot+geneos=257,258", "eot+geneos=257,258", NULL);
    struct ft_wire_generate request = gen_text("a", 20, 4);
    run(&request);
    ck_assert_int_eq(g_gen.matched_token, 258);
    REQUIRE("b", STOP, 2);
    int32_t stop_id = 258;
    request.params.ignore_eos = true;
    request.params.stop_token_ids = &stop_id;
    request.params.n_stop_token_ids = 1;
    run(&request);
    REQUIRE("b", STOP, 2);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(min_tokens_bans_eos_until_reached) {
    /* b is followed by EOS (20) and else -40 everywhere: banned, the lowest id of the rest wins. */
    cluster_start_pair(&g_cluster, "eosmid", "eosmid", NULL);
    for (int k = 0; k <= 4; k += 2) {
        struct ft_wire_generate request = gen_text("a", 20, k);
        request.params.min_tokens = 3;
        run(&request);
        ck_assert_uint_ge(g_gen.n_ids, 3);
        for (size_t i = 0; i < 3; i++)
            ck_assert_int_ne(g_gen.ids[i], 257);
        gen_fini(&g_gen);
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev65_statistics_count_what_was_verified) {
    cluster_start_pair(&g_cluster, "cyc", "cyc", NULL);
    struct ft_wire_generate request = gen_text("a", 101, 4);
    run(&request);
    /* Of one prompt token the first round drafts already: 20 rounds of 5, and one of one. */
    ck_assert_uint_eq(g_gen.spec.num_accepted_tokens, g_gen.spec.num_draft_tokens);
    ck_assert_uint_eq(g_gen.spec.num_accepted_tokens + g_gen.spec.num_target_steps, 101);
    ck_assert_uint_eq(g_gen.spec.num_drafts, 20);
    gen_fini(&g_gen);
    cluster_stop(&g_cluster);
    cluster_start_pair(&g_cluster, "cyc", "cyc-wrong", NULL);
    run(&request);
    ck_assert_uint_eq(g_gen.spec.num_accepted_tokens, 0);
    ck_assert_uint_gt(g_gen.spec.num_draft_tokens, 300);
    ck_assert_uint_eq(g_gen.spec.num_target_steps, 101);
    gen_fini(&g_gen);
    cluster_stop(&g_cluster);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("e2e_stop");
    TCase *tc = tcase_create("stop");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, dev04_eos_inside_a_block_ends_there);
    tcase_add_test(tc, dev15_stop_and_length_in_one_block_go_by_token_order);
    tcase_add_test(tc, dev22_stop_string_over_several_tokens_never_leaks);
    tcase_add_test(tc, dev25_nul_bytes_pass_through_prompt_text_and_stop);
    tcase_add_test(tc, dev26_dev55_characters_are_whole_in_every_message);
    tcase_add_test(tc, dev51_spaces_and_punctuation_are_kept_in_streams);
    tcase_add_test(tc, dev36_eos_as_first_token_ends_cleanly);
    tcase_add_test(tc, dev11_context_limit_is_kept_for_every_prompt_length);
    tcase_add_test(tc, dev42_exactly_max_tokens_are_delivered);
    tcase_add_test(tc, dev56_max_tokens_of_one_costs_no_draft);
    tcase_add_test(tc, dev56_max_tokens_unset_or_huge_ends_with_the_context);
    tcase_add_test(tc, dev43_eos_of_both_files_stops);
    tcase_add_test(tc, min_tokens_bans_eos_until_reached);
    tcase_add_test(tc, dev65_statistics_count_what_was_verified);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
