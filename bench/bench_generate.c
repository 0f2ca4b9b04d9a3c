/* bench_generate: plain decoding against speculation on a running server, interleaved.
 * For every prompt and repeat it runs plain decoding and each K in turn, so that what disturbs the
 * machine disturbs all alike; a speed-up is the ratio of the medians over all prompts and repeats.
 * Its standard error is that of the ratios of runs side by side; lowest and highest are of the
 * repeats, each taken for itself. Speed is decoding alone: (tokens - 1) / (last token - first).
 * Then the best K runs alone for as many rounds as the server's medians look back on, so that the
 * times of a round are of one K. With the models' folders it also holds each worker's memory
 * against its weights, its KV and 64 MB.
 * Prompts: a reference file with {"prompts": [{"domain", "prompt_ids"}]}. */
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/param.h"
#include "common/gpu/ops.h"
#include "common/model/config.h"
#include "common/rpc/rpc.h"
#include "common/wire/admin.h"
#include "common/wire/inference.h"

enum { PROMPTS_MAX = 64, REPEATS_MAX = 100, IDS_MAX = 1024, K_ROWS = 9 };
enum { RUNS_MAX = PROMPTS_MAX * REPEATS_MAX };
#define SLACK_BYTES (64.0 * 1e6) /* what a worker may take beside weights and KV */

struct config {
    char endpoint[FT_PARAM_STR_MAX], reference[FT_PARAM_STR_MAX], domain[FT_PARAM_STR_MAX];
    char target_model[FT_PARAM_STR_MAX], draft_model[FT_PARAM_STR_MAX];
    int32_t max_tokens, repeats, k_max, n_prompts, single_rounds;
    double temperature;
};

static const struct ft_param k_rows[] = {
    {"endpoint", FT_PARAM_STR, "", 0, 0, "127.0.0.1:50051", NULL, false,
     offsetof(struct config, endpoint), "server"},
    {"reference", FT_PARAM_STR, "", 0, 0, "", NULL, false, offsetof(struct config, reference),
     "file with prompts"},
    {"domain", FT_PARAM_STR, "", 0, 0, "", NULL, false, offsetof(struct config, domain),
     "only prompts of this domain; empty takes all"},
    {"max_tokens", FT_PARAM_I32, "tokens", 8, 4096, "128", NULL, false,
     offsetof(struct config, max_tokens), "tokens generated per run"},
    {"repeats", FT_PARAM_I32, "", 1, REPEATS_MAX, "3", NULL, false,
     offsetof(struct config, repeats), "runs of each prompt and K"},
    {"k_max", FT_PARAM_I32, "tokens", 1, 8, "6", NULL, false, offsetof(struct config, k_max),
     "largest K"},
    {"n_prompts", FT_PARAM_I32, "", 1, PROMPTS_MAX, "8", NULL, false,
     offsetof(struct config, n_prompts), "prompts used"},
    {"temperature", FT_PARAM_F64, "", 0, 100, "0", NULL, false,
     offsetof(struct config, temperature), "0 is greedy"},
    {"single_rounds", FT_PARAM_I32, "rounds", 0, 1000000, "1100", NULL, false,
     offsetof(struct config, single_rounds), "rounds of the best K alone; 0: none"},
    {"target_model", FT_PARAM_STR, "", 0, 0, "", NULL, false, offsetof(struct config, target_model),
     "folder of the target's model, to judge its memory"},
    {"draft_model", FT_PARAM_STR, "", 0, 0, "", NULL, false, offsetof(struct config, draft_model),
     "folder of the draft's model"},
};

struct prompt {
    int32_t ids[IDS_MAX];
    size_t n;
};

struct run {
    bool done;
    struct ft_rpc_status status;
    int32_t ids[4096];
    size_t n_ids;
    double seconds; /* decoding */
    struct ft_wire_spec_stats spec;
    struct ft_arena *arena;
};

struct row {                /* one K */
    double speed[RUNS_MAX]; /* in order of repeats, then prompts */
    size_t n;
    uint64_t drafted, accepted, steps, tokens;
};

struct bench {
    struct config config;
    struct prompt prompts[PROMPTS_MAX];
    size_t n_prompts;
    struct row rows[K_ROWS];
    struct run run;
    int32_t plain[4096];
    uint64_t differing;
    struct ft_rpc_loop *loop;
    struct ft_rpc_client *client;
};

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *v, size_t n) {
    static double sorted[RUNS_MAX];
    memcpy(sorted, v, n * sizeof *v);
    qsort(sorted, n, sizeof *v, compare);
    return n == 0 ? 0 : sorted[n / 2];
}

