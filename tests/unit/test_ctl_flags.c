#include <check.h>
#include <stdlib.h>

#include "foretokenctl/flags.h"
#include "support/suite.h"

static struct ctl_options opts;
static struct ft_err err;

static void set_up(void) {
    opts = (struct ctl_options){.arena = ft_arena_create(4096, 0)};
    err = (struct ft_err){0};
}

static void tear_down(void) {
    ft_arena_destroy(&opts.arena);
}

#define PARSE(...)                                                                                 \
    ctl_flags_parse((int)(sizeof((char *[]){"ctl", __VA_ARGS__}) / sizeof(char *)),                \
                    (char *[]){"ctl", __VA_ARGS__, NULL}, &opts, &err)
/* Each starts afresh. */
#define CHECK_REFUSED(wanted, ...)                                                                 \
    do {                                                                                           \
        opts = (struct ctl_options){.arena = opts.arena};                                          \
        ck_assert_int_eq(PARSE(__VA_ARGS__), FT_E_REQ_INVALID);                                    \
        ck_assert_msg(strstr(err.text, wanted) != NULL, "%s", err.text);                           \
    } while (0)

START_TEST(parse_flags_accepts_every_spelling) {
    ck_assert_int_eq(PARSE("--max-tokens", "5", "generate", "--top_p=0.5", "--top-k", "-1",
                           "--no-skip-special-tokens", "--ignore_eos", "--parse-special=false",
                           "some text", "--", "--json"),
                     FT_OK);
    const struct ft_wire_params *p = &opts.request.params;
    ck_assert(p->has_max_tokens && p->max_tokens == 5 && p->has_top_p && p->top_p == 0.5f);
    ck_assert(p->top_k == -1 && p->has_skip_special_tokens && !p->skip_special_tokens);
    ck_assert(p->ignore_eos && opts.request.has_parse_special && !opts.request.parse_special);
    ck_assert(!opts.json && opts.n_words == 3);
    ck_assert(ft_str_eq(opts.words[0], ft_str_c("generate")));
    ck_assert(ft_str_eq(opts.words[1], ft_str_c("some text")));
    ck_assert(ft_str_eq(opts.words[2], ft_str_c("--json")));
}
END_TEST

START_TEST(parse_nothing_leaves_everything_unset) {
    ck_assert_int_eq(PARSE("generate"), FT_OK);
    struct ft_wire_generate unset = {.stream = true};
    ck_assert_mem_eq(&opts.request, &unset, sizeof unset);
    ck_assert(!opts.has_prompt && !opts.has_timeout && opts.n_ids == 0 && opts.n_chat == 0);
}
END_TEST

START_TEST(parse_every_sampling_flag_sets_its_field) {
    ck_assert_int_eq(PARSE("generate", "--temperature=0.5", "--top-p=0.25", "--top-k=3",
                           "--min-p=0.125", "--frequency-penalty=-1.5", "--presence-penalty",
                           "-1.25", "--repetition-penalty=1.125", "--max-tokens=4294967295",
                           "--min-tokens=6", "--n=7", "--logprobs=8", "--prompt-logprobs=-9",
                           "--seed=18446744073709551615", "--include-stop-str-in-output",
                           "--truncate-prompt-tokens=10", "--time-limit-millis=11",
                           "--no-speculation", "--num-speculative-tokens=0", "--add-special-tokens",
                           "--request-id=r", "--no-stream", "--priority=-12"),
                     FT_OK);
    const struct ft_wire_generate *r = &opts.request;
    const struct ft_wire_params *p = &r->params;
    ck_assert(p->has_temperature && p->temperature == 0.5f && p->top_p == 0.25f && p->top_k == 3);
    ck_assert(p->min_p == 0.125f && p->frequency_penalty == -1.5f);
    ck_assert(p->presence_penalty == -1.25f);
    ck_assert(p->has_repetition_penalty && p->repetition_penalty == 1.125f);
    ck_assert(p->max_tokens == UINT32_MAX && p->min_tokens == 6 && p->has_n && p->n == 7);
    ck_assert(p->has_logprobs && p->logprobs == 8 && p->has_prompt_logprobs);
    ck_assert(p->prompt_logprobs == -9 && p->has_seed && p->seed == UINT64_MAX);
    ck_assert(p->include_stop_str_in_output && p->has_truncate_prompt_tokens);
    ck_assert(p->truncate_prompt_tokens == 10 && p->has_time_limit_millis);
    ck_assert(p->time_limit_millis == 11 && r->has_spec_enabled && !r->spec_enabled);
    ck_assert(r->has_num_speculative_tokens && r->num_speculative_tokens == 0);
    ck_assert_int_eq(r->priority, -12);
    ck_assert(r->has_add_special_tokens && r->add_special_tokens && !r->stream);
    ck_assert(ft_str_eq(opts.request_id, ft_str_c("r")));
}
END_TEST

