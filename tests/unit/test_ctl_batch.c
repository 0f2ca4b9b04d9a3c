/* foretokenctl batch: order, errors by line, retries, and going on after a break. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "support/suite.h"
#include "unit/test_ctl_run.h"

static char in_path[64], out_path[64];

static void set_up(void) {
    ctl_run_set_up();
    snprintf(in_path, sizeof in_path, "%s/in.jsonl", service.dir);
    snprintf(out_path, sizeof out_path, "%s/out.jsonl", service.dir);
}

static void write_file(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static struct ft_buf read_file(const char *path) {
    struct ft_buf buf;
    struct ft_err err = {0};
    ft_buf_init(&buf, 0);
    ck_assert_msg(ft_file_read(path, 1 << 20, &buf, &err) == FT_OK, "%s", err.text);
    ft_buf_add(&buf, "", 0);
    return buf;
}

/* The results: a JSON array of the lines. */
static json_t *results(void) {
    struct ft_buf buf = read_file(out_path);
    json_t *list = json_array();
    for (char *line = buf.ptr, *end; *line != 0; line = end + 1) {
        end = strchr(line, '\n');
        ck_assert_ptr_nonnull(end);
        json_t *object = json_loadb(line, (size_t)(end - line), JSON_ALLOW_NUL, NULL);
        ck_assert_msg(object != NULL, "%s", line);
        json_array_append_new(list, object);
    }
    ft_buf_fini(&buf);
    return list;
}

static void require_result(const json_t *list, size_t i, int line, const char *text) {
    const json_t *object = json_array_get(list, i);
    ck_assert_int_eq((int)number(object, "line"), line);
    ck_assert_str_eq(text_of(object, "text"), text);
}

static void require_error(const json_t *list, size_t i, int line, const char *code,
                          const char *says) {
    const json_t *object = json_array_get(list, i);
    const json_t *error = json_object_get(object, "error");
    ck_assert_int_eq((int)number(object, "line"), line);
    ck_assert_str_eq(text_of(error, "code"), code);
    ck_assert_msg(strstr(text_of(error, "message"), says) != NULL, "%s", text_of(error, "message"));
}

START_TEST(results_keep_the_order_of_the_lines) {
    write_file(in_path, "{\"text\":\"held\",\"custom_id\":\"first\"}\n\n"
                        "{\"text\":\"hello\",\"custom_id\":2}\n"
                        "{\"text\":\"release\"}"); /* no line end */
    ck_assert_int_eq(RUN("batch", in_path, out_path), 0);
    json_t *list = results();
    ck_assert_uint_eq(json_array_size(list), 3);
    require_result(list, 0, 1, "held");
    require_result(list, 1, 3, "Hello w\xC3\xB6rld!");
    require_result(list, 2, 4, "release");
    ck_assert_str_eq(text_of(json_array_get(list, 0), "custom_id"), "first");
    ck_assert(number(json_array_get(list, 1), "custom_id") == 2);
    CHECK_ERR("3 of 3 lines, 0 failed");
    ck_assert_ptr_null(strchr(err_out.ptr, '\r')); /* no bar: not a terminal */
    json_decref(list);
}
END_TEST