static void on_message(void *user, struct ft_str message) {
    struct run *run = user;
    struct ft_wire_generated out;
    ft_arena_reset(run->arena);
    if (ft_wire_decode_generated(message, run->arena, &out, NULL) != FT_OK)
        return;
    for (size_t i = 0; i < out.n_token_ids && run->n_ids < 4096; i++)
        run->ids[run->n_ids++] = out.token_ids[i];
    if (out.has_usage)
        run->seconds = out.usage.total_seconds - out.usage.first_token_seconds;
    if (out.has_speculative)
        run->spec = out.speculative;
}

static void on_done(void *user, const struct ft_rpc_status *status) {
    struct run *run = user;
    run->status = *status;
    run->done = true;
}

static const struct ft_rpc_stream_handlers k_handlers = {.on_message = on_message,
                                                         .on_done = on_done};

static void generate(struct ft_rpc_loop *loop, struct ft_rpc_client *client,
                     const struct config *config, const struct prompt *prompt, int k, uint64_t seed,
                     struct run *run) {
    struct ft_arena *arena = run->arena;
    memset(run, 0, sizeof *run);
    run->arena = arena;
    struct ft_wire_generate request = {
        .input = {.kind = FT_WIRE_INPUT_IDS, .ids = prompt->ids, .n_ids = prompt->n},
        .params = {.has_temperature = true,
                   .temperature = (float)config->temperature,
                   .has_max_tokens = true,
                   .max_tokens = (uint32_t)config->max_tokens,
                   .ignore_eos = true,
                   .has_seed = true,
                   .seed = seed},
        .stream = true,
        .has_spec_enabled = true,
        .spec_enabled = k > 0,
        .has_num_speculative_tokens = true,
        .num_speculative_tokens = (uint32_t)k,
    };
    struct ft_buf out;
    struct ft_rpc_stream *stream;
    struct ft_rpc_call_opts opts = {0};
    ft_buf_init(&out, 0);
    ft_wire_encode_generate(&request, &out);
    if (ft_rpc_stream_open(&stream, client, FT_WIRE_INFERENCE_SERVICE "Generate", &opts,
                           &k_handlers, run, NULL) == FT_OK) {
        ft_rpc_stream_send(stream, ft_buf_str(&out));
        ft_rpc_stream_half_close(stream);
        while (!run->done)
            ft_rpc_loop_step(loop, INT64_MAX);
    }
    ft_buf_fini(&out);
    if (run->status.code != 0) {
        fprintf(stderr, "bench_generate: %s: %s\n", ft_rpc_status_name(run->status.code),
                run->status.text);
        exit(1);
    }
}

static size_t load_prompts(const struct config *config, struct prompt *prompts) {
    json_error_t error;
    json_t *root = json_load_file(config->reference, 0, &error);
    if (root == NULL) {
        fprintf(stderr, "bench_generate: %s: %s\n", config->reference, error.text);
        exit(66);
    }
    size_t n = 0, i, j;
    json_t *item, *id;
    json_array_foreach(json_object_get(root, "prompts"), i, item) {
        const char *domain = json_string_value(json_object_get(item, "domain"));
        if (n == (size_t)config->n_prompts ||
            (config->domain[0] != 0 && (domain == NULL || strcmp(domain, config->domain) != 0)))
            continue;
        json_array_foreach(json_object_get(item, "prompt_ids"), j, id) {
            if (j < IDS_MAX)
                prompts[n].ids[prompts[n].n++] = (int32_t)json_integer_value(id);
        }
        n++;
    }
    json_decref(root);
    return n;
}

/* ---- runs ---- */

static void add_run(struct row *row, const struct run *run) {
    row->speed[row->n++] = (double)(run->n_ids - 1) / run->seconds;
    row->drafted += run->spec.num_draft_tokens;
    row->accepted += run->spec.num_accepted_tokens;
    row->steps += run->spec.num_target_steps;
    row->tokens += run->n_ids - 1;
}

static bool same_tokens(const struct run *run, const int32_t *ids, size_t n) {
    return run->n_ids == n && memcmp(run->ids, ids, n * sizeof *ids) == 0;
}

