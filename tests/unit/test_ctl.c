#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/file.h"
#include "support/suite.h"
#include "unit/test_ctl_run.h"

/* ---- generate ------------------------------------------------------------------------------- */

START_TEST(generate_prints_the_text_and_nothing_else) {
    ck_assert_int_eq(RUN("generate", "hello"), 0);
    CHECK_OUT("Hello w\xC3\xB6rld!");
    ck_assert_uint_eq(err_out.len, 0);
    ck_assert(service.request.stream);
}
END_TEST

START_TEST(generate_sends_every_flag) {
    ck_assert_int_eq(RUN("generate", "--prompt", "hello", "--temperature=0", "--stop", "a",
                         "--stop", "b", "--logit-bias=9:1,3:2", "--seed=5", "--no-speculation",
                         "--request-id=me", "--stop-token-ids=1,2", "--no-parse-special"),
                     0);
    const struct ft_wire_params *p = &service.request.params;
    ck_assert(p->has_temperature && p->temperature == 0 && !p->has_top_p && p->n_stop == 2);
    ck_assert(p->n_logit_bias == 2 && p->logit_bias[0].id == 9 && p->seed == 5);
    ck_assert(service.request.has_spec_enabled && !service.request.spec_enabled);
    ck_assert(service.request.has_parse_special && !service.request.parse_special);
    ck_assert(p->n_stop_token_ids == 2);
    ck_assert(ft_str_eq(service.request.request_id, ft_str_c("me")));
}
END_TEST

START_TEST(generate_takes_every_kind_of_input) {
    char path[64];
    FILE *f;
    ck_assert_int_eq(RUN("generate", "--token-ids", "1,2,3"), 0);
    ck_assert(service.request.input.kind == FT_WIRE_INPUT_IDS && service.request.input.n_ids == 3);

    ck_assert_int_eq(RUN("generate", "--chat", "system: be brief", "--chat", "user:hi: there"), 0);
    ck_assert(service.request.input.kind == FT_WIRE_INPUT_CHAT);
    ck_assert_uint_eq(service.request.input.n_messages, 2);
    ck_assert(ft_str_eq(service.request.input.messages[0].role, ft_str_c("system")));
    ck_assert(ft_str_eq(service.request.input.messages[0].content, ft_str_c("be brief")));
    ck_assert(ft_str_eq(service.request.input.messages[1].content, ft_str_c("hi: there")));

    snprintf(path, sizeof path, "%s/chat.json", service.dir);
    f = fopen(path, "w");
    fputs("[{\"role\": \"user\", \"content\": \"a\\u0000b\"}]", f);
    fclose(f);
    ck_assert_int_eq(RUN("generate", "--chat-file", path), 0);
    ck_assert(ft_str_eq(service.request.input.messages[0].content, (struct ft_str){"a\0b", 3}));

    snprintf(path, sizeof path, "%s/prompt", service.dir);
    f = fopen(path, "w");
    fwrite("ab\0cd\n", 1, 6, f);
    fclose(f);
    ck_assert_int_eq(run_with((struct run){.input = path}, ARGS("generate", "--prompt-file", "-")),
                     0);
    ck_assert(ft_str_eq(service.request.input.text, (struct ft_str){"ab\0cd\n", 6}));
    ck_assert_int_eq(RUN("generate", "--prompt-file", path), 0);
    ck_assert_uint_eq(service.request.input.text.len, 6);
    ck_assert_int_eq(RUN("generate", ""), 0); /* empty, but there */
    ck_assert(service.request.input.kind == FT_WIRE_INPUT_TEXT);
}
END_TEST