START_TEST(errors_stay_with_their_line) {
    write_file(in_path, "{\"text\":\"hello\"}\n"
                        "no json\n"
                        "{\"text\":\"status 3\"}\n"
                        "{\"text\":\"hello\",\"temprature\":1}\n"
                        "{\"text\":\"hello\",\"top_k\":\"x\"}\n"
                        "{\"temperature\":1}\n"
                        "{\"text\":\"a\",\"token_ids\":[1]}\n"
                        "{\"text\":\"hello\",\"stream\":true}\n"
                        "{\"text\":\"hello\",\"endpoint\":\"x\"}\n"
                        "[1]\n"
                        "{\"text\":\"garbage\"}\n"
                        "{\"text\":\"unfinished\"}\n"
                        "{\"text\":\"hello\",\"stop\":[\"a\",5]}\n"
                        "{\"text\":\"hello\"}\n");
    ck_assert_int_eq(RUN("batch", in_path, out_path), 65);
    json_t *list = results();
    ck_assert_uint_eq(json_array_size(list), 14);
    require_result(list, 0, 1, "Hello w\xC3\xB6rld!");
    require_error(list, 1, 2, "INVALID_ARGUMENT", "column");
    require_error(list, 2, 3, "INVALID_ARGUMENT", "it is so");
    require_error(list, 3, 4, "INVALID_ARGUMENT", "unknown key \"temprature\"");
    require_error(list, 4, 5, "INVALID_ARGUMENT", "top_k: must be a whole number");
    require_error(list, 5, 6, "INVALID_ARGUMENT", "needs one of");
    require_error(list, 6, 7, "INVALID_ARGUMENT", "only one of");
    require_error(list, 7, 8, "INVALID_ARGUMENT", "unknown key \"stream\"");
    require_error(list, 8, 9, "INVALID_ARGUMENT", "unknown key \"endpoint\"");
    require_error(list, 9, 10, "INVALID_ARGUMENT", "must be a JSON object");
    require_error(list, 10, 11, "INTERNAL", "GenerateResponse");
    require_error(list, 11, 12, "INTERNAL", "without a finish reason");
    require_error(list, 12, 13, "INVALID_ARGUMENT", "stop: must be a list of strings");
    require_result(list, 13, 14, "Hello w\xC3\xB6rld!");
    CHECK_ERR("14 of 14 lines, 12 failed");
    json_decref(list);
}
END_TEST

START_TEST(line_says_what_flags_say_and_overrides_them) {
    write_file(in_path,
               "{\"token_ids\":[1,2,3],\"temperature\":0.25,\"seed\":\"18446744073709551615\","
               "\"stop\":[\"a\\u0000b\",\"c\"],\"logit_bias\":{\"7\":-1.5,\"9\":2},"
               "\"stop_token_ids\":[4,5],\"ignore_eos\":true,\"speculation\":false,\"n\":1,"
               "\"rejection_sample_method\":\"synthetic\",\"min_p\":null,"
               "\"synthetic_acceptance_rates\":[0.5,1],\"request_id\":\"mine\"}\n");
    ck_assert_int_eq(RUN("batch", in_path, out_path, "--temperature=1", "--top-p=0.5",
                         "--stop-token-ids=9,8,7", "--min-p=0.125", "--concurrency=1"),
                     0);
    const struct ft_wire_generate *r = &service.request;
    const struct ft_wire_params *p = &r->params;
    ck_assert(r->input.kind == FT_WIRE_INPUT_IDS && r->input.n_ids == 3 && r->input.ids[2] == 3);
    ck_assert(p->temperature == 0.25f && p->top_p == 0.5f && p->min_p == 0.125f);
    ck_assert(p->has_seed && p->seed == UINT64_MAX && p->ignore_eos && p->n == 1);
    ck_assert(p->n_stop == 2 && ft_str_eq(p->stop[0], (struct ft_str){"a\0b", 3}));
    ck_assert(p->n_stop_token_ids == 2 && p->stop_token_ids[0] == 4);
    ck_assert(p->n_logit_bias == 2 && p->logit_bias[0].id == 7 && p->logit_bias[0].value == -1.5f);
    ck_assert(r->has_spec_enabled && !r->spec_enabled && !r->stream);
    ck_assert(ft_str_eq(r->spec.rejection_sample_method, ft_str_c("synthetic")));
    ck_assert(r->spec.n_synthetic_acceptance_rates == 2);
    ck_assert(ft_str_eq(r->request_id, ft_str_c("mine")));
}
END_TEST

