#include "common/model/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/arch.h"
#include "common/model/config_read.h"
#include "common/model/config_rope.h"

#define MODULE "config"
#define CONFIG_NAME "config.json"
#define GENERATION_NAME "generation_config.json"

/* Limits far above any published model, low enough that no product of two of them leaves int64_t
 * and no width of a projection leaves int32_t. */
#define VOCAB_MAX (1 << 24)
#define WIDTH_MAX (1 << 20)
#define LAYERS_MAX 1024
#define HEADS_MAX 1024
#define HEAD_DIM_MAX 1024
#define POSITIONS_MAX (1 << 27)

static const struct {
    const char *name;
    int32_t bytes;
} k_dtypes[] = {
    [FT_DTYPE_F32] = {"float32", 4},
    [FT_DTYPE_F16] = {"float16", 2},
    [FT_DTYPE_BF16] = {"bfloat16", 2},
};
#define N_DTYPES (sizeof k_dtypes / sizeof k_dtypes[0])

const char *ft_dtype_name(enum ft_dtype dtype) {
    return k_dtypes[dtype].name;
}

int32_t ft_dtype_bytes(enum ft_dtype dtype) {
    return k_dtypes[dtype].bytes;
}

static enum ft_code unknown_arch(const char *name, struct ft_err *err) {
    char known[160] = "";
    for (size_t i = 0; ft_arch_at(i) != NULL; i++) {
        size_t len = strlen(known);
        snprintf(known + len, sizeof known - len, "%s%s", i == 0 ? "" : ", ", ft_arch_at(i)->name);
    }
    return ft_err_set(err, FT_E_PROC_MODEL, MODULE,
                      CONFIG_NAME ": architectures names \"%.64s\", supported are %s", name, known);
}