START_TEST(parse_every_speculation_flag_sets_its_field) {
    ck_assert_int_eq(PARSE("generate", "--rejection-sample-method=lenient", "--lenience=0.5",
                           "--synthetic-acceptance-length=2.5", "--synthetic-acceptance-rates",
                           "0.5,1", "--draft-temperature=0", "--draft-top-k=7",
                           "--draft-top-p=0.25", "--allowed-token-ids=1,2", "--banned-token-ids=3",
                           "--return-prompt-token-ids"),
                     FT_OK);
    const struct ft_wire_spec *s = &opts.request.spec;
    const struct ft_wire_params *p = &opts.request.params;
    ck_assert(ft_str_eq(s->rejection_sample_method, ft_str_c("lenient")));
    ck_assert(s->has_lenience && s->lenience == 0.5f && s->has_synthetic_acceptance_length);
    ck_assert(s->synthetic_acceptance_length == 2.5f && s->n_synthetic_acceptance_rates == 2);
    ck_assert(s->synthetic_acceptance_rates[0] == 0.5f && s->synthetic_acceptance_rates[1] == 1);
    ck_assert(s->has_draft_temperature && s->draft_temperature == 0 && s->has_draft_top_k);
    ck_assert(s->draft_top_k == 7 && s->has_draft_top_p && s->draft_top_p == 0.25f);
    ck_assert(p->n_allowed_token_ids == 2 && p->allowed_token_ids[1] == 2);
    ck_assert(p->n_banned_token_ids == 1 && opts.request.return_prompt_token_ids);
    CHECK_REFUSED("--synthetic-acceptance-rates is 'x'", "generate",
                  "--synthetic-acceptance-rates=0.5,x");
    CHECK_REFUSED("generate takes no flag '--concurrency'", "generate", "--concurrency=3");
    CHECK_REFUSED("batch takes no flag '--stream'", "batch", "--stream", "a", "b");
}
END_TEST

START_TEST(parse_repeated_flags_keep_order) {
    ck_assert_int_eq(PARSE("generate", "--stop", "a", "--stop=", "--stop", "--json", "--token-ids",
                           "1, 2,-3", "--token-ids=4", "--logit-bias", "9:-100,3:0.5",
                           "--logit-bias=-1:1e1", "--stop-token-ids", "7"),
                     FT_OK);
    const struct ft_wire_params *p = &opts.request.params;
    const int32_t ids[] = {1, 2, -3, 4};
    ck_assert_uint_eq(p->n_stop, 3);
    ck_assert_uint_eq(p->stop[1].len, 0);
    ck_assert(ft_str_eq(p->stop[2], ft_str_c("--json")) && !opts.json);
    ck_assert_uint_eq(opts.n_ids, 4);
    ck_assert_mem_eq(opts.ids, ids, sizeof ids);
    ck_assert_uint_eq(p->n_logit_bias, 3);
    ck_assert(p->logit_bias[0].id == 9 && p->logit_bias[0].value == -100.0f);
    ck_assert(p->logit_bias[1].id == 3 && p->logit_bias[1].value == 0.5f);
    ck_assert(p->logit_bias[2].id == -1 && p->logit_bias[2].value == 10.0f);
    ck_assert(p->n_stop_token_ids == 1 && p->stop_token_ids[0] == 7);
}
END_TEST

