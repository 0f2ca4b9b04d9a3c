#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/wire/admin.h"
#include "common/wire/inference.h"
#include "common/wire/worker.h"
#include "support/suite.h"
#include "unit/test_wire_samples.h"

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

/* ---- against protoc ------------------------------------------------------------------------- */

static void write_file(const char *path, struct ft_str bytes) {
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    if (bytes.len > 0)
        ck_assert_uint_eq(fwrite(bytes.ptr, 1, bytes.len, f), bytes.len);
    ck_assert_int_eq(fclose(f), 0);
}

/* protoc --encode or --decode with the .proto files as they are published. */
static void protoc(const char *mode, const char *message, struct ft_str in, struct ft_buf *out) {
    char dir[] = "/tmp/ft_wire_XXXXXX";
    char in_path[64], out_path[64], command[1024];
    const char *file = strstr(message, ".worker.") != NULL ? "foretoken/worker/v1/worker.proto"
                                                           : "foretoken/v1/inference.proto";
    if (strstr(message, "GetStatsResponse") != NULL && strstr(message, ".worker.") == NULL)
        file = "foretoken/v1/admin.proto";
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(in_path, sizeof in_path, "%s/in", dir);
    snprintf(out_path, sizeof out_path, "%s/out", dir);
    write_file(in_path, in);
    snprintf(command, sizeof command, "%s --%s=%s %s -I %s/proto %s < %s > %s", FT_TEST_PROTOC,
             mode, message, strcmp(mode, "encode") == 0 ? "--deterministic_output" : "",
             FT_TEST_SOURCE_DIR, file, in_path, out_path);
    ck_assert_msg(system(command) == 0, "%s", command);
    ft_buf_reset(out);
    ck_assert_int_eq(ft_file_read(out_path, 1 << 24, out, &err), FT_OK);
    unlink(in_path);
    unlink(out_path);
    rmdir(dir);
}

/* What we encoded and what protoc encoded say the same to protoc. */
static void check_protoc_agrees(const char *message, struct ft_str ours, struct ft_str theirs) {
    struct ft_buf a, b;
    ft_buf_init(&a, 0);
    ft_buf_init(&b, 0);
    protoc("decode", message, ours, &a);
    protoc("decode", message, theirs, &b);
    ck_assert_uint_gt(b.len, 0);
    ck_assert_str_eq(a.ptr, b.ptr);
    ft_buf_fini(&a);
    ft_buf_fini(&b);
}

#define CHECK_STR(str, literal)                                                                    \
    ck_assert(ft_str_eq((str), (struct ft_str){"" literal, sizeof(literal) - 1}))
#define CHECK_IDS(ids, n, ...)                                                                     \
    do {                                                                                           \
        static const int32_t want[] = {__VA_ARGS__};                                               \
        ck_assert_uint_eq((n), sizeof want / sizeof want[0]);                                      \
        ck_assert_mem_eq((ids), want, sizeof want);                                                \
    } while (0)

