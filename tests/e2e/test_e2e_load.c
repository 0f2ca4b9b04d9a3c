/* Load: more requests than places and KV. Whatever else is running, a text is the one that its
 * request has alone, and everything that was taken is given back. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/gpu/ops.h"
#include "common/model/config.h"
#include "common/wire/health.h"
#include "common/wire/reflection.h"
#include "common/wire/vllm_engine.h"
#include "support/cluster.h"
#include "support/fixtures.h"
#include "support/suite.h"

enum { KINDS = 24, STREAMS = 64, PROMPT_MAX = 900, PRESSED = 6, LONG = 4 };

static struct cluster g_cluster;
static struct gen g_solo[KINDS], g_gens[STREAMS];
static int g_kind[STREAMS];
static uint32_t g_state = 1;

static uint32_t below(uint32_t n) {
    g_state = g_state * 1664525u + 1013904223u;
    return (g_state >> 8) % n;
}

/* Greedy, with prompt i: those of a pair start alike. */
static struct ft_wire_generate greedy_of(int i, int32_t n_prompt, uint32_t max_tokens) {
    static int32_t ids[KINDS][PROMPT_MAX];
    uint32_t h = (uint32_t)(i / 2) * 2654435761u;
    for (int32_t j = 0; j < n_prompt; j++) {
        h = h * 1664525u + 1013904223u;
        ids[i][j] = (int32_t)(h >> 24);
    }
    struct ft_wire_generate request = gen_request();
    request.input.kind = FT_WIRE_INPUT_IDS;
    request.input.ids = ids[i];
    request.input.n_ids = (size_t)n_prompt;
    request.params.has_max_tokens = true;
    request.params.max_tokens = max_tokens;
    request.params.ignore_eos = true;
    return request;
}

/* Request kind i: greedy, or sampled with a seed and without drafts, so that its text is known as
 * well. */
static struct ft_wire_generate request_of(int i, int32_t n_prompt, uint32_t max_tokens) {
    struct ft_wire_generate request = greedy_of(i, n_prompt, max_tokens);
    if (i % 4 == 3) {
        request.params.temperature = 1.0f;
        request.params.has_seed = true;
        request.params.seed = (uint64_t)i;
        request.num_speculative_tokens = 0;
    }
    return request;
}

static void require_solo(const struct gen *gen, int kind) {
    ck_assert_msg(gen->status.code == 0, "kind %d: %s", kind, gen->status.text);
    ck_assert_uint_eq(gen->n_ids, g_solo[kind].n_ids);
    ck_assert_msg(memcmp(gen->ids, g_solo[kind].ids, gen->n_ids * sizeof gen->ids[0]) == 0,
                  "kind %d: another text than alone", kind);
    ck_assert(ft_str_eq(ft_buf_str(&gen->text), ft_buf_str(&g_solo[kind].text)));
}

/* r7 takes 1 KiB a position: 38 blocks of 16 are one and a half requests of 400 positions. */
START_TEST(dev09_pool_of_one_and_a_half_requests_completes_everything) {
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("r7"),
        .draft_dir = ft_fixture_model("r7n"),
        .args = {{"--kv_cache_bytes=608Ki"}, {"--kv_cache_bytes=608Ki"}},
    };
    cluster_start(&g_cluster, &opts);
    struct gen *all[PRESSED];
    for (int i = 0; i < PRESSED; i++) {
        struct ft_wire_generate request = request_of(i, 200, 200);
        gen_run(&g_cluster, &request, &g_solo[i]);
        ck_assert_msg(g_solo[i].status.code == 0, "%s", g_solo[i].status.text);
    }
    ck_assert_uint_eq(cluster_stats(&g_cluster).num_preemptions_total, 0);
    for (int i = 0; i < PRESSED; i++) {
        struct ft_wire_generate request = request_of(i, 200, 200);
        all[i] = &g_gens[i];
        gen_start(&g_cluster, &request, all[i]);
    }
    gen_wait(&g_cluster, all, PRESSED);
    for (int i = 0; i < PRESSED; i++) {
        require_solo(all[i], i);
        gen_fini(all[i]);
        gen_fini(&g_solo[i]);
    }
    ck_assert_uint_gt(cluster_stats(&g_cluster).num_preemptions_total, 0);
    cluster_require_idle(&g_cluster);
    cluster_stop(&g_cluster);
}
END_TEST