START_TEST(values_are_wrong_by_their_keys) {
    write_file(in_path, "{\"text\":\"a\",\"max_tokens\":-3}\n"
                        "{\"text\":\"a\",\"seed\":\"x\"}\n"
                        "{\"text\":\"a\",\"stop_token_ids\":[99999999999]}\n"
                        "{\"text\":\"a\",\"logit_bias\":{\"x\":1}}\n");
    ck_assert_int_eq(RUN("batch", in_path, out_path), 65);
    json_t *list = results();
    require_error(list, 0, 1, "INVALID_ARGUMENT", "max_tokens is '-3': must be a whole number");
    require_error(list, 1, 2, "INVALID_ARGUMENT", "seed is 'x'");
    require_error(list, 2, 3, "INVALID_ARGUMENT", "stop_token_ids is '99999999999'");
    require_error(list, 3, 4, "INVALID_ARGUMENT", "logit_bias is 'x:1'");
    for (size_t i = 0; i < 4; i++)
        ck_assert_ptr_null(
            strstr(text_of(json_object_get(json_array_get(list, i), "error"), "message"), "--"));
    json_decref(list);
}
END_TEST

START_TEST(mark_before_the_first_line_is_passed_over) {
    write_file(in_path, "\xEF\xBB\xBF{\"text\":\"hello\"}\r\n{\"text\":\"hello\"}\r\n");
    ck_assert_int_eq(RUN("batch", in_path, out_path), 0);
    CHECK_ERR("2 of 2 lines, 0 failed");
}
END_TEST

START_TEST(chat_is_an_input) {
    write_file(in_path, "{\"chat\":[{\"role\":\"user\",\"content\":\"hi\"}]}\n");
    ck_assert_int_eq(RUN("batch", in_path, out_path), 0);
    ck_assert(service.request.input.kind == FT_WIRE_INPUT_CHAT);
    ck_assert(ft_str_eq(service.request.input.messages[0].content, ft_str_c("hi")));
}
END_TEST

START_TEST(unavailable_service_is_asked_again) {
    service.n_flaky = 3;
    write_file(in_path, "{\"text\":\"flaky\"}\n{\"text\":\"hello\"}\n");
    ck_assert_int_eq(RUN("batch", in_path, out_path), 0);
    json_t *list = results();
    ck_assert_uint_eq(json_array_size(list), 2);
    ck_assert_int_eq(service.n_generate, 5);
    json_decref(list);
}
END_TEST

START_TEST(line_refused_for_load_waits_for_those_that_are_served) {
    service.n_busy = 9; /* more than a line alone is refused before it ends the run */
    write_file(in_path, "{\"text\":\"held\"}\n{\"text\":\"busy\"}\n{\"text\":\"hello\"}\n");
    ck_assert_int_eq(RUN("batch", in_path, out_path), 0);
    json_t *list = results();
    ck_assert_uint_eq(json_array_size(list), 3);
    require_result(list, 0, 1, "held");
    require_result(list, 1, 2, "busy");
    json_decref(list);
}
END_TEST

START_TEST(service_that_stays_full_breaks_the_run_off) {
    service.n_busy = 1000;
    write_file(in_path, "{\"text\":\"hello\"}\n{\"text\":\"busy\"}\n");
    ck_assert_int_eq(RUN("batch", in_path, out_path), 75);
    CHECK_ERR("line 2: all places are taken; run the same command again to go on");
    json_t *list = results();
    ck_assert_uint_eq(json_array_size(list), 1); /* no result that a next run would leave alone */
    json_decref(list);
    service.n_busy = 0;
    ck_assert_int_eq(RUN("batch", in_path, out_path), 0);
}
END_TEST

START_TEST(line_larger_than_the_service_takes_is_asked_once) {
    FILE *f = fopen(in_path, "w");
    fputs("{\"text\":\"", f);
    for (int i = 0; i < 5 << 20; i++)
        fputc('a', f);
    fputs("\"}\n{\"text\":\"hello\"}\n", f);
    ck_assert_int_eq(fclose(f), 0);
    int64_t begin_ns = ft_clock_now_ns();
    ck_assert_int_eq(RUN("batch", in_path, out_path), 65);
    ck_assert_int_lt(ft_clock_now_ns() - begin_ns, 8000000000); /* trying again takes ten seconds */
    json_t *list = results();
    require_error(list, 0, 1, "RESOURCE_EXHAUSTED", "larger than max");
    require_result(list, 1, 2, "Hello w\xC3\xB6rld!");
    json_decref(list);
}
END_TEST

