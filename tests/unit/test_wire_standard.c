/* Messages of services that others have named, byte for byte as their clients write and read them:
 * health, reflection, VllmEngine. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire/health.h"
#include "common/wire/reflection.h"
#include "common/wire/vllm_engine.h"
#include "support/suite.h"

static struct ft_arena *g_arena;
static struct ft_buf g_out;

static void setup(void) {
    g_arena = ft_arena_create(4096, 1 << 20);
    ft_buf_init(&g_out, 0);
}

static void teardown(void) {
    ft_arena_destroy(&g_arena);
    ft_buf_fini(&g_out);
}

static struct ft_str bytes_of(const char *hex) {
    static char out[512];
    size_t n = 0;
    for (const char *at = hex; *at != 0; at++) {
        unsigned value;
        if (*at == ' ')
            continue;
        ck_assert_int_eq(sscanf(at, "%2x", &value), 1);
        out[n++] = (char)value;
        at++;
    }
    return (struct ft_str){out, n};
}

/* What lies in g_out, and nothing else, is these bytes. */
static void assert_bytes(const char *hex) {
    struct ft_str wanted = bytes_of(hex);
    ck_assert_uint_eq(g_out.len, wanted.len);
    for (size_t i = 0; i < wanted.len; i++)
        ck_assert_msg(g_out.ptr[i] == wanted.ptr[i], "byte %zu is %02x", i,
                      (unsigned char)g_out.ptr[i]);
    ft_buf_reset(&g_out);
}

START_TEST(health_is_byte_for_byte_the_standard) {
    struct ft_str service;
    enum ft_wire_health status;
    struct ft_err err = {0};
    ft_wire_encode_health_request(ft_str_c("a.B"), &g_out);
    assert_bytes("0a 03 61 2e 42");
    ft_wire_encode_health(FT_WIRE_HEALTH_NOT_SERVING, &g_out);
    assert_bytes("08 02");
    ck_assert_int_eq(
        ft_wire_decode_health_request(bytes_of("0a 03 61 2e 42"), g_arena, &service, &err), FT_OK);
    ck_assert(ft_str_eq(service, ft_str_c("a.B")));
    ck_assert_int_eq(ft_wire_decode_health_request(bytes_of(""), g_arena, &service, &err), FT_OK);
    ck_assert_uint_eq(service.len, 0);
    ck_assert_int_eq(ft_wire_decode_health_request(bytes_of("0a 01 ff"), g_arena, &service, &err),
                     FT_E_REQ_INVALID);
    static const struct {
        const char *hex;
        enum ft_wire_health status;
    } rows[] = {{"", FT_WIRE_HEALTH_UNKNOWN},
                {"08 01", FT_WIRE_HEALTH_SERVING},
                {"08 03", FT_WIRE_HEALTH_SERVICE_UNKNOWN},
                {"08 63", FT_WIRE_HEALTH_UNKNOWN}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_int_eq(ft_wire_decode_health(bytes_of(rows[i].hex), g_arena, &status, &err),
                         FT_OK);
        ck_assert_int_eq(status, rows[i].status);
    }
}
END_TEST

/* ---- VllmEngine ------------------------------------------------------------------------------ */

START_TEST(vllm_request_decodes_with_presence_and_their_zeros) {
    struct ft_wire_generate r;
    struct ft_err err = {0};
    /* request_id "r"; tokenized.input_ids 1 2 300; temperature 0, top_k 5, max_tokens 7, stop "x",
     * stop_token_ids 9, seed -1, logit_bias {3: 0.5}; stream */
    struct ft_str in = bytes_of("0a 01 72  12 06 12 04 01 02 ac 02"
                                "22 25 0d 00000000 18 05 40 07 52 01 78 5a 01 09"
                                "c0 01 ff ff ff ff ff ff ff ff ff 01 d2 01 07 08 03 15 00 00 00 3f"
                                "28 01");
    ck_assert_msg(ft_wire_decode_vllm_generate(in, g_arena, &r, &err) == FT_OK, "%s", err.text);
    ck_assert(ft_str_eq(r.request_id, ft_str_c("r")));
    ck_assert_int_eq(r.input.kind, FT_WIRE_INPUT_IDS);
    ck_assert_uint_eq(r.input.n_ids, 3);
    ck_assert_int_eq(r.input.ids[2], 300);
    ck_assert(r.stream && r.params.has_temperature && r.params.has_max_tokens);
    ck_assert(r.params.temperature == 0.0f);
    ck_assert_int_eq(r.params.top_k, 5);
    ck_assert_uint_eq(r.params.max_tokens, 7);
    ck_assert_uint_eq(r.params.n_stop, 1);
    ck_assert_int_eq(r.params.stop_token_ids[0], 9);
    ck_assert(r.params.has_seed && r.params.seed == UINT64_MAX);
    ck_assert_uint_eq(r.params.n_logit_bias, 1);
    ck_assert(r.params.logit_bias[0].id == 3 && r.params.logit_bias[0].value == 0.5f);
    ck_assert(!r.params.has_top_p && !r.params.has_repetition_penalty && !r.params.has_n);
    ck_assert(r.params.has_skip_special_tokens && !r.params.skip_special_tokens);

    in = bytes_of("1a 02 68 69"); /* text "hi", nothing else */
    ck_assert_int_eq(ft_wire_decode_vllm_generate(in, g_arena, &r, &err), FT_OK);
    ck_assert_int_eq(r.input.kind, FT_WIRE_INPUT_TEXT);
    ck_assert(!r.params.has_temperature && !r.params.has_max_tokens && !r.params.has_seed);
    in = bytes_of("1a 00 22 0c d8 01 ff ff ff ff ff ff ff ff ff 01"); /* truncate -1 */
    ck_assert_msg(ft_wire_decode_vllm_generate(in, g_arena, &r, &err) == FT_OK, "%s", err.text);
    ck_assert_uint_eq(r.params.truncate_prompt_tokens, FT_WIRE_VLLM_TRUNCATE_TO_MODEL);
}
END_TEST