/* Slots of 448 positions: three in the target's pool, one in the draft's, for six requests whose
 * text is known from blocks. */
START_TEST(dev09_slots_give_the_text_of_blocks_under_pressure) {
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("r7"),
        .draft_dir = ft_fixture_model("r7n"),
    };
    cluster_start(&g_cluster, &opts);
    for (int i = 0; i < PRESSED; i++) {
        struct ft_wire_generate request = request_of(i, 200, 200);
        gen_run(&g_cluster, &request, &g_solo[i]);
        ck_assert_msg(g_solo[i].status.code == 0, "%s", g_solo[i].status.text);
    }
    cluster_stop(&g_cluster);
    for (int role = CLUSTER_TARGET; role <= CLUSTER_DRAFT; role++) {
        opts.args[role][0] =
            role == CLUSTER_TARGET ? "--kv_cache_bytes=1500Ki" : "--kv_cache_bytes=672Ki";
        opts.args[role][1] = "--kv_layout=slotted";
        opts.args[role][2] = "--enable_prefix_caching=false";
        opts.args[role][3] = "--max_model_len=448";
    }
    cluster_start(&g_cluster, &opts);
    struct gen *all[PRESSED];
    for (int i = 0; i < PRESSED; i++) {
        struct ft_wire_generate request = request_of(i, 200, 200);
        all[i] = &g_gens[i];
        gen_start(&g_cluster, &request, all[i]);
    }
    gen_wait(&g_cluster, all, PRESSED);
    uint64_t n_accepted = 0;
    for (int i = 0; i < PRESSED; i++) {
        require_solo(all[i], i);
        n_accepted += all[i]->spec.num_accepted_tokens;
        gen_fini(all[i]);
        gen_fini(&g_solo[i]);
    }
    ck_assert_uint_gt(n_accepted, 0);
    struct ft_wire_stats s = cluster_stats(&g_cluster);
    ck_assert_uint_eq(s.target.kv_blocks_total, 3);
    ck_assert_uint_eq(s.draft.kv_blocks_total, 1);
    ck_assert_uint_eq(s.num_preemptions_total, 0);
    cluster_require_idle(&g_cluster);
    cluster_stop(&g_cluster);
}
END_TEST

/* Target steps until the first token of a prompt of 20, beside n_long prompts of 900 that began
 * before it; -1 when those were done first, as happens where this client gets no processor. */
static int64_t steps_to_first_token(int n_long) {
    struct ft_wire_generate request = request_of(0, 20, 1);
    struct gen *all[1 + LONG];
    for (int i = 0; i <= n_long; i++)
        all[i] = &g_gens[i];
    for (int i = 1; i <= n_long; i++) {
        struct ft_wire_generate longest = request_of(2 * i, PROMPT_MAX, 1);
        gen_start(&g_cluster, &longest, all[i]);
    }
    uint64_t before = cluster_stats(&g_cluster).target.steps;
    gen_run(&g_cluster, &request, all[0]);
    uint64_t after = cluster_stats(&g_cluster).target.steps;
    bool beside = n_long == 0;
    for (int i = 1; i <= n_long; i++)
        beside = beside || !all[i]->done;
    gen_wait(&g_cluster, all, (size_t)n_long + 1);
    for (int i = 0; i <= n_long; i++) {
        ck_assert_msg(all[i]->status.code == 0, "%s", all[i]->status.text);
        gen_fini(all[i]);
    }
    return beside ? (int64_t)(after - before) : -1;
}

START_TEST(short_request_beside_long_prefills_waits_at_most_two_steps) {
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("r7"),
        .args = {[CLUSTER_COORDINATOR] = {"--max_num_batched_tokens=64"},
                 [CLUSTER_TARGET] = {"--enable_prefix_caching=false"}},
    };
    cluster_start(&g_cluster, &opts);
    int64_t alone = steps_to_first_token(0);
    ck_assert_int_eq(alone, 1);
    /* Steps go by while statistics and request are on their way, more of them on a busy machine:
     * the least of some trials is what the scheduler does. The long ones take 57 steps. */
    int64_t least = INT64_MAX;
    for (int trial = 0; trial < 40 && least > alone + 2 + 2; trial++) {
        int64_t beside = steps_to_first_token(LONG);
        least = beside >= 0 && beside < least ? beside : least;
    }
    ck_assert_msg(least <= alone + 2 + 2, "%lld target steps", (long long)least);
    cluster_stop(&g_cluster);
}
END_TEST