START_TEST(dev69_json_of_logprobs_parses) {
    ck_assert_int_eq(RUN("generate", "hello", "--json", "--logprobs=2", "--prompt-logprobs=2",
                         "--return-prompt-token-ids"),
                     0);
    json_t *root = parse_output();
    static const char *const names[] = {"logprobs", "prompt_logprobs"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *row = json_array_get(json_object_get(root, names[i]), 0);
        const json_t *top = json_object_get(row, "top_logprobs");
        ck_assert(number(row, "logprob") == -0.5);
        ck_assert_uint_eq(json_array_size(json_object_get(row, "top_token_ids")), 2);
        ck_assert(json_number_value(json_array_get(top, 1)) == -9999);
    }
    ck_assert_uint_eq(json_array_size(json_object_get(root, "prompt_token_ids")), 2);
    json_decref(root);
    ck_assert_int_eq(RUN("generate", "hello", "--json"), 0);
    ck_assert_ptr_null(strstr(out.ptr, "logprob"));
}
END_TEST

START_TEST(generate_of_several_continuations_tells_them_apart) {
    ck_assert_int_eq(RUN("generate", "hello", "--n=3"), 0);
    CHECK_OUT("--- 0\nHello w\xC3\xB6rld!\n--- 1\nother\n--- 2\nother\n");
    ck_assert_int_eq(RUN("generate", "hello", "--n=3", "--json"), 0);
    json_t *root = parse_output();
    const json_t *choices = json_object_get(root, "choices");
    ck_assert_uint_eq(json_array_size(choices), 3);
    ck_assert_str_eq(text_of(json_array_get(choices, 0), "text"), "Hello w\xC3\xB6rld!");
    ck_assert(number(json_array_get(choices, 2), "index") == 2);
    ck_assert_str_eq(text_of(json_array_get(choices, 2), "finish_reason"), "stop");
    json_decref(root);
}
END_TEST

START_TEST(generate_json_is_one_object_with_everything) {
    ck_assert_int_eq(RUN("generate", "hello", "--json"), 0);
    json_t *root = parse_output();
    const json_t *usage = json_object_get(root, "usage");
    const json_t *spec = json_object_get(root, "speculation");
    const json_t *ids = json_object_get(root, "token_ids");
    ck_assert_str_eq(text_of(root, "request_id"), "req-1");
    ck_assert_str_eq(text_of(root, "text"), "Hello w\xC3\xB6rld!");
    ck_assert_str_eq(text_of(root, "finish_reason"), "stop");
    ck_assert_uint_eq(json_string_length(json_object_get(root, "matched_stop")), 2);
    ck_assert_uint_eq(json_array_size(ids), 3);
    ck_assert_int_eq(json_integer_value(json_array_get(ids, 2)), 7);
    ck_assert(number(usage, "prompt_tokens") == 11 && number(usage, "completion_tokens") == 3);
    ck_assert(number(usage, "cached_tokens") == 8 && number(usage, "queue_seconds") == 0.25);
    ck_assert(number(usage, "first_token_seconds") == 0.5 && number(usage, "total_seconds") == 2.5);
    ck_assert(number(spec, "num_drafts") == 4 && number(spec, "num_draft_tokens") == 16);
    ck_assert(number(spec, "num_accepted_tokens") == 10 && number(spec, "num_target_steps") == 5);
    ck_assert(number(spec, "num_plain_steps") == 1 && number(spec, "acceptance_rate") == 0.625);
    ck_assert(number(spec, "mean_acceptance_length") == 3.5);
    ck_assert(json_is_false(json_object_get(spec, "lossy")));
    ck_assert_str_eq(text_of(spec, "fallback_reason"), "draft worker down");
    ck_assert_uint_eq(json_array_size(json_object_get(spec, "num_accepted_tokens_per_pos")), 2);
    ck_assert_uint_eq(json_array_size(json_object_get(spec, "num_draft_tokens_per_pos")), 2);
    json_decref(root);
}
END_TEST

