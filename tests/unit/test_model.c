/* The model over weights built in memory: shapes that no checkpoint at hand has, against a plain
 * double-precision transformer; limits; stale and poisoned KV. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/gpu/cpu/isa.h"
#include "common/gpu/device.h"
#include "support/suite.h"
#include "unit/model_run.h"
#include "unit/naive_model.h"

#define LEN 150

static struct ft_model_config base_config(void) {
    return (struct ft_model_config){.vocab_size = 37,
                                    .hidden_size = 40,
                                    .intermediate_size = 52,
                                    .n_layers = 3,
                                    .n_heads = 4,
                                    .n_kv_heads = 2,
                                    .head_dim = 10,
                                    .max_position_embeddings = 160,
                                    .rms_norm_eps = 1e-5f,
                                    .rope_kind = FT_ROPE_DEFAULT,
                                    .rope_theta = 10000.0f,
                                    .bos_token_id = -1};
}

static struct ft_model_config odd_config(int i) {
    struct ft_model_config config = base_config();
    switch (i) {
    case 0: /* head_dim is not hidden / heads */
        config.head_dim = 24;
        break;
    case 1: /* window in the upper layers, as Qwen2 has it */
        config.sliding_window = 9;
        config.sliding_window_first_layer = 1;
        break;
    case 2: /* window in all layers, one KV head */
        config.sliding_window = 133;
        config.n_kv_heads = 1;
        break;
    case 3: /* all biases, a KV head for each head */
        config.attention_bias = config.attention_out_bias = config.mlp_bias = true;
        config.n_kv_heads = 4;
        break;
    case 4: /* norms of q and k, untied head, three queries to a KV head */
        config.qk_norm = true;
        config.n_heads = 6;
        break;
    default: /* tied head, hidden size below a vector */
        config.tie_word_embeddings = true;
        config.hidden_size = 12;
        config.vocab_size = 5;
        break;
    }
    return config;
}
#define N_ODD 6

START_TEST(dev38_forward_of_odd_shapes_matches_plain_transformer) {
    struct ft_model_config config = odd_config(_i);
    struct naive_model *naive = naive_make(&config, 77);
    int32_t tokens[LEN];
    for (int32_t i = 0; i < LEN; i++)
        tokens[i] = i * i % config.vocab_size;
    double *want = naive_logits(naive, tokens, LEN);
    const struct ft_isa *isa;
    for (size_t i = 0; (isa = ft_isa_at(i)) != NULL; i++) {
        char device[64];
        snprintf(device, sizeof device, "cpu:%s", isa->name);
        struct run run;
        run_open(&run, &(struct run_opts){.config = &config,
                                          .weights = naive_weights(naive),
                                          .device = device,
                                          .n_threads = 2,
                                          .n_seqs = 2});
        run_step(&run, 1, 0, tokens, LEN, LEN);
        for (int32_t p = 0; p < LEN; p++)
            for (int32_t t = 0; t < config.vocab_size; t++) {
                double got = (double)run_row(&run, p)[t], ref = want[p * config.vocab_size + t];
                if (!(fabs(got - ref) < 2e-4))
                    ck_abort_msg("%s: position %d logit %d is %g, not %g", device, p, t, got, ref);
            }
        run_close(&run);
    }
    free(want);
    naive_free(naive);
}
END_TEST

/* Widths that are no multiple of a vector: tails have an order of their own to keep. */
START_TEST(dev50_bits_of_odd_shapes_do_not_depend_on_chunks) {
    enum { N = 60 };
    static float want[N][37];
    struct ft_model_config config = odd_config(_i);
    struct naive_model *naive = naive_make(&config, 83);
    size_t row_bytes = (size_t)config.vocab_size * sizeof(float);
    int32_t tokens[N];
    for (int32_t i = 0; i < N; i++)
        tokens[i] = i * i % config.vocab_size;
    const struct ft_isa *isa;
    for (size_t i = 0; (isa = ft_isa_at(i)) != NULL; i++) {
        char device[64];
        snprintf(device, sizeof device, "cpu:%s", isa->name);
        struct run run;
        run_open(&run, &(struct run_opts){.config = &config,
                                          .weights = naive_weights(naive),
                                          .device = device,
                                          .n_threads = 2,
                                          .n_seqs = 2});
        run_step(&run, 0, 0, tokens, N, N);
        for (int32_t p = 0; p < N; p++)
            memcpy(want[p], run_row(&run, p), row_bytes);
        for (int32_t chunk = 1; chunk <= 7; chunk++)
            for (int32_t at = 0; at < N; at += chunk) {
                int32_t n = N - at < chunk ? N - at : chunk;
                run_step(&run, 1, at, tokens + at, n, n);
                for (int32_t p = 0; p < n; p++)
                    if (memcmp(run_row(&run, p), want[at + p], row_bytes) != 0)
                        ck_abort_msg("%s, chunks of %d: position %d differs", device, chunk,
                                     at + p);
            }
        run_close(&run);
    }
    naive_free(naive);
}
END_TEST

