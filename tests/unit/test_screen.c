#include <check.h>
#include <string.h>

#include "foretokenctl/screen.h"
#include "support/suite.h"

static struct ft_buf g_out;

static struct ft_wire_stats some_stats(void) {
    struct ft_wire_stats s = {
        .version = ft_str_c("0.1.0"),
        .state = ft_str_c("ready"),
        .uptime_seconds = 100,
        .speculation = ft_str_c("draft_model"),
        .drafter = ft_str_c("model"),
        .num_speculative_tokens = ft_str_c("auto"),
        .rejection_sample_method = ft_str_c("standard"),
        .generation_tokens_total = 1000,
        .rounds_total = 400,
        .num_drafts_total = 300,
        .num_draft_tokens_total = 1200,
        .num_accepted_tokens_total = 600,
        .accepted_per_pos = {270, 180, 90, 60},
        .n_pos = 4,
        .drafters = {{ft_str_c("model"), 300, 1200, 600}},
        .n_drafters = 1,
        .time_to_first_token_seconds = {10, 0.01, 0.02, 12.5},
        .has_draft = true,
        .target = {.up = true,
                   .up_seconds = 4000,
                   .epoch = UINT64_MAX,
                   .kv_blocks_total = 1000,
                   .kv_blocks_free = 500,
                   .kv_blocks_cached = 250,
                   .resident_bytes = 12000000000,
                   .model = ft_str_c("/srv/models/Llama-3.2-3B")},
        .draft = {.trouble = ft_str_c("step stream ended")},
    };
    return s;
}

static const char *show(const struct ft_wire_stats *s, int columns, bool terminal,
                        struct ctl_screen_past *past) {
    struct ctl_screen_opts opts = {columns, terminal, terminal};
    ft_buf_reset(&g_out);
    ctl_screen_add(s, &opts, past, &g_out);
    ft_buf_add(&g_out, "", 1);
    ck_assert(!g_out.failed);
    return g_out.ptr;
}

/* Columns of the widest line, escape sequences left out. */
static int width_of(const char *text) {
    int widest = 0, width = 0;
    for (; *text != 0; text++) {
        if (*text == '\x1B') {
            while (*text != 'm')
                text++;
        } else if (*text == '\n') {
            width = 0;
        } else if (((unsigned char)*text & 0xC0) != 0x80) {
            width++;
        }
        widest = width > widest ? width : widest;
    }
    return widest;
}

START_TEST(screen_fits_its_columns_whatever_the_numbers) {
    struct ft_wire_stats s = some_stats();
    for (int i = 0; i < 2; i++) {
        for (int columns = 40; columns <= 200; columns += 8) {
            struct ctl_screen_past past = {0};
            show(&s, columns, false, &past);
            s.uptime_seconds++;
            ck_assert_int_le(width_of(show(&s, columns, true, &past)), columns);
        }
        memset(&s.generation_tokens_total, 0xff, sizeof s.generation_tokens_total);
        s.num_requests_failed = s.num_requests_finished = s.num_drafts_total = UINT64_MAX;
        s.num_requests_running = UINT32_MAX;
        s.uptime_seconds = 1e9;
        s.inter_token_latency_seconds = (struct ft_wire_percentiles){UINT64_MAX, 1e6, 1e7, 1e8};
        s.target.kv_blocks_total = UINT64_MAX;
        s.round_p50_us = 1e12;
    }
}
END_TEST

START_TEST(rates_are_of_the_time_between_two_answers) {
    struct ctl_screen_past past = {0};
    struct ft_wire_stats s = some_stats();
    ck_assert_ptr_nonnull(strstr(show(&s, 80, false, &past), "tokens/s       0.0"));
    s.uptime_seconds += 2;
    s.generation_tokens_total += 500;
    s.rounds_total += 10;
    const char *text = show(&s, 80, false, &past);
    ck_assert_ptr_nonnull(strstr(text, "tokens/s     250.0"));
    ck_assert_ptr_nonnull(strstr(text, "rounds/s     5.0"));
    s.uptime_seconds = 1; /* another process: what was counted before says nothing */
    s.generation_tokens_total = 5;
    ck_assert_ptr_nonnull(strstr(show(&s, 80, false, &past), "tokens/s       0.0"));
    ck_assert_int_eq(past.n_speeds, 0);
    for (int i = 0; i < 3 * CTL_SCREEN_HISTORY; i++) {
        s.uptime_seconds++;
        show(&s, 80, false, &past);
    }
    ck_assert_int_eq(past.n_speeds, CTL_SCREEN_HISTORY);
}
END_TEST

START_TEST(screen_says_what_an_operator_looks_for) {
    struct ctl_screen_past past = {0};
    struct ft_wire_stats s = some_stats();
    const char *text = show(&s, 80, false, &past);
    ck_assert_ptr_nonnull(strstr(text, "foretoken 0.1.0  ready  up 1m 40s"));
    ck_assert_ptr_nonnull(strstr(text, "50.0 % of 1200, 3.00 tokens a draft"));
    ck_assert_ptr_nonnull(strstr(text, "90 60 30 20 % of drafts"));
    ck_assert_ptr_nonnull(strstr(text, "up 1h 06m  epoch ffffffffffffffff"));
    ck_assert_ptr_nonnull(strstr(text, "Llama-3.2-3B"));
    ck_assert_ptr_nonnull(strstr(text, "#####+++++.........."));
    ck_assert_ptr_nonnull(strstr(text, " 25 % used  25 % cached of 1000"));
    ck_assert_ptr_nonnull(strstr(text, "DOWN step stream ended"));
    ck_assert_ptr_nonnull(strstr(text, "  10.00 ms  20.00 ms    12.5 s  of 10"));
}
END_TEST

START_TEST(strange_text_of_the_service_reaches_no_terminal) {
    struct ctl_screen_past past = {0};
    struct ft_wire_stats s = some_stats();
    s.state_reason = s.target.model = (struct ft_str){"\x1B[2J\n\xC3\xA9\0z", 9};
    const char *text = show(&s, 80, false, &past);
    ck_assert_uint_eq(strlen(text), g_out.len - 1);
    ck_assert_ptr_null(strchr(text, '\x1B'));
    ck_assert_ptr_nonnull(strstr(text, "?[2J???z"));
}
END_TEST

static void setup(void) {
    ft_buf_init(&g_out, 0);
}

static void teardown(void) {
    ft_buf_fini(&g_out);
}

int main(void) {
    Suite *suite = suite_create("screen");
    TCase *tc = tcase_create("screen");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, screen_fits_its_columns_whatever_the_numbers);
    tcase_add_test(tc, rates_are_of_the_time_between_two_answers);
    tcase_add_test(tc, screen_says_what_an_operator_looks_for);
    tcase_add_test(tc, strange_text_of_the_service_reaches_no_terminal);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