START_TEST(decode_generate_from_protoc_reads_every_field) {
    static const char text[] =
        "request_id: 'r-\\303\\251' text: 'a\\000b' stream: true parse_special: false "
        "add_special_tokens: true priority: -7 "
        "sampling_params { temperature: 0 top_p: 0.5 top_k: -1 min_p: 0.25 frequency_penalty: 1.5 "
        "presence_penalty: -1.25 repetition_penalty: 1.125 max_tokens: 7 min_tokens: 3 "
        "stop: 'x\\000y' stop: '' stop_token_ids: [5, -6, 2147483647] skip_special_tokens: false "
        "ignore_eos: true n: 2 logprobs: -3 prompt_logprobs: 4 seed: 18446744073709551615 "
        "include_stop_str_in_output: true logit_bias { key: 9 value: -100 } "
        "logit_bias { key: 3 value: 0.5 } logit_bias { key: 0 value: 0 } "
        "truncate_prompt_tokens: 11 time_limit_millis: 12 allowed_token_ids: [3, 1] "
        "banned_token_ids: 2 } return_prompt_token_ids: true "
        "speculative_params { enabled: false num_speculative_tokens: 0 "
        "rejection_sample_method: 'block' lenience: 0.5 synthetic_acceptance_length: 0 "
        "synthetic_acceptance_rates: [1, 0.25] draft_temperature: 0 draft_top_k: -1 "
        "draft_top_p: 0.125 }";
    struct ft_wire_generate m;
    protoc("encode", "foretoken.v1.GenerateRequest", ft_str_c(text), &wire);
    ck_assert_int_eq(ft_wire_decode_generate(ft_buf_str(&wire), arena, &m, &err), FT_OK);
    const struct ft_wire_params *p = &m.params;
    CHECK_STR(m.request_id, "r-\xC3\xA9");
    ck_assert_int_eq(m.input.kind, FT_WIRE_INPUT_TEXT);
    CHECK_STR(m.input.text, "a\0b");
    ck_assert(m.stream && m.has_parse_special && !m.parse_special);
    ck_assert(m.has_add_special_tokens && m.add_special_tokens && m.priority == -7);
    ck_assert(p->has_temperature && p->temperature == 0.0f && p->has_top_p && p->top_p == 0.5f);
    ck_assert(p->top_k == -1 && p->min_p == 0.25f && p->frequency_penalty == 1.5f);
    ck_assert(p->presence_penalty == -1.25f);
    ck_assert(p->has_repetition_penalty && p->repetition_penalty == 1.125f);
    ck_assert(p->has_max_tokens && p->max_tokens == 7 && p->min_tokens == 3);
    ck_assert_uint_eq(p->n_stop, 2);
    CHECK_STR(p->stop[0], "x\0y");
    CHECK_STR(p->stop[1], "");
    CHECK_IDS(p->stop_token_ids, p->n_stop_token_ids, 5, -6, INT32_MAX);
    ck_assert(p->has_skip_special_tokens && !p->skip_special_tokens && p->ignore_eos);
    ck_assert(p->has_n && p->n == 2 && p->has_logprobs && p->logprobs == -3);
    ck_assert(p->has_prompt_logprobs && p->prompt_logprobs == 4);
    ck_assert(p->has_seed && p->seed == UINT64_MAX && p->include_stop_str_in_output);
    ck_assert_uint_eq(p->n_logit_bias, 3);
    ck_assert(p->logit_bias[0].value + p->logit_bias[1].value + p->logit_bias[2].value == -99.5f);
    ck_assert(p->has_truncate_prompt_tokens && p->truncate_prompt_tokens == 11);
    ck_assert(p->has_time_limit_millis && p->time_limit_millis == 12);
    ck_assert(m.has_spec_enabled && !m.spec_enabled);
    ck_assert(m.has_num_speculative_tokens && m.num_speculative_tokens == 0);
    CHECK_IDS(p->allowed_token_ids, p->n_allowed_token_ids, 3, 1);
    CHECK_IDS(p->banned_token_ids, p->n_banned_token_ids, 2);
    const struct ft_wire_spec *s = &m.spec;
    CHECK_STR(s->rejection_sample_method, "block");
    ck_assert(m.return_prompt_token_ids && s->has_lenience && s->lenience == 0.5f);
    ck_assert(s->has_synthetic_acceptance_length && s->synthetic_acceptance_length == 0);
    ck_assert(s->n_synthetic_acceptance_rates == 2 && s->synthetic_acceptance_rates[1] == 0.25f);
    ck_assert(s->has_draft_temperature && s->draft_temperature == 0 && s->has_draft_top_k);
    ck_assert(s->draft_top_k == -1 && s->has_draft_top_p && s->draft_top_p == 0.125f);
    ft_wire_encode_generate(&m, &other);
    check_protoc_agrees("foretoken.v1.GenerateRequest", ft_buf_str(&other), ft_buf_str(&wire));
}
END_TEST

START_TEST(decode_generate_from_protoc_reads_every_input) {
    struct ft_wire_generate m;
    protoc("encode", "foretoken.v1.GenerateRequest", ft_str_c("token_ids { ids: [1, 300, -1] }"),
           &wire);
    ck_assert_int_eq(ft_wire_decode_generate(ft_buf_str(&wire), arena, &m, &err), FT_OK);
    ck_assert_int_eq(m.input.kind, FT_WIRE_INPUT_IDS);
    CHECK_IDS(m.input.ids, m.input.n_ids, 1, 300, -1);

    protoc("encode", "foretoken.v1.GenerateRequest",
           ft_str_c("chat { messages { role: 'system' content: 'be\\000' } messages { } }"), &wire);
    ck_assert_int_eq(ft_wire_decode_generate(ft_buf_str(&wire), arena, &m, &err), FT_OK);
    ck_assert_int_eq(m.input.kind, FT_WIRE_INPUT_CHAT);
    ck_assert_uint_eq(m.input.n_messages, 2);
    CHECK_STR(m.input.messages[0].role, "system");
    CHECK_STR(m.input.messages[0].content, "be\0");
    CHECK_STR(m.input.messages[1].role, "");
    ft_wire_encode_generate(&m, &other);
    check_protoc_agrees("foretoken.v1.GenerateRequest", ft_buf_str(&other), ft_buf_str(&wire));
}
END_TEST