START_TEST(parse_long_lists_grow) {
    char *argv[1002] = {"ctl", "generate"};
    for (int i = 2; i < 1002; i++)
        argv[i] = "--token-ids=5,6";
    ck_assert_int_eq(ctl_flags_parse(1002, argv, &opts, &err), FT_OK);
    ck_assert_uint_eq(opts.n_ids, 2000);
    for (size_t i = 0; i < 2000; i++)
        ck_assert_int_eq(opts.ids[i], i % 2 == 0 ? 5 : 6);
}
END_TEST

START_TEST(parse_unknown_flag_names_the_nearest) {
    CHECK_REFUSED("unknown flag '--temprature'; the nearest known one is '--temperature'",
                  "generate", "--temprature=1");
    CHECK_REFUSED("unknown flag '--no-max-tokens'", "generate", "--no-max-tokens");
    CHECK_REFUSED("unknown flag '--jsn'; the nearest known one is '--json'", "stats", "--jsn");
    ck_assert_str_eq(ctl_flags_nearest_command(ft_str_c("generat")), "generate");
    ck_assert_str_eq(ctl_flags_nearest_command(ft_str_c("stat")), "stats");
    ck_assert_uint_eq(ctl_flags_command(ft_str_c("stat")), 0);
}
END_TEST

START_TEST(parse_bad_value_names_flag_value_and_type) {
    CHECK_REFUSED("--top-k is 'many': must be a whole number", "generate", "--top-k", "many");
    CHECK_REFUSED("--max-tokens is '-1': must be a whole number, 0 to 4294967295", "generate",
                  "--max-tokens=-1");
    CHECK_REFUSED("--max-tokens is '4294967296'", "generate", "--max-tokens=4294967296");
    CHECK_REFUSED("--seed is '-1': must be a whole number of 64 bits", "generate", "--seed=-1");
    CHECK_REFUSED("--seed is '18446744073709551616'", "generate", "--seed=18446744073709551616");
    CHECK_REFUSED("--temperature is '0.5x': must be a number", "generate", "--temperature=0.5x");
    CHECK_REFUSED("--temperature is ''", "generate", "--temperature=");
    CHECK_REFUSED("--token-ids is '': must be whole numbers", "generate", "--token-ids=1,,2");
    CHECK_REFUSED("--token-ids is '2147483648'", "generate", "--token-ids=2147483648");
    CHECK_REFUSED("--logit-bias is '5': must be ID:NUMBER", "generate", "--logit-bias=5");
    CHECK_REFUSED("--logit-bias is '5:x'", "generate", "--logit-bias=5:x");
    CHECK_REFUSED("--ignore-eos is 'maybe': must be true or false", "generate",
                  "--ignore-eos=maybe");
    CHECK_REFUSED("--prompt needs a value: TEXT", "generate", "--prompt");
}
END_TEST

START_TEST(parse_flag_of_another_command_is_refused) {
    CHECK_REFUSED("stats takes no flag '--max-tokens'", "stats", "--max-tokens=1");
    CHECK_REFUSED("detokenize takes no flag '--prompt'", "--prompt", "x", "detokenize");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ctl_flags");
    TCase *tc = tcase_create("ctl_flags");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, parse_flags_accepts_every_spelling);
    tcase_add_test(tc, parse_nothing_leaves_everything_unset);
    tcase_add_test(tc, parse_every_sampling_flag_sets_its_field);
    tcase_add_test(tc, parse_every_speculation_flag_sets_its_field);
    tcase_add_test(tc, parse_repeated_flags_keep_order);
    tcase_add_test(tc, parse_long_lists_grow);
    tcase_add_test(tc, parse_unknown_flag_names_the_nearest);
    tcase_add_test(tc, parse_bad_value_names_flag_value_and_type);
    tcase_add_test(tc, parse_flag_of_another_command_is_refused);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