/* While the coordinator counts the long prompt as waiting, which is while a thread tokenizes it, it
 * answers and streams go on. */
START_TEST(streams_go_on_while_a_long_text_is_tokenized) {
    enum { TEXT = 1000000, STREAM_TOKENS = 900, TRIALS = 5 };
    struct cluster_opts opts = {.target_dir = ft_fixture_model("r7")};
    static char text[TEXT + 1];
    memset(text, 'x', TEXT);
    for (int i = 5; i < TEXT; i += 6)
        text[i] = ' ';
    cluster_start(&g_cluster, &opts);
    int n_answers = 0;
    uint64_t n_tokens = 0;
    /* Again when the text was done before anybody could look. */
    for (int trial = 0; trial < TRIALS && (n_answers < 3 || n_tokens < 3); trial++) {
        struct gen *all[2] = {&g_gens[0], &g_gens[1]};
        struct ft_wire_generate stream = request_of(0, 1, STREAM_TOKENS);
        struct ft_wire_generate lengthy = gen_text(text, 1, 0);
        uint64_t first = 0;
        lengthy.params.has_truncate_prompt_tokens = true;
        lengthy.params.truncate_prompt_tokens = 5;
        stream.num_speculative_tokens = 0;
        stream.stream = false; /* this process has statistics to read */
        gen_start(&g_cluster, &stream, all[0]);
        gen_start(&g_cluster, &lengthy, all[1]);
        while (!all[1]->done) {
            struct ft_wire_stats s = cluster_stats(&g_cluster);
            if (all[0]->done) { /* it was over before the text had arrived, or was read */
                ck_assert_msg(all[0]->status.code == 0, "%s", all[0]->status.text);
                gen_fini(all[0]);
                gen_start(&g_cluster, &stream, all[0]);
            }
            if (s.num_requests_waiting == 0)
                continue;
            first = n_answers++ == 0 ? s.generation_tokens_total : first;
            n_tokens = s.generation_tokens_total - first;
        }
        gen_wait(&g_cluster, all, 2);
        for (int i = 0; i < 2; i++) {
            ck_assert_msg(all[i]->status.code == 0, "%s", all[i]->status.text);
            gen_fini(all[i]);
        }
    }
    ck_assert_int_ge(n_answers, 3);
    ck_assert_uint_ge(n_tokens, 3);
    cluster_stop(&g_cluster);
}
END_TEST

/* ---- soak ----------------------------------------------------------------------------------- */

/* Bytes that the coordinator has in memory. */
static uint64_t coordinator_bytes(void) {
    char path[64];
    unsigned long long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)g_cluster.pids[CLUSTER_COORDINATOR]);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%*u %llu", &pages), 1);
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

enum { SOAK_TOKENS = 40, TARGET_POSITIONS = 12288, DRAFT_POSITIONS = 8192 };

static void sample_coupled(struct ft_wire_generate *request, int i) {
    request->params.temperature = 1.0f;
    request->params.has_seed = true;
    request->params.seed = 1000 + (uint64_t)i;
    request->spec.rejection_sample_method = ft_str_c("coupled");
}

static void penalize(struct ft_wire_generate *request) {
    request->params.has_repetition_penalty = true;
    request->params.repetition_penalty = 1.2f;
    request->params.presence_penalty = 0.5f;
    request->params.frequency_penalty = 0.3f;
}

/* Kind i of the soak: prompts of 1 to PROMPT_MAX tokens and eight mixtures of parameters, each with
 * one text whatever is drafted: greedy, `coupled`, or (alone of them) without drafts. */