START_TEST(generate_stats_is_one_line_on_standard_error) {
    ck_assert_int_eq(RUN("generate", "hello", "--stats"), 0);
    CHECK_OUT("Hello w\xC3\xB6rld!");
    CHECK_ERR("finish stop, prompt 11 tokens (8 cached), output 3 tokens, first after 0.500 s, "
              "total 2.500 s, 1.0 tokens/s, 5 target steps, accepted 10 of 16 drafted (62.5 %), "
              "3.50 tokens a draft, plain steps 1: draft worker down\n");
}
END_TEST

START_TEST(dev25_control_characters_are_escaped_on_a_terminal_only) {
    ck_assert_int_eq(RUN("generate", "control"), 0);
    CHECK_OUT("a\x1B[31m\t\xC2\x9B\xC3\xA9\0\x7F\n");
    ck_assert_int_eq(run_with((struct run){.terminal = true}, ARGS("generate", "control")), 0);
    CHECK_OUT("a\\x1B[31m\t\\xC2\\x9B\xC3\xA9\\x00\\x7F\r\n");
}
END_TEST

START_TEST(generate_on_a_terminal_ends_the_line) {
    ck_assert_int_eq(run_with((struct run){.terminal = true}, ARGS("generate", "hello")), 0);
    CHECK_OUT("Hello w\xC3\xB6rld!\r\n");
}
END_TEST

START_TEST(dev23_interrupt_cancels_the_call) {
    ck_assert_int_eq(run_with((struct run){.signo = SIGINT}, ARGS("generate", "hang")), 130);
    CHECK_OUT("wait");
    await_cancelled(1);
    ck_assert_int_eq(run_with((struct run){.signo = SIGTERM}, ARGS("generate", "hang")), 143);
}
END_TEST

START_TEST(generate_into_a_closed_pipe_stops) {
    ck_assert_int_eq(run_with((struct run){.close_early = true}, ARGS("generate", "flood")),
                     -SIGPIPE);
    await_cancelled(1);
}
END_TEST

START_TEST(generate_onto_a_full_disk_says_so) {
    ck_assert_int_eq(run_with((struct run){.output = "/dev/full"}, ARGS("generate", "flood")), 74);
    CHECK_ERR("foretokenctl: cannot write standard output: No space left on device\n");
    ck_assert_int_eq(run_with((struct run){.output = "/dev/full"}, ARGS("stats")), 74);
    ck_assert_int_eq(run_with((struct run){.output = "/dev/full"}, ARGS("--version")), 74);
}
END_TEST

START_TEST(generate_of_a_service_off_its_protocol_says_so) {
    ck_assert_int_eq(RUN("generate", "garbage"), 76);
    CHECK_ERR("1 bytes are no GenerateResponse");
    ck_assert_int_eq(RUN("generate", "unfinished", "--json"), 76);
    CHECK_ERR("without a finish reason");
    ck_assert_uint_eq(out.len, 0);
}
END_TEST

START_TEST(every_status_has_its_exit_status) {
    static const int rows[][2] = {{1, 75},  {2, 70},  {3, 64},  {4, 75},  {5, 66},  {6, 64},
                                  {7, 77},  {8, 75},  {9, 69},  {10, 75}, {11, 64}, {12, 69},
                                  {13, 70}, {14, 69}, {15, 70}, {16, 77}};
    char prompt[16], line[96];
    snprintf(prompt, sizeof prompt, "status %d", rows[_i][0]);
    ck_assert_int_eq(RUN("generate", prompt), rows[_i][1]);
    snprintf(line, sizeof line, "foretokenctl: %s: it is so\\nand so\n",
             ft_rpc_status_name(rows[_i][0]));
    ck_assert_str_eq(err_out.ptr, line);
    ck_assert_uint_eq(out.len, 0);
}
END_TEST

START_TEST(request_larger_than_the_service_takes_is_no_try_again) {
    char path[80];
    snprintf(path, sizeof path, "%s/prompt", service.dir);
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 5 << 20; i++) /* past gRPC's 4 MiB */
        fputc('a', f);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(RUN("generate", "--prompt-file", path), 64);
    CHECK_ERR("larger than max");
}
END_TEST

