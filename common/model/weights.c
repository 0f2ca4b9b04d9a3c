#include "common/model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/arch.h"
#include "common/model/weights_files.h"

#define MODULE "weights"

struct binder {
    const struct ft_arch *arch;
    const struct ft_model_config *config;
    const struct ft_weights_files *files;
    struct ft_weights *weights;
    struct ft_err *err;
};

static enum ft_code refuse(const struct binder *b, const struct ft_weights_tensor *tensor,
                           const char *reason) {
    return ft_err_set(b->err, FT_E_PROC_MODEL, MODULE, "%s: tensor %.80s: %s", tensor->file,
                      tensor->entry->name, reason);
}

static enum ft_code wrong_shape(const struct binder *b, const struct ft_weights_tensor *tensor,
                                const struct ft_tensor *want, bool is_vector) {
    const struct ft_safetensors_entry *e = tensor->entry;
    char is[96] = "", must[48];
    for (int32_t i = 0; i < e->n_dims; i++) {
        size_t len = strlen(is);
        snprintf(is + len, sizeof is - len, "%s%lld", i == 0 ? "" : ", ", (long long)e->dims[i]);
    }
    if (is_vector)
        snprintf(must, sizeof must, "[%d]", want->cols);
    else
        snprintf(must, sizeof must, "[%d, %d]", want->rows, want->cols);
    return ft_err_set(b->err, FT_E_PROC_MODEL, MODULE,
                      "%s: tensor %.80s: shape is [%s], config.json asks for %s", tensor->file,
                      e->name, is, must);
}

/* Find the tensor and check its shape against the config; it is not yet counted as used. */
static enum ft_code look_up(const struct binder *b, const char *name,
                            const struct ft_arch_tensor *spec, struct ft_weights_tensor **found,
                            struct ft_tensor *out) {
    struct ft_weights_tensor *tensor = ft_weights_files_find(b->files, name);
    if (tensor == NULL)
        return ft_err_set(b->err, FT_E_PROC_MODEL, MODULE,
                          "%s%s: tensor %.80s: missing, %s needs it", b->files->names[0],
                          b->files->n_files > 1 ? " and the other shards" : "", name,
                          b->arch->name);
    const struct ft_safetensors_entry *e = tensor->entry;
    bool is_vector = spec->rows == FT_DIM_VECTOR;
    struct ft_tensor t = {.data = tensor->data,
                          .dtype = e->dtype,
                          .rows = ft_arch_dim_size(spec->rows, b->config),
                          .cols = ft_arch_dim_size(spec->cols, b->config)};
    bool is_right = is_vector ? e->n_dims == 1 && e->dims[0] == t.cols
                              : e->n_dims == 2 && e->dims[0] == t.rows && e->dims[1] == t.cols;
    if (!is_right)
        return wrong_shape(b, tensor, &t, is_vector);
    *found = tensor;
    *out = t;
    return FT_OK;
}

static enum ft_code bind_one(const struct binder *b, const char *name,
                             const struct ft_arch_tensor *spec, struct ft_tensor *out) {
    struct ft_weights_tensor *tensor = NULL;
    enum ft_code code = look_up(b, name, spec, &tensor, out);
    if (code != FT_OK)
        return code;
    tensor->is_bound = true;
    b->weights->n_parameters += (uint64_t)out->rows * (uint64_t)out->cols;
    b->weights->bytes += tensor->entry->bytes;
    return FT_OK;
}

/* The projections of all layers share one stored format, so that kernels are picked once. */
static enum ft_code check_dtypes(const struct binder *b) {
    const struct ft_arch_names *names = b->arch->names;
    const struct ft_weights *w = b->weights;
    for (int32_t i = 0; i < b->config->n_layers; i++)
        for (size_t j = 0; j < names->n_layer; j++) {
            const struct ft_arch_tensor *spec = &names->layer[j];
            const struct ft_tensor *t = (const void *)((const char *)&w->layers[i] + spec->offset);
            if (spec->rows != FT_DIM_VECTOR && t->data != NULL && t->dtype != w->dtype)
                return ft_err_set(b->err, FT_E_PROC_MODEL, MODULE,
                                  "tensor %s%d.%s: dtype is %s, other projections have %s",
                                  names->layer_prefix, i, spec->name, ft_dtype_name(t->dtype),
                                  ft_dtype_name(w->dtype));
        }
    return FT_OK;
}

static enum ft_code bind_layers(const struct binder *b) {
    const struct ft_arch_names *names = b->arch->names;
    char name[FT_SAFETENSORS_NAME_MAX + 1];
    for (int32_t i = 0; i < b->config->n_layers; i++)
        for (size_t j = 0; j < names->n_layer; j++) {
            const struct ft_arch_tensor *spec = &names->layer[j];
            if (!ft_arch_when_holds(spec->when, b->config))
                continue;
            snprintf(name, sizeof name, "%s%d.%s", names->layer_prefix, i, spec->name);
            struct ft_tensor *out = (void *)((char *)&b->weights->layers[i] + spec->offset);
            enum ft_code code = bind_one(b, name, spec, out);
            if (code != FT_OK)
                return code;
        }
    b->weights->dtype = b->weights->layers[0].q.dtype;
    return check_dtypes(b);
}

static enum ft_code bind_model(const struct binder *b) {
    for (size_t i = 0; i < b->arch->names->n_model; i++) {
        const struct ft_arch_tensor *spec = &b->arch->names->model[i];
        struct ft_tensor *out = (void *)((char *)b->weights + spec->offset);
        enum ft_code code = bind_one(b, spec->name, spec, out);
        if (code != FT_OK)
            return code;
    }
    return FT_OK;
}

