#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/model/weights.h"
#include "support/fixtures.h"
#include "support/suite.h"

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"

/* A safetensors file read plainly, changed, and written again. */
struct plain {
    struct ft_buf file;
    json_t *header;
    const unsigned char *data;
    size_t n_data;
};

static struct plain plain_read(const char *dir, const char *name) {
    struct plain p = {.file = ft_fixture_read(dir, name)};
    uint64_t n = 0;
    memcpy(&n, p.file.ptr, 8);
    p.header = json_loadb(p.file.ptr + 8, (size_t)n, 0, NULL);
    ck_assert_ptr_nonnull(p.header);
    json_object_del(p.header, "__metadata__");
    p.data = (const unsigned char *)p.file.ptr + 8 + n;
    p.n_data = p.file.len - 8 - (size_t)n;
    return p;
}

static void plain_free(struct plain *p) {
    json_decref(p->header);
    ft_buf_fini(&p->file);
}

static void plain_write(const struct plain *p, const char *dir, const char *name) {
    char *json = json_dumps(p->header, JSON_COMPACT);
    size_t n_json = strlen(json), pad = (8 - n_json % 8) % 8;
    uint64_t n = n_json + pad;
    struct ft_buf out;
    ft_buf_init(&out, 0);
    ft_buf_add(&out, &n, 8);
    ft_buf_add(&out, json, n_json);
    ft_buf_add(&out, "        ", pad);
    ft_buf_add(&out, p->data, p->n_data);
    ft_fixture_write(dir, name, out.ptr, out.len);
    ft_buf_fini(&out);
    free(json);
}

/* The file of a tensor; false when the index does not list it. */
static bool plain_find(const char *dir, const char *tensor, char file[256]) {
    char path[512];
    snprintf(path, sizeof path, "%s/" INDEX, dir);
    snprintf(file, 256, SINGLE);
    if (access(path, F_OK) != 0)
        return true;
    json_t *index = ft_fixture_json(dir, INDEX);
    const char *shard =
        json_string_value(json_object_get(json_object_get(index, "weight_map"), tensor));
    bool is_there = shard != NULL;
    if (is_there)
        snprintf(file, 256, "%s", shard);
    json_decref(index);
    return is_there;
}

/* t is the tensor of that name, byte for byte, or absent as that is. */
static bool plain_equals(const char *dir, const char *name, struct ft_tensor t) {
    char shard[256];
    if (!plain_find(dir, name, shard))
        return t.data == NULL;
    struct plain p = plain_read(dir, shard);
    const json_t *entry = json_object_get(p.header, name);
    const json_t *offsets = json_object_get(entry, "data_offsets");
    bool is_equal = (t.data == NULL) == (entry == NULL);
    if (is_equal && entry != NULL) {
        size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
        size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
        is_equal =
            end - begin == (size_t)t.rows * (size_t)t.cols * (size_t)ft_dtype_bytes(t.dtype) &&
            memcmp(p.data + begin, t.data, end - begin) == 0;
    }
    plain_free(&p);
    return is_equal;
}

static enum ft_code open_dir(const char *dir, struct ft_weights *w, struct ft_model_config *config,
                             struct ft_err *err) {
    enum ft_code code = ft_model_config_load(dir, config, err);
    return code == FT_OK ? ft_weights_open(w, dir, config, err) : code;
}

static void open_ok(const char *dir, struct ft_weights *w, struct ft_model_config *config) {
    struct ft_err err = {0};
    ck_assert_msg(open_dir(dir, w, config, &err) == FT_OK, "%s", err.text);
}

/* Refused within a second, with a text that holds every word; w untouched. */
static void open_refused(const char *dir, const char *word_a, const char *word_b) {
    struct ft_weights w = {.n_parameters = 77};
    struct ft_model_config config;
    struct ft_err err = {0};
    int64_t start = ft_fixture_cpu_ns();
    ck_assert_msg(open_dir(dir, &w, &config, &err) == FT_E_PROC_MODEL, "%s: \"%s\"", dir, err.text);
    ck_assert_int_lt(ft_fixture_cpu_ns() - start, FT_FIXTURE_CPU_SECOND_NS);
    ck_assert_int_eq(err.code, FT_E_PROC_MODEL);
    ck_assert_uint_eq(w.n_parameters, 77);
    ck_assert_msg(strstr(err.text, word_a) != NULL && strstr(err.text, word_b) != NULL,
                  "\"%s\" or \"%s\" is not in: %s", word_a, word_b, err.text);
}

