#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/config.h"
#include "support/fixtures.h"
#include "support/suite.h"

/* A Llama of small, distinct sizes; tests change keys of it. */
static const char k_llama[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_act\": "
    "\"silu\", \"vocab_size\": 320, \"hidden_size\": 64, \"intermediate_size\": 160, "
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"max_position_embeddings\": 256, \"rms_norm_eps\": 1e-05, \"torch_dtype\": \"bfloat16\", "
    "\"eos_token_id\": 2}";

/* Parse the Llama with the keys of patch set; a key whose value is "<absent>" is removed. */
static enum ft_code parse(const char *patch, const char *generation, struct ft_model_config *out,
                          struct ft_err *err) {
    json_t *base = json_loads(k_llama, 0, NULL), *changes = json_loads(patch, 0, NULL);
    ck_assert_msg(base != NULL && changes != NULL, "bad test: %s", patch);
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(changes, key, value) {
        if (json_is_string(value) && strcmp(json_string_value(value), "<absent>") == 0)
            json_object_del(base, key);
        else
            json_object_set(base, key, value);
    }
    char *text = json_dumps(base, 0);
    enum ft_code code = ft_model_config_parse(ft_str_c(text), ft_str_c(generation), out, err);
    free(text);
    json_decref(changes);
    json_decref(base);
    return code;
}

static struct ft_model_config parse_ok(const char *patch, const char *generation) {
    struct ft_model_config c;
    struct ft_err err = {0};
    ck_assert_msg(parse(patch, generation, &c, &err) == FT_OK, "%s: %s", patch, err.text);
    return c;
}

/* Refused with a text that holds every word, and out untouched. */
static void parse_refused(const char *patch, const char *const *words, size_t n_words) {
    struct ft_model_config c, before;
    memset(&c, 0x5a, sizeof c);
    memcpy(&before, &c, sizeof c);
    struct ft_err err = {0};
    ck_assert_msg(parse(patch, NULL, &c, &err) == FT_E_PROC_MODEL, "accepted %s", patch);
    ck_assert_int_eq(err.code, FT_E_PROC_MODEL);
    ck_assert(memcmp(&c, &before, sizeof c) == 0);
    ck_assert_msg(strstr(err.text, "config.json") != NULL, "%s", err.text);
    for (size_t i = 0; i < n_words; i++)
        ck_assert_msg(strstr(err.text, words[i]) != NULL, "%s: \"%s\" is not in: %s", patch,
                      words[i], err.text);
}

START_TEST(load_golden_reads_every_key) {
    struct ft_model_config c;
    struct ft_err err = {0};
    ck_assert_msg(ft_model_config_load(ft_fixture_source("tests/data/golden/llama-mqa-rope-llama3"),
                                       &c, &err) == FT_OK,
                  "%s", err.text);
    ck_assert_str_eq(c.architecture, "LlamaForCausalLM");
    ck_assert_int_eq(c.vocab_size, 320);
    ck_assert_int_eq(c.hidden_size, 64);
    ck_assert_int_eq(c.intermediate_size, 160);
    ck_assert_int_eq(c.n_layers, 3);
    ck_assert_int_eq(c.n_heads, 4);
    ck_assert_int_eq(c.n_kv_heads, 1);
    ck_assert_int_eq(c.head_dim, 16);
    ck_assert_int_eq(c.max_position_embeddings, 256);
    ck_assert_float_eq(c.rms_norm_eps, 1e-5f);
    ck_assert(c.tie_word_embeddings && c.tie_word_embeddings_given);
    ck_assert(!c.attention_bias && !c.attention_out_bias && !c.mlp_bias && !c.qk_norm);
    ck_assert_int_eq(c.rope_kind, FT_ROPE_LLAMA3);
    ck_assert_float_eq(c.rope_theta, 500000.0f);
    ck_assert_float_eq(c.rope_factor, 8.0f);
    ck_assert_float_eq(c.rope_low_freq_factor, 1.0f);
    ck_assert_float_eq(c.rope_high_freq_factor, 4.0f);
    ck_assert_int_eq(c.rope_original_max_position, 64);
    ck_assert_int_eq(c.sliding_window, 0);
    ck_assert_int_eq(c.bos_token_id, 1);
    ck_assert_int_eq(c.n_eos, 1);
    ck_assert_int_eq(c.eos_token_ids[0], 2);
}
END_TEST

START_TEST(load_golden_architectures_differ_as_they_should) {
    static const struct {
        const char *dir;
        bool bias, out_bias, mlp_bias, qk_norm, tied;
        int32_t head_dim;
    } rows[] = {
        {"llama-bias", true, true, true, false, false, 16},
        {"llama-untied-f32", false, false, false, false, false, 16},
        {"mistral-untied", false, false, false, false, false, 16},
        {"qwen2-tied", true, false, false, false, true, 16},
        {"qwen3-qknorm", false, false, false, true, true, 32},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char dir[128];
        snprintf(dir, sizeof dir, "tests/data/golden/%s", rows[i].dir);
        struct ft_model_config c;
        struct ft_err err = {0};
        ck_assert_msg(ft_model_config_load(ft_fixture_source(dir), &c, &err) == FT_OK, "%s",
                      err.text);
        ck_assert_int_eq(c.attention_bias, rows[i].bias);
        ck_assert_int_eq(c.attention_out_bias, rows[i].out_bias);
        ck_assert_int_eq(c.mlp_bias, rows[i].mlp_bias);
        ck_assert_int_eq(c.qk_norm, rows[i].qk_norm);
        ck_assert_int_eq(c.tie_word_embeddings, rows[i].tied);
        ck_assert_int_eq(c.head_dim, rows[i].head_dim);
    }
}
END_TEST

START_TEST(parse_old_and_new_key_names_agree) {
    struct ft_model_config old =
        parse_ok("{\"rope_theta\": 500000, \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, "
                 "\"low_freq_factor\": 1, \"high_freq_factor\": 4, "
                 "\"original_max_position_embeddings\": 64}}",
                 NULL);
    struct ft_model_config new =
        parse_ok("{\"torch_dtype\": \"<absent>\", \"dtype\": \"bfloat16\", \"rope_parameters\": "
                 "{\"rope_type\": \"llama3\", \"rope_theta\": 500000.0, \"factor\": 8.0, "
                 "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
                 "\"original_max_position_embeddings\": 64}}",
                 NULL);
    ck_assert_int_eq(old.rope_kind, FT_ROPE_LLAMA3);
    ck_assert_int_eq(new.rope_kind, old.rope_kind);
    ck_assert_float_eq(new.rope_theta, old.rope_theta);
    ck_assert_float_eq(new.rope_factor, old.rope_factor);
    ck_assert_float_eq(new.rope_low_freq_factor, old.rope_low_freq_factor);
    ck_assert_float_eq(new.rope_high_freq_factor, old.rope_high_freq_factor);
    ck_assert_int_eq(new.rope_original_max_position, old.rope_original_max_position);
    struct ft_model_config linear =
        parse_ok("{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}}", NULL);
    ck_assert_int_eq(linear.rope_kind, FT_ROPE_LINEAR);
    ck_assert_float_eq(linear.rope_factor, 4.0f);
    ck_assert_float_eq(linear.rope_theta, 10000.0f);
    ck_assert_int_eq(parse_ok("{\"rope_scaling\": null}", NULL).rope_kind, FT_ROPE_DEFAULT);
    ck_assert_int_eq(parse_ok("{\"rope_parameters\": {\"rope_type\": \"linear\", \"type\": "
                              "\"linear\", \"rope_theta\": 10000, \"factor\": 2, "
                              "\"partial_rotary_factor\": 1.0, \"beta_fast\": null}}",
                              NULL)
                         .rope_kind,
                     FT_ROPE_LINEAR);
    ck_assert_int_eq(parse_ok("{\"rope_scaling\": {\"rope_type\": \"default\"}}", NULL).rope_kind,
                     FT_ROPE_DEFAULT);
}
END_TEST

START_TEST(dev38_head_dim_is_explicit_or_derived) {
    ck_assert_int_eq(parse_ok("{}", NULL).head_dim, 16);
    ck_assert_int_eq(parse_ok("{\"head_dim\": null}", NULL).head_dim, 16);
    ck_assert_int_eq(parse_ok("{\"head_dim\": 32}", NULL).head_dim, 32);
    ck_assert_int_eq(parse_ok("{\"head_dim\": 8}", NULL).head_dim, 8);
    ck_assert_int_eq(parse_ok("{\"num_key_value_heads\": \"<absent>\"}", NULL).n_kv_heads, 4);
    ck_assert_int_eq(parse_ok("{\"num_key_value_heads\": null}", NULL).n_kv_heads, 4);
    ck_assert_int_eq(parse_ok("{\"num_key_value_heads\": 1}", NULL).n_kv_heads, 1);
    /* Absent is not null where the architecture has a number of its own. */
    static const char *const archs[][2] = {
        {"Mistral", "mistral"}, {"Qwen2", "qwen2"}, {"Qwen3", "qwen3"}};
    for (size_t i = 0; i < 3; i++) {
        char patch[256];
        static const char format[] = "{\"architectures\": [\"%sForCausalLM\"], \"model_type\": "
                                     "\"%s\", \"hidden_size\": 2048, "
                                     "\"num_attention_heads\": %d, \"num_key_value_heads\": %s}";
        snprintf(patch, sizeof patch, format, archs[i][0], archs[i][1], 64, "\"<absent>\"");
        ck_assert_int_eq(parse_ok(patch, NULL).n_kv_heads, i == 0 ? 8 : 32);
        snprintf(patch, sizeof patch, format, archs[i][0], archs[i][1], 64, "null");
        ck_assert_int_eq(parse_ok(patch, NULL).n_kv_heads, 64);
        snprintf(patch, sizeof patch, format, archs[i][0], archs[i][1], 4, "\"<absent>\"");
        parse_refused(patch, (const char *const[]){"num_key_value_heads", "missing", "4"}, 3);
    }
    /* Qwen3's own default, which is not hidden / heads. */
    ck_assert_int_eq(
        parse_ok("{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\"}", NULL)
            .head_dim,
        128);
    static const char *const words[] = {"head_dim", "64", "5"};
    parse_refused("{\"num_attention_heads\": 5, \"num_key_value_heads\": 1}", words, 3);
    parse_refused("{\"head_dim\": 15}", (const char *const[]){"head_dim", "15", "even"}, 3);
}
END_TEST

START_TEST(dev43_eos_ids_are_the_union_of_both_files) {
    static const struct {
        const char *config, *generation;
        int32_t n, ids[4];
    } rows[] = {
        {"257", "[257, 258]", 2, {257, 258}},
        {"[258, 257]", "300", 3, {257, 258, 300}},
        {"[5, 5, 1]", "5", 2, {1, 5}},
        {"257", NULL, 1, {257}},
        {"null", "258", 1, {258}},
        {"\"<absent>\"", "[258]", 1, {258}},
        {"[]", "null", 0, {0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char patch[64], generation[64];
        snprintf(patch, sizeof patch, "{\"eos_token_id\": %s}", rows[i].config);
        snprintf(generation, sizeof generation, "{\"eos_token_id\": %s}",
                 rows[i].generation == NULL ? "" : rows[i].generation);
        struct ft_model_config c = parse_ok(patch, rows[i].generation == NULL ? NULL : generation);
        ck_assert_msg(c.n_eos == rows[i].n, "%s and %s: %d ids", patch, generation, c.n_eos);
        for (int32_t k = 0; k < c.n_eos; k++)
            ck_assert_int_eq(c.eos_token_ids[k], rows[i].ids[k]);
    }
    struct ft_model_config c;
    struct ft_err err = {0};
    ck_assert_int_eq(parse("{}", "{\"eos_token_id\": 320}", &c, &err), FT_E_PROC_MODEL);
    ck_assert_ptr_nonnull(strstr(err.text, "generation_config.json: eos_token_id is 320"));
    ck_assert_int_eq(parse("{}", "{\"eos_token_id\": ", &c, &err), FT_E_PROC_MODEL);
    ck_assert_ptr_nonnull(strstr(err.text, "generation_config.json"));
}
END_TEST

START_TEST(dev43_missing_generation_config_is_fine) {
    struct ft_model_config c;
    struct ft_err err = {0};
    ck_assert_msg(ft_model_config_load(ft_fixture_model("eot+generation=none"), &c, &err) == FT_OK,
                  "%s", err.text);
    ck_assert_int_eq(c.n_eos, 1);
    ck_assert_msg(ft_model_config_load(ft_fixture_model("eot+geneos=257,258"), &c, &err) == FT_OK,
                  "%s", err.text);
    ck_assert_int_eq(c.n_eos, 2);
    ck_assert_int_eq(c.eos_token_ids[1], 258);
}
END_TEST

START_TEST(dev60_no_eos_is_an_empty_set) {
    static const char *const patches[] = {"{\"eos_token_id\": null}", "{\"eos_token_id\": []}",
                                          "{\"eos_token_id\": \"<absent>\"}"};
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(parse_ok(patches[i], NULL).n_eos, 0);
        ck_assert_int_eq(parse_ok(patches[i], "{}").n_eos, 0);
        ck_assert_int_eq(parse_ok(patches[i], "{\"eos_token_id\": []}").n_eos, 0);
    }
    ck_assert_int_eq(parse_ok("{}", NULL).bos_token_id, -1);
    ck_assert_int_eq(parse_ok("{}", "{\"bos_token_id\": 7}").bos_token_id, 7);
}
END_TEST

START_TEST(parse_too_many_eos_ids_is_refused) {
    parse_refused("{\"eos_token_id\": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}",
                  (const char *const[]){"eos_token_id", "16"}, 2);
    ck_assert_int_eq(
        parse_ok("{\"eos_token_id\": [15,14,13,12,11,10,9,8,7,6,5,4,3,2,1,0]}", NULL).n_eos, 16);
}
END_TEST

/* Factors on the unscaled frequencies, theta 500000. */
static void check_bands(int32_t head_dim, float factor, int32_t n_kept, const double *between,
                        int32_t n_between) {
    struct ft_model_config c = {.head_dim = head_dim,
                                .rope_kind = FT_ROPE_LLAMA3,
                                .rope_theta = 500000.0f,
                                .rope_factor = factor,
                                .rope_low_freq_factor = 1.0f,
                                .rope_high_freq_factor = 4.0f,
                                .rope_original_max_position = 8192};
    float scaled[64];
    ft_model_rope_frequencies(&c, scaled);
    for (int32_t i = 0; i < head_dim / 2; i++) {
        double plain = pow(500000.0, -2.0 * i / head_dim);
        double expected = i < n_kept               ? 1.0
                          : i < n_kept + n_between ? between[i - n_kept]
                                                   : 1.0 / (double)factor;
        ck_assert_msg(fabs(scaled[i] / plain - expected) < 1e-5, "pair %d: x%.6f, not x%.6f", i,
                      scaled[i] / plain, expected);
    }
}

START_TEST(dev33_llama3_bands_match_the_published_numbers) {
    check_bands(64, 32.0f, 15, (const double[]){0.605573, 0.303743, 0.103448}, 3);
    check_bands(128, 8.0f, 29,
                (const double[]){0.828168, 0.643743, 0.493507, 0.371122, 0.271425, 0.190211}, 6);
}
END_TEST

START_TEST(dev33_other_rope_types_give_their_frequencies) {
    struct ft_model_config c = {.head_dim = 16, .rope_theta = 10000.0f, .rope_factor = 1.0f};
    float plain[8], linear[8];
    ft_model_rope_frequencies(&c, plain);
    ck_assert_float_eq(plain[0], 1.0f);
    ck_assert_float_eq_tol(plain[4], 0.01f, 1e-9f);
    c.rope_kind = FT_ROPE_LINEAR;
    c.rope_factor = 4.0f;
    ft_model_rope_frequencies(&c, linear);
    for (int i = 0; i < 8; i++)
        ck_assert_float_eq_tol(linear[i], plain[i] / 4, 1e-9f);
}
END_TEST

START_TEST(dev33_bad_rope_is_refused) {
    static const struct {
        const char *patch, *words[3];
    } rows[] = {
        {"{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}}",
         {"rope_scaling.type", "yarn", "llama3"}},
        {"{\"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 4}}",
         {"rope_scaling.rope_type", "dynamic", "linear"}},
        {"{\"rope_parameters\": {\"rope_type\": \"longrope\"}}",
         {"rope_parameters.rope_type", "longrope", "default"}},
        {"{\"rope_scaling\": {\"rope_type\": \"linear\", \"type\": \"llama3\", \"factor\": 2}}",
         {"rope_scaling.type", "llama3", "linear"}},
        {"{\"rope_scaling\": {\"factor\": 4}}", {"rope_scaling.type", "missing", "string"}},
        {"{\"rope_scaling\": {\"type\": \"linear\"}}", {"rope_scaling.factor", "missing", "1"}},
        {"{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0.5}}",
         {"rope_scaling.factor", "0.5", "1"}},
        {"{\"rope_scaling\": {\"type\": \"linear\", \"factor\": \"4\"}}",
         {"rope_scaling.factor", "\"4\"", "number"}},
        {"{\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8}}",
         {"low_freq_factor", "missing", ""}},
        {"{\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
         "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 64}}",
         {"high_freq_factor", "4", "above low_freq_factor"}},
        {"{\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
         "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 512}}",
         {"original_max_position_embeddings", "512", "256"}},
        {"{\"rope_parameters\": {\"rope_type\": \"default\", \"partial_rotary_factor\": 0.5}}",
         {"rope_parameters.partial_rotary_factor", "0.5", "1"}},
        {"{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4, \"partial_rotary_factor\": "
         "\"1\"}}",
         {"rope_scaling.partial_rotary_factor", "\"1\"", "number"}},
        {"{\"rope_scaling\": {\"type\": \"default\", \"factor\": 4}}",
         {"rope_scaling.factor", "is 4", "not supported with rope type \"default\""}},
        {"{\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 4, "
         "\"attention_factor\": 1.5}}",
         {"rope_parameters.attention_factor", "1.5", "not supported with rope type \"linear\""}},
        {"{\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
         "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 64, "
         "\"mrope_section\": [1, 2]}}",
         {"rope_scaling.mrope_section", "a list of 2", "not supported with rope type \"llama3\""}},
        {"{\"rope_scaling\": [1]}", {"rope_scaling", "list", "object"}},
        {"{\"rope_theta\": 0}", {"rope_theta", "0", "1"}},
        {"{\"rope_theta\": 1e300}", {"rope_theta", "e300", "1e+12"}},
        {"{\"rope_theta\": 10000, \"rope_parameters\": {\"rope_type\": \"default\", "
         "\"rope_theta\": 500000}}",
         {"rope_parameters.rope_theta", "500000", "10000"}},
        {"{\"rope_scaling\": {\"type\": \"default\"}, \"rope_parameters\": {\"rope_type\": "
         "\"default\"}}",
         {"rope_scaling", "rope_parameters", "two"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        parse_refused(rows[i].patch, rows[i].words, 3);
}
END_TEST

START_TEST(parse_bad_value_names_key_value_and_limit) {
    static const struct {
        const char *patch, *words[3];
    } rows[] = {
        {"{\"architectures\": \"<absent>\"}", {"architectures", "missing", ""}},
        {"{\"architectures\": []}", {"architectures", "list", ""}},
        {"{\"architectures\": [\"LlamaForCausalLM\", \"X\"]}", {"architectures", "list of 2", ""}},
        {"{\"architectures\": \"LlamaForCausalLM\"}", {"architectures", "list", ""}},
        {"{\"architectures\": [\"GPT2LMHeadModel\"]}",
         {"GPT2LMHeadModel", "LlamaForCausalLM", "Qwen3ForCausalLM"}},
        {"{\"model_type\": \"mistral\"}", {"model_type", "mistral", "llama"}},
        {"{\"hidden_act\": \"gelu\"}", {"hidden_act", "gelu", "silu"}},
        {"{\"hidden_act\": \"<absent>\"}", {"hidden_act", "missing", ""}},
        {"{\"vocab_size\": \"<absent>\"}", {"vocab_size", "missing", ""}},
        {"{\"vocab_size\": 0}", {"vocab_size", "is 0", "16777216"}},
        {"{\"vocab_size\": -5}", {"vocab_size", "-5", "1 to"}},
        {"{\"vocab_size\": 320.0}", {"vocab_size", "320.0", "integer"}},
        {"{\"vocab_size\": \"320\"}", {"vocab_size", "\"320\"", "integer"}},
        {"{\"vocab_size\": true}", {"vocab_size", "true", "integer"}},
        {"{\"vocab_size\": 9223372036854775807}", {"vocab_size", "9223372036854775807", ""}},
        {"{\"hidden_size\": 4294967360}", {"hidden_size", "4294967360", ""}},
        {"{\"hidden_size\": {\"a\": 1}}", {"hidden_size", "object", ""}},
        {"{\"intermediate_size\": 2147483648}", {"intermediate_size", "2147483648", ""}},
        {"{\"num_hidden_layers\": 1025}", {"num_hidden_layers", "1025", "1024"}},
        {"{\"num_hidden_layers\": null}", {"num_hidden_layers", "null", ""}},
        {"{\"num_attention_heads\": 0}", {"num_attention_heads", "is 0", ""}},
        {"{\"num_key_value_heads\": 0}", {"num_key_value_heads", "is 0", "4"}},
        {"{\"num_key_value_heads\": 8}", {"num_key_value_heads", "8", "4"}},
        {"{\"num_key_value_heads\": 3}", {"num_key_value_heads", "3", "4"}},
        {"{\"head_dim\": 1026}", {"head_dim", "1026", "1024"}},
        {"{\"head_dim\": -16}", {"head_dim", "-16", ""}},
        {"{\"max_position_embeddings\": 1e3}", {"max_position_embeddings", "1000.0", "integer"}},
        {"{\"rms_norm_eps\": 0}", {"rms_norm_eps", "is 0", ""}},
        {"{\"rms_norm_eps\": -1e-5}", {"rms_norm_eps", "-1e-5", ""}},
        {"{\"rms_norm_eps\": \"1e-5\"}", {"rms_norm_eps", "\"1e-5\"", "number"}},
        {"{\"rms_norm_eps\": 1e308}", {"rms_norm_eps", "e308", ""}},
        {"{\"tie_word_embeddings\": 1}", {"tie_word_embeddings", "is 1", "true or false"}},
        {"{\"tie_word_embeddings\": \"false\"}", {"tie_word_embeddings", "\"false\"", ""}},
        {"{\"attention_bias\": \"no\"}", {"attention_bias", "\"no\"", "true or false"}},
        {"{\"mlp_bias\": 0}", {"mlp_bias", "is 0", "true or false"}},
        {"{\"torch_dtype\": \"int8\"}", {"torch_dtype", "int8", "bfloat16"}},
        {"{\"dtype\": \"float16\"}", {"dtype", "float16", "bfloat16"}},
        {"{\"eos_token_id\": 320}", {"eos_token_id", "320", "319"}},
        {"{\"eos_token_id\": [2, -1]}", {"eos_token_id", "list", "319"}},
        {"{\"eos_token_id\": \"2\"}", {"eos_token_id", "\"2\"", "319"}},
        {"{\"eos_token_id\": [[2]]}", {"eos_token_id", "list", ""}},
        {"{\"bos_token_id\": 320}", {"bos_token_id", "320", "319"}},
        {"{\"partial_rotary_factor\": 0.5}", {"partial_rotary_factor", "0.5", ""}},
        {"{\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4}}",
         {"quantization_config", "awq", "not supported"}},
        {"{\"quantization_config\": 3}", {"quantization_config", "3", "not supported"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        parse_refused(rows[i].patch, rows[i].words, 3);
}
END_TEST

#define MISTRAL "\"architectures\": [\"MistralForCausalLM\"], \"model_type\": \"mistral\""
#define QWEN2 "\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\""
#define QWEN3 "\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\""
#define FULL "\"full_attention\""
#define SLIDING "\"sliding_attention\""

START_TEST(parse_windows_are_honoured) {
    static const struct {
        const char *patch;
        int32_t window, first;
    } rows[] = {
        {"{" MISTRAL ", \"sliding_window\": 128}", 128, 0},
        {"{" MISTRAL ", \"sliding_window\": null}", 0, 0},
        {"{" MISTRAL "}", 4096, 0},
        {"{" MISTRAL ", \"sliding_window\": 8, \"layer_types\": [" SLIDING ", " SLIDING ", " SLIDING
         "]}",
         8, 0},
        {"{" QWEN2 ", \"sliding_window\": 128}", 0, 0},
        {"{" QWEN2 ", \"use_sliding_window\": true, \"sliding_window\": 128}", 0, 0},
        {"{" QWEN2 ", \"use_sliding_window\": true, \"sliding_window\": 128, "
         "\"max_window_layers\": 1}",
         128, 1},
        {"{" QWEN2 ", \"use_sliding_window\": true, \"sliding_window\": 128, "
         "\"max_window_layers\": 3}",
         0, 0},
        {"{" QWEN2 ", \"use_sliding_window\": true, \"sliding_window\": null}", 0, 0},
        {"{" QWEN3 ", \"use_sliding_window\": true, \"sliding_window\": 64, "
         "\"max_window_layers\": 0, \"layer_types\": [" FULL ", " FULL ", " SLIDING "]}",
         64, 2},
        {"{" QWEN3 ", \"use_sliding_window\": false, \"sliding_window\": 64, \"layer_types\": "
         "[" FULL ", " FULL ", " FULL "]}",
         0, 0},
        {"{\"use_sliding_window\": false, \"sliding_window\": 64}", 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ft_model_config c = parse_ok(rows[i].patch, NULL);
        ck_assert_msg(c.sliding_window == rows[i].window &&
                          c.sliding_window_first_layer == rows[i].first,
                      "%s: window %d from layer %d", rows[i].patch, c.sliding_window,
                      c.sliding_window_first_layer);
    }
}
END_TEST

START_TEST(parse_windows_that_cannot_be_honoured_are_refused) {
    static const struct {
        const char *patch, *words[3];
    } rows[] = {
        {"{\"sliding_window\": 64}", {"sliding_window", "64", "no windows"}},
        {"{" MISTRAL ", \"sliding_window\": 0}", {"sliding_window", "is 0", "1"}},
        {"{" MISTRAL ", \"sliding_window\": 128.5}", {"sliding_window", "128.5", "integer"}},
        {"{" MISTRAL ", \"attention_bias\": true}", {"attention_bias", "true", "does not have"}},
        {"{" MISTRAL ", \"layer_types\": [" FULL ", " FULL ", " FULL "]}",
         {"layer_types", "sliding layer is 3", "says 0"}},
        {"{" MISTRAL ", \"sliding_window\": 8, \"layer_types\": [" FULL ", " FULL ", " FULL "]}",
         {"layer_types", "sliding layer is 3", "says 0"}},
        {"{" QWEN2 ", \"mlp_bias\": true}", {"mlp_bias", "true", "does not have"}},
        {"{" QWEN2 ", \"use_sliding_window\": true}", {"sliding_window", "missing", ""}},
        {"{" QWEN2 ", \"use_sliding_window\": true, \"sliding_window\": 4, "
         "\"max_window_layers\": -1}",
         {"max_window_layers", "-1", "0"}},
        {"{" QWEN2 ", \"use_sliding_window\": 1}", {"use_sliding_window", "is 1", "true or false"}},
        {"{" QWEN3 ", \"layer_types\": [" FULL ", " FULL "]}", {"layer_types", "list of 2", "3"}},
        {"{" QWEN3 ", \"layer_types\": [" FULL ", " FULL ", \"linear_attention\"]}",
         {"layer_types", "linear_attention", "full_attention"}},
        {"{" QWEN3 ", \"layer_types\": [" FULL ", 1, " FULL "]}", {"layer_types", "entry 1", ""}},
        {"{" QWEN3 ", \"layer_types\": [" FULL ", " FULL ", " SLIDING "]}",
         {"layer_types", "layer 2", "no sliding_window"}},
        {"{" QWEN3 ", \"use_sliding_window\": true, \"sliding_window\": 4, \"layer_types\": "
         "[" SLIDING ", " FULL ", " SLIDING "]}",
         {"layer_types", "layer 1 is full", "sliding layer 0"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        parse_refused(rows[i].patch, rows[i].words, 3);
}
END_TEST

START_TEST(parse_broken_json_is_refused) {
    struct ft_model_config c;
    struct ft_err err = {0};
    for (size_t len = 0; len < sizeof k_llama - 1; len++)
        ck_assert_int_eq(
            ft_model_config_parse((struct ft_str){k_llama, len}, ft_str_c(NULL), &c, &err),
            FT_E_PROC_MODEL);
    static const char *const texts[] = {"[]",
                                        "null",
                                        "{\"a\": NaN}",
                                        "{\"a\": 1e999}",
                                        "{\"a\": 99999999999999999999}",
                                        "{\"a\": 1, \"a\": 1}",
                                        "{} {}",
                                        "{\"\xff\": 1}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ck_assert_int_eq(ft_model_config_parse(ft_str_c(texts[i]), ft_str_c(NULL), &c, &err),
                         FT_E_PROC_MODEL);
        ck_assert_ptr_nonnull(strstr(err.text, "config.json"));
    }
    struct ft_buf deep;
    ft_buf_init(&deep, 0);
    ft_buf_add_c(&deep, "{\"a\": ");
    for (int i = 0; i < 1000000; i++)
        ft_buf_add_c(&deep, "[");
    int64_t start = ft_fixture_cpu_ns();
    ck_assert_int_eq(ft_model_config_parse(ft_buf_str(&deep), ft_str_c(NULL), &c, &err),
                     FT_E_PROC_MODEL);
    ck_assert_int_lt(ft_fixture_cpu_ns() - start, FT_FIXTURE_CPU_SECOND_NS);
    ft_buf_fini(&deep);
}
END_TEST

START_TEST(load_bad_folder_names_it) {
    struct ft_model_config c;
    struct ft_err err = {0};
    ck_assert_int_eq(ft_model_config_load("/nonexistent/model", &c, &err), FT_E_PROC_MODEL);
    ck_assert_str_eq(err.text, "/nonexistent/model: config.json: no such file");
    ck_assert_int_eq(ft_model_config_load("/nonexistent/model", &c, NULL), FT_E_PROC_MODEL);

    const char *dir = ft_fixture_temp_dir();
    char *long_dir = malloc(5000);
    memset(long_dir, 'x', 4999);
    long_dir[4999] = 0;
    ck_assert_int_eq(ft_model_config_load(long_dir, &c, &err), FT_E_PROC_MODEL);
    free(long_dir);

    ft_fixture_write_text(dir, "config.json", "{\"architectures\": 3}");
    ck_assert_int_eq(ft_model_config_load(dir, &c, &err), FT_E_PROC_MODEL);
    ck_assert_ptr_nonnull(strstr(err.text, "config.json: architectures is 3"));
    ft_fixture_write(dir, "config.json", "", 0);
    ck_assert_int_eq(ft_model_config_load(dir, &c, &err), FT_E_PROC_MODEL);

    char *large = malloc(17u << 20);
    memset(large, ' ', 17u << 20);
    ft_fixture_write(dir, "config.json", large, 17u << 20);
    free(large);
    ck_assert_int_eq(ft_model_config_load(dir, &c, &err), FT_E_PROC_MODEL);
    ck_assert_ptr_nonnull(strstr(err.text, "limit"));
    ft_fixture_remove_dir(dir);
}
END_TEST

static Suite *make_suite(void) {
    Suite *suite = suite_create("config");
    TCase *tcase = tcase_create("config");
    tcase_add_test(tcase, load_golden_reads_every_key);
    tcase_add_test(tcase, load_golden_architectures_differ_as_they_should);
    tcase_add_test(tcase, load_bad_folder_names_it);
    tcase_add_test(tcase, parse_old_and_new_key_names_agree);
    tcase_add_test(tcase, parse_bad_value_names_key_value_and_limit);
    tcase_add_test(tcase, parse_broken_json_is_refused);
    tcase_add_test(tcase, parse_too_many_eos_ids_is_refused);
    tcase_add_test(tcase, parse_windows_are_honoured);
    tcase_add_test(tcase, parse_windows_that_cannot_be_honoured_are_refused);
    tcase_add_test(tcase, dev33_llama3_bands_match_the_published_numbers);
    tcase_add_test(tcase, dev33_other_rope_types_give_their_frequencies);
    tcase_add_test(tcase, dev33_bad_rope_is_refused);
    tcase_add_test(tcase, dev38_head_dim_is_explicit_or_derived);
    tcase_add_test(tcase, dev43_eos_ids_are_the_union_of_both_files);
    tcase_add_test(tcase, dev43_missing_generation_config_is_fine);
    tcase_add_test(tcase, dev60_no_eos_is_an_empty_set);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void) {
    return suite_run(make_suite());
}
