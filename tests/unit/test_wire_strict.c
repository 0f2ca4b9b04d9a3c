#include <check.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "common/wire/inference.h"
#include "common/wire/worker.h"
#include "support/suite.h"

static struct ft_arena *arena;
static struct ft_buf wire, other;
static struct ft_err err;

static void set_up(void) {
    arena = ft_arena_create(64 * 1024, 0);
    ft_buf_init(&wire, 0);
    ft_buf_init(&other, 0);
    err = (struct ft_err){0};
}

static void tear_down(void) {
    ft_arena_destroy(&arena);
    ft_buf_fini(&wire);
    ft_buf_fini(&other);
}

#define CHECK_IDS(ids, n, ...)                                                                     \
    do {                                                                                           \
        static const int32_t want[] = {__VA_ARGS__};                                               \
        ck_assert_uint_eq((n), sizeof want / sizeof want[0]);                                      \
        ck_assert_mem_eq((ids), want, sizeof want);                                                \
    } while (0)

#define BYTES(literal) ((struct ft_str){literal, sizeof(literal) - 1})
#define CHECK_INVALID(call, word)                                                                  \
    do {                                                                                           \
        ck_assert_int_eq((call), FT_E_REQ_INVALID);                                                \
        ck_assert_msg(strstr(err.text, word) != NULL, "%s", err.text);                             \
    } while (0)

START_TEST(decode_bytes_that_are_no_message_names_it) {
    struct ft_wire_generate m;
    struct ft_wire_step step;
    CHECK_INVALID(ft_wire_decode_generate(BYTES("\xFF"), arena, &m, &err), "GenerateRequest");
    /* text of 5 bytes, 1 there */
    CHECK_INVALID(ft_wire_decode_generate(BYTES("\x1A\x05x"), arena, &m, &err), "GenerateRequest");
    /* request_id as a number */
    CHECK_INVALID(ft_wire_decode_generate(BYTES("\x08\x01"), arena, &m, &err), "GenerateRequest");
    CHECK_INVALID(ft_wire_decode_step(BYTES("\x22\x02\x1A\x05"), arena, &step, &err),
                  "StepRequest");
}
END_TEST

START_TEST(decode_packed_and_unpacked_lists_are_the_same) {
    struct ft_wire_ids m;
    ck_assert_int_eq(
        ft_wire_decode_ids(BYTES("\x0A\x02\x01\x02\x08\x03\x0A\x01\x04"), arena, &m, &err), FT_OK);
    CHECK_IDS(m.ids, m.n_ids, 1, 2, 3, 4);
}
END_TEST

START_TEST(decode_unknown_field_is_ignored) {
    struct ft_wire_ids m;
    ck_assert_int_eq(ft_wire_decode_ids(BYTES("\xFA\x7F\x01x\x0A\x01\x05\xF5\x7F\x01\x02\x03\x04"),
                                        arena, &m, &err),
                     FT_OK);
    CHECK_IDS(m.ids, m.n_ids, 5);
}
END_TEST