START_TEST(decode_generate_tells_empty_from_absent) {
    struct ft_wire_generate m;
    ck_assert_int_eq(ft_wire_decode_generate((struct ft_str){NULL, 0}, arena, &m, &err), FT_OK);
    ck_assert_int_eq(m.input.kind, FT_WIRE_INPUT_NONE);
    ck_assert(!m.params.has_temperature && !m.params.has_seed && !m.has_spec_enabled);
    protoc("encode", "foretoken.v1.GenerateRequest",
           ft_str_c("text: '' sampling_params { temperature: 0 seed: 0 }"), &wire);
    ck_assert_int_eq(ft_wire_decode_generate(ft_buf_str(&wire), arena, &m, &err), FT_OK);
    ck_assert_int_eq(m.input.kind, FT_WIRE_INPUT_TEXT);
    ck_assert_uint_eq(m.input.text.len, 0);
    ck_assert(m.params.has_temperature && m.params.has_seed && !m.params.has_top_p);
}
END_TEST

START_TEST(decode_generated_from_protoc_reads_every_field) {
    static const char text[] =
        "token_ids: [7, 8] text: 'h\\000i' finish_reason: FINISH_REASON_TIME_LIMIT "
        "matched_stop_str: '\\n\\n' request_id: 'q' "
        "usage { prompt_tokens: 1 completion_tokens: 2 cached_tokens: 3 queue_seconds: 0.5 "
        "first_token_seconds: 0.25 total_seconds: 8 } "
        "speculative { num_drafts: 1 num_draft_tokens: 2 num_accepted_tokens: 3 "
        "num_target_steps: 4 num_accepted_tokens_per_pos: [5, 6] num_draft_tokens_per_pos: "
        "[7, 8, 9] lossy: true fallback_reason: 'none' num_plain_steps: 10 } index: 3 "
        "logprobs { logprob: -0.5 top_token_ids: [4, 5] top_logprobs: [-0.25, -9999] } "
        "logprobs { } prompt_logprobs { logprob: -2 } prompt_token_ids: [9, 8]";
    struct ft_wire_generated m;
    protoc("encode", "foretoken.v1.GenerateResponse", ft_str_c(text), &wire);
    ck_assert_int_eq(ft_wire_decode_generated(ft_buf_str(&wire), arena, &m, &err), FT_OK);
    CHECK_IDS(m.token_ids, m.n_token_ids, 7, 8);
    CHECK_STR(m.text, "h\0i");
    ck_assert_str_eq(ft_wire_finish_name(m.finish), "time_limit");
    ck_assert(m.has_matched_str && !m.has_matched_token && m.has_usage && m.has_speculative);
    CHECK_STR(m.matched_stop_str, "\n\n");
    CHECK_STR(m.request_id, "q");
    ck_assert(m.usage.prompt_tokens == 1 && m.usage.completion_tokens == 2);
    ck_assert(m.usage.cached_tokens == 3 && m.usage.queue_seconds == 0.5);
    ck_assert(m.usage.first_token_seconds == 0.25 && m.usage.total_seconds == 8);
    const struct ft_wire_spec_stats *s = &m.speculative;
    ck_assert(s->num_drafts == 1 && s->num_draft_tokens == 2 && s->num_accepted_tokens == 3);
    ck_assert(s->num_target_steps == 4 && s->num_plain_steps == 10 && s->lossy && s->n_pos == 3);
    ck_assert(s->accepted_per_pos[1] == 6 && s->accepted_per_pos[2] == 0);
    ck_assert(s->drafted_per_pos[2] == 9);
    CHECK_STR(s->fallback_reason, "none");
    CHECK_IDS(m.prompt_token_ids, m.n_prompt_token_ids, 9, 8);
    ck_assert(m.index == 3 && m.n_logprobs == 2 && m.n_prompt_logprobs == 1);
    ck_assert(m.logprobs[0].token_logprob == -0.5f && m.logprobs[0].n_top == 2);
    ck_assert(m.logprobs[0].ids[1] == 5 && m.logprobs[0].values[1] == -9999);
    ck_assert(m.logprobs[1].token_logprob == 0 && m.logprobs[1].n_top == 0);
    ck_assert(m.prompt_logprobs[0].token_logprob == -2);
}
END_TEST

START_TEST(encode_generated_says_what_protoc_does) {
    const struct ft_logprobs rows[] = {
        {.token_logprob = -0.5f, .n_top = 2, .ids = {4, 5}, .values = {-0.25f, -9999}},
        {.token_logprob = -2}};
    const int32_t ids[] = {9, 8};
    struct ft_wire_generated m = {.logprobs = rows,
                                  .n_logprobs = 2,
                                  .prompt_logprobs = rows + 1,
                                  .n_prompt_logprobs = 1,
                                  .prompt_token_ids = ids,
                                  .n_prompt_token_ids = 2,
                                  .index = 3};
    protoc("encode", "foretoken.v1.GenerateResponse",
           ft_str_c("logprobs { logprob: -0.5 top_token_ids: [4, 5] top_logprobs: [-0.25, -9999] } "
                    "logprobs { logprob: -2 } prompt_logprobs { logprob: -2 } "
                    "prompt_token_ids: [9, 8] index: 3"),
           &wire);
    ft_wire_encode_generated(&m, &other);
    check_protoc_agrees("foretoken.v1.GenerateResponse", ft_buf_str(&other), ft_buf_str(&wire));
}
END_TEST