START_TEST(bench_that_could_not_write_its_page_measures_nothing) {
    ck_assert_int_eq(RUN("bench", "--html", "/nowhere/page.html"), 74);
    CHECK_ERR("cannot write /nowhere/page.html");
    ck_assert_int_eq(service.n_generate, 0);
}
END_TEST

START_TEST(timeout_ends_the_call) {
    ck_assert_int_eq(RUN("generate", "hang", "--timeout", "0.2"), 75);
    CHECK_ERR("DEADLINE_EXCEEDED");
    ck_assert_int_eq(RUN("generate", "hang", "--timeout", "-1"), 64);
    ck_assert_int_eq(RUN("generate", "hang", "--timeout", "nan"), 64);
}
END_TEST

START_TEST(unreachable_service_is_unavailable) {
    struct run dead = {.endpoint = "unix:/nonexistent/socket"};
    ck_assert_int_eq(run_with(dead, ARGS("stats")), 69);
    CHECK_ERR("foretokenctl: UNAVAILABLE: ");
    ck_assert_int_eq(run_with(dead, ARGS("generate", "x")), 69);
    dead.endpoint = "127.0.0.1:1";
    ck_assert_int_eq(run_with(dead, ARGS("model")), 69);
}
END_TEST

START_TEST(endpoint_comes_from_the_environment_too) {
    struct run run = {.endpoint = "", .variable = service.endpoint};
    ck_assert_int_eq(run_with(run, ARGS("generate", "hello")), 0);
    run.variable = "unix:/nonexistent/socket";
    ck_assert_int_eq(run_with(run, ARGS("generate", "hello")), 69);
    run.endpoint = service.endpoint;
    ck_assert_int_eq(run_with(run, ARGS("generate", "hello")), 0);
}
END_TEST

START_TEST(tls_of_the_environment_is_a_switch_or_refused) {
    static const char *const off[] = {"FORETOKEN_TLS=0", "FORETOKEN_TLS=false", "FORETOKEN_TLS="};
    static const char *const bad[] = {"FORETOKEN_TLS=yes", "FORETOKEN_TLS=on", "FORETOKEN_TLS=2"};
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++)
        ck_assert_int_eq(run_with((struct run){.setting = off[i]}, ARGS("generate", "hello")), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_int_eq(run_with((struct run){.setting = bad[i]}, ARGS("generate", "hello")), 64);
        CHECK_ERR("must be 1 or true, or 0 or false");
    }
    ck_assert_int_eq(
        run_with((struct run){.setting = bad[0]}, ARGS("--no-tls", "generate", "hello")),
        0); /* a flag comes first */
}
END_TEST

START_TEST(input_file_that_is_there_and_cannot_be_opened_is_71) {
    char path[80];
    snprintf(path, sizeof path, "%s/loop", service.dir);
    ck_assert_int_eq(symlink(path, path), 0); /* refused to root as well */
    ck_assert_int_eq(RUN("generate", "--prompt-file", path), 71);
    ck_assert_int_eq(RUN("batch", path, "/nowhere/out"), 71);
    ck_assert_int_eq(RUN("config", "check", path), 71);
    CHECK_ERR("cannot open");
}
END_TEST