static void run_mixed(struct bench *bench) {
    const struct config *config = &bench->config;
    struct run *run = &bench->run;
    generate(bench->loop, bench->client, config, &bench->prompts[0], 2, 0, run); /* warm up */
    for (int32_t repeat = 0; repeat < config->repeats; repeat++)
        for (size_t p = 0; p < bench->n_prompts; p++) {
            size_t n_plain = 0;
            uint64_t seed = (uint64_t)repeat * bench->n_prompts + p; /* of every K alike */
            for (int32_t k = 0; k <= config->k_max; k++) {
                generate(bench->loop, bench->client, config, &bench->prompts[p], k, seed, run);
                add_run(&bench->rows[k], run);
                if (k == 0) {
                    n_plain = run->n_ids;
                    memcpy(bench->plain, run->ids, n_plain * sizeof bench->plain[0]);
                } else if (config->temperature == 0.0 && !same_tokens(run, bench->plain, n_plain)) {
                    bench->differing++;
                }
            }
        }
}

static int32_t best_k(const struct bench *bench) {
    int32_t best = 1;
    for (int32_t k = 2; k <= bench->config.k_max; k++)
        if (median(bench->rows[k].speed, bench->rows[k].n) >
            median(bench->rows[best].speed, bench->rows[best].n))
            best = k;
    return best;
}

/* One K until the server's medians are of it alone. */
static void run_single(struct bench *bench, int32_t k) {
    static struct row row;
    for (size_t i = 0; row.steps < (uint64_t)bench->config.single_rounds && i < RUNS_MAX; i++) {
        generate(bench->loop, bench->client, &bench->config, &bench->prompts[i % bench->n_prompts],
                 k, i, &bench->run);
        add_run(&row, &bench->run);
    }
    printf("K = %d alone, %llu rounds: %.1f tok/s\n", k, (unsigned long long)row.steps,
           median(row.speed, row.n));
}

/* ---- results ---- */

/* How sure a speed-up over plain decoding is. */
struct spread {
    double error, low, high;
};

static struct spread spread_of(const struct bench *bench, int32_t k) {
    const struct row *plain = &bench->rows[0], *row = &bench->rows[k];
    struct spread spread = {0, INFINITY, 0};
    double n = (double)row->n, sum = 0, squares = 0;
    for (size_t i = 0; i < row->n; i++) {
        double ratio = row->speed[i] / plain->speed[i];
        sum += ratio;
        squares += ratio * ratio;
    }
    if (row->n > 1)
        spread.error = sqrt(fmax(0, squares - sum * sum / n) / (n - 1) / n);
    for (size_t i = 0; i < row->n; i += bench->n_prompts) {
        double ratio =
            median(row->speed + i, bench->n_prompts) / median(plain->speed + i, bench->n_prompts);
        spread.low = fmin(spread.low, ratio);
        spread.high = fmax(spread.high, ratio);
    }
    return spread;
}

static void print_rows(const struct bench *bench) {
    const struct config *config = &bench->config;
    double base = median(bench->rows[0].speed, bench->rows[0].n);
    printf("%s T=%g, %zu prompts x %d, %d tokens\n", config->domain[0] ? config->domain : "all",
           config->temperature, bench->n_prompts, config->repeats, config->max_tokens);
    printf("%3s %9s %9s %8s %15s %11s %12s\n", "K", "tok/s", "vs plain", "error", "low .. high",
           "acceptance", "tokens/step");
    for (int32_t k = 0; k <= config->k_max; k++) {
        const struct row *row = &bench->rows[k];
        double speed = median(row->speed, row->n);
        struct spread spread = spread_of(bench, k);
        printf("%3d %9.1f %8.2fx %8.3f %6.2f .. %5.2f %11.3f %12.2f\n", k, speed, speed / base,
               spread.error, spread.low, spread.high,
               row->drafted ? (double)row->accepted / (double)row->drafted : 0.0,
               row->steps ? (double)row->tokens / (double)row->steps : 0.0);
    }
    if (config->temperature == 0.0)
        printf("greedy runs whose tokens differ from plain decoding: %llu\n",
               (unsigned long long)bench->differing);
}