/* Token 7's embedding is NaN. What it leaves in the KV, and a sequence that holds it, must not
 * reach any other sequence. */
START_TEST(dev17_poisoned_sequence_does_not_touch_others) {
    struct ft_model_config config = base_config();
    struct naive_model *naive = naive_make(&config, 78);
    naive_poison(naive, 7);
    struct run run;
    run_open(&run, &(struct run_opts){.config = &config,
                                      .weights = naive_weights(naive),
                                      .device = "cpu",
                                      .n_threads = 2,
                                      .n_seqs = 2});
    int32_t clean[40], poisoned[40];
    float want[40][37];
    for (int32_t i = 0; i < 40; i++) {
        clean[i] = i % 7;
        poisoned[i] = 7;
    }
    run_step(&run, 0, 0, clean, 40, 40);
    for (int32_t i = 0; i < 40; i++)
        memcpy(want[i], run_row(&run, i), sizeof want[i]);

    struct ft_batch_seq both[] = {{run.blocks[1], 0, poisoned, 40, 1},
                                  {run.blocks[0], 0, clean, 40, 40}};
    run_batch(&run, both, 2);
    for (int32_t t = 0; t < 37; t++)
        ck_assert(isnan(run_row(&run, 0)[t]));
    for (int32_t i = 0; i < 40; i++)
        ck_assert_mem_eq(run_row(&run, 1 + i), want[i], sizeof want[i]);

    /* the same blocks again, now with NaN in every slot that is not overwritten yet */
    for (int32_t i = 0; i < 40; i++) {
        run_step(&run, 1, i, &clean[i], 1, 1);
        ck_assert_mem_eq(run_row(&run, 0), want[i], sizeof want[i]);
    }
    run_close(&run);
    naive_free(naive);
}
END_TEST

static enum ft_code open_with(struct ft_model_opts opts, struct ft_err *err) {
    struct ft_model_config config = base_config();
    struct naive_model *naive = naive_make(&config, 79);
    struct ft_model *model = NULL;
    *err = (struct ft_err){0};
    enum ft_code code = ft_model_open_weights(&model, &config, naive_weights(naive), &opts, err);
    ck_assert((code == FT_OK) == (model != NULL));
    ft_model_close(&model);
    naive_free(naive);
    return code;
}

START_TEST(dev58_open_with_bad_option_names_it) {
    const struct ft_model_opts good = {.device = "cpu",
                                       .n_threads = 1,
                                       .max_model_len = 160,
                                       .kv_bytes = 1 << 20,
                                       .max_step_tokens = 8,
                                       .max_step_rows = 8};
    struct ft_err err;
    ck_assert_int_eq(open_with(good, &err), FT_OK);
    struct {
        struct ft_model_opts opts;
        const char *names[3];
    } rows[] = {
        {good, {"max_model_len", "161", "160"}},      {good, {"max_model_len", "-1", "160"}},
        {good, {"kv_cache_bytes", "12287", "12288"}}, {good, {"max_step_tokens", "0", "1"}},
        {good, {"max_step_rows", "-5", "1"}},         {good, {"device", "tpu", "cpu"}},
        {good, {"n_threads", "257", "256"}}};
    rows[0].opts.max_model_len = 161;
    rows[1].opts.max_model_len = -1;
    /* 3 layers, 2 heads, keys and values of 16 positions, 10 padded to 16, 4 bytes */
    rows[2].opts.kv_bytes = 3 * 2 * 2 * 16 * 16 * 4 - 1;
    rows[3].opts.max_step_tokens = 0;
    rows[4].opts.max_step_rows = -5;
    rows[5].opts.device = "tpu";
    rows[6].opts.n_threads = 257;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_int_eq(open_with(rows[i].opts, &err), FT_E_PROC_CONFIG);
        for (size_t n = 0; n < 3; n++)
            ck_assert_msg(strstr(err.text, rows[i].names[n]) != NULL, "\"%s\" lacks \"%s\"",
                          err.text, rows[i].names[n]);
    }
}
END_TEST

