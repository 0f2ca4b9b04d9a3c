/* bench_generate: plain decoding against speculation on a running server, interleaved.
 * For every prompt and repeat it runs plain decoding and each K in turn, so that what disturbs the
 * machine disturbs all alike; a speed-up is the ratio of the medians over all prompts and repeats.
 * Speed is decoding alone: (tokens - 1) / (last token - first token).
 * Prompts: a reference file with {"prompts": [{"domain", "prompt_ids"}]}. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/param.h"
#include "common/rpc/rpc.h"
#include "common/wire/admin.h"
#include "common/wire/inference.h"

enum { PROMPTS_MAX = 64, IDS_MAX = 1024, RUNS_MAX = 4096, K_ROWS = 9 };

struct config {
    char endpoint[FT_PARAM_STR_MAX], reference[FT_PARAM_STR_MAX], domain[FT_PARAM_STR_MAX];
    int32_t max_tokens, repeats, k_max, n_prompts;
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
    {"repeats", FT_PARAM_I32, "", 1, 100, "3", NULL, false, offsetof(struct config, repeats),
     "runs of each prompt and K"},
    {"k_max", FT_PARAM_I32, "tokens", 1, 8, "6", NULL, false, offsetof(struct config, k_max),
     "largest K"},
    {"n_prompts", FT_PARAM_I32, "", 1, PROMPTS_MAX, "8", NULL, false,
     offsetof(struct config, n_prompts), "prompts used"},
    {"temperature", FT_PARAM_F64, "", 0, 100, "0", NULL, false,
     offsetof(struct config, temperature), "0 is greedy"},
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

struct row { /* one K */
    double speed[RUNS_MAX];
    size_t n;
    uint64_t drafted, accepted, steps, tokens;
};

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n) {
    qsort(v, n, sizeof *v, compare);
    return n == 0 ? 0 : v[n / 2];
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
                     const struct config *config, const struct prompt *prompt, int k,
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
                   .seed = 7},
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

static void print_stats(struct ft_rpc_client *client) {
    struct ft_buf out;
    ft_buf_init(&out, 0);
    struct ft_rpc_call_opts opts = {0};
    struct ft_rpc_status status = ft_rpc_client_unary_sync(client, FT_WIRE_ADMIN_SERVICE "GetStats",
                                                           (struct ft_str){NULL, 0}, &opts, &out);
    struct ft_arena *arena = ft_arena_create(4096, 0);
    struct ft_wire_stats s;
    if (status.code == 0 && ft_wire_decode_stats(ft_buf_str(&out), arena, &s, NULL) == FT_OK)
        printf("last rounds (p50, us): round %.0f = draft %.0f + target %.0f + host %.0f (accept "
               "%.0f of it)\n",
               s.round_p50_us, s.draft_step_p50_us, s.target_step_p50_us, s.host_p50_us,
               s.accept_p50_us);
    ft_arena_destroy(&arena);
    ft_buf_fini(&out);
}

static bool same_tokens(const struct run *run, const int32_t *ids, size_t n) {
    return run->n_ids == n && memcmp(run->ids, ids, n * sizeof *ids) == 0;
}

int main(int argc, char **argv) {
    static struct config config;
    static struct prompt prompts[PROMPTS_MAX];
    static struct row rows[K_ROWS];
    static struct run run;
    static int32_t plain[4096];
    const struct ft_param_table table = {k_rows, sizeof k_rows / sizeof k_rows[0]};
    struct ft_param_args args = {.argc = argc, .argv = argv, .usage = "bench_generate"};
    struct ft_err err = {0};
    if (ft_param_defaults(&table, &config, &err) != FT_OK ||
        ft_param_parse(&table, &config, &args, &err) != FT_OK) {
        fprintf(stderr, "bench_generate: %s\n", err.text);
        return 64;
    }
    if (args.help)
        return 0;
    size_t n_prompts = load_prompts(&config, prompts);
    struct ft_rpc_loop *loop;
    struct ft_rpc_client *client;
    struct ft_rpc_client_opts opts = {0};
    if (ft_rpc_loop_create(&loop, 0, &err) != FT_OK ||
        ft_rpc_client_open(&client, loop, config.endpoint, &opts, &err) != FT_OK) {
        fprintf(stderr, "bench_generate: %s\n", err.text);
        return 1;
    }
    run.arena = ft_arena_create(1 << 16, 0);
    uint64_t differing = 0;
    generate(loop, client, &config, &prompts[0], 2, &run); /* warm up */
    for (int32_t repeat = 0; repeat < config.repeats; repeat++) {
        for (size_t p = 0; p < n_prompts; p++) {
            size_t n_plain = 0;
            for (int32_t k = 0; k <= config.k_max; k++) {
                generate(loop, client, &config, &prompts[p], k, &run);
                struct row *row = &rows[k];
                if (row->n < RUNS_MAX)
                    row->speed[row->n++] = (double)(run.n_ids - 1) / run.seconds;
                row->drafted += run.spec.num_draft_tokens;
                row->accepted += run.spec.num_accepted_tokens;
                row->steps += run.spec.num_target_steps;
                row->tokens += run.n_ids - 1;
                if (k == 0) {
                    n_plain = run.n_ids;
                    memcpy(plain, run.ids, n_plain * sizeof plain[0]);
                } else if (config.temperature == 0.0 && !same_tokens(&run, plain, n_plain)) {
                    differing++;
                }
            }
        }
    }
    double base = median(rows[0].speed, rows[0].n);
    printf("%s T=%g, %zu prompts x %d, %d tokens\n", config.domain[0] ? config.domain : "all",
           config.temperature, n_prompts, config.repeats, config.max_tokens);
    printf("%3s %9s %9s %11s %12s\n", "K", "tok/s", "vs plain", "acceptance", "tokens/step");
    for (int32_t k = 0; k <= config.k_max; k++) {
        double speed = median(rows[k].speed, rows[k].n);
        printf("%3d %9.1f %8.2fx %11.3f %12.2f\n", k, speed, speed / base,
               rows[k].drafted ? (double)rows[k].accepted / (double)rows[k].drafted : 0.0,
               rows[k].steps ? (double)rows[k].tokens / (double)rows[k].steps : 0.0);
    }
    if (config.temperature == 0.0)
        printf("greedy runs whose tokens differ from plain decoding: %llu\n",
               (unsigned long long)differing);
    print_stats(client);
    ft_arena_destroy(&run.arena);
    ft_rpc_client_close(&client);
    ft_rpc_loop_destroy(&loop);
    return differing == 0 ? 0 : 1;
}