/* A copy of a fixture to break. */
static const char *copy_model(const char *spec) {
    const char *dir = ft_fixture_temp_dir();
    ft_fixture_copy(ft_fixture_model(spec), dir);
    return dir;
}

static void set_config(const char *dir, const char *key, json_t *value) {
    json_t *config = ft_fixture_json(dir, "config.json");
    json_object_set_new(config, key, value);
    char *text = json_dumps(config, 0);
    ft_fixture_write_text(dir, "config.json", text);
    free(text);
    json_decref(config);
}

START_TEST(open_every_checkpoint_binds_what_is_stored) {
    static const struct {
        const char *dir;
        uint64_t n_parameters;
        enum ft_dtype dtype;
    } rows[] = {
        {"tests/data/golden/llama-bias", 172160, FT_DTYPE_BF16},
        {"tests/data/golden/llama-f16-sharded", 170432, FT_DTYPE_F16},
        {"tests/data/golden/llama-gqa-tied-bf16", 149952, FT_DTYPE_BF16},
        {"tests/data/golden/llama-mqa-rope-llama3", 143808, FT_DTYPE_BF16},
        {"tests/data/golden/llama-rope-linear", 149952, FT_DTYPE_BF16},
        {"tests/data/golden/llama-untied-f32", 170432, FT_DTYPE_F32},
        {"tests/data/golden/mistral-untied", 170432, FT_DTYPE_BF16},
        {"tests/data/golden/qwen2-tied", 150336, FT_DTYPE_BF16},
        {"tests/data/golden/qwen3-qknorm", 187008, FT_DTYPE_BF16},
        {"models/demo-draft", 614880, FT_DTYPE_BF16},
        {"models/demo-target", 6951168, FT_DTYPE_BF16},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *dir = ft_fixture_source(rows[i].dir);
        struct ft_model_config config;
        struct ft_weights w;
        open_ok(dir, &w, &config);
        ck_assert_uint_eq(w.n_parameters, rows[i].n_parameters);
        ck_assert_uint_eq(w.bytes, rows[i].n_parameters * (uint64_t)ft_dtype_bytes(w.dtype));
        ck_assert_int_eq(w.dtype, rows[i].dtype);
        ck_assert_int_eq(w.head.data == w.embed.data, config.tie_word_embeddings);
        const struct ft_layer_weights *l = &w.layers[1];
        const struct {
            const char *name;
            struct ft_tensor tensor;
        } tensors[] = {
            {"model.embed_tokens.weight", w.embed},
            {"model.norm.weight", w.norm},
            {"model.layers.1.input_layernorm.weight", l->attn_norm},
            {"model.layers.1.post_attention_layernorm.weight", l->mlp_norm},
            {"model.layers.1.self_attn.q_proj.weight", l->q},
            {"model.layers.1.self_attn.k_proj.weight", l->k},
            {"model.layers.1.self_attn.v_proj.weight", l->v},
            {"model.layers.1.self_attn.o_proj.weight", l->o},
            {"model.layers.1.self_attn.q_proj.bias", l->q_bias},
            {"model.layers.1.self_attn.k_proj.bias", l->k_bias},
            {"model.layers.1.self_attn.v_proj.bias", l->v_bias},
            {"model.layers.1.self_attn.o_proj.bias", l->o_bias},
            {"model.layers.1.self_attn.q_norm.weight", l->q_norm},
            {"model.layers.1.self_attn.k_norm.weight", l->k_norm},
            {"model.layers.1.mlp.gate_proj.weight", l->gate},
            {"model.layers.1.mlp.up_proj.weight", l->up},
            {"model.layers.1.mlp.down_proj.weight", l->down},
            {"model.layers.1.mlp.gate_proj.bias", l->gate_bias},
            {"model.layers.1.mlp.up_proj.bias", l->up_bias},
            {"model.layers.1.mlp.down_proj.bias", l->down_bias},
        };
        for (size_t k = 0; k < sizeof tensors / sizeof tensors[0]; k++)
            ck_assert_msg(plain_equals(dir, tensors[k].name, tensors[k].tensor), "%s: %s", dir,
                          tensors[k].name);
        ft_weights_close(&w);
        ck_assert_ptr_null(w.layers);
    }
}
END_TEST