/* One block is a pool too: it serves 16 positions. */
START_TEST(dev58_kv_of_one_block_works) {
    struct ft_model_config config = base_config();
    struct naive_model *naive = naive_make(&config, 80);
    struct ft_model_opts opts = {.device = "cpu",
                                 .n_threads = 1,
                                 .kv_bytes = 3 * 2 * 2 * 16 * 16 * 4,
                                 .max_step_tokens = 16,
                                 .max_step_rows = 1};
    struct ft_model *model = NULL;
    struct ft_err err = {0};
    ck_assert_msg(ft_model_open_weights(&model, &config, naive_weights(naive), &opts, &err) ==
                      FT_OK,
                  "%s", err.text);
    ck_assert_int_eq(ft_model_kv_blocks(model), 1);
    ck_assert_int_eq(ft_model_max_len(model), 160);
    int32_t block = 0, tokens[16] = {1, 2, 3};
    float row[48] = {0};
    struct ft_batch_seq seq = {&block, 0, tokens, 16, 1};
    ck_assert_int_eq(ft_model_forward(model, &seq, 1, row, 48, &err), FT_OK);
    ck_assert(row[0] != 0.0f && row[37] == 0.0f);
    ft_model_close(&model);
    naive_free(naive);
}
END_TEST

START_TEST(dev59_forward_past_a_limit_is_refused_and_writes_nothing) {
    struct ft_model_config config = base_config();
    struct naive_model *naive = naive_make(&config, 81);
    struct ft_model_opts opts = {.device = "cpu",
                                 .n_threads = 1,
                                 .max_model_len = 100,
                                 .kv_bytes = 7 * 3 * 2 * 2 * 16 * 16 * 4,
                                 .max_step_tokens = 20,
                                 .max_step_rows = 4};
    struct ft_model *model = NULL;
    struct ft_err err = {0};
    ck_assert_int_eq(ft_model_open_weights(&model, &config, naive_weights(naive), &opts, &err),
                     FT_OK);
    int32_t blocks[] = {0, 1, 2, 3, 4, 5, 6}, bad_blocks[] = {0, 7, 2, -1, 4, 5, 6};
    int32_t tokens[101] = {0}, bad_tokens[20] = {0, 37}, negative[20] = {-1};
    const struct {
        struct ft_batch_seq seq;
        int64_t stride;
        const char *names[2];
    } rows[] = {
        {{blocks, 0, tokens, 0, 0}, 48, {"n_tokens", "0"}},
        {{blocks, 0, tokens, 21, 1}, 48, {"21", "20"}},
        {{blocks, 0, tokens, 5, 5}, 48, {"5 rows", "4"}},
        {{blocks, 0, tokens, 2, 3}, 48, {"n_logits", "3"}},
        {{blocks, 0, tokens, 2, -1}, 48, {"n_logits", "-1"}},
        {{blocks, 90, tokens, 11, 1}, 48, {"start 90", "100"}},
        {{blocks, -1, tokens, 1, 1}, 48, {"start -1", "100"}},
        {{blocks, INT32_MAX, tokens, 1, 1}, 48, {"start 2147483647", "100"}},
        {{bad_blocks, 10, tokens, 10, 1}, 48, {"block 1 is 7", "6"}},
        {{bad_blocks + 2, 30, tokens, 1, 1}, 48, {"block 1 is -1", "6"}},
        {{blocks, 0, bad_tokens, 2, 1}, 48, {"token 1 is 37", "36"}},
        {{blocks, 0, negative, 1, 1}, 48, {"token 0 is -1", "36"}},
        {{blocks, 0, tokens, 1, 1}, 36, {"row_stride is 36", "37"}},
        {{blocks, 0, tokens, 1, 1}, 40, {"row_stride is 40", "16"}},
    };
    float out[4 * 48] = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        err = (struct ft_err){0};
        ck_assert_int_eq(ft_model_forward(model, &rows[i].seq, 1, out, rows[i].stride, &err),
                         FT_E_PROC_INTERNAL);
        for (size_t n = 0; n < 2; n++)
            ck_assert_msg(strstr(err.text, rows[i].names[n]) != NULL, "\"%s\" lacks \"%s\"",
                          err.text, rows[i].names[n]);
    }
    ck_assert_int_eq(ft_model_forward(model, NULL, 0, out, 48, &err), FT_E_PROC_INTERNAL);
    for (size_t i = 0; i < sizeof out / sizeof out[0]; i++)
        ck_assert(out[i] == 0.0f);
    ft_model_close(&model);
    naive_free(naive);
}
END_TEST