START_TEST(bad_usage_is_64_and_one_line) {
    static const struct {
        const char *args[6], *text;
    } rows[] = {
        {{"generat", "x"}, "unknown command 'generat'; the nearest known one is 'generate'"},
        {{"generate", "--temprature=1"}, "the nearest known one is '--temperature'"},
        {{"generate"}, "needs one of TEXT, --prompt"},
        {{"generate", "a", "--prompt=b"}, "takes only one of TEXT"},
        {{"generate", "a", "b"}, "takes one TEXT"},
        {{"generate", "--chat=nobody"}, "--chat is 'nobody': must be 'ROLE: CONTENT'"},
        {{"generate", "--chat-file=/dev/null"}, "--chat-file: line"},
        {{"detokenize"}, "needs token ids"},
        {{"detokenize", "1", "x"}, "--token-ids is 'x'"},
        {{"stats", "now"}, "stats takes no argument, got 'now'"},
        {{"model", "--seed=1"}, "model takes no flag '--seed'"},
        {{"stats", "--endpoint=unix:"}, "unix:"},
        {{"stats", "--watch", "--interval=0"}, "--interval must be 0.1 to 3600"},
        {{"bench", "--repeats=0"}, "--repeats must be at least 1"},
        {{"bench", "--max-tokens=1"}, "--max-tokens must be at least 2"},
    };
    ck_assert_int_eq(run_with((struct run){0}, rows[_i].args), 64);
    CHECK_ERR(rows[_i].text);
    ck_assert_uint_eq(out.len, 0);
    ck_assert_ptr_eq(strchr(err_out.ptr, '\n'), err_out.ptr + err_out.len - 1);
}
END_TEST

START_TEST(missing_prompt_file_is_66) {
    ck_assert_int_eq(RUN("generate", "--prompt-file=/nonexistent/x"), 66);
    CHECK_ERR("/nonexistent/x");
    ck_assert_int_eq(RUN("stats", "--cacert=/nonexistent/ca"), 66);
    CHECK_ERR("cannot open /nonexistent/ca: No such file");
}
END_TEST

/* ---- the other commands --------------------------------------------------------------------- */

START_TEST(tokenize_prints_ids_and_pieces) {
    ck_assert_int_eq(RUN("tokenize", "ab\n"), 0);
    CHECK_OUT("97 98 10\n");
    ck_assert_int_eq(RUN("tokenize", "a\n", "--pieces"), 0);
    CHECK_OUT("      97  a\n      10  \\n\n");
    ck_assert_int_eq(RUN("tokenize", "--chat", "user: a\"", "--json", "--pieces"), 0);
    CHECK_OUT("{\"n_tokens\":2,\"token_ids\":[97,34],\"pieces\":[\"a\",\"\\\"\"]}\n");
    ck_assert_int_eq(RUN("tokenize", ""), 0);
    CHECK_OUT("\n");
}
END_TEST

START_TEST(detokenize_prints_the_text_as_it_is) {
    ck_assert_int_eq(RUN("detokenize", "72,105", "0", "27"), 0);
    CHECK_OUT("Hi\0\x1B");
    ck_assert_int_eq(RUN("detokenize", "--token-ids=72,0", "--json"), 0);
    CHECK_OUT("{\"text\":\"H\\u0000\"}\n");
    ck_assert_int_eq(run_with((struct run){.terminal = true}, ARGS("detokenize", "72", "27")), 0);
    CHECK_OUT("H\\x1B\r\n");
}
END_TEST

START_TEST(model_prints_what_runs) {
    service.has_draft = true;
    ck_assert_int_eq(RUN("model"), 0);
    ck_assert_msg(strstr(out.ptr, "target.name                      tiny\\x1B\n") != NULL, "%s",
                  out.ptr);
    ck_assert_ptr_nonnull(strstr(out.ptr, "draft.name                       tinier\n"));
    ck_assert_ptr_nonnull(strstr(out.ptr, "eos_token_ids                    2 3\n"));
    ck_assert_int_eq(RUN("model", "--json"), 0);
    json_t *root = parse_output();
    ck_assert_str_eq(text_of(root, "speculation"), "draft_model");
    ck_assert(number(json_object_get(root, "target"), "num_parameters") == 1234567);
    ck_assert_str_eq(text_of(json_object_get(root, "draft"), "name"), "tinier");
    json_decref(root);
    service.has_draft = false;
    ck_assert_int_eq(RUN("model", "--json"), 0);
    root = parse_output();
    ck_assert(json_is_null(json_object_get(root, "draft")));
    json_decref(root);
}
END_TEST