START_TEST(decode_generated_with_uneven_logprobs_is_refused) {
    static const char *const texts[] = {
        "logprobs { top_token_ids: [1, 2] top_logprobs: -1 }",
        "prompt_logprobs { top_token_ids: [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21] "
        "top_logprobs: [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21] }"};
    for (size_t i = 0; i < 2; i++) {
        struct ft_wire_generated m;
        ft_buf_reset(&wire);
        protoc("encode", "foretoken.v1.GenerateResponse", ft_str_c(texts[i]), &wire);
        ck_assert_int_eq(ft_wire_decode_generated(ft_buf_str(&wire), arena, &m, &err),
                         FT_E_REQ_INVALID);
        ck_assert_ptr_nonnull(strstr(err.text, "top_token_ids"));
    }
}
END_TEST

START_TEST(decode_step_from_protoc_reads_every_field) {
    static const char text[] =
        "step_id: 1 epoch: 18446744073709551615 generation: 1 coordinator_epoch: 15 "
        "release: [16, 17] "
        "sequences { seq_id: 2 keep: 3 tokens: [4, 5, -6] n_logits: 7 draft_len: 8 } "
        "sequences { seq_id: 9 sampling { temperature: 0.5 top_p: 0.25 top_k: 10 min_p: 0.125 "
        "frequency_penalty: 1.5 presence_penalty: -1.5 repetition_penalty: 2 seed: 11 n_prompt: 12 "
        "bias_ids: [13, 14] bias_values: [-1.5, 1.5] coupled: true allowed_ids: [2, 9] "
        "banned_ids: 4 } }";
    struct ft_wire_step m;
    protoc("encode", "foretoken.worker.v1.StepRequest", ft_str_c(text), &wire);
    ck_assert_int_eq(ft_wire_decode_step(ft_buf_str(&wire), arena, &m, &err), FT_OK);
    ck_assert(m.step_id == 1 && m.epoch == UINT64_MAX && m.generation == 1 && m.n_seqs == 2);
    ck_assert(m.coordinator_epoch == 15 && m.n_release == 2);
    ck_assert(m.release[0] == 16 && m.release[1] == 17);
    const struct ft_wire_seq_step *a = &m.seqs[0], *b = &m.seqs[1];
    ck_assert(a->seq_id == 2 && a->keep == 3 && a->n_logits == 7 && a->draft_len == 8);
    CHECK_IDS(a->tokens, a->n_tokens, 4, 5, -6);
    ck_assert(!a->has_sampling && b->has_sampling && b->seq_id == 9 && b->n_prompt == 12);
    const struct ft_sampling *s = &b->sampling;
    ck_assert(s->temperature == 0.5f && s->top_p == 0.25f && s->top_k == 10 && s->min_p == 0.125f);
    ck_assert(s->frequency_penalty == 1.5f && s->presence_penalty == -1.5f);
    ck_assert(s->repetition_penalty == 2.0f && s->seed == 11 && s->n_bias == 2);
    ck_assert(s->bias[0].id == 13 && s->bias[1].id == 14);
    ck_assert(s->bias[0].value == -1.5f && s->bias[1].value == 1.5f && s->coupled);
    CHECK_IDS(s->allowed, s->n_allowed, 2, 9);
    CHECK_IDS(s->banned, s->n_banned, 4);
    ft_wire_encode_step(&m, &other);
    check_protoc_agrees("foretoken.worker.v1.StepRequest", ft_buf_str(&other), ft_buf_str(&wire));
}
END_TEST

START_TEST(decode_step_reply_from_protoc_reads_every_field) {
    static const char text[] =
        "step_id: 1 epoch: 2 compute_nanos: 3 results { seq_id: 4 status: SEQUENCE_NUMERIC "
        "cached: 5 first_row: 6 n_rows: 7 draft_ids: [8, 9] detail: 'row 3' prefix_hit: 10 } "
        "begin_nanos: 11";
    struct ft_wire_step_reply m;
    protoc("encode", "foretoken.worker.v1.StepResponse", ft_str_c(text), &wire);
    ck_assert_int_eq(ft_wire_decode_step_reply(ft_buf_str(&wire), arena, &m, &err), FT_OK);
    ck_assert(m.step_id == 1 && m.epoch == 2 && m.compute_nanos == 3 && m.n_results == 1);
    ck_assert_uint_eq(m.begin_nanos, 11);
    const struct ft_wire_seq_result *r = m.results;
    ck_assert(r->seq_id == 4 && r->status == FT_WIRE_SEQ_NUMERIC && r->cached == 5);
    ck_assert(r->first_row == 6 && r->n_rows == 7 && r->prefix_hit == 10);
    CHECK_IDS(r->draft_ids, r->n_draft_ids, 8, 9);
    CHECK_STR(r->detail, "row 3");
}
END_TEST