/* A request that asks for what we do not know would be answered without it. */
START_TEST(decode_unknown_field_of_a_request_is_refused_by_name) {
    const struct {
        struct ft_str bytes;
        const char *says;
    } rows[] = {
        {BYTES("\x2A\x04\x82\x01\x01x"), "sampling_params.json_schema is not supported"},
        {BYTES("\x2A\x02\x68\x01"),
         "sampling_params.spaces_between_special_tokens is not supported"},
        {BYTES("\x2A\x03\x98\x06\x01"),
         "sampling_params has a field 99, which this version does not know"},
        {BYTES("\x82\x01\x03\x98\x06\x01"),
         "speculative_params has a field 99, which this version does not know"},
        {BYTES("\x98\x06\x01"), "the request has a field 99, which this version does not know"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ft_wire_generate m;
        ck_assert_int_eq(ft_wire_decode_generate(rows[i].bytes, arena, &m, &err),
                         FT_E_REQ_UNSUPPORTED);
        ck_assert_str_eq(err.text, rows[i].says);
    }
}
END_TEST

START_TEST(decode_unknown_enum_value_is_refused) {
    struct ft_wire_step_reply reply;
    struct ft_wire_generated generated;
    CHECK_INVALID(ft_wire_decode_step_reply(BYTES("\x22\x02\x10\x05"), arena, &reply, &err),
                  "SequenceResult.status is 5: must be 0 to 4");
    CHECK_INVALID(ft_wire_decode_generated(BYTES("\x18\x05"), arena, &generated, &err),
                  "GenerateResponse.finish_reason is 5: must be 0 to 4");
}
END_TEST

START_TEST(decode_request_id_not_utf8_is_refused) {
    struct ft_wire_generate m;
    CHECK_INVALID(ft_wire_decode_generate(BYTES("\x0A\x02\xC3("), arena, &m, &err),
                  "GenerateRequest.request_id is not valid UTF-8");
}
END_TEST

START_TEST(decode_last_input_of_the_oneof_wins) {
    struct ft_wire_generate m;
    ck_assert_int_eq(ft_wire_decode_generate(
                         BYTES("\x1A\x01x\x22\x00\x1A\x01y\x12\x03\x0A\x01\x07"), arena, &m, &err),
                     FT_OK);
    ck_assert_int_eq(m.input.kind, FT_WIRE_INPUT_IDS);
    CHECK_IDS(m.input.ids, m.input.n_ids, 7);
}
END_TEST

START_TEST(decode_step_with_bad_sampling_names_the_field) {
    const struct ft_bias twice[] = {{5, 1}, {5, 2}}, infinite[] = {{5, INFINITY}};
    static const int32_t falling[] = {7, 6};
    const struct {
        struct ft_sampling sampling;
        const char *text;
    } rows[] = {
        {{.top_p = 1}, "repetition_penalty is 0: must be 0.01 to 100"},
        {{.temperature = NAN, .repetition_penalty = 1}, "temperature is"},
        {{.temperature = -1, .repetition_penalty = 1}, "temperature is -1: must be 0 to 100"},
        {{.top_p = 1.5f, .repetition_penalty = 1}, "top_p is 1.5"},
        {{.min_p = -INFINITY, .repetition_penalty = 1}, "min_p is -inf"},
        {{.top_k = -1, .repetition_penalty = 1}, "top_k is -1: must be at least 0"},
        {{.repetition_penalty = 1, .bias = twice, .n_bias = 2}, "bias_ids[1] is 5 after 5"},
        {{.repetition_penalty = 1, .bias = infinite, .n_bias = 1}, "bias_values[0] is not finite"},
        {{.repetition_penalty = 1, .allowed = falling, .n_allowed = 2},
         "allowed_ids[1] is 6 after 7"},
        {{.repetition_penalty = 1, .banned = falling, .n_banned = 2}, "banned_ids[1] is 6 after 7"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ft_wire_seq_step seq = {.has_sampling = true, .sampling = rows[i].sampling};
        struct ft_wire_step m = {.seqs = &seq, .n_seqs = 1}, read;
        ft_buf_reset(&wire);
        ft_wire_encode_step(&m, &wire);
        CHECK_INVALID(ft_wire_decode_step(ft_buf_str(&wire), arena, &read, &err), rows[i].text);
    }
}
END_TEST

START_TEST(decode_lists_past_their_bounds_are_refused) {
    static int32_t ids[FT_WIRE_TOKENS_MAX + 1];
    struct ft_wire_generate m = {.input = {FT_WIRE_INPUT_IDS, ids, FT_WIRE_TOKENS_MAX + 1}}, read;
    ft_wire_encode_generate(&m, &wire);
    CHECK_INVALID(ft_wire_decode_generate(ft_buf_str(&wire), arena, &read, &err),
                  "GenerateRequest.token_ids has 1048577 entries, at most 1048576");
    m.input.n_ids--;
    ft_buf_reset(&wire);
    ft_wire_encode_generate(&m, &wire);
    ck_assert_int_eq(ft_wire_decode_generate(ft_buf_str(&wire), arena, &read, &err), FT_OK);

    static struct ft_wire_seq_step seqs[FT_WIRE_STEP_SEQS_MAX + 1];
    struct ft_wire_step step = {.seqs = seqs, .n_seqs = FT_WIRE_STEP_SEQS_MAX + 1};
    ft_buf_reset(&wire);
    ft_wire_encode_step(&step, &wire);
    CHECK_INVALID(ft_wire_decode_step(ft_buf_str(&wire), arena, &step, &err),
                  "StepRequest.sequences has 4097 entries, at most 4096");

    struct ft_wire_seq_result result = {.draft_ids = ids, .n_draft_ids = FT_DRAFT_LEN_MAX + 1};
    struct ft_wire_step_reply reply = {.results = &result, .n_results = 1};
    ft_buf_reset(&wire);
    ft_wire_encode_step_reply(&reply, &wire);
    CHECK_INVALID(ft_wire_decode_step_reply(ft_buf_str(&wire), arena, &reply, &err),
                  "SequenceResult.draft_ids has 17 entries, at most 16");
}
END_TEST

START_TEST(decode_submessage_given_twice_is_refused) {
    struct ft_wire_step step;
    struct ft_wire_generate m;
    CHECK_INVALID(ft_wire_decode_step(BYTES("\x22\x0E\x32\x05\x0D\x00\x00\x80\x3F\x32\x05\x3D\x00"
                                            "\x00\x80\x3F"),
                                      arena, &step, &err),
                  "SequenceStep.sampling is there twice");
    CHECK_INVALID(
        ft_wire_decode_generate(BYTES("\x2A\x02\x58\x01\x2A\x02\x58\x01"), arena, &m, &err),
        "GenerateRequest.sampling_params is there twice");
    CHECK_INVALID(
        ft_wire_decode_generate(BYTES("\x12\x02\x08\x01\x12\x02\x08\x01"), arena, &m, &err),
        "GenerateRequest.token_ids is there twice");
}
END_TEST

START_TEST(decode_millions_of_empty_submessages_is_too_large) {
    struct ft_wire_generate m;
    for (int i = 0; i < 1000000; i++)
        ft_buf_add(&other, "\x0A\x00", 2);
    ft_buf_add(&wire, "\x22\x80\x89\x7A", 4); /* chat, 2000000 bytes */
    ft_buf_add_str(&wire, ft_buf_str(&other));
    ck_assert_int_eq(ft_wire_decode_generate(ft_buf_str(&wire), arena, &m, &err),
                     FT_E_REQ_TOO_LARGE);
    ck_assert_uint_le(ft_arena_used(arena), 64 * wire.len + 1024 * 1024);
}
END_TEST

START_TEST(decode_unpacked_list_of_small_ids_is_no_abuse) {
    struct ft_wire_ids m;
    for (int i = 0; i < 500000; i++)
        ft_buf_add(&wire, "\x08\x01", 2);
    ck_assert_int_eq(ft_wire_decode_ids(ft_buf_str(&wire), arena, &m, &err), FT_OK);
    ck_assert_uint_eq(m.n_ids, 500000);
}
END_TEST

START_TEST(decode_into_a_full_arena_is_exhausted) {
    struct ft_arena *small = ft_arena_create(256, 4096);
    struct ft_wire_ids m;
    for (int i = 0; i < 5000; i++)
        ft_buf_add(&wire, "\x08\x01", 2);
    ck_assert_int_eq(ft_wire_decode_ids(ft_buf_str(&wire), small, &m, &err), FT_E_REQ_EXHAUSTED);
    ft_arena_destroy(&small);
}
END_TEST

/* ---- cost ----------------------------------------------------------------------------------- */

static int64_t thread_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The best of many short batches: what it costs when nothing else has the core. */
START_TEST(step_of_five_tokens_costs_microseconds) {
    const int32_t tokens[5] = {1, 2000, 30000, 100000, 128000};
    struct ft_wire_seq_step seq = {
        .seq_id = 7, .keep = 500, .tokens = tokens, .n_tokens = 5, .n_logits = 5};
    struct ft_wire_step m = {.step_id = 1, .epoch = UINT64_MAX, .seqs = &seq, .n_seqs = 1}, read;
    struct ft_wire_seq_result result = {.seq_id = 7, .cached = 505, .n_rows = 5};
    struct ft_wire_step_reply reply = {1, UINT64_MAX, 900000, &result, 1, 1}, got;
    enum { BATCHES = 1000, ROUNDS = 20 };
    int64_t best = INT64_MAX;
    for (int batch = 0; batch < BATCHES; batch++) {
        int64_t start = thread_ns();
        for (int i = 0; i < ROUNDS; i++) {
            ft_arena_reset(arena);
            ft_buf_reset(&wire);
            ft_wire_encode_step(&m, &wire);
            ck_assert(ft_wire_decode_step(ft_buf_str(&wire), arena, &read, &err) == FT_OK);
            ft_buf_reset(&wire);
            ft_wire_encode_step_reply(&reply, &wire);
            ck_assert(ft_wire_decode_step_reply(ft_buf_str(&wire), arena, &got, &err) == FT_OK);
        }
        int64_t ns = (thread_ns() - start) / ROUNDS;
        best = ns < best ? ns : best;
    }
    printf("step and reply, encoded and decoded: %d ns\n", (int)best);
    ck_assert_int_lt(best, FT_TEST_SANITIZED ? 200000 : 20000);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("wire_strict");
    TCase *tc = tcase_create("wire_strict");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, decode_bytes_that_are_no_message_names_it);
    tcase_add_test(tc, decode_packed_and_unpacked_lists_are_the_same);
    tcase_add_test(tc, decode_unknown_field_is_ignored);
    tcase_add_test(tc, decode_unknown_field_of_a_request_is_refused_by_name);
    tcase_add_test(tc, decode_unknown_enum_value_is_refused);
    tcase_add_test(tc, decode_request_id_not_utf8_is_refused);
    tcase_add_test(tc, decode_last_input_of_the_oneof_wins);
    tcase_add_test(tc, decode_step_with_bad_sampling_names_the_field);
    tcase_add_test(tc, decode_lists_past_their_bounds_are_refused);
    tcase_add_test(tc, decode_submessage_given_twice_is_refused);
    tcase_add_test(tc, decode_millions_of_empty_submessages_is_too_large);
    tcase_add_test(tc, decode_unpacked_list_of_small_ids_is_no_abuse);
    tcase_add_test(tc, decode_into_a_full_arena_is_exhausted);
    tcase_add_test(tc, step_of_five_tokens_costs_microseconds);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