START_TEST(open_nothing_there_names_what_is_missing) {
    const char *dir = copy_model("r7");
    char path[512];
    snprintf(path, sizeof path, "%s/" SINGLE, dir);
    unlink(path);
    open_refused(dir, SINGLE, INDEX);
    struct ft_weights w;
    struct ft_model_config config;
    ck_assert_int_eq(open_dir(dir, &w, &config, NULL), FT_E_PROC_MODEL);
    ft_fixture_write(dir, SINGLE, "", 0);
    open_refused(dir, SINGLE, "too short");
    ft_fixture_remove_dir(dir);
}
END_TEST

/* One number of one tensor, the last of the file, is another. */
START_TEST(open_other_numbers_of_the_same_shapes_have_another_fingerprint) {
    const char *dir = copy_model("r7");
    struct ft_model_config config;
    struct ft_weights a, b;
    open_ok(dir, &a, &config);
    uint64_t before = a.fingerprint;
    ck_assert_uint_ne(before, 0);
    ft_weights_close(&a);
    struct ft_buf file = ft_fixture_read(dir, SINGLE);
    file.ptr[file.len - 2] ^= 1;
    ft_fixture_write(dir, SINGLE, file.ptr, file.len);
    ft_buf_fini(&file);
    open_ok(dir, &b, &config);
    ck_assert_uint_ne(b.fingerprint, before);
    ft_weights_close(&b);
    ft_fixture_remove_dir(dir);
}
END_TEST

static bool tensor_equals(struct ft_tensor a, struct ft_tensor b) {
    return a.dtype == b.dtype && a.rows == b.rows && a.cols == b.cols &&
           memcmp(a.data, b.data,
                  (size_t)a.rows * (size_t)a.cols * (size_t)ft_dtype_bytes(a.dtype)) == 0;
}

START_TEST(dev27_intact_split_equals_the_single_file) {
    struct ft_model_config config_a, config_b;
    struct ft_weights a, b;
    open_ok(ft_fixture_model("r7"), &a, &config_a);
    open_ok(ft_fixture_model("r7+shards=3"), &b, &config_b);
    ck_assert_uint_eq(a.n_parameters, b.n_parameters);
    ck_assert_uint_eq(a.fingerprint, b.fingerprint);
    ck_assert(tensor_equals(a.embed, b.embed) && tensor_equals(a.norm, b.norm) &&
              tensor_equals(a.head, b.head));
    for (int i = 0; i < 2; i++)
        ck_assert(tensor_equals(a.layers[i].q, b.layers[i].q) &&
                  tensor_equals(a.layers[i].down, b.layers[i].down) &&
                  tensor_equals(a.layers[i].mlp_norm, b.layers[i].mlp_norm));
    ft_weights_close(&a);
    ft_weights_close(&b);
}
END_TEST

START_TEST(dev27_missing_shard_is_named) {
    const char *dir = copy_model("r7+shards=3");
    char path[512];
    snprintf(path, sizeof path, "%s/model-00002-of-00003.safetensors", dir);
    ck_assert_int_eq(unlink(path), 0);
    open_refused(dir, "model-00002-of-00003.safetensors", "no such file");
    ft_fixture_remove_dir(dir);
}
END_TEST

/* Remove the tensor that lies last in the file, data included, so that the file stays sound. */
static void drop_last_tensor(const char *dir, const char *file, const char *name) {
    struct plain p = plain_read(dir, file);
    const json_t *offsets = json_object_get(json_object_get(p.header, name), "data_offsets");
    ck_assert_uint_eq((size_t)json_integer_value(json_array_get(offsets, 1)), p.n_data);
    p.n_data = (size_t)json_integer_value(json_array_get(offsets, 0));
    json_object_del(p.header, name);
    plain_write(&p, dir, file);
    plain_free(&p);
}

