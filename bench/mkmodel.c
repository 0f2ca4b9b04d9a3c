/* mkmodel: a checkpoint of a named shape, or of a config.json, with random bf16 weights: a seed
 * gives the same file everywhere. Weights have the size that keeps a signal's size from layer to
 * layer, so that a step computes with ordinary numbers; the text it makes is noise. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/param.h"
#include "common/model/arch.h"

struct options {
    char shape[FT_PARAM_STR_MAX], config[FT_PARAM_STR_MAX];
    int32_t seed;
};

static const struct ft_param rows[] = {
    {"shape", FT_PARAM_STR, "", 0, 0, "llama-3.2-1b", "llama-3.2-1b|llama-3.2-3b|llama-3.1-8b",
     false, offsetof(struct options, shape), "which model's shape"},
    {"config", FT_PARAM_STR, "", 0, 0, "", NULL, false, offsetof(struct options, config),
     "a config.json to take the shape from instead"},
    {"seed", FT_PARAM_I32, "", 0, INT32_MAX, "1", NULL, false, offsetof(struct options, seed),
     "of the random numbers"},
};
static const struct ft_param_table table = {rows, sizeof rows / sizeof rows[0]};

static const struct shape {
    const char *name;
    int32_t hidden, intermediate, layers, heads, kv_heads, head_dim;
    const char *tied;
    double rope_factor;
} shapes[] = {
    {"llama-3.2-1b", 2048, 8192, 16, 32, 8, 64, "true", 32.0},
    {"llama-3.2-3b", 3072, 8192, 28, 24, 8, 128, "true", 32.0},
    {"llama-3.1-8b", 4096, 14336, 32, 32, 8, 128, "false", 8.0},
};

static void die(const struct ft_err *err) {
    fprintf(stderr, "mkmodel: %s\n", err->text);
    exit(ft_code_exit_status(err->code));
}

static void die_os(const char *path) {
    fprintf(stderr, "mkmodel: %s: %s\n", path, strerror(errno));
    exit(71);
}

static void write_all(int fd, const void *bytes, size_t n, const char *path) {
    const char *at = bytes;
    while (n > 0) {
        ssize_t done = write(fd, at, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            die_os(path);
        at += done;
        n -= (size_t)done;
    }
}

static int create(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        die_os(path);
    return fd;
}

static void write_config(const char *path, const struct options *options) {
    static char text[1 << 20];
    int n = 0;
    if (options->config[0] != '\0') {
        int from = open(options->config, O_RDONLY | O_CLOEXEC);
        ssize_t got = from < 0 ? -1 : read(from, text, sizeof text);
        if (got <= 0)
            die_os(options->config);
        n = (int)got;
        close(from);
    }
    for (size_t i = 0; n == 0 && i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct shape *s = &shapes[i];
        if (strcmp(s->name, options->shape) == 0)
            n = snprintf(
                text, sizeof text,
                "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\",\n"
                " \"attention_bias\": false, \"mlp_bias\": false, \"hidden_act\": \"silu\",\n"
                " \"bos_token_id\": 128000, \"eos_token_id\": 128001, \"vocab_size\": 128256,\n"
                " \"hidden_size\": %d, \"intermediate_size\": %d, \"num_hidden_layers\": %d,\n"
                " \"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d,\n"
                " \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-05,\n"
                " \"rope_theta\": 500000.0, \"rope_scaling\": {\"factor\": %.1f,\n"
                "  \"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0,\n"
                "  \"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"},\n"
                " \"tie_word_embeddings\": %s, \"torch_dtype\": \"bfloat16\"}\n",
                s->hidden, s->intermediate, s->layers, s->heads, s->kv_heads, s->head_dim,
                s->rope_factor, s->tied);
    }
    int fd = create(path);
    write_all(fd, text, (size_t)n, path);
    close(fd);
}

struct tensor {
    char name[160];
    int64_t rows, cols; /* rows 0: a vector */
};

struct model {
    struct tensor *tensors;
    size_t n, room;
};

static void add(struct model *model, const char *name, int64_t n_rows, int64_t n_cols) {
    if (model->n == model->room) {
        model->room = model->room == 0 ? 64 : model->room * 2;
        model->tensors = realloc(model->tensors, model->room * sizeof *model->tensors);
        if (model->tensors == NULL)
            abort();
    }
    struct tensor *t = &model->tensors[model->n++];
    *t = (struct tensor){.rows = n_rows, .cols = n_cols};
    snprintf(t->name, sizeof t->name, "%s", name);
}

static void add_spec(struct model *model, const struct ft_model_config *config, const char *prefix,
                     const struct ft_arch_tensor *spec) {
    char name[160];
    if (!ft_arch_when_holds(spec->when, config))
        return;
    snprintf(name, sizeof name, "%s%s", prefix, spec->name);
    bool is_vector = spec->rows == FT_DIM_VECTOR;
    add(model, name, is_vector ? 0 : ft_arch_dim_size(spec->rows, config),
        ft_arch_dim_size(spec->cols, config));
}