START_TEST(decode_describe_from_protoc_reads_every_field) {
    static const char text[] =
        "epoch: 1 role: 'target' model_dir: '/m' architecture: 'Llama' vocab_size: 2 "
        "tokenizer_fingerprint: '0123456789abcdef0123456789abcde\\000' max_model_len: 3 "
        "kv_block_tokens: 4 kv_blocks_total: 5 dtype: 'bf16' backend: 'cpu' device_uuid: 'u' "
        "num_parameters: 6 weight_bytes: 7 max_step_tokens: 8 max_step_sequences: 9 "
        "max_step_rows: 10 max_draft_len: 11 version: 'v' weights_fingerprint: 12";
    struct ft_wire_describe m;
    protoc("encode", "foretoken.worker.v1.DescribeResponse", ft_str_c(text), &wire);
    ck_assert_int_eq(ft_wire_decode_describe(ft_buf_str(&wire), arena, &m, &err), FT_OK);
    CHECK_STR(m.role, "target");
    CHECK_STR(m.model_dir, "/m");
    CHECK_STR(m.architecture, "Llama");
    CHECK_STR(m.tokenizer_fingerprint, "0123456789abcdef0123456789abcde\0");
    CHECK_STR(m.dtype, "bf16");
    CHECK_STR(m.backend, "cpu");
    CHECK_STR(m.device_uuid, "u");
    CHECK_STR(m.version, "v");
    ck_assert(m.epoch == 1 && m.vocab_size == 2 && m.max_model_len == 3 && m.kv_block_tokens == 4);
    ck_assert(m.kv_blocks_total == 5 && m.n_parameters == 6 && m.weight_bytes == 7);
    ck_assert(m.max_step_tokens == 8 && m.max_step_sequences == 9 && m.max_step_rows == 10);
    ck_assert(m.max_draft_len == 11 && m.weights_fingerprint == 12);
}
END_TEST

START_TEST(decode_small_worker_messages_from_protoc) {
    struct ft_wire_attach attach;
    struct ft_wire_attached attached;
    struct ft_wire_release release;
    struct ft_wire_worker_stats s;
    protoc("encode", "foretoken.worker.v1.AttachRequest",
           ft_str_c("epoch: 1 coordinator_epoch: 2 mapped: true"), &wire);
    ck_assert_int_eq(ft_wire_decode_attach(ft_buf_str(&wire), arena, &attach, &err), FT_OK);
    ck_assert(attach.epoch == 1 && attach.coordinator_epoch == 2 && attach.mapped);

    protoc("encode", "foretoken.worker.v1.AttachResponse",
           ft_str_c("shm_name: '/ft' region_bytes: 3"), &wire);
    ck_assert_int_eq(ft_wire_decode_attached(ft_buf_str(&wire), arena, &attached, &err), FT_OK);
    CHECK_STR(attached.shm_name, "/ft");
    ck_assert_uint_eq(attached.region_bytes, 3);

    protoc("encode", "foretoken.worker.v1.ReleaseRequest",
           ft_str_c("epoch: 4 seq_ids: [5, 18446744073709551615]"), &wire);
    ck_assert_int_eq(ft_wire_decode_release(ft_buf_str(&wire), arena, &release, &err), FT_OK);
    ck_assert(release.epoch == 4 && release.n_seq_ids == 2);
    ck_assert(release.seq_ids[0] == 5 && release.seq_ids[1] == UINT64_MAX);

    protoc("encode", "foretoken.worker.v1.GetStatsResponse",
           ft_str_c("epoch: 1 steps: 2 step_tokens: 3 step_nanos: 4 kv_blocks_total: 5 "
                    "kv_blocks_free: 6 kv_blocks_cached: 7 sequences: 8 resident_bytes: 9"),
           &wire);
    ck_assert_int_eq(ft_wire_decode_worker_stats(ft_buf_str(&wire), arena, &s, &err), FT_OK);
    ck_assert(s.epoch == 1 && s.steps == 2 && s.step_tokens == 3 && s.step_nanos == 4);
    ck_assert(s.kv_blocks_total == 5 && s.kv_blocks_free == 6 && s.kv_blocks_cached == 7);
    ck_assert(s.sequences == 8 && s.resident_bytes == 9);
}
END_TEST