START_TEST(vllm_field_that_is_not_supported_is_named) {
    static const struct {
        const char *hex, *says;
        enum ft_code code;
    } rows[] = {
        {"1a 01 78 22 04 82 01 01 7b", "json_schema", FT_E_REQ_UNSUPPORTED},
        {"1a 01 78 22 04 8a 01 01 61", "regex", FT_E_REQ_UNSUPPORTED},
        {"1a 01 78 22 04 92 01 01 61", "grammar", FT_E_REQ_UNSUPPORTED},
        {"1a 01 78 22 04 9a 01 01 61", "structural_tag", FT_E_REQ_UNSUPPORTED},
        {"1a 01 78 22 03 a0 01 00", "json_object", FT_E_REQ_UNSUPPORTED},
        {"1a 01 78 22 03 aa 01 00", "choice", FT_E_REQ_UNSUPPORTED},
        {"1a 01 78 22 0c b0 01 ff ff ff ff ff ff ff ff ff 01", "logprobs -1", FT_E_REQ_UNSUPPORTED},
        {"1a 01 78 32 00", "kv_transfer_params", FT_E_REQ_UNSUPPORTED},
        {"1a 01 78 3a 00", "mm_inputs", FT_E_REQ_UNSUPPORTED},
        {"1a 01 78 3a 02 08 01", "mm_inputs", FT_E_REQ_UNSUPPORTED},
        {"1a 01 78 42 00", "kv_transfer_params_json", FT_E_REQ_UNSUPPORTED},
        {"1a 01 78 52 00", "media_refs", FT_E_REQ_UNSUPPORTED},
        {"1a 01 78 5a 00", "extra_mm_inputs", FT_E_REQ_UNSUPPORTED},
        {"1a 01 78 48 01", "data_parallel_rank is 1", FT_E_REQ_INVALID},
        {"0a 01 78", "no input", FT_E_REQ_INVALID},
        {"0a 01 ff 1a 01 78", "request_id", FT_E_REQ_INVALID},
        {"1a 01 78 22 0c d8 01 fe ff ff ff ff ff ff ff ff 01", "is -2", FT_E_REQ_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ft_wire_generate r;
        struct ft_err err = {0};
        ck_assert_int_eq(ft_wire_decode_vllm_generate(bytes_of(rows[i].hex), g_arena, &r, &err),
                         rows[i].code);
        ck_assert_msg(strstr(err.text, rows[i].says) != NULL, "%zu: %s", i, err.text);
    }
    struct ft_wire_generate r;
    struct ft_err err = {0};
    ck_assert_int_eq(ft_wire_decode_vllm_generate(bytes_of("1a 01 78 48 00"), g_arena, &r, &err),
                     FT_OK);
}
END_TEST

START_TEST(vllm_chunk_is_byte_for_byte_theirs) {
    static const int32_t ids[] = {5, 300};
    struct ft_wire_vllm_output out = {.ids = ids,
                                      .n_ids = 2,
                                      .prompt_tokens = 3,
                                      .completion_tokens = 4,
                                      .cached_tokens = 1,
                                      .index = 2};
    ft_wire_encode_vllm_chunk(&out, &g_out);
    assert_bytes("0a 0d 0a 03 05 ac 02 10 03 18 04 20 01 38 02");
    struct ft_logprobs row = {.token_logprob = -0.5f, .n_top = 1, .ids = {7}, .values = {-0.25f}};
    out = (struct ft_wire_vllm_output){.ids = ids, .n_ids = 2, .logprobs = &row, .n_logprobs = 1};
    ft_wire_encode_vllm_chunk(&out, &g_out);
    assert_bytes("0a 1c 0a 03 05 ac 02"
                 "2a 15 0a 04 00 00 00 bf 12 02 ac 02 1a 09 0a 04 00 00 80 be 12 01 07");
}
END_TEST

START_TEST(vllm_prompt_logprobs_leave_the_first_token_without_one) {
    static const int32_t prompt[] = {1, 2};
    struct ft_logprobs row = {.token_logprob = -0.5f};
    struct ft_wire_vllm_output out = {.has_prompt_logprobs = true,
                                      .prompt_ids = prompt,
                                      .prompt_logprobs = &row,
                                      .n_prompt_logprobs = 1};
    ft_wire_encode_vllm_chunk(&out, &g_out);
    assert_bytes("0a 13 32 11 12 02 01 02 0a 00 1a 00 0a 05 0d 00 00 00 bf 1a 00");
}
END_TEST

START_TEST(vllm_complete_is_byte_for_byte_theirs) {
    static const int32_t ids[] = {5, 6};
    struct ft_wire_vllm_output out = {.ids = ids,
                                      .n_ids = 2,
                                      .prompt_tokens = 3,
                                      .completion_tokens = 2,
                                      .finish = FT_WIRE_FINISH_STOP,
                                      .has_matched_token = true,
                                      .matched_token_id = 6,
                                      .spec_accepted = 1,
                                      .spec_drafted = 4};
    ft_wire_encode_vllm_complete(&out, &g_out);
    assert_bytes("12 14 0a 02 05 06 12 04 73 74 6f 70 18 03 20 02 50 06 68 01 70 04");
    out.has_matched_token = false;
    out.has_matched_str = true;
    out.matched_stop_str = ft_str_c("E");
    out.finish = FT_WIRE_FINISH_ABORT;
    ft_wire_encode_vllm_complete(&out, &g_out);
    assert_bytes("12 16 0a 02 05 06 12 05 61 62 6f 72 74 18 03 20 02 5a 01 45 68 01 70 04");
}
END_TEST

START_TEST(vllm_abort_takes_many_ids) {
    const struct ft_str *ids;
    size_t n = 0;
    struct ft_err err = {0};
    ck_assert_int_eq(
        ft_wire_decode_vllm_abort(bytes_of("0a 01 61 0a 02 62 63"), g_arena, &ids, &n, &err),
        FT_OK);
    ck_assert_uint_eq(n, 2);
    ck_assert(ft_str_eq(ids[1], ft_str_c("bc")));
    ck_assert_int_eq(ft_wire_decode_vllm_loads(bytes_of("08 00 12 04 63 6f 72 65"), g_arena, &err),
                     FT_OK);
    ck_assert_int_eq(ft_wire_decode_vllm_loads(bytes_of("08 01"), g_arena, &err), FT_E_REQ_INVALID);
}
END_TEST

/* ---- schema and reflection ------------------------------------------------------------------- */

static struct ft_wire_schema schema_of_build(void) {
    struct ft_wire_schema schema;
    struct ft_err err = {0};
    ck_assert_msg(ft_wire_schema_read(&schema, ft_wire_schema_builtin(), &err) == FT_OK, "%s",
                  err.text);
    return schema;
}

START_TEST(schema_finds_what_protos_declare) {
    static const struct {
        const char *symbol, *file;
    } rows[] = {
        {"foretoken.v1.Inference", "foretoken/v1/inference.proto"},
        {"foretoken.v1.Inference.Generate", "foretoken/v1/inference.proto"},
        {"foretoken.v1.GenerateRequest", "foretoken/v1/inference.proto"},
        {"foretoken.v1.GenerateRequest.text", "foretoken/v1/inference.proto"},
        {"foretoken.v1.GenerateRequest.input", "foretoken/v1/inference.proto"},
        {"foretoken.v1.SamplingParams.LogitBiasEntry.key", "foretoken/v1/inference.proto"},
        {"foretoken.v1.FinishReason", "foretoken/v1/inference.proto"},
        {"foretoken.v1.FINISH_REASON_STOP", "foretoken/v1/inference.proto"},
        {"grpc.health.v1.HealthCheckResponse.ServingStatus", "grpc/health/v1/health.proto"},
        {"grpc.health.v1.HealthCheckResponse.SERVING", "grpc/health/v1/health.proto"},
        {"grpc.reflection.v1alpha.ServerReflection", "grpc/reflection/v1alpha/reflection.proto"},
        {"vllm.grpc.engine.VllmEngine.Abort", "vllm/grpc/engine/vllm_engine.proto"},
        {"foretoken.v1", NULL},
        {"foretoken.v1.", NULL},
        {"foretoken.v1.Inference.", NULL},
        {"foretoken.v1.Inferenc", NULL},
        {"foretoken.v1.Inference.Generate.x", NULL},
        {"foretoken.v1.GenerateRequest.stop", NULL},
        {"foretoken.worker.v1.TargetWorker", NULL}, /* not served here */
        {"Inference", NULL},
        {".foretoken.v1.Inference", NULL},
        {"", NULL},
    };
    struct ft_wire_schema schema = schema_of_build();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int32_t file = ft_wire_schema_find_symbol(&schema, ft_str_c(rows[i].symbol));
        ck_assert_msg((file >= 0) == (rows[i].file != NULL), "%s", rows[i].symbol);
        if (file >= 0)
            ck_assert(ft_str_eq(schema.files[file].name, ft_str_c(rows[i].file)));
    }
}
END_TEST