static void list_tensors(struct model *model, const struct ft_model_config *config) {
    const struct ft_arch_names *names = ft_arch_find(config->architecture)->names;
    for (size_t i = 0; i < names->n_model; i++)
        add_spec(model, config, "", &names->model[i]);
    for (int32_t layer = 0; layer < config->n_layers; layer++) {
        char prefix[80];
        snprintf(prefix, sizeof prefix, "%.48s%d.", names->layer_prefix, layer);
        for (size_t i = 0; i < names->n_layer; i++)
            add_spec(model, config, prefix, &names->layer[i]);
    }
    if (config->tie_word_embeddings_given && !config->tie_word_embeddings)
        add(model, names->head, config->vocab_size, config->hidden_size);
}

static int64_t numbers_of(const struct tensor *t) {
    return (t->rows > 0 ? t->rows : 1) * t->cols;
}

static void write_header(int fd, const struct model *model, const char *path) {
    size_t room = model->n * 320 + 64, at = 8;
    char *text = calloc(1, room);
    if (text == NULL)
        abort();
    int64_t offset = 0;
    for (size_t i = 0; i < model->n; i++) {
        const struct tensor *t = &model->tensors[i];
        char shape[64];
        if (t->rows > 0)
            snprintf(shape, sizeof shape, "%" PRId64 ",%" PRId64, t->rows, t->cols);
        else
            snprintf(shape, sizeof shape, "%" PRId64, t->cols);
        at += (size_t)snprintf(
            text + at, room - at,
            "%c\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%" PRId64 ",%" PRId64
            "]}",
            i == 0 ? '{' : ',', t->name, shape, offset, offset + 2 * numbers_of(t));
        offset += 2 * numbers_of(t);
    }
    text[at++] = '}';
    while (at % 8 != 0)
        text[at++] = ' ';
    uint64_t len = at - 8;
    for (int i = 0; i < 8; i++)
        text[i] = (char)(len >> (8 * i));
    write_all(fd, text, at, path);
    free(text);
}

#define CHUNK ((int64_t)1 << 21) /* numbers */

/* Four numbers of random sign and mantissa in 64 random bits; the exponent is the tensor's. */
static void write_tensor(int fd, const struct tensor *t, uint64_t *random, const char *path) {
    static uint16_t numbers[CHUNK];
    /* 1.xx times this is 1 / sqrt(cols) on average */
    int exponent = 127 - (int)lround(log2(1.53 * sqrt((double)t->cols)));
    uint64_t keep = 0x807F807F807F807Fu, put = 0x0001000100010001u * (uint64_t)(exponent << 7);
    bool is_norm = t->rows == 0 && strstr(t->name, "norm") != NULL;
    for (int64_t left = numbers_of(t); left > 0; left -= CHUNK) {
        int64_t n = left < CHUNK ? left : CHUNK;
        for (int64_t i = 0; i < n; i += 4) {
            *random ^= *random >> 12;
            *random ^= *random << 25;
            *random ^= *random >> 27;
            uint64_t four = ((*random * 0x2545F4914F6CDD1Du) & keep) | put;
            if (is_norm)
                four = 0x3F803F803F803F80u;
            memcpy(numbers + i, &four, sizeof four); /* a multiple of 4 lies in the buffer */
        }
        write_all(fd, numbers, (size_t)n * sizeof numbers[0], path);
    }
}

static void make(const char *dir, const struct options *options) {
    char path[4096];
    struct ft_err err = {0};
    struct ft_model_config config;
    struct model model = {0};
    if (mkdir(dir, 0755) != 0 && errno != EEXIST)
        die_os(dir);
    snprintf(path, sizeof path, "%s/config.json", dir);
    write_config(path, options);
    if (ft_model_config_load(dir, &config, &err) != FT_OK)
        die(&err);
    list_tensors(&model, &config);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    int fd = create(path);
    write_header(fd, &model, path);
    uint64_t random = 0x9E3779B97F4A7C15u * ((uint64_t)options->seed + 1);
    int64_t n = 0;
    for (size_t i = 0; i < model.n; i++) {
        write_tensor(fd, &model.tensors[i], &random, path);
        n += numbers_of(&model.tensors[i]);
    }
    if (close(fd) != 0)
        die_os(path);
    free(model.tensors);
    printf("%s: %zu tensors, %.3f billion numbers\n", dir, model.n, (double)n / 1e9);
}

int main(int argc, char **argv) {
    struct ft_err err = {0};
    static struct options options;
    char **rest = calloc((size_t)argc, sizeof *rest);
    if (rest == NULL)
        abort();
    struct ft_param_args args = {
        .argc = argc, .argv = argv, .rest = rest, .usage = "mkmodel DIR [options]"};
    if (ft_param_defaults(&table, &options, &err) != FT_OK ||
        ft_param_parse(&table, &options, &args, &err) != FT_OK)
        die(&err);
    if (args.help)
        return 0;
    if (args.n_rest != 1) {
        fprintf(stderr, "usage: %s\n", args.usage);
        return 64;
    }
    make(rest[0], &options);
    free(rest);
    return 0;
}