static double weights_bytes(const char *dir) {
    static const char suffix[] = ".safetensors";
    double bytes = 0;
    DIR *list = opendir(dir);
    struct dirent *entry;
    while (list != NULL && (entry = readdir(list)) != NULL) {
        size_t len = strlen(entry->d_name), n = sizeof suffix - 1;
        char path[FT_PARAM_STR_MAX + 300];
        struct stat st;
        if (len <= n || strcmp(entry->d_name + len - n, suffix) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (stat(path, &st) == 0)
            bytes += (double)st.st_size;
    }
    if (list != NULL)
        closedir(list);
    return bytes;
}

static void print_memory(const char *role, const struct ft_wire_worker_state *state,
                         const char *dir) {
    struct ft_model_config model;
    struct ft_err err = {0};
    printf("%s: %.1f MB resident", role, (double)state->resident_bytes / 1e6);
    if (dir[0] == 0) {
        printf("\n");
        return;
    }
    if (ft_model_config_load(dir, &model, &err) != FT_OK) {
        printf("; %s\n", err.text);
        return;
    }
    double weights = weights_bytes(dir);
    double kv = (double)state->kv_blocks_total * model.n_layers * (double)sizeof(float) *
                (double)ft_kv_block_floats(model.n_kv_heads, model.head_dim);
    double limit = weights + kv + SLACK_BYTES;
    printf(", limit %.1f = weights %.1f + KV %.1f + 64.0: %s\n", limit / 1e6, weights / 1e6,
           kv / 1e6, (double)state->resident_bytes <= limit ? "within" : "OVER");
}

static void print_stats(const struct bench *bench) {
    struct ft_buf out;
    ft_buf_init(&out, 0);
    struct ft_rpc_call_opts opts = {0};
    struct ft_rpc_status status = ft_rpc_client_unary_sync(
        bench->client, FT_WIRE_ADMIN_SERVICE "GetStats", (struct ft_str){NULL, 0}, &opts, &out);
    struct ft_arena *arena = ft_arena_create(4096, 0);
    struct ft_wire_stats s;
    if (status.code == 0 && ft_wire_decode_stats(ft_buf_str(&out), arena, &s, NULL) == FT_OK) {
        printf("last rounds (p50, us): round %.0f = draft %.0f + target %.0f + host %.0f (accept "
               "%.0f of it)\n",
               s.round_p50_us, s.draft_step_p50_us, s.target_step_p50_us, s.host_p50_us,
               s.accept_p50_us);
        print_memory("target", &s.target, bench->config.target_model);
        if (s.has_draft)
            print_memory("draft", &s.draft, bench->config.draft_model);
    }
    ft_arena_destroy(&arena);
    ft_buf_fini(&out);
}

int main(int argc, char **argv) {
    static struct bench bench;
    const struct ft_param_table table = {k_rows, sizeof k_rows / sizeof k_rows[0]};
    struct ft_param_args args = {
        .argc = argc, .argv = argv, .usage = "bench_generate --reference FILE"};
    struct ft_err err = {0};
    if (ft_param_defaults(&table, &bench.config, &err) != FT_OK ||
        ft_param_parse(&table, &bench.config, &args, &err) != FT_OK) {
        fprintf(stderr, "bench_generate: %s\n", err.text);
        return 64;
    }
    if (args.help)
        return 0;
    if (bench.config.reference[0] == 0) {
        fprintf(stderr, "usage: %s [options]\n", args.usage);
        return 64;
    }
    bench.n_prompts = load_prompts(&bench.config, bench.prompts);
    if (bench.n_prompts == 0) {
        fprintf(stderr, "bench_generate: %s: no prompts of this domain\n", bench.config.reference);
        return 65;
    }
    struct ft_rpc_client_opts opts = {0};
    if (ft_rpc_loop_create(&bench.loop, 0, &err) != FT_OK ||
        ft_rpc_client_open(&bench.client, bench.loop, bench.config.endpoint, &opts, &err) !=
            FT_OK) {
        fprintf(stderr, "bench_generate: %s\n", err.text);
        return 1;
    }
    bench.run.arena = ft_arena_create(1 << 16, 0);
    run_mixed(&bench);
    print_rows(&bench);
    if (bench.config.single_rounds > 0)
        run_single(&bench, best_k(&bench));
    print_stats(&bench);
    ft_arena_destroy(&bench.run.arena);
    ft_rpc_client_close(&bench.client);
    ft_rpc_loop_destroy(&bench.loop);
    return bench.differing == 0 ? 0 : 1;
}