START_TEST(dev27_missing_tensor_is_named) {
    const char *dir = copy_model("r7+shards=3");
    drop_last_tensor(dir, "model-00003-of-00003.safetensors", "lm_head.weight");
    open_refused(dir, "model-00003-of-00003.safetensors", "tensor lm_head.weight");
    ft_fixture_remove_dir(dir);

    dir = copy_model("r7");
    drop_last_tensor(dir, SINGLE, "lm_head.weight");
    drop_last_tensor(dir, SINGLE, "model.norm.weight");
    open_refused(dir, SINGLE, "tensor model.norm.weight: missing");
    drop_last_tensor(dir, SINGLE, "model.layers.1.mlp.down_proj.weight");
    set_config(dir, "tie_word_embeddings", json_true());
    open_refused(dir, SINGLE, "missing");
    ft_fixture_remove_dir(dir);

    dir = copy_model("r7"); /* a layer that is not there at all */
    set_config(dir, "num_hidden_layers", json_integer(3));
    open_refused(dir, SINGLE, "tensor model.layers.2.input_layernorm.weight: missing");
    ft_fixture_remove_dir(dir);
}
END_TEST

/* Write an index whose weight_map has key set to value, or removed for NULL. */
static void set_index(const char *dir, const char *key, json_t *value) {
    json_t *index = ft_fixture_json(dir, INDEX);
    json_t *map = json_object_get(index, "weight_map");
    if (value == NULL)
        json_object_del(map, key);
    else
        json_object_set_new(map, key, value);
    char *text = json_dumps(index, 0);
    ft_fixture_write_text(dir, INDEX, text);
    free(text);
    json_decref(index);
}

START_TEST(dev27_wrong_index_is_refused) {
    static const struct {
        const char *tensor, *shard, *word_a, *word_b;
    } rows[] = {
        {"lm_head.weight", "model-00001-of-00003.safetensors",
         "model-00001-of-00003.safetensors: tensor lm_head.weight", "model-00003-of-00003"},
        {"model.norm.weight", NULL, "tensor model.norm.weight", "is not in " INDEX},
        {"model.extra.weight", "model-00001-of-00003.safetensors", "tensor model.extra.weight",
         "no shard"},
        {"lm_head.weight", "model-00009-of-00003.safetensors", "model-00009-of-00003.safetensors",
         "no such file"},
        {"lm_head.weight", "../r7/model.safetensors", "lm_head.weight", "../r7"},
        {"lm_head.weight", "/etc/passwd", "lm_head.weight", "/etc/passwd"},
        {"lm_head.weight", "", "lm_head.weight", "no plain"},
        {"lm_head.weight", ".safetensors", "lm_head.weight", "no plain"},
        {"lm_head.weight", "pytorch_model.bin", "lm_head.weight", "pytorch_model.bin"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *dir = copy_model("r7+shards=3");
        set_index(dir, rows[i].tensor, rows[i].shard == NULL ? NULL : json_string(rows[i].shard));
        open_refused(dir, rows[i].word_a, rows[i].word_b);
        ft_fixture_remove_dir(dir);
    }
    static const char *const texts[][2] = {
        {"", "line"},
        {"[]", "object"},
        {"{}", "weight_map"},
        {"{\"weight_map\": []}", "weight_map"},
        {"{\"weight_map\": {}}", "empty"},
        {"{\"weight_map\": {\"lm_head.weight\": 3}}", "lm_head.weight"},
        {"{\"weight_map\": {\"a\": \"x.safetensors\", \"a\": \"x.safetensors\"}}", "duplicate"},
    };
    const char *dir = copy_model("r7+shards=3");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ft_fixture_write_text(dir, INDEX, texts[i][0]);
        open_refused(dir, INDEX, texts[i][1]);
    }
    ft_fixture_remove_dir(dir);
}
END_TEST