/* The rules of weights.h for the head. */
static enum ft_code bind_head(const struct binder *b, bool *tied) {
    static const struct ft_arch_tensor spec = {.rows = FT_DIM_VOCAB, .cols = FT_DIM_HIDDEN};
    struct ft_weights *w = b->weights;
    const char *name = b->arch->names->head;
    struct ft_weights_tensor *tensor = ft_weights_files_find(b->files, name);
    bool is_untied = b->config->tie_word_embeddings_given && !b->config->tie_word_embeddings;
    if (tensor == NULL && is_untied)
        return ft_err_set(b->err, FT_E_PROC_MODEL, MODULE,
                          "%s: tensor %s: missing, but config.json has tie_word_embeddings false",
                          b->files->names[0], name);
    if (tensor != NULL && !b->config->tie_word_embeddings) {
        *tied = false;
        return bind_one(b, name, &spec, &w->head);
    }
    *tied = true;
    w->head = w->embed;
    if (tensor == NULL)
        return FT_OK;
    struct ft_tensor head;
    enum ft_code code = look_up(b, name, &spec, &tensor, &head);
    if (code != FT_OK)
        return code;
    if (head.dtype != w->embed.dtype || memcmp(head.data, w->embed.data, tensor->entry->bytes) != 0)
        return refuse(b, tensor,
                      "differs from the embeddings, but config.json has tie_word_embeddings true; "
                      "set it to false to use this head, or remove this tensor");
    tensor->is_bound = true;
    return FT_OK;
}

/* Frequencies that old checkpoints store; they are computed from config.json instead. */
static bool is_harmless(const char *name) {
    static const char suffix[] = "rotary_emb.inv_freq";
    size_t len = strlen(name);
    return len >= sizeof suffix - 1 && strcmp(name + len - (sizeof suffix - 1), suffix) == 0;
}

static enum ft_code check_unused(const struct binder *b) {
    for (size_t i = 0; i < b->files->n_tensors; i++) {
        const struct ft_weights_tensor *tensor = &b->files->tensors[i];
        if (!tensor->is_bound && !is_harmless(tensor->entry->name))
            return ft_err_set(b->err, FT_E_PROC_MODEL, MODULE,
                              "%s: tensor %.80s: %s with the %d layers and biases of config.json "
                              "has none of this name",
                              tensor->file, tensor->entry->name, b->arch->name,
                              b->config->n_layers);
    }
    return FT_OK;
}

/* ---- fingerprint ---------------------------------------------------------------------------- */

/* Training moves nearly every number of a tensor: so few of each tell two checkpoints of the same
 * shapes apart, and reading them touches two pages of each. */
#define SAMPLE_BYTES ((size_t)64)

/* FNV-1a. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n) {
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ p[i]) * 0x100000001B3u;
    return hash;
}

/* The same for one file and for shards: tensors stand in order of their names. */
static uint64_t fingerprint(const struct ft_weights_files *files) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < files->n_tensors; i++) {
        const struct ft_weights_tensor *tensor = &files->tensors[i];
        const struct ft_safetensors_entry *entry = tensor->entry;
        size_t bytes = (size_t)entry->bytes;
        size_t n = bytes < SAMPLE_BYTES ? bytes : SAMPLE_BYTES;
        if (!tensor->is_bound)
            continue;
        hash = hash_bytes(hash, entry->name, strlen(entry->name));
        hash = hash_bytes(hash, &entry->dtype, sizeof entry->dtype);
        hash = hash_bytes(hash, entry->dims, (size_t)entry->n_dims * sizeof entry->dims[0]);
        hash = hash_bytes(hash, tensor->data, n);
        hash = hash_bytes(hash, tensor->data + bytes - n, n);
    }
    return hash == 0 ? 1 : hash;
}

static enum ft_code bind_all(const struct binder *b, bool *tied) {
    enum ft_code code = bind_model(b);
    if (code == FT_OK)
        code = bind_layers(b);
    if (code == FT_OK)
        code = bind_head(b, tied);
    if (code == FT_OK)
        code = check_unused(b);
    return code;
}

enum ft_code ft_weights_open(struct ft_weights *out, const char *dir,
                             struct ft_model_config *config, struct ft_err *err) {
    const struct ft_arch *arch = ft_arch_find(config->architecture);
    FT_ASSERT(arch != NULL); /* ft_model_config_load refuses others. */
    struct ft_weights w = {0};
    enum ft_code code = ft_weights_files_open(&w.files, dir, err);
    if (code != FT_OK)
        return ft_config_read_in_dir(dir, code, err);
    bool tied = false;
    w.layers = calloc((size_t)config->n_layers, sizeof w.layers[0]);
    if (w.layers == NULL) {
        code =
            ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for %d layers", config->n_layers);
    } else {
        struct binder b = {arch, config, w.files, &w, err};
        code = bind_all(&b, &tied);
    }
    if (code != FT_OK) {
        ft_weights_close(&w);
        return ft_config_read_in_dir(dir, code, err);
    }
    config->tie_word_embeddings = tied;
    w.fingerprint = fingerprint(w.files);
    *out = w;
    return FT_OK;
}

void ft_weights_close(struct ft_weights *weights) {
    ft_weights_files_close(&weights->files);
    free(weights->layers);
    *weights = (struct ft_weights){0};
}