static struct ft_wire_generate soak_request(int i) {
    static const int32_t stop_id = 101, banned[] = {32, 101, 110};
    static const struct ft_bias bias[] = {{97, 2.0f}, {120, -100.0f}};
    struct ft_wire_generate request =
        greedy_of(i, 1 + (PROMPT_MAX - 1) * i / (KINDS - 1), SOAK_TOKENS);
    struct ft_wire_params *p = &request.params;
    if (i % 8 >= 4)
        sample_coupled(&request, i);
    switch (i % 8) {
    case 1:
        penalize(&request);
        break;
    case 2:
        p->has_logprobs = true;
        p->logprobs = 3;
        p->min_tokens = 10;
        p->stop_token_ids = &stop_id;
        p->n_stop_token_ids = 1;
        p->ignore_eos = false;
        break;
    case 3:
        sample_coupled(&request, i);
        request.spec.rejection_sample_method = ft_str_c("standard");
        request.num_speculative_tokens = 0;
        break;
    case 4:
        p->has_top_p = true;
        p->top_p = 0.9f;
        break;
    case 5:
        penalize(&request);
        p->top_k = 40;
        p->logit_bias = bias;
        p->n_logit_bias = 2;
        break;
    case 6:
        p->min_p = 0.05f;
        p->banned_token_ids = banned;
        p->n_banned_token_ids = 3;
        break;
    default:
        break;
    }
    return request;
}

static void start_stream(int slot) {
    int kind = g_kind[slot] = (int)below(KINDS);
    struct ft_wire_generate request = soak_request(kind);
    if (kind % 8 != 3)
        request.num_speculative_tokens = below(9);
    request.stream = below(4) != 0;
    request.priority = below(8) == 0 ? (int32_t)below(3) - 1 : 0;
    request.params.has_n = below(10) == 0; /* the first of them has the text of one alone */
    request.params.n = 2;
    g_gens[slot].cancel_after = request.stream && below(12) == 0 ? 1 + below(20) : 0;
    gen_start(&g_cluster, &request, &g_gens[slot]);
}

static void end_stream(int slot) {
    struct gen *gen = &g_gens[slot];
    if (gen->status.code != 1 || gen->cancel_after == 0)
        require_solo(gen, g_kind[slot]);
    gen_fini(gen);
}

/* Keep STREAMS streams running until until_ns; returns how many ended. */
static int run_load(int64_t until_ns) {
    int n_ended = 0, n_running = STREAMS;
    for (int i = 0; i < STREAMS; i++)
        start_stream(i);
    while (n_running > 0) {
        ft_rpc_loop_step(g_cluster.loop, ft_clock_now_ns() + 100000000);
        bool more = ft_clock_now_ns() < until_ns;
        ck_assert_msg(ft_clock_now_ns() < until_ns + 120000000000, "streams do not end");
        for (int i = 0; i < STREAMS; i++) {
            if (g_kind[i] < 0 || !g_gens[i].done)
                continue;
            end_stream(i);
            n_ended++;
            if (more) {
                start_stream(i);
            } else {
                g_kind[i] = -1;
                n_running--;
            }
        }
    }
    return n_ended;
}

/* "--kv_cache_bytes=..." for so many positions of the model. */
static const char *kv_arg(const char *model_dir, int64_t n_positions) {
    static char args[CLUSTER_ROLES][64];
    static int n_args;
    struct ft_model_config config;
    struct ft_err err = {0};
    ck_assert_msg(ft_model_config_load(model_dir, &config, &err) == FT_OK, "%s", err.text);
    int64_t bytes = ft_kv_block_floats(config.n_kv_heads, config.head_dim) * config.n_layers *
                    (int64_t)sizeof(float) * n_positions / FT_OPS_KV_BLOCK;
    char *arg = args[n_args++ % CLUSTER_ROLES];
    snprintf(arg, sizeof args[0], "--kv_cache_bytes=%lld", (long long)bytes);
    return arg;
}