START_TEST(dev27_stale_index_beside_a_single_file_is_refused) {
    const char *dir = copy_model("r7+shards=3");
    struct ft_buf single = ft_fixture_read(ft_fixture_model("r7"), SINGLE);
    ft_fixture_write(dir, SINGLE, single.ptr, single.len);
    open_refused(dir, INDEX, "stale");
    /* An index of the single file itself is what some tools write. */
    json_t *map = json_object(), *index = json_pack("{s:o}", "weight_map", map);
    struct plain p = plain_read(dir, SINGLE);
    const char *name = NULL;
    json_t *entry = NULL;
    json_object_foreach(p.header, name, entry) json_object_set_new(map, name, json_string(SINGLE));
    char *text = json_dumps(index, 0);
    ft_fixture_write_text(dir, INDEX, text);
    struct ft_model_config config;
    struct ft_weights w;
    open_ok(dir, &w, &config);
    ft_weights_close(&w);
    free(text);
    plain_free(&p);
    json_decref(index);
    ft_buf_fini(&single);
    ft_fixture_remove_dir(dir);
}
END_TEST

START_TEST(dev27_tensor_in_two_shards_is_refused) {
    const char *dir = copy_model("r7+shards=3");
    struct ft_buf shard = ft_fixture_read(dir, "model-00003-of-00003.safetensors");
    ft_fixture_write(dir, "model-00004-of-00003.safetensors", shard.ptr, shard.len);
    set_index(dir, "lm_head.weight", json_string("model-00004-of-00003.safetensors"));
    open_refused(dir, "tensor", "as well");
    ft_buf_fini(&shard);
    ft_fixture_remove_dir(dir);
}
END_TEST

START_TEST(dev28_truncated_or_overlong_file_is_refused) {
    static const size_t cuts[] = {1, 2, 4095, 4096, 4097};
    const char *dir = copy_model("r7");
    struct ft_buf file = ft_fixture_read(dir, SINGLE);
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        ft_fixture_write(dir, SINGLE, file.ptr, file.len - cuts[i]);
        open_refused(dir, SINGLE, "behind the end of the file");
    }
    ft_fixture_write(dir, SINGLE, file.ptr, file.len / 2);
    open_refused(dir, SINGLE, "behind the end of the file");
    ft_buf_add(&file, "", 1);
    ft_fixture_write(dir, SINGLE, file.ptr, file.len);
    open_refused(dir, SINGLE, "the tensors end at byte");
    ft_buf_fini(&file);
    ft_fixture_remove_dir(dir);
}
END_TEST