START_TEST(stats_prints_what_was_done) {
    ck_assert_int_eq(RUN("stats"), 0);
    ck_assert_ptr_nonnull(strstr(out.ptr, "acceptance_rate                  0.75\n"));
    ck_assert_ptr_nonnull(strstr(out.ptr, "mean_acceptance_length           4\n"));
    ck_assert_ptr_nonnull(strstr(out.ptr, "target.epoch                     ffffffffffffffff\n"));
    ck_assert_int_eq(RUN("stats", "--json"), 0);
    json_t *root = parse_output();
    ck_assert(number(root, "acceptance_rate") == 0.75);
    ck_assert_str_eq(text_of(json_object_get(root, "target"), "epoch"), "ffffffffffffffff");
    ck_assert(json_is_true(json_object_get(json_object_get(root, "target"), "up")));
    ck_assert(json_is_null(json_object_get(root, "draft")));
    json_decref(root);
}
END_TEST

START_TEST(dev66_stats_before_the_first_request_divides_by_nothing) {
    service.quiet = true;
    ck_assert_int_eq(RUN("stats"), 0);
    ck_assert_ptr_nonnull(strstr(out.ptr, "acceptance_rate                  n/a\n"));
    ck_assert_ptr_nonnull(strstr(out.ptr, "mean_acceptance_length           n/a\n"));
    ck_assert_ptr_null(strstr(out.ptr, "nan\n"));
    ck_assert_int_eq(RUN("stats", "--json"), 0);
    json_t *root = parse_output();
    ck_assert(number(root, "acceptance_rate") == 0 && number(root, "mean_acceptance_length") == 0);
    json_decref(root);
}
END_TEST

START_TEST(watch_renews_a_screen_and_leaves_the_terminal_as_it_was) {
    struct run on_terminal = {.terminal = true, .signo = SIGINT};
    ck_assert_int_eq(run_with(on_terminal, ARGS("stats", "--watch", "--interval=0.1")), 0);
    ck_assert_int_eq(strncmp(out.ptr, "\x1B[?1049h\x1B[?25l", 14), 0);
    ck_assert_ptr_nonnull(strstr(out.ptr, "foretoken 1.2.3"));
    ck_assert_str_eq(out.ptr + strlen(out.ptr) - 14, "\x1B[?25h\x1B[?1049l");
    struct run piped = {.signo = SIGTERM};
    ck_assert_int_eq(run_with(piped, ARGS("stats", "--watch", "--interval=0.1")), 0);
    ck_assert_ptr_null(strchr(out.ptr, '\x1B'));
    ck_assert_int_eq(RUN("stats", "--watch", "--interval=0.01"), 64);
    CHECK_ERR("--interval must be 0.1 to 3600 seconds");
    struct run dead = {.endpoint = "unix:/nonexistent/socket"};
    ck_assert_int_eq(run_with(dead, ARGS("stats", "--watch")), 69);
}
END_TEST