/* The bench pair where it is at hand. */
static void start_soak(void) {
    static char dirs[2][512];
    const char *models = getenv("FORETOKEN_BENCH_MODELS");
    for (int i = 0; i < 2; i++)
        snprintf(dirs[i], sizeof dirs[i], "%s/%s", models != NULL ? models : "",
                 i == 0 ? "bench-target" : "bench-draft");
    struct cluster_opts opts = {
        .target_dir = models != NULL ? dirs[0] : ft_fixture_model("r7"),
        .draft_dir = models != NULL ? dirs[1] : ft_fixture_model("r7n"),
    };
    /* Room for a third of the streams in the target's pool, for fewer in the draft's. */
    opts.args[CLUSTER_TARGET][0] = kv_arg(opts.target_dir, TARGET_POSITIONS);
    opts.args[CLUSTER_DRAFT][0] = kv_arg(opts.draft_dir, DRAFT_POSITIONS);
    fprintf(stderr, "soak of %s and %s\n", opts.target_dir, opts.draft_dir);
    /* A pool that grows by its first use of a huge page, late, is no leak. */
    ck_assert_int_eq(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
    cluster_start(&g_cluster, &opts);
}

/* Memory of a pool is the process's once it was used, which preemption says of the target's: loads
 * of a few seconds until none makes a worker grow any more. */
static void warm_up(int64_t seconds) {
    enum { LOADS = 20 };
    struct ft_wire_stats before, after = cluster_stats(&g_cluster);
    int n = 0;
    do {
        ck_assert_msg(n++ < LOADS, "the target still grows, to %llu KiB, or the draft, to %llu KiB",
                      (unsigned long long)after.target.resident_bytes / 1024,
                      (unsigned long long)after.draft.resident_bytes / 1024);
        before = after;
        run_load(ft_clock_now_ns() + (seconds > 0 ? seconds : 1) * 1000000000);
        cluster_require_idle(&g_cluster);
        after = cluster_stats(&g_cluster);
    } while (after.num_preemptions_total == 0 ||
             after.target.resident_bytes > before.target.resident_bytes + (1 << 20) ||
             after.draft.resident_bytes > before.draft.resident_bytes + (1 << 20));
}

static void require_flat(const char *who, uint64_t before, uint64_t after) {
    /* A leak of a request's tokens alone, 4 KiB each, would show within a thousand requests. */
    const uint64_t slack = 4 << 20;
    fprintf(stderr, "%s: %llu KiB after the warm-up, %llu KiB at the end\n", who,
            (unsigned long long)before / 1024, (unsigned long long)after / 1024);
    ck_assert_msg(after <= before + slack, "%s grew from %llu to %llu bytes", who,
                  (unsigned long long)before, (unsigned long long)after);
}

START_TEST(dev41_sixty_four_clients_get_their_solo_text_and_leave_nothing) {
    const char *text = getenv("FORETOKEN_SOAK_SECONDS");
    int64_t seconds = text != NULL ? atoi(text) : 15;
    start_soak();
    for (int i = 0; i < KINDS; i++) {
        struct ft_wire_generate request = soak_request(i);
        request.num_speculative_tokens = 0;
        gen_run(&g_cluster, &request, &g_solo[i]);
        ck_assert_msg(g_solo[i].status.code == 0, "kind %d: %s", i, g_solo[i].status.text);
    }
    warm_up(seconds / 10);
    struct ft_wire_stats before = cluster_stats(&g_cluster);
    uint64_t bytes_before = coordinator_bytes();
    int n_ended = run_load(ft_clock_now_ns() + seconds * 1000000000);
    cluster_require_idle(&g_cluster);
    struct ft_wire_stats after = cluster_stats(&g_cluster);
    fprintf(stderr, "%d requests in %lld s, %llu tokens, %llu preemptions, %llu of %llu accepted\n",
            n_ended, (long long)seconds,
            (unsigned long long)(after.generation_tokens_total - before.generation_tokens_total),
            (unsigned long long)after.num_preemptions_total,
            (unsigned long long)after.num_accepted_tokens_total,
            (unsigned long long)after.num_draft_tokens_total);
    ck_assert_int_ge(n_ended, STREAMS);
    ck_assert_uint_gt(after.num_preemptions_total, 0);
    ck_assert_uint_gt(after.num_accepted_tokens_total, 0);
    ck_assert_uint_eq(after.num_requests_failed, 0);
    require_flat("coordinator", bytes_before, coordinator_bytes());
    require_flat("target", before.target.resident_bytes, after.target.resident_bytes);
    require_flat("draft", before.draft.resident_bytes, after.draft.resident_bytes);
    for (int i = 0; i < KINDS; i++)
        gen_fini(&g_solo[i]);
    cluster_stop(&g_cluster);
}
END_TEST

/* ---- more calls than a server takes by itself ------------------------------------------------ */

static int g_n_refused; /* RESOURCE_EXHAUSTED */

static void crowd_message(void *user, struct ft_str message) {
    (void)user;
    (void)message;
}

static void crowd_done(void *user, const struct ft_rpc_status *status) {
    (void)user;
    g_n_refused += status->code == 8;
}

static void open_crowd(const char *path, struct ft_str message, int n) {
    static const struct ft_rpc_stream_handlers handlers = {.on_message = crowd_message,
                                                           .on_done = crowd_done};
    struct ft_err err = {0};
    g_n_refused = 0;
    for (int i = 0; i < n; i++) {
        struct ft_rpc_stream *stream = NULL;
        ck_assert_msg(ft_rpc_stream_open(&stream, g_cluster.client, path, NULL, &handlers, NULL,
                                         &err) == FT_OK,
                      "%s", err.text);
        if (message.len > 0)
            ck_assert_int_eq(ft_rpc_stream_send(stream, message), FT_OK);
    }
}

static int ask(const char *path) {
    return ft_rpc_client_unary_sync(g_cluster.client, path, ft_str_c(""), NULL, NULL).code;
}

START_TEST(queue_holds_as_many_calls_as_it_says) {
    enum { CALLS = 4200 };
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("r7"),
        .args = {[CLUSTER_COORDINATOR] = {"--max_num_seqs=1", "--max_queue=8192"}},
    };
    cluster_start(&g_cluster, &opts);
    cluster_signal(&g_cluster, CLUSTER_TARGET, SIGSTOP); /* none of them ends */
    struct ft_wire_generate request = greedy_of(0, 20, 900);
    struct ft_buf message;
    ft_buf_init(&message, 0);
    ft_wire_encode_generate(&request, &message);
    open_crowd(FT_WIRE_INFERENCE_SERVICE "Generate", ft_buf_str(&message), CALLS);
    int64_t until_ns = ft_clock_now_ns() + 60000000000;
    while (cluster_stats(&g_cluster).num_requests_waiting < CALLS - 1) {
        ck_assert_int_eq(g_n_refused, 0);
        ck_assert(ft_clock_now_ns() < until_ns);
    }
    ft_rpc_client_close(&g_cluster.client);
    cluster_signal(&g_cluster, CLUSTER_TARGET, SIGCONT);
    ft_buf_fini(&message);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(health_and_admin_answer_where_no_call_has_a_place_any_more) {
    enum { CALLS = 4096 + 1 };
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("r7"),
        .args = {[CLUSTER_COORDINATOR] = {"--max_num_seqs=1", "--max_queue=0"}},
    };
    cluster_start(&g_cluster, &opts);
    open_crowd(FT_WIRE_REFLECTION_SERVICE "ServerReflectionInfo", ft_str_c(""), CALLS);
    int64_t until_ns = ft_clock_now_ns() + 60000000000;
    while (ask(FT_WIRE_INFERENCE_SERVICE "GetModelInfo") != 8)
        ck_assert(ft_clock_now_ns() < until_ns);
    ck_assert_int_eq(ask(FT_WIRE_HEALTH_SERVICE "Check"), 0);
    ck_assert_int_eq(ask(FT_WIRE_VLLM_SERVICE "HealthCheck"), 0);
    ck_assert_int_eq(ask(FT_WIRE_ADMIN_SERVICE "GetHealth"), 0);
    ck_assert_int_eq(ask(FT_WIRE_ADMIN_SERVICE "GetStats"), 0);
    ck_assert_int_eq(ask(FT_WIRE_ADMIN_SERVICE "ListRequests"), 0);
    ck_assert_int_eq(ask(FT_WIRE_INFERENCE_SERVICE "GetModelInfo"), 8);
    ft_rpc_client_close(&g_cluster.client);
    cluster_stop(&g_cluster);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("e2e_load");
    TCase *tc = tcase_create("load");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, dev09_pool_of_one_and_a_half_requests_completes_everything);
    tcase_add_test(tc, dev09_slots_give_the_text_of_blocks_under_pressure);
    tcase_add_test(tc, streams_go_on_while_a_long_text_is_tokenized);
    tcase_add_test(tc, short_request_beside_long_prefills_waits_at_most_two_steps);
    suite_add_tcase(suite, tc);
    TCase *crowd = tcase_create("crowd");
    tcase_set_timeout(crowd, 300);
    tcase_add_test(crowd, queue_holds_as_many_calls_as_it_says);
    tcase_add_test(crowd, health_and_admin_answer_where_no_call_has_a_place_any_more);
    suite_add_tcase(suite, crowd);
    TCase *soak = tcase_create("soak");
    tcase_set_timeout(soak, 7200);
    tcase_add_test(soak, dev41_sixty_four_clients_get_their_solo_text_and_leave_nothing);
    suite_add_tcase(suite, soak);
    return suite_run(suite);
}