START_TEST(decode_model_info_from_protoc_reads_every_field) {
    static const char text[] =
        "target { name: 'n' architecture: 'a' vocab_size: 1 max_model_len: 2 num_parameters: 3 "
        "weight_bytes: 4 dtype: 'd' backend: 'b' tokenizer_fingerprint: 'f' } "
        "draft { name: 'small' } speculation: 's' speculation_reason: 'r' "
        "num_speculative_tokens: 5 rejection_sample_method: 'm' max_model_len: 6 "
        "eos_token_ids: [7, 8] chat_format: 'chatml' version: 'v'";
    struct ft_wire_model_info m;
    protoc("encode", "foretoken.v1.GetModelInfoResponse", ft_str_c(text), &wire);
    ck_assert_int_eq(ft_wire_decode_model_info(ft_buf_str(&wire), arena, &m, &err), FT_OK);
    CHECK_STR(m.target.name, "n");
    CHECK_STR(m.target.architecture, "a");
    CHECK_STR(m.target.dtype, "d");
    CHECK_STR(m.target.backend, "b");
    CHECK_STR(m.target.tokenizer_fingerprint, "f");
    ck_assert(m.target.vocab_size == 1 && m.target.max_model_len == 2);
    ck_assert(m.target.n_parameters == 3 && m.target.weight_bytes == 4 && m.has_draft);
    CHECK_STR(m.draft.name, "small");
    CHECK_STR(m.speculation, "s");
    CHECK_STR(m.speculation_reason, "r");
    CHECK_STR(m.rejection_sample_method, "m");
    CHECK_STR(m.chat_format, "chatml");
    CHECK_STR(m.version, "v");
    ck_assert(m.num_speculative_tokens == 5 && m.max_model_len == 6);
    CHECK_IDS(m.eos_token_ids, m.n_eos_token_ids, 7, 8);
}
END_TEST

START_TEST(decode_stats_from_protoc_reads_every_field) {
    static const char text[] =
        "version: 'v' uptime_seconds: 0.5 num_requests_running: 1 num_requests_waiting: 2 "
        "num_requests_finished: 3 num_requests_failed: 4 num_requests_cancelled: 5 "
        "prompt_tokens_total: 6 generation_tokens_total: 7 rounds_total: 8 num_drafts_total: 9 "
        "num_draft_tokens_total: 10 num_accepted_tokens_total: 11 "
        "num_accepted_tokens_per_pos: [12, 13] residual_draws_total: 14 plain_steps_total: 15 "
        "nan_rows_total: 16 num_preemptions_total: 99 speculation: 's' speculation_reason: 'r' "
        "round_p50_us: 17 "
        "draft_step_p50_us: 18 target_step_p50_us: 19 host_p50_us: 20 accept_p50_us: 21 "
        "target { up: true epoch: 22 restarts: 23 steps: 24 step_tokens: 25 step_seconds: 26 "
        "kv_blocks_total: 27 kv_blocks_free: 28 kv_blocks_cached: 29 sequences: 30 "
        "resident_bytes: 31 } draft { steps: 32 }";
    struct ft_wire_stats m;
    protoc("encode", "foretoken.v1.GetStatsResponse", ft_str_c(text), &wire);
    ck_assert_int_eq(ft_wire_decode_stats(ft_buf_str(&wire), arena, &m, &err), FT_OK);
    CHECK_STR(m.version, "v");
    CHECK_STR(m.speculation, "s");
    CHECK_STR(m.speculation_reason, "r");
    ck_assert(m.uptime_seconds == 0.5 && m.num_requests_running == 1);
    ck_assert(m.num_requests_waiting == 2 && m.num_requests_finished == 3);
    ck_assert(m.num_requests_failed == 4 && m.num_requests_cancelled == 5);
    ck_assert(m.prompt_tokens_total == 6 && m.generation_tokens_total == 7 && m.rounds_total == 8);
    ck_assert(m.num_drafts_total == 9 && m.num_draft_tokens_total == 10);
    ck_assert(m.num_accepted_tokens_total == 11 && m.n_pos == 2 && m.accepted_per_pos[1] == 13);
    ck_assert(m.residual_draws_total == 14 && m.plain_steps_total == 15 && m.nan_rows_total == 16);
    ck_assert(m.num_preemptions_total == 99);
    ck_assert(m.round_p50_us == 17 && m.draft_step_p50_us == 18 && m.target_step_p50_us == 19);
    ck_assert(m.host_p50_us == 20 && m.accept_p50_us == 21);
    const struct ft_wire_worker_state *t = &m.target;
    ck_assert(t->up && t->epoch == 22 && t->restarts == 23 && t->steps == 24);
    ck_assert(t->step_tokens == 25 && t->step_seconds == 26 && t->kv_blocks_total == 27);
    ck_assert(t->kv_blocks_free == 28 && t->kv_blocks_cached == 29 && t->sequences == 30);
    ck_assert(t->resident_bytes == 31 && m.has_draft && m.draft.steps == 32 && !m.draft.up);
}
END_TEST