static enum ft_code read_arch(const struct ft_config_reader *reader, const struct ft_arch **out,
                              struct ft_err *err) {
    const json_t *list = json_object_get(reader->object, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    if (name == NULL || json_array_size(list) != 1)
        return ft_config_read_refuse(reader, "architectures", err,
                                     "must be a list of one architecture's name");
    const struct ft_arch *arch = ft_arch_find(name);
    if (arch == NULL)
        return unknown_arch(name, err);
    if (ft_config_read_has(reader, "model_type")) {
        const char *type = NULL;
        enum ft_code code = ft_config_read_str(reader, "model_type", &type, err);
        if (code != FT_OK)
            return code;
        if (strcmp(type, arch->model_type) != 0)
            return ft_config_read_refuse(reader, "model_type", err, "but %s has model_type \"%s\"",
                                         arch->name, arch->model_type);
    }
    *out = arch;
    return FT_OK;
}

static enum ft_code read_sizes(const struct ft_config_reader *reader, struct ft_model_config *c,
                               struct ft_err *err) {
    const struct {
        const char *key;
        int32_t max;
        int32_t *out;
    } rows[] = {
        {"vocab_size", VOCAB_MAX, &c->vocab_size},
        {"hidden_size", WIDTH_MAX, &c->hidden_size},
        {"intermediate_size", WIDTH_MAX, &c->intermediate_size},
        {"num_hidden_layers", LAYERS_MAX, &c->n_layers},
        {"num_attention_heads", HEADS_MAX, &c->n_heads},
        {"max_position_embeddings", POSITIONS_MAX, &c->max_position_embeddings},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        enum ft_code code =
            ft_config_read_i32(reader, rows[i].key, 1, rows[i].max, rows[i].out, err);
        if (code != FT_OK)
            return code;
    }
    return ft_config_read_f32(reader, "rms_norm_eps", 1e-30, 0.1, &c->rms_norm_eps, err);
}

static enum ft_code read_heads(const struct ft_config_reader *reader, const struct ft_arch *arch,
                               struct ft_model_config *c, struct ft_err *err) {
    enum ft_code code = FT_OK;
    bool is_default =
        arch->default_n_kv_heads > 0 && !ft_config_read_names(reader, "num_key_value_heads");
    c->n_kv_heads = is_default ? arch->default_n_kv_heads : c->n_heads;
    if (ft_config_read_has(reader, "num_key_value_heads"))
        code =
            ft_config_read_i32(reader, "num_key_value_heads", 1, c->n_heads, &c->n_kv_heads, err);
    if (code != FT_OK)
        return code;
    if (c->n_heads % c->n_kv_heads != 0)
        return ft_config_read_refuse(reader, "num_key_value_heads", err,
                                     "must divide num_attention_heads, which is %d", c->n_heads);
    c->head_dim = arch->default_head_dim;
    if (ft_config_read_has(reader, "head_dim")) {
        code = ft_config_read_i32(reader, "head_dim", 2, HEAD_DIM_MAX, &c->head_dim, err);
        if (code != FT_OK)
            return code;
    } else if (c->head_dim == 0) {
        c->head_dim = c->hidden_size / c->n_heads;
        if (c->hidden_size % c->n_heads != 0 || c->head_dim > HEAD_DIM_MAX)
            return ft_config_read_refuse(
                reader, "head_dim", err,
                "and hidden_size %d over num_attention_heads %d is no whole number up to %d",
                c->hidden_size, c->n_heads, HEAD_DIM_MAX);
    }
    if (c->head_dim % 2 != 0)
        return ft_config_read_refuse(reader, "head_dim", err,
                                     "rotary embedding needs an even size, this is %d",
                                     c->head_dim);
    return FT_OK;
}

/* torch_dtype of old files, dtype of new ones: checked only, weights keep their stored format. */
static enum ft_code check_dtype(const struct ft_config_reader *reader, struct ft_err *err) {
    static const char *const keys[] = {"torch_dtype", "dtype"};
    const char *seen = NULL;
    for (size_t i = 0; i < 2; i++) {
        if (!ft_config_read_has(reader, keys[i]))
            continue;
        const char *name = NULL;
        enum ft_code code = ft_config_read_str(reader, keys[i], &name, err);
        if (code != FT_OK)
            return code;
        size_t n = 0;
        while (n < N_DTYPES && strcmp(name, k_dtypes[n].name) != 0)
            n++;
        if (n == N_DTYPES)
            return ft_config_read_refuse(reader, keys[i], err,
                                         "supported are float32, float16 and bfloat16");
        if (seen != NULL && strcmp(seen, name) != 0)
            return ft_config_read_refuse(reader, keys[i], err, "but torch_dtype is \"%s\"", seen);
        seen = name;
    }
    return FT_OK;
}

/* What changes the arithmetic and is not supported is refused, not skipped. */
static enum ft_code check_unsupported(const struct ft_config_reader *reader, struct ft_err *err) {
    const char *act = NULL;
    enum ft_code code = ft_config_read_str(reader, "hidden_act", &act, err);
    if (code != FT_OK)
        return code;
    if (strcmp(act, "silu") != 0)
        return ft_config_read_refuse(reader, "hidden_act", err, "supported is silu");
    if (ft_config_read_has(reader, "partial_rotary_factor")) {
        float factor = 1.0f;
        code = ft_config_read_f32(reader, "partial_rotary_factor", 1, 1, &factor, err);
        if (code != FT_OK)
            return code;
    }
    if (!ft_config_read_has(reader, "quantization_config"))
        return FT_OK;
    const json_t *quantization = json_object_get(reader->object, "quantization_config");
    const char *method = json_string_value(json_object_get(quantization, "quant_method"));
    return ft_config_read_refuse(reader, "quantization_config", err,
                                 "quant_method %.32s: quantized checkpoints are not supported",
                                 method == NULL ? "unnamed" : method);
}

static enum ft_code add_eos(const struct ft_config_reader *reader, const json_t *value,
                            struct ft_model_config *c, struct ft_err *err) {
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    if (id < 0 || id >= c->vocab_size)
        return ft_config_read_refuse(reader, "eos_token_id", err,
                                     "must be a token id or a list of ids, 0 to %d",
                                     c->vocab_size - 1);
    int32_t at = 0;
    while (at < c->n_eos && c->eos_token_ids[at] < id)
        at++;
    if (at < c->n_eos && c->eos_token_ids[at] == id)
        return FT_OK;
    if (c->n_eos == FT_EOS_MAX)
        return ft_config_read_refuse(
            reader, "eos_token_id", err,
            "more than %d ids in " CONFIG_NAME " and " GENERATION_NAME " together", FT_EOS_MAX);
    memmove(&c->eos_token_ids[at + 1], &c->eos_token_ids[at],
            (size_t)(c->n_eos - at) * sizeof c->eos_token_ids[0]);
    c->eos_token_ids[at] = (int32_t)id;
    c->n_eos++;
    return FT_OK;
}

/* The token ids of one of the two files: EOS ids are united, the first BOS id counts. */
static enum ft_code read_ids(const struct ft_config_reader *reader, struct ft_model_config *c,
                             struct ft_err *err) {
    enum ft_code code = FT_OK;
    if (c->bos_token_id < 0 && ft_config_read_has(reader, "bos_token_id"))
        code =
            ft_config_read_i32(reader, "bos_token_id", 0, c->vocab_size - 1, &c->bos_token_id, err);
    if (code != FT_OK || !ft_config_read_has(reader, "eos_token_id"))
        return code;
    const json_t *eos = json_object_get(reader->object, "eos_token_id");
    if (!json_is_array(eos))
        return add_eos(reader, eos, c, err);
    for (size_t i = 0; code == FT_OK && i < json_array_size(eos); i++)
        code = add_eos(reader, json_array_get(eos, i), c, err);
    return code;
}

static enum ft_code read_config(const struct ft_config_reader *reader, struct ft_model_config *c,
                                struct ft_err *err) {
    const struct ft_arch *arch = NULL;
    enum ft_code code = read_arch(reader, &arch, err);
    if (code != FT_OK)
        return code;
    snprintf(c->architecture, sizeof c->architecture, "%s", arch->name);
    c->bos_token_id = -1;
    c->tie_word_embeddings_given = ft_config_read_has(reader, "tie_word_embeddings");
    if ((code = check_unsupported(reader, err)) != FT_OK ||
        (code = check_dtype(reader, err)) != FT_OK ||
        (code = read_sizes(reader, c, err)) != FT_OK ||
        (code = read_heads(reader, arch, c, err)) != FT_OK ||
        (code = ft_config_rope_read(reader, c, err)) != FT_OK ||
        (code = ft_config_read_bool(reader, "tie_word_embeddings", &c->tie_word_embeddings, err)) !=
            FT_OK ||
        (code = arch->read(reader, c, err)) != FT_OK)
        return code;
    return read_ids(reader, c, err);
}

static enum ft_code read_both(const json_t *config, const json_t *generation,
                              struct ft_model_config *out, struct ft_err *err) {
    struct ft_model_config c = {0};
    struct ft_config_reader reader = {.file = CONFIG_NAME, .prefix = "", .object = config};
    enum ft_code code = read_config(&reader, &c, err);
    if (code == FT_OK && generation != NULL) {
        reader = (struct ft_config_reader){GENERATION_NAME, "", generation};
        code = read_ids(&reader, &c, err);
    }
    if (code == FT_OK)
        *out = c;
    return code;
}

enum ft_code ft_model_config_parse(struct ft_str config, struct ft_str generation,
                                   struct ft_model_config *out, struct ft_err *err) {
    json_t *root = NULL, *generation_root = NULL;
    enum ft_code code = ft_config_read_text(config.ptr, config.len, CONFIG_NAME, &root, err);
    if (code == FT_OK && generation.ptr != NULL)
        code = ft_config_read_text(generation.ptr, generation.len, GENERATION_NAME,
                                   &generation_root, err);
    if (code == FT_OK)
        code = read_both(root, generation_root, out, err);
    json_decref(generation_root);
    json_decref(root);
    return code;
}

enum ft_code ft_model_config_load(const char *dir, struct ft_model_config *out,
                                  struct ft_err *err) {
    json_t *root = NULL, *generation_root = NULL;
    enum ft_code code = ft_config_read_file(dir, CONFIG_NAME, &root, err);
    if (code == FT_OK) {
        code = ft_config_read_file(dir, GENERATION_NAME, &generation_root, err);
        if (code == FT_E_REQ_NOT_FOUND)
            code = FT_OK;
    }
    if (code == FT_OK)
        code = read_both(root, generation_root, out, err);
    json_decref(generation_root);
    json_decref(root);
    return code == FT_OK ? FT_OK : ft_config_read_in_dir(dir, code, err);
}