/* More positions than a tile holds, several sequences cut across tiles. */
/* A device that takes steps as one and gives the first one up, as a GPU without room does. */
static struct {
    struct ft_device_kind kind;
    struct ft_ops ops;
    const struct ft_device_kind *real;
    int32_t n_given_up, n_asked;
    bool is_lost; /* a step was given up since the last time that somebody asked */
} short_of_room;

static bool step_without_room(struct ft_device *device, const struct ft_op_step *op) {
    (void)device;
    ck_assert_int_gt(op->n_rows, 0);
    short_of_room.n_asked++;
    if (short_of_room.n_given_up > 0)
        return false;
    short_of_room.n_given_up++;
    short_of_room.is_lost = true;
    return true;
}
static bool ask_without_room(struct ft_device *device) {
    (void)device;
    bool was_lost = short_of_room.is_lost;
    short_of_room.is_lost = false;
    return was_lost;
}

START_TEST(step_that_was_given_up_is_done_again) {
    struct ft_model_config config = odd_config(0);
    struct naive_model *naive = naive_make(&config, 79);
    struct run_opts opts = {.config = &config,
                            .weights = naive_weights(naive),
                            .device = "cpu",
                            .n_threads = 2, /* rows land where operations write them */
                            .n_seqs = 2};
    static const int32_t tokens[] = {3, 1, 4, 1, 5};
    float want[64];
    struct run run;
    run_open(&run, &opts);
    run_step(&run, 1, 0, tokens, 5, 1);
    memcpy(want, run_row(&run, 0), (size_t)config.vocab_size * sizeof *want);
    run_close(&run);
    run_open(&run, &opts);
    struct ft_device *device = ft_model_device(run.model);
    short_of_room.real = device->kind;
    short_of_room.kind = *device->kind;
    short_of_room.ops = *device->kind->ops;
    short_of_room.ops.step = step_without_room;
    short_of_room.kind.ops = &short_of_room.ops;
    short_of_room.kind.gave_up = ask_without_room;
    device->kind = &short_of_room.kind;
    run_step(&run, 1, 0, tokens, 5, 1);
    device->kind = short_of_room.real;
    ck_assert_int_eq(short_of_room.n_given_up, 1);
    ck_assert_int_eq(short_of_room.n_asked, 2);
    ck_assert_mem_eq(run_row(&run, 0), want, (size_t)config.vocab_size * sizeof *want);
    run_close(&run);
    naive_free(naive);
}
END_TEST

START_TEST(steps_longer_than_a_tile_equal_short_ones) {
    struct ft_model_config config = base_config();
    config.max_position_embeddings = 700;
    struct naive_model *naive = naive_make(&config, 82);
    struct run run;
    run_open(&run, &(struct run_opts){.config = &config,
                                      .weights = naive_weights(naive),
                                      .device = "cpu",
                                      .n_threads = 2,
                                      .n_seqs = 3,
                                      .max_step_tokens = 2100});
    static int32_t tokens[3][700];
    static float want[3][37];
    for (int32_t s = 0; s < 3; s++) {
        for (int32_t i = 0; i < 700; i++)
            tokens[s][i] = (i * (s + 3) + i / 5) % 37;
        for (int32_t i = 0; i < 700; i += 100)
            run_step(&run, s, i, tokens[s] + i, 100, i == 600);
        memcpy(want[s], run_row(&run, 0), sizeof want[s]);
    }
    struct ft_batch_seq seqs[3];
    for (int32_t s = 0; s < 3; s++)
        seqs[s] = (struct ft_batch_seq){run.blocks[s], 0, tokens[s], 700, 1};
    run_batch(&run, seqs, 3);
    for (int32_t s = 0; s < 3; s++)
        ck_assert_mem_eq(run_row(&run, s), want[s], sizeof want[s]);
    run_close(&run);
    naive_free(naive);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("model");
    TCase *tcase = tcase_create("model");
    tcase_add_loop_test(tcase, dev38_forward_of_odd_shapes_matches_plain_transformer, 0, N_ODD);
    tcase_add_loop_test(tcase, dev50_bits_of_odd_shapes_do_not_depend_on_chunks, 0, N_ODD);
    tcase_add_test(tcase, dev17_poisoned_sequence_does_not_touch_others);
    tcase_add_test(tcase, dev58_open_with_bad_option_names_it);
    tcase_add_test(tcase, dev58_kv_of_one_block_works);
    tcase_add_test(tcase, dev59_forward_past_a_limit_is_refused_and_writes_nothing);
    tcase_add_test(tcase, step_that_was_given_up_is_done_again);
    tcase_add_test(tcase, steps_longer_than_a_tile_equal_short_ones);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