START_TEST(decode_tokens_and_text_from_protoc) {
    struct ft_wire_tokenize t;
    struct ft_wire_ids ids;
    struct ft_wire_detokenize d;
    struct ft_wire_text s;
    protoc("encode", "foretoken.v1.TokenizeRequest",
           ft_str_c("text: 'q' parse_special: true add_special_tokens: false"), &wire);
    ck_assert_int_eq(ft_wire_decode_tokenize(ft_buf_str(&wire), arena, &t, &err), FT_OK);
    CHECK_STR(t.input.text, "q");
    ck_assert(t.has_parse_special && t.parse_special);
    ck_assert(t.has_add_special_tokens && !t.add_special_tokens);
    protoc("encode", "foretoken.v1.TokenizeResponse", ft_str_c("token_ids: [1, 2]"), &wire);
    ck_assert_int_eq(ft_wire_decode_ids(ft_buf_str(&wire), arena, &ids, &err), FT_OK);
    CHECK_IDS(ids.ids, ids.n_ids, 1, 2);
    protoc("encode", "foretoken.v1.DetokenizeRequest",
           ft_str_c("token_ids: [3] skip_special_tokens: true"), &wire);
    ck_assert_int_eq(ft_wire_decode_detokenize(ft_buf_str(&wire), arena, &d, &err), FT_OK);
    CHECK_IDS(d.ids, d.n_ids, 3);
    ck_assert(d.has_skip_special_tokens && d.skip_special_tokens);
    protoc("encode", "foretoken.v1.DetokenizeResponse", ft_str_c("text: '\\000'"), &wire);
    ck_assert_int_eq(ft_wire_decode_text(ft_buf_str(&wire), arena, &s, &err), FT_OK);
    CHECK_STR(s.text, "\0");
}
END_TEST

/* Our bytes, through protoc to text and back to bytes, are the message that was encoded. */
START_TEST(encode_any_message_is_understood_by_protoc) {
    static const char *const types[] = {
        "worker.v1.DescribeResponse", "worker.v1.AttachRequest",    "worker.v1.AttachResponse",
        "worker.v1.ReleaseRequest",   "worker.v1.GetStatsResponse", "worker.v1.StepRequest",
        "worker.v1.StepResponse",     "v1.GenerateRequest",         "v1.GenerateResponse",
        "v1.TokenizeRequest",         "v1.TokenizeResponse",        "v1.DetokenizeRequest",
        "v1.DetokenizeResponse",      "v1.GetModelInfoResponse",    "v1.GetStatsResponse",
    };
    ck_assert_uint_eq(sizeof types / sizeof types[0], n_wire_samples);
    struct ft_buf made, read;
    ft_buf_init(&made, 0);
    ft_buf_init(&read, 0);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        const struct wire_sample *row = &wire_samples[_i];
        struct sample_rng rng = {seed * 1000 + (uint64_t)_i};
        char type[64];
        snprintf(type, sizeof type, "foretoken.%s", types[_i]);
        ft_buf_reset(&wire);
        ft_buf_reset(&made);
        ft_buf_reset(&read);
        row->make(&rng, arena, &wire, &made);
        protoc("decode", type, ft_buf_str(&wire), &other);
        protoc("encode", type, ft_buf_str(&other), &wire);
        ck_assert_int_eq(row->read(ft_buf_str(&wire), arena, &read, &err), FT_OK);
        ck_assert_msg(strcmp(made.ptr, read.ptr) == 0, "%s seed %d", row->name, (int)seed);
    }
    ft_buf_fini(&made);
    ft_buf_fini(&read);
}
END_TEST

/* ---- round trips ---------------------------------------------------------------------------- */

START_TEST(encode_any_message_decodes_to_the_same) {
    const struct wire_sample *row = &wire_samples[_i];
    struct ft_buf made, read;
    ft_buf_init(&made, 0);
    ft_buf_init(&read, 0);
    for (uint64_t seed = 0; seed < 1000; seed++) {
        struct sample_rng rng = {seed};
        ft_buf_reset(&wire);
        ft_buf_reset(&made);
        ft_buf_reset(&read);
        ft_arena_reset(arena);
        row->make(&rng, arena, &wire, &made);
        ck_assert(!wire.failed);
        ck_assert_int_eq(row->read(ft_buf_str(&wire), arena, &read, &err), FT_OK);
        ck_assert_msg(made.len == read.len && memcmp(made.ptr, read.ptr, made.len) == 0,
                      "%s seed %d", row->name, (int)seed);
    }
    ft_buf_fini(&made);
    ft_buf_fini(&read);
}
END_TEST

