/* bench_alpha: the acceptance of a pair of models, computed and not sampled: at positions of text
 * that the target generates from prompts of a file, alpha = E[sum of min(p, q)] at temperature 1
 * and how often both models' best tokens agree at temperature 0 (Leviathan et al. 2023, section
 * 3.3). It says what a draft is worth before anything is served. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/param.h"
#include "common/gpu/ops.h"
#include "common/model/model.h"
#include "common/spec/rule.h"
#include "common/text/tokenizer.h"

#define TOGETHER 32 /* sequences of one batch */
#define TEXT_MAX ((size_t)1 << 30)
#define SEPARATOR "<|endoftext|>\n" /* between documents of a text file */

struct options {
    char target[FT_PARAM_STR_MAX], draft[FT_PARAM_STR_MAX], text[FT_PARAM_STR_MAX];
    char device[FT_PARAM_STR_MAX], start[FT_PARAM_STR_MAX];
    int32_t threads, prompts, prompt_tokens, tokens, seed;
    double temperature;
};

#define ROW(name, kind, unit, min, max, def, choices, help)                                        \
    { #name, kind, unit, min, max, def, choices, false, offsetof(struct options, name), help }
static const struct ft_param k_rows[] = {
    ROW(target, FT_PARAM_STR, "", 0, 0, "", NULL, "folder of the target model"),
    ROW(draft, FT_PARAM_STR, "", 0, 0, "", NULL, "folder of the draft model"),
    ROW(text, FT_PARAM_STR, "", 0, 0, "", NULL, "file of documents, a line <|endoftext|> between"),
    ROW(start, FT_PARAM_STR, "", 0, 0, "document", "document|window",
        "prompts are windows anywhere in the text, or the beginnings of its first documents"),
    ROW(device, FT_PARAM_STR, "", 0, 0, "cpu", NULL, "device of both models"),
    ROW(threads, FT_PARAM_I32, "", 0, 1024, "0", NULL, "compute threads, 0: one per core"),
    ROW(prompts, FT_PARAM_I32, "", 2, 1e6, "96", NULL, "prompts"),
    ROW(prompt_tokens, FT_PARAM_I32, "tokens", 1, 4096, "32", NULL, "tokens of a prompt"),
    ROW(tokens, FT_PARAM_I32, "tokens", 1, 4096, "192", NULL, "generated after each prompt"),
    ROW(seed, FT_PARAM_I32, "", 0, 2e9, "1", NULL, "of the prompts and the text"),
    ROW(temperature, FT_PARAM_F64, "", 0, 100, "1", NULL, "0: argmax; else of the target's text"),
};
static const struct ft_param_table k_table = {k_rows, sizeof k_rows / sizeof k_rows[0]};

struct side {
    struct ft_model *model;
    int32_t vocab, n_blocks; /* blocks of one sequence */
    int64_t stride;
    float *rows; /* [TOGETHER, stride] */
    int32_t *blocks;
};

static struct options g_options;

static void die(const struct ft_err *err) {
    fprintf(stderr, "bench_alpha: %s\n", err->text);
    exit(ft_code_exit_status(err->code));
}

static void *take(size_t n, size_t size) {
    void *memory = calloc(n, size);
    if (memory == NULL) {
        fprintf(stderr, "bench_alpha: no memory\n");
        exit(71);
    }
    return memory;
}

static void open_side(struct side *side, const char *dir) {
    struct ft_err err = {0};
    struct ft_model_config config;
    if (ft_model_config_load(dir, &config, &err) != FT_OK)
        die(&err);
    int32_t len = g_options.prompt_tokens + g_options.tokens;
    side->n_blocks = (len + FT_OPS_KV_BLOCK - 1) / FT_OPS_KV_BLOCK;
    int64_t block_bytes =
        ft_kv_block_floats(config.n_kv_heads, config.head_dim) * 4LL * config.n_layers;
    struct ft_model_opts opts = {
        .dir = dir,
        .device = g_options.device,
        .n_threads = g_options.threads,
        .max_model_len = len,
        .kv_bytes = block_bytes * side->n_blocks * TOGETHER,
        .max_step_tokens = g_options.prompt_tokens * TOGETHER,
        .max_step_rows = TOGETHER,
    };
    if (ft_model_open(&side->model, &opts, &err) != FT_OK)
        die(&err);
    side->vocab = config.vocab_size;
    side->stride = (config.vocab_size + 15) / 16 * 16;
    side->rows = take((size_t)(TOGETHER * side->stride), sizeof *side->rows);
    side->blocks = take((size_t)side->n_blocks * TOGETHER, sizeof *side->blocks);
    for (int32_t i = 0; i < side->n_blocks * TOGETHER; i++)
        side->blocks[i] = i;
}

/* Feed tokens [start, start + n) of every sequence; the rows are those of the last ones. */
static void step(struct side *side, int32_t *const *text, int32_t n_seqs, int32_t start,
                 int32_t n) {
    struct ft_batch_seq seqs[TOGETHER];
    struct ft_err err = {0};
    for (int32_t i = 0; i < n_seqs; i++)
        seqs[i] = (struct ft_batch_seq){.blocks = side->blocks + i * side->n_blocks,
                                        .start = start,
                                        .tokens = text[i] + start,
                                        .n_tokens = n,
                                        .n_logits = 1};
    if (ft_model_forward(side->model, seqs, n_seqs, side->rows, side->stride, &err) != FT_OK)
        die(&err);
}

/* ---- prompts -------------------------------------------------------------------------------- */

static double random_uniform(void) {
    static uint64_t calls;
    return ft_philox_uniform((uint64_t)g_options.seed, calls++, FT_PHILOX_PROPOSE, 0);
}

/* All documents after each other, each with its BOS; starts says where each begins. */
static void read_text(struct ft_tokenizer *tokenizer, struct ft_ids *stream,
                      struct ft_ids *starts) {
    struct ft_buf file;
    struct ft_err err = {0};
    struct ft_encode_opts opts = {.add_special = true};
    ft_buf_init(&file, 0);
    if (ft_file_read(g_options.text, TEXT_MAX, &file, &err) != FT_OK)
        die(&err);
    ft_buf_add(&file, "", 1); /* for strstr */
    for (const char *at = (const char *)file.ptr, *end; at != NULL && *at != 0; at = end) {
        const char *separator = strstr(at, SEPARATOR);
        size_t len = separator != NULL ? (size_t)(separator - at) : strlen(at);
        int32_t start = (int32_t)stream->len;
        if (ft_tokenizer_encode(tokenizer, (struct ft_str){at, len}, &opts, stream, &err) != FT_OK)
            die(&err);
        if (stream->len - (size_t)start >= (size_t)g_options.prompt_tokens)
            ft_ids_push(starts, &start, 1);
        end = separator != NULL ? separator + strlen(SEPARATOR) : NULL;
    }
    ft_buf_fini(&file);
}

static void take_prompts(int32_t **text) {
    struct ft_tokenizer *tokenizer = NULL;
    struct ft_ids stream = {0}, starts = {0};
    struct ft_err err = {0};
    if (ft_tokenizer_open(&tokenizer, g_options.target, &err) != FT_OK)
        die(&err);
    read_text(tokenizer, &stream, &starts);
    size_t n = (size_t)g_options.prompt_tokens;
    bool documents = strcmp(g_options.start, "document") == 0;
    size_t n_starts = documents ? starts.len : stream.len < n ? 0 : stream.len - n + 1;
    if ((size_t)g_options.prompts > n_starts) {
        fprintf(stderr, "bench_alpha: prompts is %d: %s has %zu beginnings of %zu tokens\n",
                g_options.prompts, g_options.text, n_starts, n);
        exit(64);
    }
    for (int32_t i = 0; i < g_options.prompts; i++) {
        int32_t at = documents ? starts.ptr[i] : (int32_t)(random_uniform() * (double)n_starts);
        memcpy(text[i], stream.ptr + at, n * sizeof *text[i]);
    }
    ft_ids_fini(&stream);
    ft_ids_fini(&starts);
    ft_tokenizer_close(&tokenizer);
}

/* ---- alpha ---------------------------------------------------------------------------------- */

struct probe {
    struct ft_transform *target, *draft;
    struct ft_sampling sampling;
    float *p, *q;
};

/* How far the rows of sequence i agree, and the target's next token. */
static double compare(struct probe *probe, const struct side *target, const struct side *draft,
                      int32_t i, int32_t *next) {
    struct ft_row_context context = {.sampling = &probe->sampling};
    struct ft_err err = {0};
    if (ft_transform_row(probe->target, target->rows + i * target->stride, target->vocab, &context,
                         probe->p, &err) != FT_OK ||
        ft_transform_row(probe->draft, draft->rows + i * draft->stride, draft->vocab, &context,
                         probe->q, &err) != FT_OK)
        die(&err);
    *next = ft_transform_draw(probe->p, target->vocab, random_uniform());
    return ft_spec_alpha(probe->p, target->vocab, probe->q, draft->vocab);
}

static void measure(struct side *target, struct side *draft, struct probe *probe, int32_t **text,
                    int32_t n_seqs, double *alpha) {
    int32_t n_prompt = g_options.prompt_tokens;
    step(target, text, n_seqs, 0, n_prompt);
    step(draft, text, n_seqs, 0, n_prompt);
    for (int32_t t = 0; t < g_options.tokens; t++) {
        for (int32_t i = 0; i < n_seqs; i++)
            alpha[i] += compare(probe, target, draft, i, &text[i][n_prompt + t]) / g_options.tokens;
        if (t + 1 == g_options.tokens)
            break;
        step(target, text, n_seqs, n_prompt + t, 1);
        step(draft, text, n_seqs, n_prompt + t, 1);
    }
}

static void report(const double *alpha) {
    double mean = 0, variance = 0;
    int32_t n = g_options.prompts;
    for (int32_t i = 0; i < n; i++)
        mean += alpha[i] / n;
    for (int32_t i = 0; i < n; i++)
        variance += (alpha[i] - mean) * (alpha[i] - mean) / (n - 1);
    printf("alpha %.4f +- %.4f  temperature %g, %d prompts of %d tokens (%s), %d tokens each\n",
           mean, sqrt(variance / n), g_options.temperature, n, g_options.prompt_tokens,
           g_options.start, g_options.tokens);
}

int main(int argc, char **argv) {
    struct ft_err err = {0};
    struct ft_param_args args = {
        .argc = argc, .argv = argv, .usage = "bench_alpha --target DIR --draft DIR --text FILE"};
    if (ft_param_defaults(&k_table, &g_options, &err) != FT_OK ||
        ft_param_parse(&k_table, &g_options, &args, &err) != FT_OK)
        die(&err);
    if (args.help)
        return 0;
    if (g_options.target[0] == 0 || g_options.draft[0] == 0 || g_options.text[0] == 0) {
        fprintf(stderr, "usage: %s [options]\n", args.usage);
        return 64;
    }
    struct side target = {0}, draft = {0};
    open_side(&target, g_options.target);
    open_side(&draft, g_options.draft);
    int32_t **text = take((size_t)g_options.prompts, sizeof *text);
    for (int32_t i = 0; i < g_options.prompts; i++)
        text[i] = take((size_t)(g_options.prompt_tokens + g_options.tokens), sizeof *text[i]);
    take_prompts(text);
    struct probe probe = {
        .target = ft_transform_create(target.vocab),
        .draft = ft_transform_create(draft.vocab),
        .sampling = ft_sampling_default(),
        .p = take((size_t)target.vocab, sizeof(float)),
        .q = take((size_t)draft.vocab, sizeof(float)),
    };
    probe.sampling.temperature = (float)g_options.temperature;
    double *alpha = take((size_t)g_options.prompts, sizeof *alpha);
    for (int32_t i = 0; i < g_options.prompts; i += TOGETHER) {
        int32_t left = g_options.prompts - i;
        measure(&target, &draft, &probe, text + i, left < TOGETHER ? left : TOGETHER, alpha + i);
    }
    report(alpha);
    ft_transform_destroy(&probe.target);
    ft_transform_destroy(&probe.draft);
    ft_model_close(&target.model);
    ft_model_close(&draft.model);
    return 0;
}