START_TEST(schema_closes_over_imports_and_refuses_what_is_no_set) {
    /* a imports nothing, b imports a, c imports b; each file is its name and imports */
    struct ft_str set =
        bytes_of("0a 03 0a 01 61  0a 06 0a 01 62 1a 01 61  0a 06 0a 01 63 1a 01 62");
    struct ft_wire_schema schema;
    struct ft_err err = {0};
    ck_assert_int_eq(ft_wire_schema_read(&schema, set, &err), FT_OK);
    ck_assert_int_eq(schema.n_files, 3);
    ck_assert_uint_eq(schema.files[2].closure, 7);
    ck_assert_uint_eq(schema.files[0].closure, 1);
    ck_assert_int_eq(ft_wire_schema_read(&schema, bytes_of("0a 06 0a 01 62 1a 01 61"), &err),
                     FT_E_PROC_INTERNAL);
    ck_assert_msg(strstr(err.text, "a is missing") != NULL, "%s", err.text);
    ck_assert_int_eq(ft_wire_schema_read(&schema, bytes_of("0a 7f"), &err), FT_E_PROC_INTERNAL);
}
END_TEST

START_TEST(reflection_answers_are_byte_for_byte_the_standard) {
    struct ft_wire_schema schema;
    struct ft_err err = {0};
    ck_assert_int_eq(ft_wire_schema_read(&schema, bytes_of("0a 03 0a 01 61"), &err), FT_OK);
    char file[5];
    memcpy(file, schema.files[0].bytes.ptr, schema.files[0].bytes.len);
    schema.files[0].bytes.ptr = file; /* bytes_of has one buffer */
    schema.files[0].name = (struct ft_str){"a", 1};
    /* file_by_filename "a" */
    ck_assert_int_eq(
        ft_wire_reflection_answer(&schema, bytes_of("1a 01 61"), g_arena, &g_out, &err), FT_OK);
    assert_bytes("0a 00 12 03 1a 01 61 22 05 0a 03 0a 01 61");
    /* list_services: none */
    ck_assert_int_eq(
        ft_wire_reflection_answer(&schema, bytes_of("0a 01 68 3a 00"), g_arena, &g_out, &err),
        FT_OK);
    assert_bytes("0a 01 68 12 05 0a 01 68 3a 00 32 00");
    /* file_by_filename "b" */
    ck_assert_int_eq(
        ft_wire_reflection_answer(&schema, bytes_of("1a 01 62"), g_arena, &g_out, &err), FT_OK);
    assert_bytes(
        "0a 00 12 03 1a 01 62 3a 14 08 05 12 10 6e 6f 20 66 69 6c 65 20 27 62 27 20 68 65 72 "
        "65");
    ck_assert_int_eq(ft_wire_reflection_answer(&schema, bytes_of(""), g_arena, &g_out, &err),
                     FT_E_REQ_INVALID);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("wire_standard");
    TCase *t = tcase_create("wire_standard");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, health_is_byte_for_byte_the_standard);
    tcase_add_test(t, vllm_request_decodes_with_presence_and_their_zeros);
    tcase_add_test(t, vllm_field_that_is_not_supported_is_named);
    tcase_add_test(t, vllm_chunk_is_byte_for_byte_theirs);
    tcase_add_test(t, vllm_prompt_logprobs_leave_the_first_token_without_one);
    tcase_add_test(t, vllm_complete_is_byte_for_byte_theirs);
    tcase_add_test(t, vllm_abort_takes_many_ids);
    tcase_add_test(t, schema_finds_what_protos_declare);
    tcase_add_test(t, schema_closes_over_imports_and_refuses_what_is_no_set);
    tcase_add_test(t, reflection_answers_are_byte_for_byte_the_standard);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