START_TEST(broken_off_run_goes_on_where_it_was) {
    static const char lines[] =
        "{\"text\":\"hello\"}\n{\"text\":\"hello\"}\n{\"text\":\"hello\"}\n";
    write_file(in_path, lines);
    write_file(out_path, "{\"line\":1,\"text\":\"from before\"}\n{\"line\":2,\"tex"); /* cut */
    ck_assert_int_eq(RUN("batch", in_path, out_path), 0);
    json_t *list = results();
    ck_assert_uint_eq(json_array_size(list), 3);
    require_result(list, 0, 1, "from before");
    require_result(list, 1, 2, "Hello w\xC3\xB6rld!");
    require_result(list, 2, 3, "Hello w\xC3\xB6rld!");
    ck_assert_int_eq(service.n_generate, 2);
    json_decref(list);
    struct ft_buf before = read_file(out_path);
    ck_assert_int_eq(RUN("batch", in_path, out_path), 0); /* nothing is left to do */
    CHECK_ERR("3 of 3 lines");
    ck_assert_int_eq(service.n_generate, 2);
    struct ft_buf after = read_file(out_path);
    ck_assert_str_eq(before.ptr, after.ptr);
    ft_buf_fini(&before);
    ft_buf_fini(&after);
}
END_TEST

START_TEST(interrupt_keeps_what_is_done) {
    write_file(in_path, "{\"text\":\"hello\"}\n{\"text\":\"hang\"}\n{\"text\":\"hello\"}\n");
    ck_assert_int_eq(
        run_with((struct run){.signo_err = SIGINT}, ARGS("batch", in_path, out_path, "--progress")),
        130);
    json_t *list = results();
    ck_assert_uint_le(json_array_size(list), 1); /* the third waits for the second */
    json_decref(list);
    write_file(in_path, "{\"text\":\"hello\"}\n{\"text\":\"hello\"}\n{\"text\":\"hello\"}\n");
    ck_assert_int_eq(RUN("batch", in_path, out_path), 0);
    list = results();
    ck_assert_uint_eq(json_array_size(list), 3);
    json_decref(list);
}
END_TEST

START_TEST(files_that_do_not_fit_are_refused_and_left_alone) {
    write_file(in_path, "{\"text\":\"hello\"}\n");
    ck_assert_int_eq(RUN("batch", in_path), 64);
    CHECK_ERR("two files");
    ck_assert_int_eq(RUN("batch", "/nowhere/in", out_path), 66);
    ck_assert_int_eq(RUN("batch", in_path, out_path, "--concurrency=0"), 64);
    CHECK_ERR("1 to 1024");
    write_file(out_path, "precious\n");
    ck_assert_int_eq(RUN("batch", in_path, out_path), 64);
    CHECK_ERR("no result of a batch");
    struct ft_buf kept = read_file(out_path);
    ck_assert_str_eq(kept.ptr, "precious\n");
    ft_buf_fini(&kept);
    write_file(out_path, "{\"line\":1}\nprecious, and no line end");
    ck_assert_int_eq(RUN("batch", in_path, out_path), 64);
    CHECK_ERR("no result of a batch, after 1 results");
    kept = read_file(out_path);
    ck_assert_str_eq(kept.ptr, "{\"line\":1}\nprecious, and no line end");
    ft_buf_fini(&kept);
    ck_assert_int_eq(RUN("batch", in_path, "/nowhere/out"), 74);
    CHECK_ERR("cannot open /nowhere/out");
    write_file(out_path, "{\"line\":7}\n");
    ck_assert_int_eq(RUN("batch", in_path, out_path), 64);
    CHECK_ERR("more lines than the input");
    write_file(out_path, "");
    FILE *other = fopen(out_path, "r+");
    ck_assert_int_eq(flock(fileno(other), LOCK_EX), 0);
    ck_assert_int_eq(RUN("batch", in_path, out_path), 64);
    CHECK_ERR("another run");
    fclose(other);
    ck_assert_int_eq(service.n_generate, 0);
}
END_TEST