START_TEST(operator_commands_refuse_bad_usage_before_they_call) {
    static const struct {
        const char *args[5], *says;
    } rows[] = {
        {{"cancel"}, "cancel takes one request id"},
        {{"cancel", "a", "b"}, "cancel takes one request id"},
        {{"set", "speculation"}, "set takes NAME=VALUE"},
        {{"set", "a=1", "b"}, "set takes NAME=VALUE"},
        {{"draft"}, "draft takes one word: reload"},
        {{"draft", "drop"}, "draft takes one word: reload"},
        {{"draft", "reload"}, "draft reload needs --model DIR"},
        {{"drain", "now"}, "drain takes no argument"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_int_eq(run_with((struct run){0}, rows[i].args), 64);
        CHECK_ERR(rows[i].says);
    }
}
END_TEST

START_TEST(help_and_version_need_no_service) {
    ck_assert_int_eq(RUN("help"), 0);
    ck_assert_ptr_nonnull(strstr(out.ptr, "commands:\n  generate "));
    ck_assert_ptr_nonnull(strstr(out.ptr, "  130 interrupted"));
    ck_assert_int_eq(RUN("generate", "--help"), 0);
    ck_assert_ptr_nonnull(strstr(out.ptr, "  --temperature X "));
    ck_assert_ptr_nonnull(strstr(out.ptr, "  --[no-]speculation "));
    ck_assert_ptr_nonnull(strstr(out.ptr, "  --endpoint ADDRESS "));
    ck_assert_int_eq(RUN("help", "stats"), 0);
    ck_assert_ptr_null(strstr(out.ptr, "--temperature"));
    ck_assert_int_eq(RUN("--version"), 0);
    ck_assert_int_eq(memcmp(out.ptr, "foretokenctl ", 13), 0);
    ck_assert_int_eq(run_with((struct run){.endpoint = ""}, (const char *[]){NULL}), 64);
    CHECK_ERR("usage: foretokenctl");
}
END_TEST

static TCase *generate_case(void) {
    TCase *tc = tcase_create("generate");
    tcase_add_checked_fixture(tc, ctl_run_set_up, ctl_run_tear_down);
    tcase_add_test(tc, generate_prints_the_text_and_nothing_else);
    tcase_add_test(tc, generate_sends_every_flag);
    tcase_add_test(tc, generate_takes_every_kind_of_input);
    tcase_add_test(tc, dev69_json_of_logprobs_parses);
    tcase_add_test(tc, generate_of_several_continuations_tells_them_apart);
    tcase_add_test(tc, generate_json_is_one_object_with_everything);
    tcase_add_test(tc, generate_stats_is_one_line_on_standard_error);
    tcase_add_test(tc, dev25_control_characters_are_escaped_on_a_terminal_only);
    tcase_add_test(tc, generate_on_a_terminal_ends_the_line);
    tcase_add_test(tc, dev23_interrupt_cancels_the_call);
    tcase_add_test(tc, generate_into_a_closed_pipe_stops);
    tcase_add_test(tc, generate_onto_a_full_disk_says_so);
    tcase_add_test(tc, generate_of_a_service_off_its_protocol_says_so);
    tcase_add_test(tc, request_larger_than_the_service_takes_is_no_try_again);
    tcase_add_test(tc, bench_that_could_not_write_its_page_measures_nothing);
    tcase_add_test(tc, timeout_ends_the_call);
    return tc;
}

static TCase *usage_case(void) {
    TCase *tc = tcase_create("usage");
    tcase_add_checked_fixture(tc, ctl_run_set_up, ctl_run_tear_down);
    tcase_add_loop_test(tc, every_status_has_its_exit_status, 0, 16);
    tcase_add_test(tc, unreachable_service_is_unavailable);
    tcase_add_test(tc, endpoint_comes_from_the_environment_too);
    tcase_add_test(tc, tls_of_the_environment_is_a_switch_or_refused);
    tcase_add_test(tc, input_file_that_is_there_and_cannot_be_opened_is_71);
    tcase_add_loop_test(tc, bad_usage_is_64_and_one_line, 0, 15);
    tcase_add_test(tc, missing_prompt_file_is_66);
    tcase_add_test(tc, tokenize_prints_ids_and_pieces);
    tcase_add_test(tc, detokenize_prints_the_text_as_it_is);
    tcase_add_test(tc, model_prints_what_runs);
    tcase_add_test(tc, stats_prints_what_was_done);
    tcase_add_test(tc, dev66_stats_before_the_first_request_divides_by_nothing);
    tcase_add_test(tc, watch_renews_a_screen_and_leaves_the_terminal_as_it_was);
    tcase_add_test(tc, operator_commands_refuse_bad_usage_before_they_call);
    tcase_add_test(tc, help_and_version_need_no_service);
    return tc;
}

int main(void) {
    Suite *suite = suite_create("ctl");
    suite_add_tcase(suite, generate_case());
    suite_add_tcase(suite, usage_case());
    return suite_run(suite);
}