START_TEST(dev34_head_and_embeddings_follow_the_rules) {
    static const struct {
        const char *spec;
        bool tied;
    } rows[] = {
        {"r7+tie=none", false},           {"r7", false},
        {"r7+head=drop+tie=true", true},  {"r7+head=drop+tie=none", true},
        {"r7+head=embed+tie=true", true}, {"r7+head=embed+tie=false", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ft_model_config config;
        struct ft_weights w;
        open_ok(ft_fixture_model(rows[i].spec), &w, &config);
        ck_assert_msg(config.tie_word_embeddings == rows[i].tied, "%s", rows[i].spec);
        ck_assert_int_eq(w.head.data == w.embed.data, rows[i].tied);
        ck_assert_int_eq(w.head.rows, config.vocab_size);
        ft_weights_close(&w);
    }
    open_refused(ft_fixture_model("r7+head=drop+tie=false"), "lm_head.weight: missing",
                 "tie_word_embeddings false");
    open_refused(ft_fixture_model("r7+tie=true"), "lm_head.weight", "differs from the embeddings");
}
END_TEST

START_TEST(dev38_shapes_follow_head_dim_or_are_refused) {
    struct ft_model_config config;
    struct ft_weights w;
    open_ok(ft_fixture_model("r7+heads=4"), &w, &config);
    ck_assert_int_eq(w.layers[0].q.rows, 256);
    ck_assert_int_eq(w.layers[0].q.cols, 128);
    ck_assert_int_eq(w.layers[0].o.rows, 128);
    ck_assert_int_eq(w.layers[0].o.cols, 256);
    ft_weights_close(&w);

    const char *dir = copy_model("r7"); /* 2 heads of 64: the key can be left out */
    set_config(dir, "head_dim", json_null());
    open_ok(dir, &w, &config);
    ft_weights_close(&w);
    set_config(dir, "num_key_value_heads", json_null()); /* would be 2, the file has 1 */
    open_refused(dir, "tensor model.layers.0.self_attn.k_proj.weight: shape is [64, 128]",
                 "[128, 128]");
    ft_fixture_remove_dir(dir);

    dir = copy_model("r7+heads=4"); /* 4 heads of 64: without the key 32 is assumed */
    set_config(dir, "head_dim", json_null());
    open_refused(dir, "tensor model.layers.0.self_attn.q_proj.weight: shape is [256, 128]",
                 "[128, 128]");
    ft_fixture_remove_dir(dir);
}
END_TEST

START_TEST(open_wrong_shape_names_both_shapes) {
    const char *dir = copy_model("r7");
    set_config(dir, "vocab_size", json_integer(265));
    open_refused(dir, "tensor model.embed_tokens.weight: shape is [264, 128]", "[265, 128]");
    set_config(dir, "vocab_size", json_integer(264));
    set_config(dir, "intermediate_size", json_integer(255));
    open_refused(dir, "gate_proj.weight: shape is [256, 128]", "[255, 128]");
    ft_fixture_remove_dir(dir);
}
END_TEST

/* Add tensors at the end of the file; the data is repeated from its start. */
static void add_tensor(const char *dir, const char *name, const char *dtype, int64_t n,
                       int64_t n_bytes) {
    struct plain p = plain_read(dir, SINGLE);
    unsigned char *data = calloc(1, p.n_data + (size_t)n_bytes);
    ck_assert_ptr_nonnull(data);
    memcpy(data, p.data, p.n_data);
    json_object_set_new(p.header, name,
                        json_pack("{s:s, s:[I], s:[I, I]}", "dtype", dtype, "shape", (json_int_t)n,
                                  "data_offsets", (json_int_t)p.n_data,
                                  (json_int_t)p.n_data + n_bytes));
    struct plain grown = {.header = p.header, .data = data, .n_data = p.n_data + (size_t)n_bytes};
    plain_write(&grown, dir, SINGLE);
    free(data);
    plain_free(&p);
}

START_TEST(open_unknown_tensor_is_refused_by_name) {
    const char *dir = copy_model("r7");
    struct ft_model_config config;
    struct ft_weights w;
    add_tensor(dir, "model.layers.0.self_attn.rotary_emb.inv_freq", "F32", 32, 128);
    open_ok(dir, &w, &config);
    ck_assert_uint_eq(w.bytes, w.n_parameters * 4);
    ft_weights_close(&w);
    add_tensor(dir, "model.layers.1.self_attn.q_proj.bias", "F32", 128, 512);
    open_refused(dir, "tensor model.layers.1.self_attn.q_proj.bias", "LlamaForCausalLM");
    set_config(dir, "attention_bias", json_true());
    open_refused(dir, "tensor model.layers.0.self_attn.q_proj.bias", "missing");
    ft_fixture_remove_dir(dir);

    dir = copy_model("r7"); /* a layer more than the config knows */
    set_config(dir, "num_hidden_layers", json_integer(1));
    open_refused(dir, "tensor model.layers.1.", "1 layers");
    ft_fixture_remove_dir(dir);
}
END_TEST

START_TEST(open_mixed_or_unknown_dtype_is_refused) {
    const char *dir = copy_model("r7");
    struct plain p = plain_read(dir, SINGLE);
    const char *const names[] = {"model.layers.1.mlp.down_proj.weight", "model.norm.weight"};
    /* F32 [128, 256] read as F16 needs half the bytes, so the shape is widened to match. */
    json_object_set_new(json_object_get(p.header, names[0]), "dtype", json_string("F16"));
    plain_write(&p, dir, SINGLE);
    open_refused(dir, names[0], "span");
    json_object_set_new(json_object_get(p.header, names[0]), "dtype", json_string("I8"));
    plain_write(&p, dir, SINGLE);
    open_refused(dir, names[0], "I8");
    plain_free(&p);
    ft_fixture_remove_dir(dir);

    /* One projection in bf16 between f32 ones, sound in every other way. */
    dir = copy_model("r7");
    drop_last_tensor(dir, SINGLE, "lm_head.weight");
    drop_last_tensor(dir, SINGLE, "model.norm.weight");
    drop_last_tensor(dir, SINGLE, names[0]);
    add_tensor(dir, names[1], "F16", 128, 256);
    set_config(dir, "tie_word_embeddings", json_true());
    add_tensor(dir, names[0], "BF16", 128 * 256, 2 * 128 * 256);
    p = plain_read(dir, SINGLE);
    json_object_set_new(json_object_get(p.header, names[0]), "shape",
                        json_pack("[i, i]", 128, 256));
    plain_write(&p, dir, SINGLE);
    plain_free(&p);
    open_refused(dir, names[0], "bfloat16, other projections have float32");
    ft_fixture_remove_dir(dir);
}
END_TEST

START_TEST(open_keeps_formats_that_differ_where_they_may) {
    const char *dir = copy_model("r7+head=drop+tie=true");
    struct ft_model_config config;
    struct ft_weights w;
    drop_last_tensor(dir, SINGLE, "model.norm.weight");
    add_tensor(dir, "model.norm.weight", "BF16", 128, 256);
    open_ok(dir, &w, &config);
    ck_assert_int_eq(w.norm.dtype, FT_DTYPE_BF16);
    ck_assert_int_eq(w.dtype, FT_DTYPE_F32);
    ck_assert_uint_eq(w.bytes, w.n_parameters * 4 - 256);
    ft_weights_close(&w);
    ft_fixture_remove_dir(dir);
}
END_TEST

START_TEST(open_bench_pair_binds) {
    static const struct {
        const char *name;
        uint64_t n_min, n_max;
    } rows[] = {{"bench-target", 59000000, 60500000}, {"bench-draft", 3300000, 3400000}};
    for (size_t i = 0; i < 2; i++) {
        const char *dir = ft_fixture_bench_model(rows[i].name);
        if (dir == NULL)
            return;
        struct ft_model_config config;
        struct ft_weights w;
        open_ok(dir, &w, &config);
        ck_assert(w.n_parameters >= rows[i].n_min && w.n_parameters <= rows[i].n_max);
        ft_weights_close(&w);
    }
}
END_TEST

static Suite *make_suite(void) {
    Suite *suite = suite_create("weights");
    TCase *tcase = tcase_create("weights");
    tcase_add_test(tcase, open_every_checkpoint_binds_what_is_stored);
    tcase_add_test(tcase, open_nothing_there_names_what_is_missing);
    tcase_add_test(tcase, open_wrong_shape_names_both_shapes);
    tcase_add_test(tcase, open_unknown_tensor_is_refused_by_name);
    tcase_add_test(tcase, open_mixed_or_unknown_dtype_is_refused);
    tcase_add_test(tcase, open_keeps_formats_that_differ_where_they_may);
    tcase_add_test(tcase, open_bench_pair_binds);
    tcase_add_test(tcase, open_other_numbers_of_the_same_shapes_have_another_fingerprint);
    tcase_add_test(tcase, dev27_intact_split_equals_the_single_file);
    tcase_add_test(tcase, dev27_missing_shard_is_named);
    tcase_add_test(tcase, dev27_missing_tensor_is_named);
    tcase_add_test(tcase, dev27_wrong_index_is_refused);
    tcase_add_test(tcase, dev27_stale_index_beside_a_single_file_is_refused);
    tcase_add_test(tcase, dev27_tensor_in_two_shards_is_refused);
    tcase_add_test(tcase, dev28_truncated_or_overlong_file_is_refused);
    tcase_add_test(tcase, dev34_head_and_embeddings_follow_the_rules);
    tcase_add_test(tcase, dev38_shapes_follow_head_dim_or_are_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void) {
    return suite_run(make_suite());
}