START_TEST(files_that_are_pipes_are_refused_at_once) {
    char fifo[80];
    snprintf(fifo, sizeof fifo, "%s/fifo", service.dir);
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    write_file(in_path, "{\"text\":\"hello\"}\n");
    ck_assert_int_eq(RUN("batch", in_path, fifo), 64);
    CHECK_ERR("OUT must be a file");
    ck_assert_int_eq(RUN("batch", in_path, "/dev/stdout"), 64);
    CHECK_ERR("OUT must be a file");
    ck_assert_int_eq(RUN("batch", fifo, out_path), 64);
    CHECK_ERR("IN must be a file");
    ck_assert_int_eq(access(out_path, F_OK), -1);
    ck_assert_int_eq(service.n_generate, 0);
}
END_TEST

START_TEST(signal_ends_a_run_that_waits_for_its_token) {
    char fifo[80];
    snprintf(fifo, sizeof fifo, "%s/fifo", service.dir);
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    write_file(in_path, "{\"text\":\"hello\"}\n");
    ck_assert_int_eq(run_with((struct run){.signo_late = SIGTERM},
                              ARGS("batch", in_path, out_path, "--token-file", fifo)),
                     -SIGTERM);
    ck_assert_int_eq(
        run_with((struct run){.signo_late = SIGINT}, ARGS("stats", "--token-file", fifo)), -SIGINT);
}
END_TEST

/* Many lines, few at a time. */
START_TEST(long_batch_is_bounded_and_complete) {
    FILE *f = fopen(in_path, "w");
    for (int i = 0; i < 500; i++)
        fprintf(f, "{\"text\":\"%s\",\"n\":%d}\n", i % 100 == 99 ? "status 3" : "hello", 1 + i % 3);
    fclose(f);
    ck_assert_int_eq(RUN("batch", in_path, out_path, "--concurrency=3", "--progress"), 65);
    json_t *list = results();
    ck_assert_uint_eq(json_array_size(list), 500);
    for (size_t i = 0; i < 500; i++) {
        const json_t *object = json_array_get(list, i);
        ck_assert_int_eq((int)number(object, "line"), (int)i + 1);
        if (i % 100 != 99)
            ck_assert_uint_eq(json_array_size(json_object_get(object, "choices")),
                              i % 3 == 0 ? 0 : 1 + i % 3);
    }
    CHECK_ERR("500 of 500 lines, 5 failed");
    CHECK_ERR("\r[");
    json_decref(list);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ctl_batch");
    TCase *tc = tcase_create("ctl_batch");
    tcase_add_checked_fixture(tc, set_up, ctl_run_tear_down);
    tcase_add_test(tc, results_keep_the_order_of_the_lines);
    tcase_add_test(tc, errors_stay_with_their_line);
    tcase_add_test(tc, line_says_what_flags_say_and_overrides_them);
    tcase_add_test(tc, values_are_wrong_by_their_keys);
    tcase_add_test(tc, mark_before_the_first_line_is_passed_over);
    tcase_add_test(tc, chat_is_an_input);
    tcase_add_test(tc, unavailable_service_is_asked_again);
    tcase_add_test(tc, line_refused_for_load_waits_for_those_that_are_served);
    tcase_add_test(tc, service_that_stays_full_breaks_the_run_off);
    tcase_add_test(tc, line_larger_than_the_service_takes_is_asked_once);
    tcase_add_test(tc, broken_off_run_goes_on_where_it_was);
    tcase_add_test(tc, interrupt_keeps_what_is_done);
    tcase_add_test(tc, files_that_do_not_fit_are_refused_and_left_alone);
    tcase_add_test(tc, files_that_are_pipes_are_refused_at_once);
    tcase_add_test(tc, signal_ends_a_run_that_waits_for_its_token);
    tcase_add_test(tc, long_batch_is_bounded_and_complete);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