START_TEST(decode_logit_bias_keeps_order_and_repeats) {
    const struct ft_bias bias[] = {{9, 1}, {3, 2}, {9, 3}, {-1, 4}};
    struct ft_wire_generate m = {.params = {.logit_bias = bias, .n_logit_bias = 4}}, read;
    ft_wire_encode_generate(&m, &wire);
    ck_assert_int_eq(ft_wire_decode_generate(ft_buf_str(&wire), arena, &read, &err), FT_OK);
    ck_assert_uint_eq(read.params.n_logit_bias, 4);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_int_eq(read.params.logit_bias[i].id, bias[i].id);
        ck_assert(read.params.logit_bias[i].value == bias[i].value);
    }
}
END_TEST

START_TEST(dev25_nul_byte_survives_in_every_text) {
    struct ft_wire_chat_message chat = {{"u\0x", 3}, {"\0", 1}};
    struct ft_str stop = {"\0b", 2};
    struct ft_wire_generate m = {
        .request_id = {"r\0", 2},
        .input = {.kind = FT_WIRE_INPUT_CHAT, .messages = &chat, .n_messages = 1},
        .params = {.stop = &stop, .n_stop = 1}};
    struct ft_wire_generate read;
    ft_wire_encode_generate(&m, &wire);
    ck_assert_int_eq(ft_wire_decode_generate(ft_buf_str(&wire), arena, &read, &err), FT_OK);
    CHECK_STR(read.request_id, "r\0");
    CHECK_STR(read.input.messages[0].role, "u\0x");
    CHECK_STR(read.input.messages[0].content, "\0");
    CHECK_STR(read.params.stop[0], "\0b");
    m.input = (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_TEXT, .text = {"ab\0cd", 5}};
    ft_buf_reset(&wire);
    ft_wire_encode_generate(&m, &wire);
    ck_assert_int_eq(ft_wire_decode_generate(ft_buf_str(&wire), arena, &read, &err), FT_OK);
    CHECK_STR(read.input.text, "ab\0cd");
}
END_TEST

START_TEST(encode_past_the_buffer_limit_fails_the_buffer) {
    struct ft_wire_chat_message chat = {{"user", 4}, {"0123456789", 10}};
    struct ft_wire_generate m = {
        .input = {.kind = FT_WIRE_INPUT_CHAT, .messages = &chat, .n_messages = 1}};
    struct ft_buf small;
    ft_buf_init(&small, 8);
    ft_wire_encode_generate(&m, &small);
    ck_assert(small.failed);
    ft_buf_fini(&small);
}
END_TEST

static TCase *protoc_case(void) {
    TCase *tc = tcase_create("protoc");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, decode_generate_from_protoc_reads_every_field);
    tcase_add_test(tc, decode_generate_from_protoc_reads_every_input);
    tcase_add_test(tc, decode_generate_tells_empty_from_absent);
    tcase_add_test(tc, decode_generated_from_protoc_reads_every_field);
    tcase_add_test(tc, decode_generated_with_uneven_logprobs_is_refused);
    tcase_add_test(tc, encode_generated_says_what_protoc_does);
    tcase_add_test(tc, decode_step_from_protoc_reads_every_field);
    tcase_add_test(tc, decode_step_reply_from_protoc_reads_every_field);
    tcase_add_test(tc, decode_describe_from_protoc_reads_every_field);
    tcase_add_test(tc, decode_small_worker_messages_from_protoc);
    tcase_add_test(tc, decode_model_info_from_protoc_reads_every_field);
    tcase_add_test(tc, decode_stats_from_protoc_reads_every_field);
    tcase_add_test(tc, decode_tokens_and_text_from_protoc);
    tcase_add_loop_test(tc, encode_any_message_is_understood_by_protoc, 0, (int)n_wire_samples);
    return tc;
}

static TCase *wire_case(void) {
    TCase *tc = tcase_create("wire");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, encode_any_message_decodes_to_the_same, 0, (int)n_wire_samples);
    tcase_add_test(tc, decode_logit_bias_keeps_order_and_repeats);
    tcase_add_test(tc, dev25_nul_byte_survives_in_every_text);
    tcase_add_test(tc, encode_past_the_buffer_limit_fails_the_buffer);
    return tc;
}

int main(void) {
    Suite *suite = suite_create("wire");
    suite_add_tcase(suite, protoc_case());
    suite_add_tcase(suite, wire_case());
    return suite_run(suite);
}
